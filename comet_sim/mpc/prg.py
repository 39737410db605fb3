"""Expands 16-byte seeds into uniform ring elements, so that a seed can stand in for a tensor on the wire."""

from __future__ import annotations

import struct
from hashlib import blake2b

import numpy as np
import numpy.typing as npt
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from comet_sim.errors import InputError

__all__ = ["SEED_BYTES", "Position", "Prg"]

SEED_BYTES = 16

Position = bytes | tuple[int, int]
"""Program position a stream belongs to: any byte string, or two integers of 64 bits."""

_ZEROS = bytes(1 << 18)  # plaintext of one step; the keystream itself is what is left of the encryption
_PAIR = struct.Struct("<qq")


class Prg:
    """Stream generator of one seed: AES-128 in counter mode, with one independent stream per position.

    Both holders of a seed get the same words on any machine. An instance keeps a cipher context and is
    not safe to share between threads. Raises InputError for a seed that is not 16 bytes.
    """

    __slots__ = ("_encryptor",)

    def __init__(self, seed: bytes) -> None:
        if len(seed) != SEED_BYTES:
            raise InputError(f"PRG seed has {len(seed)} bytes; it must have {SEED_BYTES}")
        self._encryptor = Cipher(algorithms.AES(seed), modes.CTR(bytes(16))).encryptor()

    def words(self, position: Position, n: int, *, skip: int = 0) -> npt.NDArray[np.int64]:
        """Return n words of the stream at `position` after the first `skip`, uniform in Z_2^64, (n,), int64.

        A longer request at the same position starts with the words of a shorter one, so ask once and split.
        Raises InputError for a negative n or a pair that does not fit two signed 64-bit integers.
        """
        if n < 0 or skip < 0:
            raise InputError(f"PRG was asked for {n} words after {skip}; the numbers must not be negative")
        if skip % 2:  # a block holds two words
            return self.words(position, n + 1, skip=skip - 1)[1:]
        encryptor = self._encryptor
        counter = initial_counter(position)
        if skip:
            counter = ((int.from_bytes(counter) + skip // 2) % (1 << 128)).to_bytes(16)
        encryptor.reset_nonce(counter)
        out = np.empty(n, dtype="<i8")
        if n:
            room = out.data.cast("B")
            for start in range(0, len(room), len(_ZEROS)):
                part = room[start : start + len(_ZEROS)]
                encryptor.update_into(memoryview(_ZEROS)[: len(part)], part)
        return out.astype(np.int64, copy=False)  # a copy on big-endian machines only


def initial_counter(position: Position) -> bytes:
    """Return the 16-byte counter block the stream at `position` starts from.

    A 128-bit hash of the position. Streams of at most 2^b blocks overlap only when two of the q counters
    of a seed lie within 2^b of each other: probability below q^2 2^b / 2^128. With a million positions of
    a million blocks each that is 2^-68, and 2^40 blocks under one AES key stay 2^-48 from random.
    Pairs and byte strings are hashed under different personalisations and so never share a stream.
    """
    if isinstance(position, bytes):
        return blake2b(position, digest_size=16, person=b"comet-sim bytes").digest()
    try:
        packed = _PAIR.pack(*position)
    except (struct.error, TypeError) as error:
        raise InputError(f"PRG position {position!r}: want bytes or two integers of 64 bits") from error
    return blake2b(packed, digest_size=16, person=b"comet-sim pair").digest()
