"""Contract: traffic and dealt randomness equal what real CrypTen 0.4.1 was measured to need, row by row."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from comet_sim.baselines import SUITES
from comet_sim.baselines.crypten import CRYPTEN
from comet_sim.events import Names, Phase
from comet_sim.models.cache import KVCache
from comet_sim.models.config import ModelConfig
from comet_sim.models.decoder import Layout, PrivateDecoder
from comet_sim.models.demo import load_demo
from comet_sim.models.devices import DEVICES
from comet_sim.models.tensors import shapes as weight_shapes
from comet_sim.mpc import activations, beaver, compare, elementary, functions, maximum, ring
from comet_sim.mpc.settings import CRYPTEN_WAY, Iterations, Variants
from comet_sim.mpc.truncation import scaled
from comet_sim.network.profiles import load_profile
from comet_sim.roles.plan import Plan
from comet_sim.simulation.stage import PARTIES, Inference, play
from comet_sim.testing import Bits, Integers, Public, run_protocol
from comet_sim.trace import Filter, Recorder, Trace, rounds

DATA = Path(__file__).parents[1] / "data"
ROWS = json.loads((DATA / "crypten_ops.json").read_text())["rows"]
TABLE = json.loads((DATA / "crypten_opt_demo.json").read_text())["rows"]
STEPS = Iterations()

# Rows measured on what is no operation here. A row of anything else must be compared, so that an op cannot drop
# out of the contract unnoticed.
NOT_BUILT = {
    "share": "no traffic between servers; here the owner and the user share, in their own phases",
    "share_broadcast_size": "a pickled shape; here shapes are part of the public program and never sent",
}
APART = {"decoder_block", "reveal_dst0"}  # compared by tests of their own


def normal(*shape):
    return np.random.default_rng(0).normal(size=shape)


async def reveal(s, x):
    return (await s.open(x))[0]


async def softmax(s, x, v=CRYPTEN_WAY):
    return await functions.softmax(s, x, None, STEPS, v)


async def log_softmax(s, x, v):
    return await functions.log_softmax(s, x, STEPS, v)


async def layer_norm(s, x, weight, bias):
    return await functions.layer_norm(s, x, weight, bias, exponent=0, epsilon=1e-5, n=STEPS)


async def compare_and_choose(s, x, y):
    """What CrypTen's `where` was measured with: the condition is a comparison made for it."""
    return await compare.where(s, await compare.less_than_zero(s, x), x, y)


async def attention_head(s, q, k, v):
    scores = s.truncate(await beaver.matmul(s, q, k.swapaxes(0, 1)))
    return s.truncate(await beaver.matmul(s, await softmax(s, scores), v))


async def public_product(s, x, weight):
    return s.truncate(s.ops.matmul(x, s.ops.public(weight)))


async def public_ops(s, x):
    """Every local operation: none may send anything."""
    x = s.add_public(x + x, s.constant(0.5)) - (await scaled(s, x, 0.3))
    x = s.divide(s.truncate(x * 3), 3)
    return s.ops.sum(x, 0)


def stepped(function, *more):
    """Return a program of a function that takes iteration counts, and choices perhaps, after its operands."""

    async def program(s, *operands):
        return await function(s, *operands, STEPS, *more)

    return program


# The rows of erf are CrypTen's defective one: they bound the cost of the right one that sums the same series.
ELEMENTWISE = {
    "reveal": reveal, "square": beaver.square, "A2B": compare.arithmetic_to_bits,
    "ltz": compare.less_than_zero, "ge": compare.less_than_zero, "sign": compare.sign,
    "relu": compare.relu, "abs": compare.absolute, "hardtanh": compare.hardtanh,
    "exp": stepped(functions.exp), "log": stepped(functions.log),
    "reciprocal_allpos": stepped(functions.reciprocal), "inv_sqrt": stepped(functions.inverse_sqrt),
    "reciprocal": stepped(elementary.signed_reciprocal), "sqrt": stepped(elementary.square_root),
    "cossin": stepped(elementary.cos_sin), "sigmoid": stepped(activations.sigmoid),
    "tanh": stepped(activations.tanh), "tanh_chebyshev": stepped(activations.tanh, Variants(tanh="chebyshev")),
    "gelu_tanh": stepped(activations.gelu_tanh), "erf": stepped(activations.erf, Variants(erf="taylor")),
    "gelu_erf": stepped(activations.gelu, Variants(erf="taylor")),
    "add": public_ops, "div_pub_float": public_ops, "div_pub_int": public_ops, "mean": public_ops,
    "mul_pub_float": public_ops, "mul_pub_tensor": public_ops, "sum": public_ops, "trunc_2^16": public_ops,
}  # fmt: skip
PAIRS = {
    "mul": beaver.multiply, "eq": compare.equal, "where_priv": compare_and_choose,
    "div_priv": stepped(elementary.divide),
}  # fmt: skip
ROWWISE = {
    "max": maximum.maximum, "argmax": maximum.argmax, "softmax": softmax, "log_softmax": log_softmax,
}  # fmt: skip


