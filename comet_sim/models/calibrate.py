"""Public power-of-two scales that bring each norm's input where its inverse square root is accurate.

`python -m comet_sim.models.calibrate FOLDER [--text FILE ...]` writes them into FOLDER/comet_sim.json.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from comet_sim.errors import CometSimError, InputError
from comet_sim.models.checkpoint import Checkpoint, load_checkpoint
from comet_sim.models.config import norm_names
from comet_sim.models.demo import heldout
from comet_sim.models.metadata import MAX_EXPONENT, METADATA_FILE, update_metadata
from comet_sim.models.plain import PlainDecoder
from comet_sim.models.tokenizer import TextTokenizer

__all__ = ["GOOD_HIGH", "GOOD_LOW", "Calibration", "calibrate", "choose_exponent", "store_calibration"]

# CrypTen's inverse square root (its initial value, then 3 Newton steps) errs by at most 0.5% in this range.
GOOD_LOW, GOOD_HIGH = 0.10, 154.0
# Scale 1 is kept as long as unseen tokens may leave the measured range by this factor on both sides.
_MARGIN = 2.0
_WINDOW = 128


@dataclass(frozen=True, slots=True)
class Calibration:
    """Scale exponents e by norm (the input is multiplied by 2^e) and what they rest on.

    `variances` holds the smallest and largest input variance met (RMSNorm: mean square), before scaling.
    `outside` names the norms whose scaled range does not fit the good range under any power of two.
    """

    exponents: dict[str, int]
    variances: dict[str, tuple[float, float]]
    outside: tuple[str, ...]


def choose_exponent(low: float, high: float) -> int:
    """Exponent e that centres 4^e * [low, high] geometrically in the good range; 0 if that is well inside."""
    if low >= GOOD_LOW * _MARGIN and high * _MARGIN <= GOOD_HIGH:
        return 0
    return round((math.log2(GOOD_LOW * GOOD_HIGH) - math.log2(low) - math.log2(high)) / 4)


def calibrate(
    plain: PlainDecoder, token_windows: NDArray[np.integer] | Sequence[Sequence[int]]
) -> Calibration:
    """Measure every norm's input variance over windows of token ids and choose its scale.

    Raises InputError without windows, or for a norm whose input is constant or beyond every scale there is.
    """
    ranges: dict[str, tuple[float, float]] = {}

    def record(name: str, value: NDArray[np.generic]) -> None:
        norm, _, kind = name.rpartition("/")
        if kind == "variance":
            low, high = ranges.get(norm, (math.inf, 0.0))
            ranges[norm] = (min(low, float(value.min())), max(high, float(value.max())))

    for window in token_windows:
        plain.forward(window, record=record)
    if not ranges:
        raise InputError("calibration: no token windows given, at least one is needed")
    exponents: dict[str, int] = {}
    outside: list[str] = []
    for norm in norm_names(plain.config):
        low, high = ranges[norm]
        if low <= 0.0:
            raise InputError(f"calibration: {norm}: an input has variance 0, no scale can help")
        exponents[norm] = e = choose_exponent(low, high)
        if abs(e) > MAX_EXPONENT:
            raise InputError(
                f"calibration: {norm}: inputs have variances {low:.3g} to {high:.3g}, which would need a scale of "
                f"2^{e}; accepted: exponents from -{MAX_EXPONENT} to {MAX_EXPONENT}"
            )
        if 4.0**e * low < GOOD_LOW or 4.0**e * high > GOOD_HIGH:
            outside.append(norm)
    return Calibration(exponents, ranges, tuple(outside))


def _windows(checkpoint: Checkpoint, texts: Sequence[Path]) -> NDArray[np.int64]:
    """Calibration windows: of the given text files, or the shipped ones if the tokenizer is the demo's."""
    if checkpoint.tokenizer is None:
        raise InputError("calibration: the checkpoint folder has no tokenizer.json")
    if not texts:
        shipped = heldout()
        if hashlib.sha256(checkpoint.tokenizer.read_bytes()).hexdigest() != shipped.tokenizer_digest:
            raise InputError("calibration: this tokenizer is not the demo model's, give --text FILE")
        return shipped.calibration
    tokenizer = TextTokenizer(checkpoint.tokenizer)
    size = min(_WINDOW, checkpoint.config.max_positions)
    windows = []
    for path in texts:
        try:
            ids = np.array(tokenizer.encode(path.read_text(encoding="utf-8")), dtype=np.int64)
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: not readable as UTF-8 text ({error})") from error
        if len(ids) < size:
            raise InputError(
                f"{path}: {len(ids)} tokens of text, accepted: {size} or more, some pages are better"
            )
        windows.append(ids[: len(ids) // size * size].reshape(-1, size))
    return np.concatenate(windows)


def store_calibration(file: Path, result: Calibration) -> None:
    """Write the scales and what they rest on into a checkpoint's comet_sim.json, keeping what else is there.

    Raises InputError if it cannot be written; the file is never half written.
    """
    variances = {k: [float(f"{v:.3g}") for v in pair] for k, pair in result.variances.items()}
    found = {"norm_scales": result.exponents, "norm_variances": variances}
    update_metadata(file, {**found, "norms_outside": list(result.outside)})


def _main() -> int:
    parser = argparse.ArgumentParser(prog="python -m comet_sim.models.calibrate", description=__doc__)
    parser.add_argument("folder", type=Path, help="checkpoint folder")
    parser.add_argument("--text", type=Path, nargs="+", default=[], help="UTF-8 text files to calibrate on")
    arguments = parser.parse_args()
    try:
        checkpoint = load_checkpoint(arguments.folder)
        plain = PlainDecoder(checkpoint.config, checkpoint.weights)
        result = calibrate(plain, _windows(checkpoint, arguments.text))
        store_calibration(arguments.folder / METADATA_FILE, result)
    except CometSimError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    for norm, (low, high) in result.variances.items():
        note = "  outside the good range" if norm in result.outside else ""
        sys.stdout.write(
            f"{norm:26} variance {low:.3g} to {high:.3g}  scale 2^{result.exponents[norm]}{note}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(_main())
