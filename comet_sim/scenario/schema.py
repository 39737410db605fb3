"""The scenario schema: everything a run depends on, each setting described where it is declared."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from comet_sim.baselines import SUITES
from comet_sim.errors import InputError
from comet_sim.models.devices import DEVICES, load_device
from comet_sim.mpc.settings import Adder, Division, Erf, MaxMethod, Operands, Steps, Tanh, Truncation, Where
from comet_sim.mpc.tensor import WORD_BYTES
from comet_sim.network.explain import suggestion
from comet_sim.network.profiles import PARTIES, LinkSpec, NetworkSpec, list_profiles, load_profile, merge
from comet_sim.scenario.base import SettingError, Table
from comet_sim.scenario.comet import CometSpec
from comet_sim.units import parse_size

__all__ = [
    "ComputeSpec",
    "MaskingSpec",
    "NetworkChoice",
    "ProtocolSpec",
    "Scenario",
    "SettingError",
    "SystemSpec",
    "VariantsSpec",
    "WorkloadSpec",
    "json_schema",
]

SYSTEMS = ("dense", "comet")
"""Systems this version can run; the names of suites are short for dense with that suite."""
_PLANNED = ("bolt", "iron")
_DEFAULT_SUITE = "crypten"
_SERVER_LINK = ("server0", "server1")
_WINDOW = r"^(prose|code)-[0-9]{1,4}$"
DEFAULT_STOCK = "16MiB"
"""How far a streaming dealer runs ahead unless the scenario says otherwise."""


def _known_device(name: str | None) -> str | None:
    if name is not None:
        try:
            load_device(name)
        except InputError as error:
            raise ValueError(str(error)) from None
    return name


_Device = Annotated[
    str | None,
    AfterValidator(_known_device),
    Field(json_schema_extra={"examples": list(DEVICES)}),
]


def _window(name: str | None) -> str | None:
    if name is not None and not re.fullmatch(_WINDOW, name):
        raise ValueError(f"read {name!r}; accepted: prose- or code- and a number, such as prose-0 or code-7")
    return name


def _one_of_several(value: Any) -> Any:
    ids = isinstance(value, list | tuple) and all(type(item) is int and item >= 0 for item in value)
    if not value or not (isinstance(value, str) or ids):
        raise ValueError(f"read {value!r}; accepted: text, or a list of token ids")
    return value


class WorkloadSpec(Table):
    """What the user asks: one of `prompt`, `prompt_ids`, `prompts` and `prompt_tokens`, and how much to generate."""

    prompt: Annotated[
        str | None,
        Field(
            min_length=1, description="The prompt as text, turned into tokens by the checkpoint's tokenizer."
        ),
    ] = None
    prompt_ids: Annotated[
        tuple[Annotated[int, Field(ge=0, strict=True)], ...] | None,
        Field(min_length=1, description="The prompt as token ids."),
    ] = None
    prompts: Annotated[
        tuple[Annotated[str | tuple[int, ...], BeforeValidator(_one_of_several)], ...] | None,
        Field(
            min_length=1,
            description="Prompts served together, of equally many tokens: each a text or a list of token ids.",
        ),
    ] = None
    prompt_tokens: Annotated[
        int | None,
        Field(
            ge=1,
            strict=True,
            description="Length of the prompt. In exact runs its tokens are the first of a held-out window "
            "(`prompt_window`; a batch takes as many windows in a row); shape runs need no more than the length.",
        ),
    ] = None
    prompt_window: Annotated[
        str | None,
        AfterValidator(_window),
        Field(
            json_schema_extra={"pattern": _WINDOW},
            description="Held-out window that `prompt_tokens` are taken from, such as prose-0 or code-7; "
            "exact runs only, prose-0 by default.",
        ),
    ] = None
    output_tokens: Annotated[
        int,
        Field(
            ge=1,
            strict=True,
            description="Tokens to generate: one by the prompt pass, each other by a decode step.",
        ),
    ] = 16
    batch: Annotated[
        int,
        Field(
            ge=1,
            strict=True,
            description="Prompts served together: weights are masked and sent once for all. With `prompts`, their "
            "number.",
        ),
    ] = 1
    stop: Annotated[
        Literal["length", "eos"],
        Field(
            description="When to stop: after output_tokens, or also at the end-of-sequence token, which "
            "tells the servers so (exact runs of a single prompt only)."
        ),
    ] = "length"

    @model_validator(mode="before")
    @classmethod
    def _as_many_as_prompts(cls, given: Any) -> Any:
        prompts = given.get("prompts") if isinstance(given, dict) else None
        if isinstance(prompts, list | tuple) and prompts and "batch" not in given:
            return {**given, "batch": len(prompts)}
        return given

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        names = ("prompt", "prompt_ids", "prompts", "prompt_tokens")
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) != 1:
            read = " and ".join(given) if given else "none of them"
            raise ValueError(f"give exactly one of {', '.join(names)}, but read {read}")
        if self.prompt_window is not None and self.prompt_tokens is None:
            raise SettingError(("prompt_window",), "says where prompt_tokens come from, but there are none")
        self._check_batch(given[0])
        return self

    def _check_batch(self, kind: str) -> None:
        batch = self.batch
        if self.prompts is not None and len(self.prompts) != batch:
            count = len(self.prompts)
            raise SettingError(
                ("batch",), f"read {batch}, but the number of prompts is {count}; accepted: {count}"
            )
        if batch > 1 and kind in ("prompt", "prompt_ids"):
            raise SettingError(
                ("batch",),
                f"read {batch}, but there is one prompt; accepted: 1, or in place of {kind}: prompts (a list of "
                f"{batch}) or prompt_tokens",
            )
        if batch > 1 and self.stop == "eos":
            raise SettingError(
                ("stop",), f"read 'eos', but the texts of a batch of {batch} end together; accepted: length"
            )


class NetworkChoice(LinkSpec):
    """The network: a profile, refined as a whole or link by link.

    Keys of a link given here hold for the links between the servers. `user`, `owner` and `dealer` refine that
    party's links. In `links`, `a-b` names both directions and `a->b` one.
    """

    profile: Annotated[
        str,
        Field(
            description="Name of a shipped profile (`comet-sim networks` lists them), or a path ending "
            "in .toml.",
            json_schema_extra={"examples": list_profiles()},
        ),
    ] = "lan-5g"
    user: Annotated[LinkSpec, Field(description="The user's links.")] = LinkSpec()
    owner: Annotated[LinkSpec, Field(description="The model owner's links.")] = LinkSpec()
    dealer: Annotated[LinkSpec, Field(description="The dealer's links.")] = LinkSpec()
    links: dict[str, LinkSpec] = Field(
        default_factory=dict, description='Single links, such as "server0-server1" or "user->server0".'
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        try:
            load_profile(self.profile)
        except InputError as error:
            raise SettingError(("profile",), str(error)) from None
        try:
            self.spec().resolve(PARTIES)
        except InputError as error:
            raise ValueError(str(error)) from None
        return self

    def spec(self) -> NetworkSpec:
        """Return the profile with everything said here on top; resolve it to a topology with the parties."""
        own = LinkSpec(**self.model_dump(exclude_none=True, include=set(LinkSpec.model_fields)))
        base = merge(load_profile(self.profile), NetworkSpec(links={"-".join(_SERVER_LINK): own}))
        return merge(
            base, NetworkSpec(links=self.links, user=self.user, owner=self.owner, dealer=self.dealer)
        )

    def resolved(self) -> NetworkChoice:
        """Return the same network with every figure of the profile written out."""
        spec = self.spec()
        links = dict(spec.links)
        pair = [links.get(f"{a}->{b}", LinkSpec()) for a, b in (_SERVER_LINK, _SERVER_LINK[::-1])]
        own = spec.defaults
        if pair[0] == pair[1]:
            own = pair[0].over(spec.defaults).one_way()
            for a, b in (_SERVER_LINK, _SERVER_LINK[::-1]):
                links.pop(f"{a}->{b}", None)
        else:  # each direction keeps its own entry, so what holds for both no longer shows in it
            for a, b in (_SERVER_LINK, _SERVER_LINK[::-1]):
                links[f"{a}->{b}"] = links.get(f"{a}->{b}", LinkSpec()).over(spec.defaults).one_way()
        sections = {name: getattr(spec, name).over(spec.defaults) for name in ("user", "owner", "dealer")}
        given = own.model_dump(exclude_none=True)
        return NetworkChoice(profile=self.profile, links=links, **given, **sections)


class ComputeSpec(Table):
    """What the parties compute on."""

    device: Annotated[
        str,
        AfterValidator(_known_device),
        Field(
            description="Device of every party: how long local work takes. `none`: no time at all. A name "
            "(`comet-sim devices` lists them), or a path ending in .toml, such as `comet-sim calibrate` writes.",
            json_schema_extra={"examples": list(DEVICES)},
        ),
    ] = "cpu"
    server0: Annotated[_Device, Field(description="Device of server 0, where it is another.")] = None
    server1: Annotated[_Device, Field(description="Device of server 1, where it is another.")] = None
    dealer: Annotated[_Device, Field(description="Device of the dealer, where it is another.")] = None
    user: Annotated[_Device, Field(description="Device of the user, where it is another.")] = None
    owner: Annotated[_Device, Field(description="Device of the model owner, where it is another.")] = None

    def of(self, party: str) -> str:
        """Return the name or path of a party's device."""
        own: str | None = getattr(self, party)
        return self.device if own is None else own


