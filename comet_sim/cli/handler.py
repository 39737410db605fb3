"""The one place where errors become messages and exit codes."""

from __future__ import annotations

import sys
import traceback
from typing import Any

import typer
from typer.core import TyperGroup

from comet_sim.errors import CometSimError

__all__ = ["HandledGroup", "RunInterruptedError"]

_INTERRUPTED = 130


class RunInterruptedError(CometSimError):
    """The user stopped a command; the message says what was kept."""

    exit_code = _INTERRUPTED


class HandledGroup(TyperGroup):
    """Commands whose errors end in one message on stderr and the documented exit code.

    Errors made on purpose, and what the operating system refuses, are told in a line; `--debug` adds the
    traceback. Anything else is a bug and keeps its traceback.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except CometSimError as error:
            code = error.exit_code
            _tell(error, str(error), debug=bool(ctx.params.get("debug")))
        except KeyboardInterrupt as error:
            code = _INTERRUPTED
            _tell(error, "interrupted", debug=bool(ctx.params.get("debug")))
        except BrokenPipeError:
            raise  # the reader of our output has gone: typer ends quietly
        except OSError as error:
            code = 1
            _tell(error, str(error), debug=bool(ctx.params.get("debug")))
        except Exception as error:
            if type(error).__module__.startswith("typer"):
                raise  # usage errors and exits are typer's to show
            code = 1
            _tell(error, f"{type(error).__name__}: {error} (this is a bug in comet-sim)", debug=True)
        raise typer.Exit(code)


def _tell(error: BaseException, message: str, *, debug: bool) -> None:
    if debug:
        traceback.print_exception(error, file=sys.stderr)
    for line in (f"error: {message}", *getattr(error, "__notes__", ())):
        print(line, file=sys.stderr)
