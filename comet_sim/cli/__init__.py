"""The command line; importing it costs nothing, what a command needs is imported when it runs."""

from __future__ import annotations

__all__ = ["main"]


def main() -> None:
    """Run the command line with the arguments of this process."""
    from comet_sim.cli.stopping import finish, leave_at_once

    leave_at_once()
    try:
        from comet_sim.cli.app import app

        app(prog_name="comet-sim")
    finally:
        finish()