def _size(text: str | None) -> str | None:
    if text is not None and parse_size(text) < WORD_BYTES:
        raise ValueError(f"read {text!r}; a stock holds at least one element, {WORD_BYTES} bytes")
    return text


class MaskingSpec(Table):
    """Masks of operands that are used again: `per-use` masks and sends them each time, as in CrypTen.

    `reuse` opens a tensor once under a fixed mask; the paper has no such setting.
    """

    weights: Annotated[
        Literal["per-use", "reuse"], Field(description="Weight matrices, the embedding table included.")
    ] = "per-use"
    cache: Annotated[Literal["per-use", "reuse"], Field(description="Cached keys and values.")] = "per-use"


class ProtocolSpec(Table):
    """Choices of the protocol that change its traffic or who learns what, not the model."""

    qkv: Annotated[
        Literal["fused", "parallel", "sequence"],
        Field(
            description="Q, K and V as one product (its input opened once), three side by side, or in a row."
        ),
    ] = "fused"
    final_norm: Annotated[
        Literal["last", "all"],
        Field(description="Rows the final norm works on: the last one, which the LM head needs, or all."),
    ] = "last"
    reveal: Annotated[
        Literal["user", "servers"],
        Field(description="Who learns the logits and picks the tokens; the reference opens to servers."),
    ] = "user"
    fraction_bits: Annotated[
        int,
        Field(
            ge=8,
            le=24,
            strict=True,
            description="Fraction bits of the fixed-point numbers in the 64-bit ring.",
        ),
    ] = 16
    truncation: Annotated[
        Truncation,
        Field(
            description="How products are rescaled: each server its share alone (no bytes, wrong in rare cases), or "
            "together (1 round, 4 bytes a number, never wrong). A native suite brings its own way."
        ),
    ] = "local"
    dealer: Annotated[
        Literal["offline", "on-demand", "streamed"],
        Field(
            description="When correlated randomness is dealt: all of it before the user is served, each piece "
            "when server 1 asks for it, or ahead of use with a bounded stock."
        ),
    ] = "offline"
    dealer_stock: Annotated[
        str | None,
        AfterValidator(_size),
        Field(
            description="Most corrections a streaming dealer runs ahead, as a size (16MiB by default); "
            "streamed only."
        ),
    ] = None
    masking: Annotated[
        MaskingSpec, Field(description="Whether operands are masked and sent at each use, or opened once.")
    ] = MaskingSpec()
    audit: Annotated[
        bool,
        Field(
            description="Count truncation wraps and largest values in exact runs; needs both shares, so it "
            "is done by an observer outside the protocol."
        ),
    ] = True


