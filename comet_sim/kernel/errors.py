"""Errors of the virtual clock."""

from __future__ import annotations

from comet_sim.errors import CometSimError

__all__ = ["RealIOError"]


class RealIOError(CometSimError):
    """Something asked the virtual clock for the real world: a socket, a process, a thread, a signal."""
