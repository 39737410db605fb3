"""Systems: each a suite of non-linear protocols on the shared base layer, one file a system."""

from comet_sim.baselines.crypten import ACCURATE, CRYPTEN, LEAN, CrypTen
from comet_sim.baselines.mpcformer import MPCFORMER, MPCFormer
from comet_sim.baselines.puma import PUMA, Puma
from comet_sim.baselines.secformer import SECFORMER, SecFormer
from comet_sim.mpc.suite import Suite

__all__ = ["SUITES", "CrypTen", "MPCFormer", "Puma", "SecFormer", "Suite"]

SUITES: dict[str, Suite] = {
    suite.name: suite for suite in (CRYPTEN, ACCURATE, LEAN, PUMA, MPCFORMER, SECFORMER)
}
"""Every suite a scenario may name."""