class VariantsSpec(Table):
    """Single ways to go of the suite's protocols, instead of the suite's own: same function, other costs.

    Each suite has some of these choices; one it lacks is an error.
    """

    max: Annotated[
        MaxMethod | None,
        Field(description="The maximum of a row: one of CrypTen's four ways, or a tree of halvings."),
    ] = None
    argmax: Annotated[
        bool | None, Field(description="Whether every maximum also computes an argmax that nothing uses.")
    ] = None
    adder: Annotated[
        Adder | None,
        Field(
            description="The adder under comparisons: operands shared by two products opened twice or once, or "
            "the one carry a comparison needs."
        ),
    ] = None
    where: Annotated[
        Where | None, Field(description="Choosing by a secret bit: two products in a row, or one.")
    ] = None
    erf: Annotated[
        Erf | None, Field(description="erf, and GELU by it: an exponential, or CrypTen's series up to 1.5.")
    ] = None
    tanh: Annotated[
        Tanh | None,
        Field(description="tanh, and sigmoid by it: a reciprocal, or a Chebyshev series on [-1, 1]."),
    ] = None

    native: bool | None = Field(
        default=None,
        description="The reference's own protocols and order in place of the shared base layer's, its way of "
        "truncation included; single choices beside it still count.",
    )
    steps: Annotated[
        Steps | None,
        Field(description="Steps that do not depend on each other: side by side, or one after the other."),
    ] = None
    division: Annotated[
        Division | None, Field(description="Softmax: one reciprocal a row, or a division an entry.")
    ] = None
    operands: Annotated[
        Operands | None,
        Field(
            description="An operand that serves many entries is opened once (shared), or for each (expanded)."
        ),
    ] = None

    def given(self) -> dict[str, Any]:
        """Return what was chosen, by name."""
        return self.model_dump(exclude_none=True)


