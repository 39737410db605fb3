"""Watching a run: its screen in a thread of its own, while the run keeps the main thread and its signals."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import TracebackType
from typing import Self

from rich.console import Console

from comet_sim.dashboard.feed import Feed
from comet_sim.dashboard.gate import Gate
from comet_sim.dashboard.terminal import screen_loop, single_keys
from comet_sim.dashboard.view import View

__all__ = ["LiveScreen"]

_FACTOR = 2
_POLL_S = 0.2
_SIGNALS = ("SIGINT", "SIGTERM", "SIGHUP")


class LiveScreen:
    """The screen of one run, all its systems one after the other; leaves the terminal as it was."""

    def __init__(self, console: Console, title: str, pace: float | None, *, paused: bool = False) -> None:
        self.page = 0
        self.help = False
        self.typing = False
        self.ended = False
        self._console = console
        self._title = title
        self._pace = pace
        self._feed = Feed(title, pace, paused=paused)
        self._left = threading.Event()
        self._failed: BaseException | None = None
        self._thread = threading.Thread(target=self._loop, name="comet-sim screen", daemon=True)
        self._wake_read, self._wake = os.pipe()

    def __enter__(self) -> Self:
        self._keys = single_keys(sys.stdin.fileno())
        self._keys.__enter__()
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Leave the screen; a second time does nothing."""
        if self._thread.is_alive():
            self.ended = True
            os.write(self._wake, b".")
            self._thread.join()
        if self._wake >= 0:
            os.close(self._wake)
            os.close(self._wake_read)
            self._wake = -1
            self._keys.__exit__(None, None, None)
        if self._failed is not None and not isinstance(self._failed, (OSError, EOFError)):
            failed, self._failed = self._failed, None
            raise failed

    def start(self) -> Feed:
        """Return what the next system of the run reports to, and show that from now on."""
        if self._feed.started:
            before = self._feed.gate
            self._feed = Feed(self._title, before.pace, paused=False)
        return self._feed

    def stay(self) -> None:
        """Say that the run has ended, and wait until somebody leaves the screen."""
        self._feed.finished = True
        os.write(self._wake, b".")
        # In steps: a signal's handler runs between them.
        while self._thread.is_alive() and not self._left.wait(_POLL_S):
            pass

    # The screen's thread

    def _loop(self) -> None:
        try:
            screen_loop(self._console, self, sys.stdin.fileno(), self._wake_read)
        except BaseException as error:
            # A run does not stand still because its screen is gone.
            self._failed = error
        finally:
            self._feed.gate.open()
            self._left.set()

    def view(self) -> View:
        """Return what to draw now."""
        return self._feed.view()

    def key(self, key: str) -> None:
        """Take a key."""
        if key == "q":
            if self._feed.finished:
                self.ended = True
            else:
                self._interrupt()
        elif not self._feed.finished:
            _turn(self._feed.gate, key, self._feed.speed())

    def _interrupt(self) -> None:
        """End the run as Ctrl-C does: in its own thread, at a moment it can clean up from."""
        main = threading.main_thread().ident
        for name in _SIGNALS:
            number = getattr(signal, name)
            if main is not None and signal.getsignal(number) not in (signal.SIG_IGN, None):
                signal.pthread_kill(main, number)
                return


def _turn(gate: Gate, key: str, measured: float | None) -> None:
    """Do what a key means to the gate; from full speed, slower means than was measured."""
    step = {"n": "round", "right": "round", "o": "op", "t": "token", "s": "stall"}.get(key)
    if step is not None:
        gate.step(step)
    elif key == " ":
        gate.pause(not gate.paused)
    elif key == "m":
        gate.set_pace(None)
    elif key in "+=" and gate.pace is not None:
        gate.set_pace(gate.pace * _FACTOR)
    elif key in "-_":
        now = gate.pace if gate.pace is not None else measured
        if now:
            gate.set_pace(now / _FACTOR)
