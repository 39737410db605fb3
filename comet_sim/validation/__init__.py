"""Real frameworks run on loopback, and what they send compared with what is sent here."""

from comet_sim.validation.cases import CASES, Case
from comet_sim.validation.measure import Figures, Outcome, validate

__all__ = ["CASES", "Case", "Figures", "Outcome", "validate"]
