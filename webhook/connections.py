"""HTTP/1.1 on an event loop: connections, requests, answers. Knows nothing of what is asked.

Made for one caller, the API server. It keeps connections idle for 90 s and does not repeat a POST on one that was
closed, so ours live longer, and when we stop they are not cut: each is told `connection: close` with its next answer.
It dials ahead and leaves connections silent, so a connection costs no thread. Requests that are complete are answered
together, without a task: first all are decided on, then all answers are written.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from http import HTTPStatus
from typing import NamedTuple, cast
from weakref import WeakSet

import httptools

log = logging.getLogger(__name__)

IDLE_SECONDS = 120.0
LARGEST_HEAD = 64 * 1024  # bytes of one line or field that is not complete yet
MOST_FIELDS = 200
MOST_WAITING = 8  # requests that came before the first was answered; the API server sends one at a time
MOST_AT_ONCE = 32  # requests that are decided on before the first answer is written: a millisecond or two
MOST_BUFFERED = 64 * 1024 * 1024  # bytes of bodies that are not complete yet, of all connections together
SWEEP_SECONDS = 5.0
ARRIVAL_SECONDS = 3.0  # for TLS; the API server waits no longer for its answer
BACKLOG = 2048
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class Request(NamedTuple):
    """One request, complete."""

    method: str
    target: str  # path and query
    headers: dict[bytes, bytes]
    body: bytes
    is_last: bool = False  # of its connection, as the caller says


class Response(NamedTuple):
    """One answer."""

    status: int
    body: bytes
    content_type: str = "application/json"


Answer = Callable[[Request], Response | Awaitable[Response]]


class Listener:
    """A listening socket and its connections."""

    def __init__(self, answer: Answer, largest_body: int) -> None:
        self.answer = answer
        self.largest_body = largest_body
        self.is_stopping = False
        self.connections: set[Connection] = set()
        self.arriving: WeakSet[Connection] = WeakSet()  # accepted, and not through with TLS; it may never be
        self.buffered = 0
        self._ready: deque[Connection] = deque()  # each has a request that is complete
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self, sock: socket.socket, context: ssl.SSLContext | None) -> None:
        loop = asyncio.get_running_loop()
        self._socket, self._context = sock, context
        self._server = await loop.create_server(lambda: Connection(self), sock=sock, ssl=context, backlog=BACKLOG)
        self._sweep()

    async def stop(self, grace_seconds: float) -> None:
        """Takes no new connection; lets each open one finish what it has, or send one request more.

        Ends when all are closed, or when the time is up.
        """
        assert self._server is not None
        loop = asyncio.get_running_loop()
        self.is_stopping = True
        accepted = self._accepted()
        self._server.close()  # at once: what the kernel accepts in between is cut
        last = [asyncio.ensure_future(self._take(sock)) for sock in accepted]
        await asyncio.sleep(0)  # they arrive
        deadline = loop.time() + grace_seconds
        while (self.connections or self._expected(loop.time())) and loop.time() < deadline:
            await asyncio.sleep(0.05)
        for each in last:
            each.cancel()
        for connection in list(self.connections):
            connection.close()
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _accepted(self) -> list[socket.socket]:
        """Connections that the kernel has accepted and the loop has not seen yet. Closing the listener cuts them:

        on a busy machine there may be some, and their callers do not dial again.
        """
        accepted = []
        with suppress(OSError):  # there is none, or we have stopped before
            while True:
                accepted.append(self._socket.accept()[0])
        return accepted

    async def _take(self, sock: socket.socket) -> None:
        """A caller that gives up before it is through with TLS is nobody's loss."""
        with suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(lambda: Connection(self), sock, ssl=self._context)

    def _expected(self, now: float) -> bool:
        """Whether one is about to be through with TLS: its caller waits to send a request."""
        return any(each.idle_seconds(now) < ARRIVAL_SECONDS for each in self.arriving)

    def answer_soon(self, connection: Connection) -> None:
        """In another turn of the loop, so that nobody who sends many requests holds up the others."""
        if not self._ready:
            asyncio.get_running_loop().call_soon(self._answer_ready)
        self._ready.append(connection)

    def _answer_ready(self) -> None:
        """Decides on one request of each connection, then writes the answers.

        In turns, decisions and TLS drive each other out of the processor's caches, or so we suppose: with 16
        connections a call took a third more CPU time (ADR 1).
        """
        answers: list[tuple[Connection, Response | None]] = []
        try:
            while self._ready and len(answers) < MOST_AT_ONCE:
                connection = self._ready.popleft()
                answers.append((connection, connection.answer()))
        finally:  # one that fails costs nobody else an answer
            if self._ready:
                asyncio.get_running_loop().call_soon(self._answer_ready)
            for connection, answer in answers:
                if answer is not None:
                    connection.finish(answer)

    def _sweep(self) -> None:
        """Closes what has been idle for longer than the caller would keep it."""
        loop = asyncio.get_running_loop()
        for connection in list(self.connections):
            if connection.idle_seconds(loop.time()) > IDLE_SECONDS:
                connection.close()
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)


