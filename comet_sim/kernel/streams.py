"""Named random streams: every consumer derives its own from the seed, so none shifts another's draws."""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

__all__ = ["generator", "stream_key"]


def stream_key(seed: int, *names: str | int) -> bytes:
    """Return the 16-byte key of the stream `names` under `seed`.

    Every part is hashed (BLAKE2b, RFC 7693) with its type and its length before it, so that
    ("ab", "c"), ("a", "bc"), (1,) and ("1",) are four different streams on every machine.
    """
    digest = blake2b(digest_size=16, person=b"comet-sim stream")
    for part in (seed, *names):
        text = isinstance(part, str)
        data = part.encode() if isinstance(part, str) else b"%d" % part
        digest.update(b"%c%d:" % (b"s" if text else b"i", len(data)))
        digest.update(data)
    return digest.digest()


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Return the numpy generator of the stream `names` under `seed` (Philox, keyed by `stream_key`)."""
    key = int.from_bytes(stream_key(seed, *names), "little")
    return np.random.Generator(np.random.Philox(key=key))
