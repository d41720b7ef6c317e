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
BEGINNING_BYTES = 4 * KIB
LONG_NUMBER = 20  # digits; httptools refuses such a length anyway
LARGE_HEAD = "the request's head is too large"


@dataclass(frozen=True, slots=True)
class Limits:
    """What one listener accepts."""

    head_bytes: int = 64 * KIB
    fields: int = 200
    body_bytes: int = 64 * KIB
    kept_bytes: int = 64 * MIB  # of a larger body only the beginning is kept: its answer needs no more
    waiting: int = 8  # unanswered requests of one connection
    held_bytes: int = 64 * MIB  # bodies of unanswered requests, over all connections
    connections: int = 1000
    idle_seconds: float = 120.0  # without a complete request or an answer
    request_seconds: float = 10.0  # from the first byte of a request to its last
    handshake_seconds: float = 5.0
    chunks: int = 8192  # of one body: a body in chunks of one byte would cost a call of ours for each
    large_bytes: int = 128 * KIB  # of a body that is not complete; from there on bodies take turns
    large_at_once: int = 1
    large_seconds: float = 1.0  # for one turn, if others wait
    large_bytes_per_second: int = 32 * MIB  # at which they are read: TLS at full speed would fill the event loop
    unread: int = 32  # connections whose answers are not taken


@dataclass(frozen=True, slots=True)
class Rejection:
    """Why a connection is closed. The request is not answered, and nothing more is read."""

    status: int
    why: str
    method: ClassVar[str] = ""
    body: ClassVar[bytes] = b""  # nothing of the request is kept
    size: ClassVar[int] = 0
    is_last: ClassVar[bool] = True


class Ask(Enum):
    """What a client waits for before it sends the body."""

    CONTINUE = "100-continue"


Event = Request | Rejection | Ask


class Parser:
    """The requests of one connection. After a rejection there are no more events.

    `body` may be incomplete. `size` is how much of it has arrived, kept or not.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._parser = httptools.HttpRequestParser(self)
        self._events: list[Event] = []
        self._room = 0
        self._head_read = 0  # bytes of a head that is not complete yet, or of what is between chunks
        self._may_be_large = self._is_over = self._is_begun = False
        self._is_behind = False  # the head: fields behind the body are dropped
        self._chunks = 0
        self._begin()

    @property
    def is_within(self) -> bool:
        """Whether a request has begun and is not complete."""
        return (self._is_begun or self._head_read > 0) and not self._is_over

    def feed(self, data: bytes, room: int) -> list[Event]:
        """The events that these bytes complete. `room` is the number of further requests that fit."""
        if self._is_over:
            return []
        self._events, self._room = [], room
        self._head_read += len(data)  # reset by a complete head, a piece of a body, or a complete request
        self._may_be_large = self._head_read > self._limits.head_bytes
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._events = self._events if self._is_over else self._events[:-1]  # not the request itself
            self._reject(400, "this server speaks HTTP/1.1 only")
        except httptools.HttpParserCallbackError:
            self._reject(500, "internal error")
        except httptools.HttpParserError as error:
            self._reject(400, f"malformed request: {error}")
        if self._head_read > self._limits.head_bytes:
            self._reject(431, LARGE_HEAD)
        events, self._events = self._events, []  # a body is kept for no longer than its request is
        return events

    def stop(self) -> None:
        """Nothing more is read; frees what was kept."""
        self._is_over = True
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._fields: dict[bytes, bytes] = {}
        self.body: bytes | bytearray = b""  # as far as it is there
        self.size = self._declared = 0

    def _check_head(self) -> None:
        if self._may_be_large:  # else there were not so many bytes
            kept = len(self._target) + sum(map(len, self._headers)) + sum(map(len, self._headers.values()))
            if kept > self._limits.head_bytes:
                self._reject(431, LARGE_HEAD)

    def _reject(self, status: int, why: str) -> None:
        if not self._is_over:
            self.stop()
            self._events.append(Rejection(status, why))

    # --- called by httptools -----------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._is_begun, self._is_behind = True, False
        self._chunks = 0
        self._target = b""
        self._fields = {}
        self.size = self._declared = 0

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_over or self._is_behind:
            return
        self._fields[name.lower()] = value
        if len(self._fields) > self._limits.fields:
            self._reject(431, "too many header fields")

    def on_headers_complete(self) -> None:
        self._head_read = 0
        self._is_behind = True
        self._headers, self._fields = self._fields, {}
        length = self._headers.get(b"content-length", b"")
        self._declared = int(length) if length.isdigit() and len(length) < LONG_NUMBER else 0
        self._check_head()
        if b"expect" in self._headers and self._headers[b"expect"].lower() == b"100-continue" and not self._is_over:
            self._events.append(Ask.CONTINUE)

    def on_chunk_header(self) -> None:
        self._chunks += 1
        if self._chunks > self._limits.chunks:
            self._reject(413, "the body comes in too many chunks")

    def on_body(self, body: bytes) -> None:
        self._head_read = 0
        if self._is_over:
            return
        self.size += len(body)
        if self.size > self._limits.body_bytes:
            self._reject(413, "the body is too large")
        elif max(self.size, self._declared) > self._limits.kept_bytes:
            kept = bytes(self.body[:BEGINNING_BYTES])
            self.body = kept + body[: BEGINNING_BYTES - len(kept)]
        else:
            self.body = self._joined(body) if self.body else body

    def on_message_complete(self) -> None:
        self._head_read = 0
        self._is_begun = False
        if self._is_over:
            return
        if not self._room:
            self._reject(429, "too many requests before the first was answered")
            return
        self._room -= 1
        method, target = self._parser.get_method().decode("latin-1"), self._target.decode("latin-1")
        is_last, dropped = not self._parser.should_keep_alive(), self.size - len(self.body)
        self._events.append(Request(method, target, self._headers, bytes(self.body), is_last, dropped))
        self.body, self.size = b"", 0

    def _joined(self, body: bytes) -> bytearray:
        """A body that comes in one piece is not copied; others grow in place."""
        joined = bytearray(self.body) if isinstance(self.body, bytes) else self.body
        joined += body
        return joined
