"""Bytes in, complete requests out; or a rejection. Sans-I/O: knows no socket, no clock and no event loop.

Limits count what is kept. The head is the request line and all fields together, trailers included.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import httptools

from serving.messages import Request

KIB, MIB = 1024, 1024**2
LARGE_HEAD = "the request's head is too large"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one listener takes."""

    head_bytes: int = 64 * KIB
    fields: int = 200
    body_bytes: int = 64 * KIB
    waiting: int = 8  # requests of one connection that are not answered yet
    held_bytes: int = 64 * MIB  # of bodies that are not answered yet, of all connections together
    connections: int = 1000
    idle_seconds: float = 120.0  # without a complete request or an answer


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a connection is closed: what was sent is not answered, and nothing more is read."""

    status: int
    why: str
    method: ClassVar[str] = ""
    body: ClassVar[bytes] = b""  # nothing of the request is kept
    is_last: ClassVar[bool] = True


class Ask(Enum):
    """What a client waits for before it sends the body."""

    CONTINUE = "100-continue"


Event = Request | Rejection | Ask


class Parser:
    """The requests of one connection. After a rejection nothing more comes out. `body` is not complete yet."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self._events: list[Event] = []
        self._room = 0
        self._head_read = 0  # bytes of a head that is not complete yet, or of what is between chunks
        self._may_be_large = self._is_over = False
        self._begin()

    def feed(self, data: bytes, room: int) -> list[Event]:
        """What is complete with these bytes. `room` is for how many requests more there is room."""
        if self._is_over:
            return []
        self._events, self._room = [], room
        self._head_read += len(data)  # set back by a head, a piece of a body, a request that is complete
        self._may_be_large = self._head_read > self._limits.head_bytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._events = self._events if self._is_over else self._events[:-1]  # not the request itself
            self._reject(400, "this server speaks HTTP/1.1 only")
        except httptools.HttpParserCallbackError:
            self._reject(500, "an error of ours")
        except httptools.HttpParserError as error:
            self._reject(400, f"malformed request: {error}")
        if self._head_read > self._limits.head_bytes:
            self._reject(431, LARGE_HEAD)
        return self._events

    def stop(self) -> None:
        """Nothing more is wanted: what was kept is let go."""
        self._is_over = True
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._fields: dict[bytes, bytes] = {}  # what comes behind the body is dropped
        self.body: bytes | bytearray = b""  # as far as it is there

    def _check_head(self) -> None:
        if len(self._headers) > self._limits.fields:
            self._reject(431, "too many header fields")
        elif self._may_be_large:  # else there were not so many bytes
            kept = len(self._target) + sum(map(len, self._headers)) + sum(map(len, self._headers.values()))
            if kept > self._limits.head_bytes:
                self._reject(431, LARGE_HEAD)

    def _reject(self, status: int, why: str) -> None:
        if not self._is_over:
            self.stop()
            self._events.append(Rejection(status, why))

    # --- called by httptools -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._target = b""
        self._fields = {}

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._fields[name.lower()] = value

    def on_headers_complete(self) -> None:
        self._head_read = 0
        self._headers, self._fields = self._fields, {}
        self._check_head()
        if b"expect" in self._headers and self._headers[b"expect"].lower() == b"100-continue" and not self._is_over:
            self._events.append(Ask.CONTINUE)

    def on_body(self, body: bytes) -> None:
        self._head_read = 0
        if self._is_over:
            return
        self.body = self._joined(body) if self.body else body
        if len(self.body) > self._limits.body_bytes:
            self._reject(413, "the body is too large")

    def on_message_complete(self) -> None:
        self._head_read = 0
        if self._is_over:
            return
        if not self._room:
            self._reject(429, "too many requests before the first was answered")
            return
        self._room -= 1
        method, target = self._parser.get_method().decode("latin-1"), self._target.decode("latin-1")
        is_last = not self._parser.should_keep_alive()
        self._events.append(Request(method, target, self._headers, bytes(self.body), is_last))
        self.body = b""

    def _joined(self, body: bytes) -> bytearray:
        """A body that comes in one piece is not copied; others grow in place."""
        joined = bytearray(self.body) if isinstance(self.body, bytes) else self.body
        joined += body
        return joined