def case(row):
    """Return program and inputs of a row; KeyError for an operation this project does not have."""
    op, p = row["op"], row["params"]
    n = p.get("n")
    choices = Variants(max=p.get("max_method", "log_reduction"))
    if op.startswith("B2A_"):
        return beaver.bits_to_arithmetic, Bits(np.zeros((int(op[4:-3]), n), np.int64))
    if op in ELEMENTWISE:
        return ELEMENTWISE[op], normal(n)
    if op in PAIRS:
        return PAIRS[op], normal(n), normal(n)
    if op in ROWWISE:
        return ROWWISE[op], normal(p["rows"], p["L"]), Public(choices)
    other = {
        "matmul": lambda: (beaver.matmul, normal(p["m"], p["k"]), normal(p["k"], n)),
        "matmul_pubW": lambda: (public_product, normal(p["m"], p["k"]), Public(np.ones((p["k"], n)))),
        "bmm": lambda: (beaver.matmul, normal(p["B"], p["m"], p["k"]), normal(p["B"], p["k"], n)),
        "embed_onehot": lambda: (beaver.matmul, Integers(np.eye(p["S"], p["V"])), normal(p["V"], p["d"])),
        "mul_bcast_row": lambda: (beaver.multiply, normal(p["r"], p["c"]), normal(p["c"])),
        "mul_bcast_col": lambda: (beaver.multiply, normal(p["r"], p["c"]), normal(p["r"], 1)),
        "AND": lambda: (beaver.bit_and, Bits(np.arange(n)), Bits(np.arange(n))),
        "layernorm": lambda: (layer_norm, normal(p["rows"], p["d"]), normal(p["d"]), normal(p["d"])),
        "rand": lambda: (maximum.random_fraction, Public((n,))),
        "max_all": lambda: (maximum.maximum, normal(1, n), Public(replace(choices, argmax=False))),
        "attn_head": lambda: (attention_head, *(normal(p["S"], p["dh"]) for _ in range(3))),
    }
    return other[op]()


def label(row):
    return row["op"] + "-" + "-".join(f"{key}{value}" for key, value in row["params"].items())


COMPARED = [row for row in ROWS if row["op"] not in (*APART, *NOT_BUILT)]
FIGURES = ("bytes", "rounds", "requests", "corrections")


def figures(run):
    return dict(zip(FIGURES, (run.bytes, run.rounds, len(run.requests), run.corrections), strict=True))


def test_every_measured_op_is_compared_or_named_as_missing():
    """When this broke, rows of an op had silently stopped being compared."""
    for row in COMPARED:
        assert case(row), row
    ops = {row["op"] for row in ROWS}
    assert ops >= APART | NOT_BUILT.keys(), "an exception without a row"
    assert len(COMPARED) == 240


@pytest.mark.parametrize("exact", [True, False])
@pytest.mark.parametrize("row", [row for row in ROWS if row["op"] == "reveal_dst0"], ids=label)
def test_reveal_to_one_server_costs_crypten_s_bytes_and_tells_the_other_nothing(row, exact):
    """8n bytes from the server that does not learn; real CrypTen has the other send it half of the plaintext."""

    async def program(s, x):
        return await s.open_to(0, x)

    x = normal(row["elements"])
    run = run_protocol(program, x, exact=exact)
    assert (run.sent("server1"), run.sent("server0")) == (row["bytes"], 0)
    assert (run.rounds, len(run.requests), run.corrections) == (row["rounds"], 0, 0)
    assert run.outputs[1] is None
    if exact:
        assert abs(ring.decode(run.outputs[0], 16) - x).max() < 2**-16
        assert run.views["server1"] == [b""], "the dealer's bundle, empty, and nothing else"


@pytest.mark.parametrize("row", COMPARED, ids=label)
def test_counts_equal_measured_crypten(row):
    """Bytes, rounds, dealer requests and corrections of one measured row, run as shapes."""
    run = run_protocol(*case(row), exact=False)
    assert figures(run) == {name: row[name] for name in FIGURES}
    dealt = [message.payload for message in run.messages if message.phase == Phase.OFFLINE]
    assert sum(dealt) == 8 * row["corrections"], "the dealer sends the corrections and nothing else"


@pytest.mark.parametrize("row", [row for row in COMPARED if row["elements"] <= 64], ids=label)
def test_counts_of_exact_runs_equal_measured_crypten(row):
    """The same with real shares: the buffers sent are as long as the shapes said."""
    assert figures(run_protocol(*case(row))) == {name: row[name] for name in FIGURES}