class Connection(asyncio.Protocol):
    """One connection: requests are answered one after the other, in their order."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._waiting: deque[Request] = deque()
        self._task: asyncio.Future[Response] | None = None
        self._transport: asyncio.Transport | None = None
        self._active_at = self._loop.time()
        self._is_refused = False
        self._pending = 0
        self._size = 0
        self._begin()
        listener.arriving.add(self)

    def _begin(self) -> None:
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._body: list[bytes] = []
        self._release()

    def _release(self) -> None:
        """What was kept of a body is kept no longer."""
        self._listener.buffered -= self._size
        self._size = 0

    def idle_seconds(self, now: float) -> float:
        return 0.0 if self._task is not None else now - self._active_at

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # --- from the transport ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        self._listener.arriving.discard(self)
        self._listener.connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._listener.connections.discard(self)
        self._release()
        if self._task is not None:
            self._task.cancel()

    def data_received(self, data: bytes) -> None:
        self._active_at = self._loop.time()
        if self._is_refused:
            return
        self._pending += len(data)  # set back by whatever is complete
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse(400, "this server speaks HTTP/1.1 only")
        except httptools.HttpParserError as error:
            self._refuse(400, f"malformed request: {error}")
        if self._pending > LARGEST_HEAD:
            self._refuse(431, "the request's head is too large")

    # --- from the parser ---------------------------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._pending = 0
        self._begin()

    def on_url(self, url: bytes) -> None:
        self._target += url
        if len(self._target) > LARGEST_HEAD:
            self._refuse(414, "the URL is too long")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._pending = 0
        self._headers[name.lower()] = value
        if len(self._headers) > MOST_FIELDS:
            self._refuse(431, "too many header fields")

    def on_headers_complete(self) -> None:
        self._pending = 0
        expects = self._headers.get(b"expect", b"").lower() == b"100-continue"
        if expects and self._task is None and self._transport is not None:
            self._transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def on_body(self, body: bytes) -> None:
        self._pending = 0
        if self._is_refused:
            return
        self._size += len(body)
        self._listener.buffered += len(body)
        self._body.append(body)
        if self._size > self._listener.largest_body:
            self._refuse(413, "the body is too large")
        elif self._listener.buffered > MOST_BUFFERED:
            self._refuse(503, "too many large requests at once")

    def on_message_complete(self) -> None:
        self._pending = 0
        if self._is_refused:
            return
        method = self._parser.get_method().decode("latin-1")
        target, is_last = self._target.decode("latin-1"), not self._parser.should_keep_alive()
        self._waiting.append(Request(method, target, self._headers, b"".join(self._body), is_last))
        self._release()
        if len(self._waiting) > MOST_WAITING:
            self._refuse(429, "too many requests before the first was answered")
        elif len(self._waiting) == 1 and self._task is None:
            self._listener.answer_soon(self)
        # else: whoever answers the one before goes on with this one

    # --- answering ---------------------------------------------------------------------------------------------------

    def answer(self) -> Response | None:
        """The answer to the first request that waits; None where it takes a while, or nobody waits for it any more."""
        if self._is_refused or self._transport is None:
            return None
        try:
            answer = self._listener.answer(self._waiting[0])
        except Exception:
            self._refuse(500, "an error of ours")
            raise  # the loop logs it
        if isinstance(answer, Response):
            return answer
        self._task = asyncio.ensure_future(answer)
        self._task.add_done_callback(self._answered)
        return None

    def _answered(self, task: asyncio.Future[Response]) -> None:
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self.finish(task.result())
        else:
            log.error("an answer failed", exc_info=error)
            self._refuse(500, "an error of ours")

    def finish(self, response: Response) -> None:
        """Writes the answer to the first request that waits; then it is the next one's turn."""
        if self._is_refused:
            return
        self._write(response, self._waiting.popleft().is_last or self._listener.is_stopping)
        if self._waiting:
            self._listener.answer_soon(self)

    def _write(self, response: Response, last: bool) -> None:
        if self._transport is None:
            return
        head = (
            f"HTTP/1.1 {response.status} {_PHRASES[response.status]}\r\n"
            f"content-type: {response.content_type}\r\n"
            f"content-length: {len(response.body)}\r\n"
            f"connection: {'close' if last else 'keep-alive'}\r\n\r\n"
        )
        self._transport.write(head.encode("latin-1") + response.body)
        self._active_at = self._loop.time()
        if last:
            self._transport.close()

    def _refuse(self, status: int, why: str) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        self._waiting.clear()
        self._body.clear()
        self._release()
        self._write(Response(status, f"{why}\n".encode(), "text/plain"), last=True)
