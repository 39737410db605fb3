"""Networks as a user writes them: sections and single links, checked here, resolved into a topology."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from comet_sim.errors import InputError
from comet_sim.network.config import LinkConfig
from comet_sim.network.explain import suggestion
from comet_sim.network.link_spec import LinkSpec
from comet_sim.network.topology import Topology

__all__ = ["PARTIES", "NetworkSpec", "merge"]

PARTIES = ("user", "server0", "server1", "dealer", "owner")
"""Names of the parties a profile may speak of."""

_LINK_KEY = re.compile(r"([A-Za-z0-9_]+)(->|-)([A-Za-z0-9_]+)")
_SECTIONS = ("defaults", "user", "owner", "dealer")


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
        known: dict[LinkSpec, LinkConfig] = {}  # most links are alike, and a trace is long
        for src in nodes:
            for dst in nodes:
                own = named.get((src, dst))
                meshed = src in parties and dst in parties and not (src in attached and dst in attached)
                if src != dst and (own is not None or meshed):
                    spec = (own or LinkSpec()).over(self._section((src, dst)))
                    if spec not in known:
                        known[spec] = spec.config(f"link {src}->{dst}")
                    links[src, dst] = known[spec]
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
