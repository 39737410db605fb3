"""Which part of the work an op path belongs to, and what happens there in plain words."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["PARTS", "OpPlace", "in_words", "part_of", "say", "token_of"]

PARTS = (
    "attention",
    "feed-forward",
    "predictor",
    "indexing",
    "refill",
    "non-linear",
    "embedding, head",
    "input, output",
    "dealing",
    "weights, seeds",
)
"""Where cost goes; each op path belongs to one of them."""

_CODE = {name: i for i, name in enumerate(PARTS)}
_ACTIVATIONS = frozenset({"relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"})
_NON_LINEAR = frozenset({"norm", "softmax"}) | _ACTIVATIONS
_FIRST = {
    "weights": "weights, seeds",
    "seeds": "weights, seeds",
    "corrections": "dealing",
}
# The first of these that a path has decides: a comparison of the predictor is the predictor's.
_ORDER = (
    ("refill", frozenset({"refill", "lookahead"})),
    ("predictor", frozenset({"predictor", "privacy"})),
    ("indexing", frozenset({"indexing", "order"})),
    ("non-linear", _NON_LINEAR),
    ("attention", frozenset({"attention"})),
    ("feed-forward", frozenset({"ffn"})),
    ("embedding, head", frozenset({"embedding", "head"})),
)


class OpPlace(NamedTuple):
    """Where in the program an op path lies."""

    token: int | None
    layer: int | None
    rest: tuple[str, ...]

    @classmethod
    def of(cls, path: str) -> OpPlace:
        """Read an op path such as `token0/layer3/ffn/relu`."""
        token = layer = None
        rest: list[str] = []
        for name in path.split("/"):
            if token is None and not rest and name.startswith("token") and name[5:].isdigit():
                token = int(name[5:])
            elif layer is None and name.startswith("layer") and name[5:].isdigit():
                layer = int(name[5:])
            else:
                rest.append(name)
        return cls(token, layer, tuple(rest))


def part_of(path: str) -> int:
    """Return the number of the part in `PARTS` that an op path belongs to."""
    names = path.split("/")
    first = _FIRST.get(names[0])
    if first is not None:
        return _CODE[first]
    for part, marks in _ORDER:
        if not marks.isdisjoint(names):
            return _CODE[part]
    return _CODE["input, output"]


def token_of(path: str) -> int:
    """Return the output token an op path works for, -1 for none."""
    token = OpPlace.of(path).token
    return -1 if token is None else token


_STEPS = {
    "qkv": "multiply by the weights of queries, keys and values",
    "scores": "multiply queries with keys: how much each token looks at each other",
    "values": "weigh the values with the attention",
    "output": "multiply by attention's output weights",
    "fc1": "multiply by the feed-forward's first weights",
    "gate_up": "multiply by the feed-forward's first weights",
    "fc2": "multiply by the feed-forward's second weights",
    "down": "multiply by the feed-forward's second weights",
    "product": "multiply the gate with the values it lets through",
    "logits": "score every word of the vocabulary",
    "embedding": "look up the embedding of each token, without learning which",
    "refill": "fill holes of the KV cache: keys and values skipped before that are needed now",
    "lookahead": "fill likely holes of the next layer's KV cache ahead of time",
    "low_rank": "guess which {what} matter, by two small products",
    "threshold": "compare the guesses with a threshold, still hidden",
    "privacy": "flip some bits in secret, so that the revealed count is noisy",
    "shuffle": "put tokens into a secret order",
    "unshuffle": "put tokens back into their own order",
    "indexing": "open which {what} are active, in a secret order",
    "order": "put {what} into a secret order that neither of them knows",
}
_FUNCTIONS = {
    "norm": "normalisation",
    "softmax": "softmax",
    "relu": "ReLU",
    "gelu": "GELU",
    "gelu_tanh": "GELU",
    "silu": "SiLU",
    "sigmoid": "sigmoid",
    "tanh": "tanh",
}
_DETAILS = {
    "ltz": "a comparison, bit by bit",
    "eq": "an equality test, bit by bit",
    "exp": "an exponential, by squaring",
    "rsqrt": "an inverse square root, by Newton steps",
    "reciprocal": "a reciprocal, by Newton steps",
    "max": "the largest score",
    "pick": "pick the larger of two",
    "normalise": "the final division",
}


def say(path: str, sender: str, receiver: str) -> str:
    """Return what the message of an op path is about, in a plain sentence without its full stop."""
    place = OpPlace.of(path)
    names = place.rest
    first = names[0] if names else ""
    who, whom = in_words(sender), in_words(receiver)
    if first == "weights":
        about = "/".join(names[1:]) or "all weights"
        return f"{who} sends {whom} its share of {about}{_where(place)}: random-looking numbers"
    if first == "seeds":
        return f"{who} sends {whom} a seed, from which both can make the same random numbers"
    if first == "corrections":
        return f"{who} sends {whom} corrections: dealt randomness that cannot come from a seed"
    if first == "input":
        return f"{who} sends {whom} a share of the prompt or the last token"
    if first == "reveal":
        return f"{who} sends {whom} its share of the scores of all words"
    if not (sender.startswith("server") and receiver.startswith("server")):
        return f"{who} sends {whom} a message for {path or 'the run'}"
    return f"the servers open masked numbers to {_step(names)}{_where(place)}"


def _step(names: tuple[str, ...]) -> str:
    what = "heads" if "attention" in names or "heads" in names else "neurons"
    marks = (
        "privacy",
        "shuffle",
        "unshuffle",
        "low_rank",
        "threshold",
        "lookahead",
        "refill",
        "indexing",
        "order",
    )
    for mark in marks:
        if mark in names:
            return _STEPS[mark].format(what="the cache" if names[-1] == "cache" else what)
    for name in names:
        if name in _FUNCTIONS:
            detail = next((_DETAILS[each] for each in reversed(names) if each in _DETAILS), None)
            block = (
                f" before {'attention' if 'attention' in names else 'the feed-forward'}"
                if name == "norm"
                else ""
            )
            block = " at the end" if name == "norm" and "head" in names else block
            return f"compute {_FUNCTIONS[name]}{block}{f' ({detail})' if detail else ''}"
    for name in reversed(names):
        if name in _STEPS:
            return _STEPS[name].format(what=what)
    return f"compute {names[-1]}" if names else "compute"


def _where(place: OpPlace) -> str:
    layer = "" if place.layer is None else f", layer {place.layer}"
    return layer + ("" if place.token is None else f", output token {place.token}")


def in_words(party: str) -> str:
    """Return a party's name as it stands in a sentence."""
    if party.startswith("server"):
        return f"server {party.removeprefix('server')}"
    return f"the {party}"
