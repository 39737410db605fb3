"""The private predictor: two low-rank linear layers and a threshold, whose bits stay XOR shares.

Source: paper (two low-rank layers, run inside MPC); ranks, the comparison at double scale and leaving the bit
Boolean are reconstructions.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from comet_sim.mpc.beaver import matmul
from comet_sim.mpc.compare import arithmetic_to_bits
from comet_sim.mpc.session import Session
from comet_sim.mpc.settings import CRYPTEN_WAY, Variants
from comet_sim.mpc.transcript import replayable
from comet_sim.mpc.truncation import rescale

__all__ = ["predict", "predictor_shapes"]

_SIGN = 63


def predictor_shapes(name: str, width: int, rank: int, outputs: int) -> dict[str, tuple[int, ...]]:
    """Return the shapes of a predictor's weights: `name` such as layer0/predictor/ffn."""
    return {
        f"{name}/in/weight": (width, rank),
        f"{name}/in/bias": (rank,),
        f"{name}/out/weight": (rank, outputs),
        f"{name}/out/bias": (outputs,),
    }


@replayable
async def _above_zero(s: Session, score: Any, v: Variants) -> Any:
    """Return XOR shares of the bits score > 0: 7 rounds, 208n bytes (152n with the lean adder). Exact."""
    return (await arithmetic_to_bits(s, -score, v) >> _SIGN) & 1


async def predict(
    s: Session, weights: Mapping[str, Any], name: str, x: Any, delta: float, v: Variants = CRYPTEN_WAY
) -> Any:
    """Return XOR shares of the bits (m, outputs) that say who is active, for inputs x (m, d).

    9 rounds; 8 (md + dr + mr + r outputs) + 208 m outputs bytes. The second product is compared at double scale,
    so only the first is truncated.
    """
    with s.scope("low_rank"):
        inner = (
            await rescale(s, await matmul(s, x, weights[f"{name}/in/weight"])) + weights[f"{name}/in/bias"]
        )
        score = await matmul(s, inner, weights[f"{name}/out/weight"])
        score = score + (weights[f"{name}/out/bias"] << s.bits)
    with s.scope("threshold"):
        return await _above_zero(s, s.add_public(score, -s.constant(delta, 2 * s.bits)), v)
