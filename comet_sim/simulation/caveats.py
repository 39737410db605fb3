"""What a reader of a run's results must be told: settings and events that make text and values doubtful."""

from __future__ import annotations

from comet_sim.mpc.session import Auditor

__all__ = ["FRACTION_BITS", "warnings_of"]

FRACTION_BITS = range(12, 21)
"""Where approximations keep enough digits and products enough room in the ring; measured, see docs/protocols.md."""


def warnings_of(fraction_bits: int, auditor: Auditor | None) -> list[str]:
    """Return a sentence for each reason to doubt a run's values; none in the usual case.

    Fraction bits outside `FRACTION_BITS`, and truncations that the auditor (exact runs) saw wrap.
    """
    found = []
    if fraction_bits < FRACTION_BITS.start:
        found.append(
            f"protocol.fraction_bits is {fraction_bits}: below {FRACTION_BITS.start}, approximations have too "
            "few digits, and text may differ from the plain model's"
        )
    elif fraction_bits >= FRACTION_BITS.stop:
        found.append(
            f"protocol.fraction_bits is {fraction_bits}: above {FRACTION_BITS.stop - 1}, a product has "
            f"{2 * fraction_bits} fraction bits in a ring of 64, and truncations of ordinary values may wrap"
        )
    if auditor is not None and auditor.wraps:
        found.append(
            f"{auditor.wraps:,} of {auditor.truncated:,} truncated elements wrapped and came out wrong by "
            f"2^{64 - 2 * fraction_bits}: values and text after that cannot be relied on"
        )
    return found
