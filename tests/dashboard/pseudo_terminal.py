"""A command behind a pseudo-terminal: its screen as a person sees it, keys as a person types them."""

import fcntl
import os
import pty
import select
import signal
import struct
import sys
import termios
import time
from pathlib import Path

import pyte

import comet_sim

ROOT = Path(comet_sim.__file__).parents[1]
LIMIT_S = 60


class PseudoTerminal:
    """`comet-sim` with `arguments` on a terminal of `columns` by `rows`."""

    def __init__(self, arguments, columns, rows, **environment):
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self.open = True
        # A terminal of our own, not forkpty: its settings can be read after the command has ended.
        self._master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.resize(columns, rows)
        kept = {
            name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")
        }
        kept |= {
            "TERM": "xterm-256color",
            "PYTHONPATH": str(ROOT),
            "PYTHONIOENCODING": "utf-8",
            **environment,
        }
        command = (sys.executable, "-m", "comet_sim", *map(str, arguments))
        self.pid = os.fork()
        if not self.pid:
            os.setsid()
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
            for number in range(3):
                os.dup2(self.slave, number)
            os.execve(sys.executable, command, kept)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._master)
        os.close(self.slave)

    def resize(self, columns, rows):
        self.screen.resize(rows, columns)
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, keys):
        os.write(self._master, keys.encode())

    def signal(self, number):
        os.kill(self.pid, number)

    def text(self):
        return "\n".join(line.rstrip() for line in self.screen.display) + "\n"

    def _pump(self, seconds):
        ready, _, _ = select.select([self._master], [], [], seconds)
        if ready:
            data = os.read(self._master, 1 << 16)
            self.raw += data
            self._stream.feed(data)
        return bool(ready)

    def until(self, *wanted):
        """Wait for a screen with all these texts, complete and quiet; return it."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            if not self._pump(0.05) and all(each in self.text() for each in wanted):
                return self.text()
        raise AssertionError(f"{wanted} did not appear:\n{self.text()}")

    def exit_code(self):
        """Wait for the end of the command; what it writes meanwhile is read."""
        end = time.monotonic() + LIMIT_S
        while time.monotonic() < end:
            self._pump(0.05)
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.pid = 0
                while self._pump(0.05):
                    pass
                return os.waitstatus_to_exitcode(status)
        raise AssertionError(f"the command does not end:\n{self.text()}")

    def sane(self):
        """Whether the terminal is as it was: its settings, its own screen, its cursor."""
        left = self.raw.rfind(b"\x1b[?1049l") > self.raw.rfind(b"\x1b[?1049h")
        shown = self.raw.rfind(b"\x1b[?25h") > self.raw.rfind(b"\x1b[?25l")
        return termios.tcgetattr(self.slave) == self.before and left and shown
