"""Networks as a user writes them: links with figures as text, checked here, resolved into a topology."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from comet_sim.errors import InputError
from comet_sim.network.explain import suggestion
from comet_sim.network.link import LINK_CLASSES, LinkConfig
from comet_sim.network.topology import Topology
from comet_sim.units import exact_duration, parse_duration, parse_rate, parse_size

__all__ = ["PARTIES", "UNLIMITED", "LinkSpec", "NetworkSpec", "merge"]

PARTIES = ("user", "server0", "server1", "dealer", "owner")
"""Names of the parties a profile may speak of."""

UNLIMITED = "unlimited"
"""A rate at which serialising takes no time."""

_LINK_KEY = re.compile(r"([A-Za-z0-9_]+)(->|-)([A-Za-z0-9_]+)")
_SECTIONS = ("defaults", "user", "owner", "dealer")


def _text(parse: Callable[[str], object]) -> BeforeValidator:
    """Return a validator that keeps a figure as text once `parse` has accepted it."""

    def check(value: object) -> str:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError(f"expected text with a figure and its unit, but read {value!r}")
        text = str(value).strip()
        try:
            parse(text)
        except InputError as error:
            raise ValueError(str(error)) from None
        return text

    return BeforeValidator(check)


def _rate(text: str) -> int | None:
    return None if text == UNLIMITED else parse_rate(text)


def _segment(text: str) -> int:
    size = parse_size(text)
    if size < 1:
        raise InputError(f"a packet must carry at least 1B of message, but read {text!r}")
    return size


def _transport(text: str) -> str:
    if text not in LINK_CLASSES:
        raise InputError(f"unknown transport {text!r}; {suggestion(text, tuple(LINK_CLASSES))}")
    return text


class LinkSpec(BaseModel):
    """A link as written in a profile or scenario; keys left out come from the less specific section.

    `delay` is one-way, `rtt` there and back; giving both is an error.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    rate: Annotated[str | None, _text(_rate), Field(description="such as 5Gbit, or unlimited")] = None
    delay: Annotated[str | None, _text(parse_duration), Field(description="one-way, such as 20ms")] = None
    rtt: Annotated[str | None, _text(parse_duration), Field(description="there and back, such as 40ms")] = (
        None
    )
    packet_overhead: Annotated[
        str | None, _text(parse_size), Field(description="headers a packet, such as 66B")
    ] = None
    mss: Annotated[
        str | None, _text(_segment), Field(description="message bytes a packet, such as 1448B")
    ] = None
    host: Annotated[
        str | None,
        _text(parse_duration),
        Field(description="time a message spends in its sender, such as 50us"),
    ] = None
    transport: Annotated[str | None, _text(_transport), Field(description="ideal")] = None

    @model_validator(mode="after")
    def _one_latency(self) -> Self:
        if self.delay is not None and self.rtt is not None:
            raise ValueError(
                f"delay ({self.delay}, one-way) and rtt ({self.rtt}, there and back) exclude each other"
            )
        if self.rtt is not None and parse_duration(self.rtt) % 2:
            raise ValueError(
                f"rtt {self.rtt} does not split into two whole numbers of ns; give the one-way delay"
            )
        return self

    def over(self, base: LinkSpec) -> LinkSpec:
        """Return this link with the keys it leaves out taken from `base`."""
        own = self.model_dump(exclude_none=True)
        taken = base.model_dump(exclude_none=True, exclude={"delay", "rtt"} if self._has_latency() else None)
        return LinkSpec(**{**taken, **own})

    def one_way(self) -> LinkSpec:
        """Return the same link with its latency given as `delay`."""
        if self.rtt is None:
            return self
        delay = exact_duration(parse_duration(self.rtt) // 2)
        return self.model_copy(update={"rtt": None, "delay": delay})

    def config(self, where: str) -> LinkConfig:
        """Return the link in integers; `InputError`, naming `where`, if rate or latency is missing."""
        link = self.one_way()
        if link.rate is None or link.delay is None:
            missing = "rate" if link.rate is None else "latency (delay or rtt)"
            raise InputError(f"{where} has no {missing}; give it there or in [defaults]")
        usual = LinkConfig(rate=None, delay=0)
        return LinkConfig(
            rate=_rate(link.rate),
            delay=parse_duration(link.delay),
            packet_overhead=usual.packet_overhead
            if link.packet_overhead is None
            else parse_size(link.packet_overhead),
            mss=usual.mss if link.mss is None else parse_size(link.mss),
            host=usual.host if link.host is None else parse_duration(link.host),
            transport=usual.transport if link.transport is None else link.transport,
        )

    def _has_latency(self) -> bool:
        return self.delay is not None or self.rtt is not None


class NetworkSpec(BaseModel):
    """A whole network: `defaults` for links between servers, sections for other parties, single links.

    `user`, `owner` and `dealer` hold for every link of that party (the first of them that applies) and
    inherit what they leave out from `defaults`. In `links`, `a-b` names both directions and `a->b` one. Two
    parties attached to routers have a direct link only where it is named.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str = ""
    description: str = ""
    source: str = Field(default="", description="where the figures come from")
    defaults: LinkSpec = LinkSpec()
    user: LinkSpec = LinkSpec()
    owner: LinkSpec = LinkSpec()
    dealer: LinkSpec = LinkSpec()
    links: dict[str, LinkSpec] = {}
    routers: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _check_links(self) -> Self:
        known = (*PARTIES, *self.routers)
        seen: dict[tuple[str, ...], str] = {}
        for key, link in self.links.items():
            src, arrow, dst = _split(key)
            for node in (src, dst):
                if node not in known:
                    raise ValueError(f'links."{key}": unknown party {node!r}; {suggestion(node, known)}')
            if src == dst:
                raise ValueError(f'links."{key}" links {src} to itself')
            if arrow == "->" and link.rtt is not None:
                raise ValueError(f'links."{key}" is one direction: give its delay (one-way), not an rtt')
            name = (src, dst) if arrow == "->" else (*sorted((src, dst)), "both")
            if name in seen:
                raise ValueError(f'links."{key}" and links."{seen[name]}" name the same link')
            seen[name] = key
        return self

    def directed(self) -> dict[tuple[str, str], LinkSpec]:
        """Return what `links` says about each direction; `a->b` refines `a-b`."""
        found: dict[tuple[str, str], LinkSpec] = {}
        for wanted in ("-", "->"):
            for key, link in self.links.items():
                src, arrow, dst = _split(key)
                if arrow != wanted:
                    continue
                for pair in ((src, dst), (dst, src)) if arrow == "-" else ((src, dst),):
                    found[pair] = link.one_way().over(found.get(pair, LinkSpec()))
        return found

    def resolve(self, parties: Sequence[str]) -> Topology:
        """Return the topology among `parties`, and the routers; links of absent parties are left out."""
        for party in parties:
            if party not in PARTIES:
                raise InputError(f"unknown party {party!r}; {suggestion(party, PARTIES)}")
        named = self.directed()
        nodes = (*parties, *self.routers)
        attached = {src for src, dst in named if dst in self.routers}
        links: dict[tuple[str, str], LinkConfig] = {}
        for src in nodes:
            for dst in nodes:
                own = named.get((src, dst))
                meshed = src in parties and dst in parties and not (src in attached and dst in attached)
                if src != dst and (own is not None or meshed):
                    spec = (own or LinkSpec()).over(self._section((src, dst)))
                    links[src, dst] = spec.config(f"link {src}->{dst}")
        return Topology(parties, links, self.routers)

    def _section(self, pair: Iterable[str]) -> LinkSpec:
        for name, section in (("user", self.user), ("owner", self.owner), ("dealer", self.dealer)):
            if name in pair:
                return section.over(self.defaults)
        return self.defaults


def merge(profile: NetworkSpec, overrides: NetworkSpec) -> NetworkSpec:
    """Return `profile` with everything `overrides` says on top, section by section and link by link.

    A latency given as `rtt` replaces one given as `delay` and the other way round. A single link of the
    profile stays more specific than a section of the overrides.
    """
    links = {f"{src}->{dst}": link for (src, dst), link in profile.directed().items()}
    for (src, dst), link in overrides.directed().items():
        key = f"{src}->{dst}"
        links[key] = link.over(links.get(key, LinkSpec()))
    sections = {name: getattr(overrides, name).over(getattr(profile, name)) for name in _SECTIONS}
    return NetworkSpec(
        title=overrides.title or profile.title,
        description=overrides.description or profile.description,
        source=overrides.source or profile.source,
        links=links,
        routers=tuple(dict.fromkeys((*profile.routers, *overrides.routers))),
        **sections,
    )


def _split(key: str) -> tuple[str, str, str]:
    """Return both ends of a link's key, and whether it names one direction (`->`) or two (`-`)."""
    match = _LINK_KEY.fullmatch(key)
    if not match:
        raise ValueError(f'links."{key}" must be "a-b" for both directions or "a->b" for one')
    return match[1], match[2], match[3]