def decoder(layout, *, tokens, d, heads, ffn):
    """Run the prompt pass of a private OPT of one layer as shapes; return its trace."""
    config = ModelConfig(
        architecture="opt", name="block", layers=1, hidden=d, heads=heads, kv_heads=heads,
        head_dim=d // heads, ffn=ffn, vocab=8, max_positions=64,
    )  # fmt: skip
    forms = weight_shapes(config)

    async def block(s, onehot, *weights):
        shares = dict(zip(forms, weights, strict=True))
        await PrivateDecoder(config, shares, {}, CRYPTEN, layout).forward(s, onehot, KVCache(1))

    inputs = (np.zeros(form) for form in forms.values())
    return run_protocol(block, np.zeros((tokens, config.vocab)), *inputs, exact=False).trace


def counted(trace, path):
    part = trace.select(Filter(path=path, phase="online", link=("server0", "server1")))
    return sum(part.messages["payload"].to_pylist()), rounds(part, path, "online")


@pytest.mark.parametrize(
    "row", [r for r in ROWS if r["op"] == "decoder_block" and r["params"]["act"] == "relu"], ids=label
)
def test_decoder_block_equals_measured_crypten(row):
    """One layer of our private OPT: two norms, Q, K, V in sequence, causal softmax, ReLU."""
    p = row["params"]
    trace = decoder(Layout(qkv="sequence"), tokens=p["S"], d=p["d"], heads=p["h"], ffn=p["ffn"])
    sent, depth = counted(trace, "layer0")
    dealt = trace.select(Filter(path="layer0")).dealer
    assert {
        "bytes": sent,
        "rounds": depth,
        "requests": len(dealt),
        "corrections": sum(dealt["correction"].to_pylist()),
    } == {name: row[name] for name in FIGURES}


def test_layouts_cost_what_they_say():
    """Against the measured sequence: side by side saves two rounds, fused the input's openings as well.

    Normalising the last row alone saves the others' 24d + 192 bytes each, and no round.
    """
    tokens, d = 5, 32
    size = {"tokens": tokens, "d": d, "heads": 4, "ffn": 64}
    weights = 3 * 8 * d * d
    expected = {
        "sequence": (3 * 8 * tokens * d + weights, 3),
        "parallel": (3 * 8 * tokens * d + weights, 1),
        "fused": (8 * tokens * d + weights, 1),
    }
    for qkv, cost in expected.items():
        assert counted(decoder(Layout(qkv=qkv), **size), "layer0/attention/qkv") == cost, qkv
    for final_norm, rows in (("last", 1), ("all", tokens)):
        cost = counted(decoder(Layout(final_norm=final_norm), **size), "head/norm")
        assert cost == ((24 * d + 192) * rows + 8 * d, 20), final_norm


# -- the demo model, op by op ---------------------------------------------------------------------------

PLACES = {
    "embedding": ["embedding"],
    "norms": ["layer*/attention/norm", "layer*/ffn/norm", "head/norm"],
    "qkv": ["layer*/attention/qkv"],
    "scores": ["layer*/attention/scores"],
    "softmax": ["layer*/attention/softmax"],
    "values": ["layer*/attention/values"],
    "output": ["layer*/attention/output"],
    "fc1": ["layer*/ffn/fc1"],
    "relu": ["layer*/ffn/relu"],
    "fc2": ["layer*/ffn/fc2"],
    "logits": ["head/logits"],
    "reveal": ["reveal"],
    "total": [""],
}


@pytest.fixture(scope="module")
def demo_trace():
    config = load_demo().config
    recorder = Recorder(names := Names(), None)
    run = Inference(
        config=config,
        plan=Plan(prompt_tokens=16, output_tokens=2, vocab=config.vocab, reveal="servers"),
        suite=SUITES["crypten"],
        topology=load_profile("lan-5g").resolve(PARTIES),
        device=DEVICES["cpu"],
        seed=0,
        layout=Layout(qkv="sequence", final_norm="all"),
    )
    play(run, names, recorder)
    return Trace.of(recorder)


@pytest.mark.parametrize(("token", "step"), [(0, "prompt"), (1, "decode")])
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row["op"])
def test_demo_model_costs_what_it_costs_in_crypten(demo_trace, row, token, step):
    """Prompt pass of 16 tokens and decode step at T = 17: bytes a server sends, and rounds, of each op."""
    sent = counted = 0
    for place in PLACES[row["op"]]:
        path = f"token{token}/{place}".rstrip("/")
        part = demo_trace.select(Filter(path=path, phase="online", link=("server0", "server1")))
        back = demo_trace.select(Filter(path=path, phase="online", link=("server1", "server0")))
        size, other = (sum(side.messages["payload"].to_pylist()) for side in (part, back))
        assert size == other
        sent += size
        counted += rounds(part, path, "online")
    assert {"bytes": sent, "rounds": counted} == row[step]


def test_table_rows_add_up_to_its_total():
    """The rows of the data file cover the whole pass."""
    for step in ("prompt", "decode"):
        for figure in ("bytes", "rounds"):
            *rows, total = [row[step][figure] for row in TABLE]
            assert sum(rows) == total
