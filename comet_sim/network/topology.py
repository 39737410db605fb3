"""Who is linked to whom, the routes between them, and the network that carries messages along them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from comet_sim.errors import InputError
from comet_sim.events import Message, Names
from comet_sim.network.config import LinkConfig
from comet_sim.network.envelope import Clock, Envelope
from comet_sim.network.link import Link, Route
from comet_sim.network.transports import make_link

if TYPE_CHECKING:
    import networkx

__all__ = ["Network", "Topology"]

_END = 2**63
"""Virtual time that the 64-bit columns of a trace cannot hold, ns."""


class Topology:
    """Parties, routers and the directed links between them.

    `links` maps (from, to) to the configuration of that direction. Only routers forward: a message never
    passes through a party it is not for. Raises `InputError` on a link to an unknown node or to itself.
    """

    __slots__ = ("links", "parties", "routers")

    def __init__(
        self, parties: Sequence[str], links: Mapping[tuple[str, str], LinkConfig], routers: Sequence[str] = ()
    ) -> None:
        self.parties = tuple(parties)
        self.routers = tuple(routers)
        self.links = dict(links)
        nodes = (*self.parties, *self.routers)
        if len(set(nodes)) != len(nodes):
            raise InputError(f"a party or router is named twice: {', '.join(nodes)}")
        for src, dst in self.links:
            unknown = [node for node in (src, dst) if node not in nodes]
            if unknown or src == dst:
                reason = f"{unknown[0]} is unknown (known: {', '.join(nodes)})" if unknown else "it is a loop"
                raise InputError(f"link {src}->{dst} cannot be built: {reason}")

    def graph(self) -> networkx.DiGraph[str]:
        """Return the links as a networkx graph; an edge's `config` is its `LinkConfig`."""
        import networkx  # not needed by a run without routers, and slow to import

        graph: networkx.DiGraph[str] = networkx.DiGraph()
        graph.add_nodes_from(self.parties, router=False)
        graph.add_nodes_from(self.routers, router=True)
        for (src, dst), config in self.links.items():
            graph.add_edge(src, dst, config=config)
        return graph

    def routes(self) -> dict[tuple[str, str], tuple[str, ...]]:
        """Return the nodes on the way between every connected pair of parties, both ends included.

        A route has the least delay (propagation and host overhead); ties go to fewer hops, then to the
        name that sorts first.
        """
        if not self.routers:
            return {pair: pair for pair in self.links}
        graph = self.graph()
        found: dict[tuple[str, str], tuple[str, ...]] = {}
        for src in self.parties:
            found.update(self._routes_from(src, graph))
        return found

    def _routes_from(self, src: str, graph: Any) -> dict[tuple[str, str], tuple[str, ...]]:
        import networkx

        # Delay counts first and hops second in one integer, which also keeps zero-delay cycles out.
        scale = len(graph) + 1

        def weight(u: str, v: str, edge: dict[str, Any]) -> int | None:
            if u != src and u not in self.routers:
                return None
            config: LinkConfig = edge["config"]
            return (config.delay + config.host) * scale + 1

        before, _ = networkx.dijkstra_predecessor_and_distance(graph, src, weight=weight)
        found: dict[tuple[str, str], tuple[str, ...]] = {}
        for dst in self.parties:
            if dst == src or dst not in before:
                continue
            nodes = [dst]
            while nodes[-1] != src:
                nodes.append(min(before[nodes[-1]]))
            found[src, dst] = tuple(reversed(nodes))
        return found


class Network:
    """The links of one run: takes envelopes from parties and delivers them, hop by hop.

    `observer` gets the record of each message at its delivery, just before `deliver` gets the envelope.
    Party ids in envelopes are those `names` gives to the parties' names. `links` maps (from, to) to the link
    actors. `seed` is the run's: jitter and loss of each link come from it and the link's name. A message that
    is delivered at 2^63 ns or later ends the run with an `InputError`.
    """

    __slots__ = ("_clock", "_deliver", "_names", "_observer", "_routes", "links", "topology")

    def __init__(
        self,
        clock: Clock,
        topology: Topology,
        deliver: Callable[[Envelope], object],
        observer: Callable[[Message], object],
        names: Names,
        *,
        seed: int = 0,
    ) -> None:
        self.topology = topology
        self._clock = clock
        self._deliver = deliver
        self._observer = observer
        self._names = names
        self.links: dict[tuple[str, str], Link] = {
            (src, dst): make_link(clock, f"{src}->{dst}", config, self._arrive, seed)
            for (src, dst), config in topology.links.items()
        }
        for (src, dst), link in self.links.items():
            reverse = self.links.get((dst, src))
            if reverse is not None:
                link.pair(reverse)
        self._routes: dict[tuple[int, int], Route] = {}
        for (src, dst), nodes in topology.routes().items():
            route: Route | None = None
            for hop in reversed(list(pairwise(nodes))):
                route = (self.links[hop], route)
            if route is not None:
                self._routes[names.intern(src), names.intern(dst)] = route

    def send(self, envelope: Envelope) -> None:
        """Put a message on the first link of its route now; `InputError` if its ends are not connected."""
        try:
            link, envelope.rest = self._routes[envelope.src, envelope.dst]
        except KeyError:
            raise self._no_route(envelope) from None
        link.send(envelope)

    def _arrive(self, envelope: Envelope) -> None:
        rest = envelope.rest
        if rest is not None:
            link, envelope.rest = rest
            link.send(envelope)
            return
        if self._clock.now_ns >= _END:
            raise self._too_late(envelope)
        self._observer(envelope.record())
        self._deliver(envelope)

    def _too_late(self, envelope: Envelope) -> InputError:
        route: Route | None = self._routes[envelope.src, envelope.dst]
        hops = []
        while route is not None:
            link, route = route
            hops.append(link.name)
        op = self._names.text(envelope.path)
        return InputError(
            f"virtual time passed 2^63 ns (292 years) at message {envelope.id}{op and f' of {op}'}, "
            f"{'links' if len(hops) > 1 else 'link'} {', '.join(hops)}: check rate and rtt (or delay), host, jitter "
            "and outages"
        )

    def _no_route(self, envelope: Envelope) -> InputError:
        src, dst = self._names.text(envelope.src), self._names.text(envelope.dst)
        links = ", ".join(link.name for link in self.links.values()) or "none"
        return InputError(f"the network has no route from {src} to {dst}; its links: {links}")
