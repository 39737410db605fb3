"""Files of recorded masks: what goes in comes out, and anything else is refused by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from comet_sim.comet.bitmap import Bitmap, load_bitmap, save_bitmap
from comet_sim.errors import InputError


@given(st.integers(1, 3), st.integers(1, 9), st.integers(1, 20), st.booleans(), st.integers(0, 2**32))
def test_masks_survive(
    tmp_path_factory: pytest.TempPathFactory, layers: int, tokens: int, width: int, heads: bool, seed: int
) -> None:
    draws = np.random.default_rng(seed)
    ffn = draws.random((layers, tokens, width)) < 0.3
    both = Bitmap(ffn, draws.random((layers, tokens, 2)) < 0.5 if heads else None)
    file = tmp_path_factory.mktemp("masks") / "m.npz"
    save_bitmap(file, both)
    found = load_bitmap(file)
    np.testing.assert_array_equal(found.ffn, ffn)
    assert (found.heads is None) is not heads
    if heads:
        np.testing.assert_array_equal(found.heads, both.heads)
    assert found.tokens == tokens
    np.testing.assert_array_equal(found.source()("ffn", layers - 1, 0, tokens), ffn[-1])


def test_masks_of_calls_are_joined_by_token() -> None:
    parts = [("ffn", 0, np.eye(2, 3, dtype=bool)), ("heads", 0, np.ones((2, 1), bool))]
    later = [("ffn", 0, np.zeros((1, 3), bool)), ("heads", 0, np.zeros((1, 1), bool))]
    joined = Bitmap.of_calls([*parts, *later])  # type: ignore[list-item]
    assert joined.ffn is not None
    assert joined.ffn.shape == (1, 3, 3)
    assert joined.density("ffn") == pytest.approx(2 / 9)
    assert joined.density("heads") == pytest.approx(2 / 3)


def _written(file: Path, **arrays: object) -> Path:
    np.savez(file, **arrays)  # type: ignore[arg-type]
    return file


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"format": np.array("other")}, "format: read 'other'"),
        ({"format": np.array("comet-sim masks 1")}, "neither neurons"),
        (
            {
                "format": np.array("comet-sim masks 1"),
                "ffn_shape": np.array([1, 2]),
                "ffn": np.zeros(1, np.uint8),
            },
            "ffn_shape",
        ),
        (
            {
                "format": np.array("comet-sim masks 1"),
                "ffn_shape": np.array([1, 2, 9]),
                "ffn": np.zeros(1, np.uint8),
            },
            "holds 1 bytes",
        ),
        (
            {
                "format": np.array("comet-sim masks 1"),
                "ffn_shape": np.array([1 << 20] * 3),
                "ffn": np.zeros(1, np.uint8),
            },
            "ffn_shape",
        ),
    ],
)
def test_what_is_refused(tmp_path: Path, arrays: dict[str, object], said: str) -> None:
    with pytest.raises(InputError, match=said) as caught:
        load_bitmap(_written(tmp_path / "m.npz", **arrays))
    assert "m.npz" in str(caught.value)


def test_damaged_and_missing_files(tmp_path: Path) -> None:
    file = tmp_path / "m.npz"
    with pytest.raises(InputError, match="no such file"):
        load_bitmap(file)
    save_bitmap(file, Bitmap(np.ones((1, 2, 3), bool), None))
    file.write_bytes(file.read_bytes()[:-30])
    with pytest.raises(InputError, match="not a whole file of masks"):
        load_bitmap(file)
    with pytest.raises(InputError, match="cannot be written"):
        save_bitmap(tmp_path / "no" / "m.npz", Bitmap(np.ones((1, 2, 3), bool), None))


def test_pickles_are_not_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a whole file of masks"):
        load_bitmap(_written(tmp_path / "m.npz", format=np.array([{}], object)))