class SystemSpec(Table):
    """A system to run: a way to run the model, and the suite of non-linear protocols underneath."""

    name: Annotated[
        str,
        Field(
            description="`dense`, `comet`, or the name of a suite as short for dense with that suite.",
            json_schema_extra={"enum": [*SYSTEMS, *SUITES]},
        ),
    ] = "dense"
    suite: Annotated[
        str,
        Field(
            description=f"Non-linear protocols; {_DEFAULT_SUITE} by default.",
            json_schema_extra={"enum": list(SUITES)},
        ),
    ] = _DEFAULT_SUITE
    variants: Annotated[
        VariantsSpec, Field(description="Ways to go that replace the suite's own, one by one.")
    ] = VariantsSpec()
    comet: Annotated[
        CometSpec | None, Field(description="Settings of the system `comet`; its defaults if absent.")
    ] = None
    tag: Annotated[
        str | None,
        Field(
            pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$",
            description="Ends the system's name, so that a scenario can run one system with several settings.",
        ),
    ] = None

    @model_validator(mode="before")
    @classmethod
    def _short_names(cls, given: Any) -> Any:
        if isinstance(given, dict) and "suite" not in given and given.get("name") in SUITES:
            return {**given, "suite": given["name"]}
        return given

    @model_validator(mode="after")
    def _known(self) -> Self:
        if self.name in _PLANNED:
            raise SettingError(
                ("name",),
                f"system {self.name!r} is not part of this version; "
                f"accepted: {', '.join((*SYSTEMS, *SUITES))}",
            )
        if self.name not in (*SYSTEMS, *SUITES):
            known = suggestion(self.name, (*SYSTEMS, *SUITES))
            raise SettingError(("name",), f"unknown system {self.name!r}; {known}")
        if self.comet is not None and self.name != "comet":
            raise SettingError(
                ("comet",), f"only the system 'comet' has these settings, but name is {self.name!r}"
            )
        if self.suite not in SUITES:
            raise SettingError(
                ("suite",), f"unknown suite {self.suite!r}; {suggestion(self.suite, tuple(SUITES))}"
            )
        if self.name in SUITES and self.suite != self.name:
            raise SettingError(
                ("suite",),
                f"system {self.name!r} is short for dense with suite {self.name!r}, but read {self.suite!r}; "
                f'write name = "dense" for another suite',
            )
        try:
            SUITES[self.suite].choosing(self.variants.given())
        except InputError as error:
            raise SettingError(("variants",), str(error)) from None
        return self

    @property
    def label(self) -> str:
        """What the system is called in run folders and results, unique in a scenario.

        A suite other than the default, and each variant chosen, is part of the name.
        """
        suited = self.name in SUITES or self.suite == _DEFAULT_SUITE
        name = self.name if suited else f"{self.name}-{self.suite}"
        ways = (
            key if value is True else f"{key}-{str(value).lower()}"
            for key, value in self.variants.given().items()
        )
        return "-".join((name, *ways, *([self.tag] if self.tag else ())))


