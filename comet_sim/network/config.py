"""What one direction of a link is, in integers, and which settings each transport honours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from types import MappingProxyType

from comet_sim.errors import InputError
from comet_sim.network.framing import framed_bytes, gloo_framed_bytes
from comet_sim.units import SECOND

__all__ = ["HONOURED", "TCP_INITIAL_WINDOW", "TCP_SEND_BUFFER", "TCP_WINDOW", "LinkConfig"]

TCP_WINDOW = 3 * 2**20
"""Bytes a TCP connection has under way at most unless a link says otherwise: 3 MiB fits the measurements."""

TCP_INITIAL_WINDOW = 10
"""Packets a new TCP connection sends before the first acknowledgement (RFC 6928)."""

TCP_SEND_BUFFER = 4 * 2**20
"""Bytes of a socket's send buffer (`tcp-segments`): the most Linux gives one by itself."""

_SHAPE = frozenset({"jitter", "outages", "rate_steps", "trace", "classes"})
_WINDOW = frozenset({"window", "initial_window", "idle_reset"})

HONOURED: Mapping[str, frozenset[str]] = MappingProxyType(
    {
        "ideal": _SHAPE | {"loss"},
        "tcp": _WINDOW | {"classes"},
        "tcp-segments": _SHAPE | _WINDOW | {"loss", "queue"},
        "gloo": _SHAPE,
    }
)
"""Settings beyond rate, delay, mss, packet_overhead and host that a transport honours, by its name."""


@dataclass(frozen=True, slots=True)
class LinkConfig:
    """One direction of a link, all in integers.

    `rate` bit/s (None: unlimited), `delay` one-way propagation in ns, `packet_overhead` bytes of headers a
    packet, `mss` bytes of message a packet, `host` ns a message spends in its sender before the network
    card. Raises `InputError` on values no link can have and on settings the transport cannot honour.

    `jitter`: largest extra delay, ns, drawn evenly for each message (`tcp-segments`: each packet).
    `loss`: probability that a packet is lost. `queue`: bytes that may wait before the line; what finds no
    room is dropped (None: no limit). `outages`: (start, end) in ns, in which nothing is sent.
    `rate_steps`: (time in ns, bit/s from then on). `trace`: a mahimahi trace, each entry the ms at which 1500
    bytes may leave, repeated after the last; it takes the place of `rate`. `classes`: priority classes, each
    with a connection of its own, the lower numbers going first. `window`: most bytes under way,
    `initial_window`: packets a new connection sends at once, `idle_reset`: ns without traffic after which a
    connection is new again (None: never).
    """

    rate: int | None
    delay: int
    packet_overhead: int = 66
    mss: int = 1448
    host: int = 0
    transport: str = "ideal"
    jitter: int = 0
    loss: Fraction = Fraction(0)
    queue: int | None = None
    outages: tuple[tuple[int, int], ...] = ()
    rate_steps: tuple[tuple[int, int], ...] = ()
    trace: tuple[int, ...] = ()
    classes: int = 1
    window: int | None = None
    initial_window: int | None = None
    idle_reset: int | None = None

    def __post_init__(self) -> None:
        if self.rate is not None and self.rate < 1:
            raise InputError(f"link rate is {self.rate} bit/s; it must be at least 1 (None for unlimited)")
        for name in ("mss", "classes", "initial_window"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise InputError(f"link {name} is {value}; it must be at least 1")
        for name in ("delay", "packet_overhead", "host", "jitter"):
            if getattr(self, name) < 0:
                raise InputError(f"link {name} is {getattr(self, name)}; it must not be negative")
        if self.transport not in HONOURED:
            raise InputError(f"link transport is {self.transport!r}; accepted: {', '.join(HONOURED)}")
        self._check_honoured()
        if not 0 <= self.loss < 1:
            raise InputError(f"link loss is {self.loss}; it must be at least 0 and below 1")
        for name, least in (("queue", self.mss + self.packet_overhead), ("window", self.mss)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise InputError(f"link {name} is {value} bytes; it must hold a packet, {least} bytes")
        if self.idle_reset is not None and self.idle_reset < 1:
            raise InputError(f"link idle_reset is {self.idle_reset} ns; it must be above zero")
        self._check_schedule()

    def _check_honoured(self) -> None:
        honoured = HONOURED[self.transport]
        for name in sorted(HONOURED["tcp-segments"] - honoured):
            if getattr(self, name) == self.__dataclass_fields__[name].default:
                continue
            able = ", ".join(transport for transport, names in HONOURED.items() if name in names)
            raise InputError(f"transport {self.transport!r} cannot honour {name}; transports that do: {able}")

    def _check_schedule(self) -> None:
        for start, end in self.outages:
            if not 0 <= start < end:
                raise InputError(f"link outage from {start} to {end} ns must end after it starts")
        for (_, end), (start, _) in pairwise(self.outages):
            if start < end:
                raise InputError(f"link outages overlap or are out of order at {start} ns")
        if self.rate_steps and self.rate is None:
            raise InputError("link rate_steps need a rate to start from, which unlimited and a trace are not")
        if any(rate < 1 for _, rate in self.rate_steps):
            raise InputError("link rate_steps must be at least 1 bit/s; for no service at all give outages")
        times = [0, *(at for at, _ in self.rate_steps)]
        if any(later <= earlier for earlier, later in pairwise(times)):
            raise InputError("link rate_steps must come after 0 ns, each later than the one before")
        if self.trace and self.rate is not None:
            raise InputError("link has both a rate and a trace; the trace takes the rate's place")
        if self.trace and (self.trace[-1] < 1 or self.trace[0] < 0 or list(self.trace) != sorted(self.trace)):
            raise InputError("link trace must be whole ms in rising order, the last at least 1")

    @property
    def shaped(self) -> bool:
        """Whether more than constants decide a message's time: chance, schedules or several classes."""
        return bool(
            self.jitter or self.loss or self.outages or self.rate_steps or self.trace or self.classes > 1
        )

    @property
    def window_packets(self) -> int:
        """Packets a connection has under way at most."""
        return max(1, (TCP_WINDOW if self.window is None else self.window) // self.mss)

    @property
    def first_packets(self) -> int:
        """Packets a new connection sends at once."""
        first = TCP_INITIAL_WINDOW if self.initial_window is None else self.initial_window
        return min(first, self.window_packets)

    @property
    def buffer_packets(self) -> int:
        """Packets in a socket's send buffer, which is never smaller than the window."""
        return max(TCP_SEND_BUFFER // self.mss, 4 * self.window_packets // 3)

    def packets(self, payload: int) -> tuple[int, int]:
        """Return packets and wire bytes of a message with `payload` bytes."""
        framed = gloo_framed_bytes(payload) if self.transport == "gloo" else framed_bytes(payload)
        packets = -(-framed // self.mss)
        return packets, framed + packets * self.packet_overhead

    def time(self, wire: int) -> int:
        """Return how long `wire` bytes take to send at the constant rate, ns, rounded up."""
        return 0 if self.rate is None else -(-8 * SECOND * wire // self.rate)

    def cost(self, payload: int) -> tuple[int, int]:
        """Return wire bytes and serialisation time (ns, rounded up) of a message with `payload` bytes."""
        wire = self.packets(payload)[1]
        return wire, self.time(wire)
