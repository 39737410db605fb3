"""The one place where errors become messages and exit codes."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from comet_sim.cli.pipes import hush, reader_may_leave
from comet_sim.cli.safe import escaped
from comet_sim.cli.stopping import INTERRUPTED
from comet_sim.errors import CometSimError

__all__ = ["HandledGroup", "RunInterruptedError"]


class RunInterruptedError(CometSimError):
    """The user stopped a command; the message says what was kept."""

    exit_code = INTERRUPTED


class HandledGroup(TyperGroup):
    """Commands whose errors end in one message on stderr and the documented exit code.

    Errors made on purpose, and what the operating system refuses, are told in a line; `--debug` adds the
    traceback. Anything else is a bug and keeps its traceback. A reader who leaves early (`| head`) is none.
    """

    def main(self, *arguments: Any, **named: Any) -> Any:
        """Read the command line and run what it says."""
        with _flushed():
            try:
                return super().main(*arguments, **named)
            except SystemExit as end:
                # What typer and rich make of a reader who left while they showed a help text.
                if end.code == 1 and isinstance(end.__context__, BrokenPipeError):
                    hush(sys.stdout)
                    raise SystemExit(0) from None
                raise
            except OSError as error:  # a help text that cannot be written
                _tell(error, _refusal(error), debug=False)
                raise SystemExit(1) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the chosen command."""
        try:
            return super().invoke(ctx)
        except CometSimError as error:
            code = error.exit_code
            _tell(error, str(error), debug=bool(ctx.params.get("debug")))
        except KeyboardInterrupt as error:
            code = INTERRUPTED
            _tell(error, "interrupted", debug=bool(ctx.params.get("debug")))
        except BrokenPipeError:
            hush(sys.stdout)
            code = 0
        except OSError as error:
            code = 1
            _tell(error, _refusal(error), debug=bool(ctx.params.get("debug")))
        except Exception as error:
            if type(error).__module__.startswith("typer"):
                raise  # usage errors and exits are typer's to show
            code = 1
            _tell(error, f"{type(error).__name__}: {error} (this is a bug in comet-sim)", debug=True)
        raise typer.Exit(code)


@contextmanager
def _flushed() -> Iterator[None]:
    """Write out what stdout still holds, so that a failure to do so has an exit code too."""
    try:
        yield
    finally:
        try:
            with reader_may_leave(sys.stdout):
                pass
        except OSError as error:
            hush(sys.stdout)
            _tell(error, f"standard output: {_refusal(error)}", debug=False)
            raise SystemExit(1) from None


def _refusal(error: OSError) -> str:
    """Say what the operating system refused, and of which file."""
    reason = error.strerror or str(error)
    return f"{error.filename}: {reason}" if error.filename else reason


def _tell(error: BaseException, message: str, *, debug: bool) -> None:
    try:
        _write(error, message, debug)
        sys.stderr.flush()
    except OSError:  # nobody can be told, but the exit code still says what happened
        hush(sys.stderr)


def _write(error: BaseException, message: str, debug: bool) -> None:
    notes = getattr(error, "__notes__", ())
    if debug:  # the traceback has the notes, too
        traceback.print_exception(error, file=sys.stderr)
        notes = ()
    for line in (f"error: {message.removeprefix('error: ')}", *notes):
        print(escaped(line), file=sys.stderr)
