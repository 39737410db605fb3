"""The command line; importing it costs typer and rich, the rest is imported by the command that needs it."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line with the arguments of this process."""
    from comet_sim.cli.app import app

    app(prog_name="comet-sim")
