"""How a TCP sender's window grows and shrinks: slow start, CUBIC and the retransmission timer, in integers.

Sources: RFC 5681 (slow start), RFC 9406 (leaving slow start when round trips grow), RFC 9438 (CUBIC, with Linux's
growth of at least 5% a round trip before the first loss), RFC 6298 (timer, with Linux's floor of 200 ms).
Pacing and fast recovery's proportional reduction are left out.
"""

from __future__ import annotations

from comet_sim.network.config import LinkConfig
from comet_sim.units import SECOND

__all__ = ["Congestion", "RetransmissionTimer"]

_UNIT = 1 << 16
"""A packet of window; windows are whole numbers of this fraction of one."""
_MIN_RTO = SECOND // 5
_MAX_RTO = 60 * SECOND
_HYSTART_WINDOW = 16 * _UNIT  # below it, slow start goes on whatever round trips take
_HYSTART_SAMPLES = 8
_HYSTART_LEAST, _HYSTART_MOST = 4 * 10**6, 16 * 10**6  # ns by which round trips must have grown


class Congestion:
    """The congestion window of one connection."""

    __slots__ = (
        "_cap",
        "_epoch",
        "_first",
        "_k",
        "_peak",
        "_probing",
        "_reno",
        "_round_trips",
        "_threshold",
        "_window",
    )

    def __init__(self, config: LinkConfig) -> None:
        self._cap = config.window_packets * _UNIT
        self._first = config.first_packets * _UNIT
        self._window = self._first
        self._threshold = self._cap
        self._epoch = -1
        self._k = self._peak = self._reno = 0
        self._probing = True  # no loss yet, so nothing is known of what the path can take
        self._round_trips = _RoundTrips()

    @property
    def packets(self) -> int:
        """Packets that may be under way."""
        return self._window // _UNIT

    def idle(self) -> None:
        """Begin anew after a long time without traffic."""
        self._window = min(self._window, self._first)
        self._epoch = -1

    def slow(self) -> bool:
        """Return whether the window grows by a packet for every packet acknowledged."""
        return self._window < self._threshold

    def observe(self, time: int, newest: int, following: int) -> None:
        """Take the round trip of transmission `newest`; `following` is the number the next one will have.

        Slow start ends when even the shortest round trip of a window has grown: a queue builds up.
        """
        grown = self._round_trips.grown(time, newest, following)
        if grown and _HYSTART_WINDOW <= self._window < self._threshold:
            self._threshold = self._window

    def acknowledged(self, packets: int, now: int) -> None:
        """Grow for `packets` acknowledged at `now`; only a sender that uses its window may call this."""
        if self._window < self._threshold:
            self._window = min(self._window + packets * _UNIT, self._cap)
        elif self._window < self._cap:
            self._cubic(packets, now)

    def _cubic(self, packets: int, now: int) -> None:
        window = self._window
        if self._epoch < 0:
            self._epoch = now
            self._reno = window
            self._peak = max(self._peak, window)
            # K = cbrt((peak - window) / C) seconds, C = 0.4 packets a cubic second
            self._k = _cube_root((self._peak - window) * 5 * SECOND**3 // (2 * _UNIT))
        away = now - self._epoch - self._k
        target = self._peak + away**3 * 2 * _UNIT // (5 * SECOND**3)
        # What standard TCP would have: 3 (1 - 0.7) / (1 + 0.7) = 9 / 17 packets a round trip
        self._reno += packets * _UNIT * _UNIT * 9 // (17 * window)
        target = min(max(target, self._reno), window + window // 2)
        if self._probing:
            target = max(target, window + window // 20)
        if target > window:
            window += packets * (target - window) * _UNIT // window
        self._window = min(window, self._cap)

    def lost(self) -> None:
        """Shrink once for all losses of a round trip."""
        window = self._window
        self._probing = False
        # Fast convergence: a connection that lost again before its old peak leaves room for others.
        self._peak = window * 17 // 20 if window < self._peak else window
        self._window = self._threshold = max(2 * _UNIT, window * 7 // 10)
        self._epoch = -1

    def timed_out(self, *, again: bool) -> None:
        """Start again with one packet; `again`: this round trip's losses have been dealt with already."""
        if not again:
            self.lost()
        self._window = _UNIT


class _RoundTrips:
    """Tells when round trips have grown over a window of packets, ns."""

    __slots__ = ("_end", "_samples", "_shortest", "_usual")

    def __init__(self) -> None:
        self._usual = self._shortest = -1  # of all round trips, of those of the present window
        self._end = 0
        self._samples = 0

    def grown(self, time: int, newest: int, following: int) -> bool:
        """Take a round trip, and return whether the present window's first ones were all clearly longer."""
        usual = self._usual
        if usual < 0 or time < usual:
            self._usual = usual = time
        if newest >= self._end:
            self._end = following
            self._samples = 0
            self._shortest = time
        self._shortest = min(self._shortest, time)
        self._samples += 1
        return self._samples > _HYSTART_SAMPLES and self._shortest > usual + min(
            max(usual // 8, _HYSTART_LEAST), _HYSTART_MOST
        )


class RetransmissionTimer:
    """How long to wait for an acknowledgement, from round trips seen so far, ns."""

    __slots__ = ("_mean", "_spread", "expiries")

    def __init__(self) -> None:
        self._mean = -1
        self._spread = 0
        self.expiries = 0
        """How often in a row it has expired."""

    def sample(self, time: int) -> None:
        """Take a round trip."""
        self.expiries = 0
        if self._mean < 0:
            self._mean, self._spread = time, time // 2
            return
        self._spread += (abs(time - self._mean) - self._spread) // 4
        self._mean += (time - self._mean) // 8

    def expired(self) -> None:
        """Wait twice as long from now on, until there is a sample again."""
        self.expiries += 1

    def wait(self) -> int:
        """Return the present waiting time."""
        wait = SECOND if self._mean < 0 else self._mean + max(_MIN_RTO, 4 * self._spread)
        return min(wait << min(self.expiries, 10), _MAX_RTO)


def _cube_root(value: int) -> int:
    """Return the largest integer whose cube is not above `value`."""
    guess = 1 << -(-value.bit_length() // 3)
    while guess**3 > value:
        guess = (2 * guess + value // guess**2) // 3
    return guess
