"""The PRG must be AES-128-CTR to the letter, repeatable, and keep positions apart."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from comet_sim.errors import InputError
from comet_sim.mpc.prg import Prg, initial_counter

SEED = bytes(range(16))


def reference(seed: bytes, position: bytes | tuple[int, int], n: int) -> np.ndarray:
    """Counter mode written out: AES-ECB of consecutive big-endian counter blocks."""
    start = int.from_bytes(initial_counter(position), "big")
    blocks = b"".join(((start + i) % 2**128).to_bytes(16, "big") for i in range((n + 1) // 2))
    stream = Cipher(algorithms.AES(seed), modes.ECB()).encryptor().update(blocks)
    return np.frombuffer(stream, "<i8")[:n].astype(np.int64)


@pytest.mark.parametrize("position", [b"", b"layer 3", (0, 0), (-(2**63), 2**63 - 1)])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 1000])
def test_words_are_aes_counter_mode(position, n):
    words = Prg(SEED).words(position, n)
    assert words.dtype == np.int64
    assert words.shape == (n,)
    assert np.array_equal(words, reference(SEED, position, n))


def test_known_words():
    """Pins hash, packing and byte order: both servers and the dealer may run different machines."""
    assert Prg(bytes(16)).words((1, 2), 2).tolist() == [7864075836911236606, 3599269939544518982]
    assert Prg(bytes(16)).words(b"x", 2).tolist() == [-7420069015330316327, -1714625492346286522]


def test_long_requests_continue_across_steps():
    """A request longer than one step of zeros must not restart the keystream (100,000 words = 4 steps)."""
    assert np.array_equal(Prg(SEED).words((5, 6), 100_001), reference(SEED, (5, 6), 100_001))


@given(st.integers(0, 300), st.integers(0, 300))
def test_shorter_request_is_a_prefix(short, more):
    prg = Prg(SEED)
    assert np.array_equal(prg.words(b"p", short + more)[:short], prg.words(b"p", short))


def test_order_of_requests_does_not_matter():
    """The cipher context is reused: an odd-sized request must leave nothing behind for the next."""
    prg = Prg(SEED)
    first = prg.words((1, 1), 3)
    prg.words((2, 1), 5)
    assert np.array_equal(prg.words((1, 1), 3), first)
    assert np.array_equal(prg.words((2, 1), 5), Prg(SEED).words((2, 1), 5))


def test_positions_and_seeds_give_unrelated_streams():
    pair_as_bytes = (1).to_bytes(8, "little") + (2).to_bytes(8, "little")
    streams = [Prg(SEED).words(position, 500) for position in ((1, 2), (2, 1), pair_as_bytes, b"", (1, 3))]
    streams.append(Prg(bytes(16)).words((1, 2), 500))
    assert np.unique(np.concatenate(streams)).size == 3000


def test_words_can_be_changed_by_the_caller():
    prg = Prg(SEED)
    words = prg.words(b"p", 4)
    words += 1
    assert np.array_equal(prg.words(b"p", 4), words - 1)


def test_words_look_uniform():
    """Each of 64 bits and each byte value is as frequent as it should be, within six standard deviations."""
    n = 1 << 16
    words = Prg(SEED).words(b"statistics", n)
    bits = np.unpackbits(words.view(np.uint8)).reshape(n, 64)
    assert np.abs(bits.mean(0) - 0.5).max() < 6 * 0.5 / n**0.5
    counts = np.bincount(words.view(np.uint8), minlength=256)
    assert np.abs(counts - n / 32).max() < 6 * (n / 32) ** 0.5
    assert abs(np.corrcoef(words[:-1].astype(float), words[1:].astype(float))[0, 1]) < 6 / n**0.5


@pytest.mark.parametrize("seed", [b"", bytes(15), bytes(32)])
def test_seed_of_wrong_length(seed):
    with pytest.raises(InputError, match="16"):
        Prg(seed)


@pytest.mark.parametrize("position", [(1,), (1, 2, 3), (2**63, 0), (1.5, 2), "text", None])
def test_position_of_wrong_form(position):
    with pytest.raises(InputError, match="position"):
        Prg(SEED).words(position, 1)


def test_negative_number_of_words():
    with pytest.raises(InputError, match="-1"):
        Prg(SEED).words(b"", -1)
