"""A listening socket and its connections: limits, back-pressure, and an end that cuts nobody off.

Made for a caller that is hard to serve, the API server. It keeps connections idle for 90 s and does not repeat a POST
on one that was closed. So ours live longer, and when we stop they are not cut: each gets `connection: close` with its
next answer. It dials ahead and leaves connections silent, so a connection costs no thread. Requests that are complete
are answered together, without a task: first all are decided on, then all answers are written.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import cast
from weakref import WeakSet

from serving.messages import CONTINUE, Request, Response, text, written
from serving.parser import Ask, Limits, Parser, Rejection

log = logging.getLogger(__name__)

MOST_AT_ONCE = 32  # requests that are decided on before the first answer is written: a millisecond or two
SWEEP_SECONDS = 5.0
ARRIVAL_SECONDS = 3.0  # for TLS; the API server waits no longer for its answer
BACKLOG = 2048

Answer = Callable[[Request], Response | Awaitable[Response]]


def bind(address: str, *, shared: bool = False) -> socket.socket:
    """A socket at HOST:PORT that does not listen yet; `[::]:8090` is for both kinds of addresses.

    `shared` lets several processes listen there (SO_REUSEPORT).
    """
    host, _, port = address.rpartition(":")
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if ":" in host:
        bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
    if shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind((host.strip("[]"), int(port)))
    except OSError:
        bound.close()
        raise
    return bound


class Listener:
    """A listening socket and its connections. `counted` hears how many are open, each time that this changes."""

    def __init__(self, answer: Answer, limits: Limits, counted: Callable[[int], None] = lambda _: None) -> None:
        self.answer = answer
        self.limits = limits
        self.is_stopping = False
        self.is_secure = False
        self.held_bytes = 0  # of bodies, from the first byte until the answer is written
        self._counted = counted
        self._connections: set[Connection] = set()
        self.arriving: WeakSet[Connection] = WeakSet()  # accepted, and not through with TLS; it may never be
        self._ready: deque[Connection] = deque()  # each has something to answer
        self._server: asyncio.Server | None = None
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self, sock: socket.socket, context: ssl.SSLContext | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.is_secure = context is not None
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
        while (self._connections or self._expected(loop.time())) and loop.time() < deadline:
            await asyncio.sleep(0.05)
        for each in last:
            each.cancel()
        for connection in list(self._connections):
            connection.close()
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _accepted(self) -> list[socket.socket]:
        """Connections that the kernel has accepted and the loop has not seen yet. Closing the listener cuts them.

        On a busy machine there may be some, and their callers do not dial again.
        """
        accepted = []
        with suppress(OSError):  # there is none, or we have stopped before
            while True:
                accepted.append(self._socket.accept()[0])
        return accepted

    async def _take(self, sock: socket.socket) -> None:
        """A caller that gives up before it is through with TLS is no loss."""
        with suppress(OSError):
            await asyncio.get_running_loop().connect_accepted_socket(lambda: Connection(self), sock, ssl=self._context)

    def _expected(self, now: float) -> bool:
        """Whether one is about to be through with TLS: its caller waits to send a request."""
        return any(each.idle_seconds(now) < ARRIVAL_SECONDS for each in self.arriving)

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for it."""
        self.arriving.discard(connection)
        if len(self._connections) >= self.limits.connections:
            return False
        self._connections.add(connection)
        self._counted(len(self._connections))
        return True

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._counted(len(self._connections))

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
        for connection in list(self._connections):
            if connection.idle_seconds(loop.time()) > self.limits.idle_seconds:
                connection.close()
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)


