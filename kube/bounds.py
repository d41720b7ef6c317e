"""How long an answer may take and how large it may be, whatever the server does.

A time-out of a socket is for one read: an answer that comes a byte at a time, or never ends, would hold its reader for
ever. So each answer, from its first byte, is read through one meter, below HTTP and above TLS, that knows when time or
room is up. Nothing is copied for that.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from http.client import HTTPResponse
from typing import Any

import urllib3

BUFFER_BYTES = 1 << 16
SLACK = 1.1  # the last read may last so many times longer than there is time left


class TooMuch(Exception):
    """The answer is larger than its bounds."""


class Bounds:
    """Of one answer, counted from now. A stream is let go once it has begun: then its silence alone is bounded."""

    def __init__(self, seconds: float, most_bytes: int) -> None:
        self._deadline = time.monotonic() + seconds
        self._most_bytes = most_bytes
        self._received = 0
        self._silence: float | None = None

    def let_go(self, silence_seconds: float) -> None:
        self._silence = silence_seconds

    def seconds_left(self) -> float:
        """For the next read. Raises TimeoutError where there is none left, as a socket does."""
        if self._silence is not None:
            return self._silence
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError("timed out")
        return left

    def count(self, received: int) -> None:
        self._received += received
        if self._received > self._most_bytes and self._silence is None:
            raise TooMuch(f"more than {self._most_bytes} bytes")


_bounds: ContextVar[Bounds] = ContextVar("bounds")  # of the request that this thread is sending


@contextmanager
def within(bounds: Bounds) -> Iterator[None]:
    """Answers to requests that are sent meanwhile, by this thread, have these bounds."""
    token = _bounds.set(bounds)
    try:
        yield
    finally:
        _bounds.reset(token)


class _Meter(io.RawIOBase):
    """What a connection receives."""

    def __init__(self, sock: socket.socket, raw: io.RawIOBase, bounds: Bounds) -> None:
        self._sock = sock
        self._raw = raw  # not read from; keeps the socket open until it is closed itself
        self._bounds = bounds
        self._in_force = 0.0  # the socket's time-out; to set it is a system call, and TLS comes in records of 16 KiB

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        left = self._bounds.seconds_left()
        if not left <= self._in_force <= left * SLACK:
            self._sock.settimeout(left)
            self._in_force = left
        received = self._sock.recv_into(buffer)
        self._bounds.count(received)
        return received

    def fileno(self) -> int:
        return self._raw.fileno()

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(HTTPResponse):
    """An answer that is read through a meter."""

    def __init__(self, sock: socket.socket, *more: Any, **named: Any) -> None:
        super().__init__(sock, *more, **named)
        self.fp = io.BufferedReader(_Meter(sock, self.fp.detach(), _bounds.get()), BUFFER_BYTES)


def bind(manager: urllib3.PoolManager) -> None:
    """Lets all its connections read their answers within bounds. Before the first request."""
    manager.pool_classes_by_scheme = {scheme: _bound(pool) for scheme, pool in manager.pool_classes_by_scheme.items()}


def _bound(pool: type[Any]) -> type[Any]:
    """The same name, which errors show."""
    connection = type(pool.ConnectionCls.__name__, (pool.ConnectionCls,), {"response_class": _Response})
    return type(pool.__name__, (pool,), {"ConnectionCls": connection})
