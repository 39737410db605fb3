"""Frozen records of what happens in a run: the one vocabulary every observer reads.

All fields are integers so that a record can be appended to a columnar store, and hashed, without
conversion: times are nanoseconds of virtual time, sizes are bytes, and names (op paths, parties, reasons)
are interned in a `Names` table that travels with the trace.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, Protocol

__all__ = ["NO_CAUSE", "Compute", "DealerRequest", "Message", "Names", "Observer", "Phase", "Reveal"]

NO_CAUSE = -1
"""Cause of an event that nothing in the run enabled: the start of a phase."""


class Phase(IntEnum):
    """Part of a run: weights and seeds are shared, then randomness is dealt, then the user is served."""

    SETUP = 0
    OFFLINE = 1
    ONLINE = 2

    @property
    def label(self) -> str:
        """Name of the phase wherever people read it: `set-up`, `offline`, `online`."""
        return "set-up" if self is Phase.SETUP else self.name.lower()


class Message(NamedTuple):
    """One message, complete once delivered: the parts of its time add up from `created` to delivery."""

    id: int
    phase: int
    path: int
    """Op path, interned in `Names`."""
    src: int
    dst: int
    payload: int
    """Bytes of the buffer really sent."""
    wire: int
    """Payload, frame header and per-packet overhead, over all hops of the route's first link."""
    depth: int
    """One more than the deepest message among its data dependencies within the phase."""
    priority: int
    cause: int
    """Id of the message or compute span that enabled it, or `NO_CAUSE`."""
    created: int
    queued: int
    host: int
    stall: int
    """Time the transport's window, not the link, held the message back."""
    serialise: int
    propagate: int

    @property
    def delivered(self) -> int:
        """Virtual time of delivery, ns."""
        return self.created + self.queued + self.host + self.stall + self.serialise + self.propagate


class Compute(NamedTuple):
    """Local work of one party between two messages, on that party's device."""

    id: int
    phase: int
    path: int
    party: int
    cause: int
    ready: int
    """When the inputs were there, ns; the device may have been busy until `start`."""
    start: int
    end: int
    ring_ops: int
    """Ring multiply-adds."""
    moved: int
    """Bytes of memory read and written."""


class Reveal(NamedTuple):
    """A value was opened: what, to whom and why."""

    id: int
    phase: int
    path: int
    time: int
    audience: int
    """Interned, for instance `user` or `server0,server1`."""
    what: int
    why: int
    elements: int


class DealerRequest(NamedTuple):
    """One piece of correlated randomness, named by the program position that consumes it."""

    id: int
    phase: int
    path: int
    time: int
    kind: int
    """Interned: `multiply`, `square`, `matmul`, `and`, `b2a`."""
    elements: int
    """Elements every server expands from its seed."""
    correction: int
    """Elements the dealer must send, 8 bytes each."""
    message: int
    """Id of the message that carries the correction, or `NO_CAUSE` where none is needed."""


class Observer(Protocol):
    """What reads a run while it happens; it may count and store, and never changes the run."""

    def message(self, record: Message) -> None:
        """Take a delivered message."""

    def compute(self, record: Compute) -> None:
        """Take a finished span of local work."""

    def reveal(self, record: Reveal) -> None:
        """Take an opened value."""

    def dealer_request(self, record: DealerRequest) -> None:
        """Take a piece of correlated randomness."""


class Names:
    """Interned names of one run: op paths as a tree, and flat labels, each with a small integer id."""

    def __init__(self) -> None:
        self._texts: list[str] = [""]
        self._ids: dict[str, int] = {"": 0}
        self._children: dict[tuple[int, str], int] = {}

    def __len__(self) -> int:
        return len(self._texts)

    def intern(self, text: str) -> int:
        """Return the id of `text`, giving it the next one when it is new."""
        found = self._ids.get(text)
        if found is None:
            found = self._ids[text] = len(self._texts)
            self._texts.append(text)
        return found

    def child(self, path: int, name: str) -> int:
        """Return the id of op path `path` extended by `name`; the root is 0."""
        key = (path, name)
        found = self._children.get(key)
        if found is None:
            parent = self._texts[path]
            found = self._children[key] = self.intern(f"{parent}/{name}" if parent else name)
        return found

    def text(self, id: int) -> str:
        """Return the name behind `id`."""
        return self._texts[id]

    def texts(self) -> list[str]:
        """Return all names in the order of their ids (a copy)."""
        return list(self._texts)