class Connection(asyncio.Protocol):
    """One connection: requests are answered one after the other, in their order."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._limits = listener.limits
        self._loop = asyncio.get_running_loop()
        self._parser = Parser(listener.limits)
        self._waiting: deque[Request | Rejection] = deque()  # the first may be under way
        self._task: asyncio.Future[Response] | None = None
        self._transport: asyncio.Transport | None = None
        self._active_at = self._loop.time()
        self._held_bytes = 0
        self._is_ready = self._is_full = self._is_paused = self._is_ending = False
        listener.arriving.add(self)

    def idle_seconds(self, now: float) -> float:
        """Since something was complete: a request that drips in byte by byte is idle, and so is who does not read."""
        return 0.0 if self._task is not None else now - self._active_at

    def close(self) -> None:
        """What was written is still sent, except to a client that does not read it."""
        if self._transport is not None:
            self._transport.abort() if self._is_full else self._transport.close()

    # --- from the transport ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        if not self._listener.admit(self):
            self._reject(503, "too many connections")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._waiting.clear()
        self._parser.stop()
        self._go_on()
        self._listener.forget(self)
        if self._task is not None:
            self._task.cancel()

    def eof_received(self) -> bool:
        """A client that has sent all still gets its answers. (TLS cannot end in one direction only.)"""
        self._is_ending = True
        return bool(self._waiting) and not self._listener.is_secure

    def data_received(self, data: bytes) -> None:
        for event in self._parser.feed(data, self._limits.waiting - len(self._waiting)):
            if isinstance(event, Ask):
                self._invite()
            else:
                self._waiting.append(event)
                self._active_at = self._loop.time()
        self._go_on()
        if self._listener.held_bytes > self._limits.held_bytes:
            self._reject(503, "too many large requests at once")

    def pause_writing(self) -> None:
        """A client that does not read its answers is not read from, and not answered, until it does."""
        self._is_full = True
        self._pause(True)

    def resume_writing(self) -> None:
        self._is_full = False
        self._go_on()

    # --- answering ---------------------------------------------------------------------------------------------------

    def answer(self) -> Response | None:
        """The answer to the first that waits; None where it takes a while, or where the client has gone."""
        self._is_ready = False
        if not self._waiting:
            return None
        first = self._waiting[0]
        if isinstance(first, Rejection):
            return text(first.status, first.why)
        try:
            answer = self._listener.answer(first)
        except Exception:
            self._reject(500, "an error of ours")
            raise  # the loop logs it
        if isinstance(answer, Response):
            return answer
        self._task = asyncio.ensure_future(answer)
        self._task.add_done_callback(self._answered)
        return None

    def finish(self, response: Response) -> None:
        """Writes the answer to the first that waits; then it is the next one's turn."""
        if self._transport is None:
            return
        first = self._waiting.popleft()
        is_over = self._listener.is_stopping or self._is_ending
        is_last = first.is_last or (is_over and not self._waiting)
        self._transport.write(written(response, is_last=is_last, is_head=first.method == "HEAD"))
        self._active_at = self._loop.time()
        if is_last:
            self._end()
        self._go_on()

    def _answered(self, task: asyncio.Future[Response]) -> None:
        self._task = None
        if task.cancelled():
            return
        error = task.exception()
        if error is None:
            self.finish(task.result())
        else:
            log.error("an answer failed", exc_info=error)
            self._reject(500, "an error of ours")

    def _go_on(self) -> None:
        """After whatever has changed: counts bodies, reads or does not, and lets the next one be answered."""
        waiting, held = self._waiting, len(self._parser.body)
        for each in waiting:
            held += len(each.body)
        self._listener.held_bytes += held - self._held_bytes
        self._held_bytes = held
        if self._is_paused or 2 * len(waiting) > self._limits.waiting:
            self._pause(self._is_full or bool(waiting))
        if waiting and not (self._is_ready or self._is_full) and self._task is None and self._transport is not None:
            self._is_ready = True
            self._listener.answer_soon(self)

    def _pause(self, is_paused: bool) -> None:
        """Reads no more while answers are not taken, or once many requests wait: then until all are answered."""
        if is_paused is self._is_paused or self._transport is None or self._transport.is_closing():
            return
        self._is_paused = is_paused
        if is_paused:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def _end(self) -> None:
        self._waiting.clear()
        self._parser.stop()
        if self._transport is not None:
            self._transport.close()

    def _reject(self, status: int, why: str) -> None:
        """Instead of all that waits, except for what is under way."""
        self._parser.stop()
        under_way = [] if self._task is None else [self._waiting[0]]
        self._waiting = deque([*under_way, Rejection(status, why)])
        self._go_on()

    def _invite(self) -> None:
        """To send the body, unless earlier answers are due first."""
        if not self._waiting and self._transport is not None:
            self._transport.write(CONTINUE)
