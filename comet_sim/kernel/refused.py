"""The half of an asyncio loop that reaches outside the process: all of it refused under a virtual clock.

A thread or a socket that answers in real time would race virtual time and make a run irreproducible.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextvars import Context
from typing import Any, NoReturn, TypeVarTuple

from comet_sim.kernel.errors import RealIOError

__all__ = ["NoRealIO"]

Ts = TypeVarTuple("Ts")


def _refused(name: str, what: str) -> Any:
    def method(self: object, *args: object, **kwargs: object) -> NoReturn:
        raise RealIOError(
            f"loop.{name}: {what} cannot be used on a virtual clock, which never waits for real time"
        )

    method.__name__ = name
    method.__doc__ = f"Refuse: {what} cannot be used on a virtual clock."
    return method


def _sockets(name: str) -> Any:
    return _refused(name, "sockets")


class NoRealIO(asyncio.AbstractEventLoop):
    """Loop that refuses sockets, pipes, processes, threads and signals with one `RealIOError` each."""

    getaddrinfo = _sockets("getaddrinfo")
    getnameinfo = _sockets("getnameinfo")
    create_connection = _sockets("create_connection")
    create_server = _sockets("create_server")
    sendfile = _sockets("sendfile")
    start_tls = _sockets("start_tls")
    create_unix_connection = _sockets("create_unix_connection")
    create_unix_server = _sockets("create_unix_server")
    connect_accepted_socket = _sockets("connect_accepted_socket")
    create_datagram_endpoint = _sockets("create_datagram_endpoint")
    sock_recv = _sockets("sock_recv")
    sock_recv_into = _sockets("sock_recv_into")
    sock_recvfrom = _sockets("sock_recvfrom")
    sock_recvfrom_into = _sockets("sock_recvfrom_into")
    sock_sendall = _sockets("sock_sendall")
    sock_sendto = _sockets("sock_sendto")
    sock_connect = _sockets("sock_connect")
    sock_accept = _sockets("sock_accept")
    sock_sendfile = _sockets("sock_sendfile")
    add_reader = _refused("add_reader", "file descriptors")
    add_writer = _refused("add_writer", "file descriptors")
    connect_read_pipe = _refused("connect_read_pipe", "pipes")
    connect_write_pipe = _refused("connect_write_pipe", "pipes")
    subprocess_shell = _refused("subprocess_shell", "subprocesses")
    subprocess_exec = _refused("subprocess_exec", "subprocesses")
    run_in_executor = _refused("run_in_executor", "executors and threads")
    set_default_executor = _refused("set_default_executor", "executors and threads")
    add_signal_handler = _refused("add_signal_handler", "signal handlers")

    def remove_reader(self, fd: Any) -> bool:
        """Return False: there never is a reader."""
        return False

    def remove_writer(self, fd: Any) -> bool:
        """Return False: there never is a writer."""
        return False

    def remove_signal_handler(self, sig: int) -> bool:
        """Return False: there never is a handler."""
        return False

    async def shutdown_default_executor(self, *_: float | None) -> None:
        """Do nothing: there never is an executor."""

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """Do as `call_soon` does; from another thread, which would race virtual time, `RealIOError`."""
        if not self._in_own_thread():
            raise RealIOError("loop.call_soon_threadsafe: other threads cannot be used on a virtual clock")
        return self.call_soon(callback, *args, context=context)

    def _in_own_thread(self) -> bool:
        raise NotImplementedError