class Scenario(Table):
    """Everything a run depends on. Equal scenarios give equal results."""

    title: Annotated[str, Field(description="What the scenario shows, in one line.")] = ""
    model: Annotated[
        str,
        Field(
            min_length=1,
            description="A known model (`comet-sim models` lists them), or a folder with a transformers "
            "checkpoint; in a file, relative to that file.",
        ),
    ]
    execution: Annotated[
        Literal["exact", "shape"],
        Field(
            description="exact: shares hold values and text comes out. shape: the same program over shapes "
            "alone, for models of any size."
        ),
    ] = "exact"
    seed: Annotated[
        int,
        Field(ge=0, lt=2**63, strict=True, description="Seed of all randomness: shares, dealt correlations."),
    ] = 0
    workload: WorkloadSpec
    network: NetworkChoice = NetworkChoice()
    compute: ComputeSpec = ComputeSpec()
    protocol: ProtocolSpec = ProtocolSpec()
    systems: Annotated[
        tuple[SystemSpec, ...], Field(min_length=1, description="Systems to run, each on the same workload.")
    ] = (SystemSpec(),)

    @model_validator(mode="after")
    def _coherent(self) -> Self:
        if self.protocol.dealer_stock is not None and self.protocol.dealer != "streamed":
            raise SettingError(
                ("protocol", "dealer_stock"),
                f'only a streamed dealer has a bounded stock, but protocol.dealer is "{self.protocol.dealer}"',
            )
        for i, system in enumerate(self.systems):
            if system.comet and system.comet.simm == "counts" and self.protocol.dealer != "on-demand":
                raise SettingError(
                    ("systems", i, "comet", "simm"),
                    "a dealer is told counts when it is asked, but protocol.dealer is "
                    f'"{self.protocol.dealer}"; accepted: dense, or protocol.dealer = "on-demand"',
                )
        if self.execution == "shape":
            if self.workload.stop == "eos":
                raise SettingError(
                    ("workload", "stop"), "read 'eos', but a shape run picks no tokens; accepted: length"
                )
            if self.workload.prompt_window is not None:
                raise SettingError(
                    ("workload", "prompt_window"), "only exact runs read a window, but execution is 'shape'"
                )
        labels = [system.label for system in self.systems]
        for i, label in enumerate(labels):
            if label in labels[:i]:
                raise SettingError(
                    ("systems", i), f"{label!r} is there twice; each system needs its own name"
                )
        return self

    def resolved(self) -> Scenario:
        """Return the scenario with every default that has a value written out, the network's too."""
        workload = self.workload
        if (
            self.execution == "exact"
            and workload.prompt_tokens is not None
            and workload.prompt_window is None
        ):
            workload = workload.model_copy(update={"prompt_window": "prose-0"})
        protocol = self.protocol
        if protocol.dealer == "streamed" and protocol.dealer_stock is None:
            protocol = protocol.model_copy(update={"dealer_stock": DEFAULT_STOCK})
        changes = {"network": self.network.resolved(), "workload": workload, "protocol": protocol}
        return self.model_copy(update=changes)


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of scenario files, for editors that check TOML while it is written."""
    schema = Scenario.model_json_schema()
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **schema,
        "title": "comet-sim scenario",
    }
