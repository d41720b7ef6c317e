"""Serves the dashboard: HTTP/1.1 on an event loop, on a thread of its own.

Fifty pages that ask every few seconds must not cost what the rebalancer itself costs. A connection costs no thread and
stays open; what was asked before is answered within the callback that completes the request. All else goes through
Flask's WSGI callable, on other threads, so that a drill holds up nobody who only looks; once for all who ask the same.
"""

from __future__ import annotations

import asyncio
import io
import logging
import math
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any, NamedTuple, cast
from urllib.parse import unquote

import httptools
import uvloop
from werkzeug.wrappers import Response

from dashboard.access import HEADERS, Guard
from dashboard.answercache import Desk, Reply
from dashboard.app import API, create_app

log = logging.getLogger(__name__)

IDLE_SECONDS = 75.0
SWEEP_SECONDS = 5.0
MOST_CONNECTIONS = 1000
LARGEST_HEAD = 32 * 1024  # bytes, body included: nobody has anything to send
MOST_WAITING = 8
WORKERS = 4
FEW = 15  # connections, or questions within MANY_SECONDS: a page and its files are less
MANY_SECONDS = 0.5
NAP_SECONDS = 0.15
TURNS = 3  # of the event loop
_PHRASES = {status.value: status.phrase for status in HTTPStatus}
_FIXED = "".join(f"{name}: {value}\r\n" for name, value in {**HEADERS, "Cache-Control": "no-store"}.items())


class Request(NamedTuple):
    """One request, complete. Names of headers are in lower case."""

    method: str
    target: str
    headers: dict[str, str]
    is_last: bool  # of its connection


class Gateway:
    """Answers requests: at once what is known, through Flask what is not."""

    def __init__(self, desk: Desk, guard: Guard) -> None:
        self.desk = desk
        self._guard = guard
        self._app = create_app(desk, guard)

    def lets_in(self, request: Request) -> bool:
        """Whether it asks for data, and may."""
        is_asking = request.method == "GET" and request.target.startswith(API)
        return is_asking and self._guard.refusal("GET", request.headers, is_data=True) is None

    def quick(self, request: Request) -> bytes | None:
        """None: it takes longer, or is none of those who are let in."""
        if not self.lets_in(request):
            return None
        reply = self.desk.quick(
            request.target,
            takes_gzip="gzip" in request.headers.get("accept-encoding", ""),
            known=request.headers.get("if-none-match", ""),
        )
        return None if reply is None else _written(reply, request.is_last)

    def slow(self, request: Request) -> bytes:
        """On a thread of its own."""
        answer = Response.from_app(cast(Any, self._app), _environ(request), buffered=True)
        return _head(answer.status_code, list(answer.headers.items()), request.is_last) + answer.get_data()


def _written(reply: Reply, is_last: bool) -> bytes:
    """Written once for all who are told the same."""
    known = reply.written.get(is_last)
    if known is not None:
        return known
    told = "".join(f"{name}: {value}\r\n" for name, value in reply.headers.items())
    length = "" if reply.status == 304 else f"Content-Length: {len(reply.body)}\r\n"
    ends = "Connection: close\r\n" if is_last else ""
    head = f"HTTP/1.1 {reply.status} {_PHRASES[reply.status]}\r\n{_FIXED}{told}{length}{ends}\r\n"
    reply.written[is_last] = head.encode("latin-1") + reply.body
    return reply.written[is_last]


def _head(status: int, headers: list[tuple[str, str]], is_last: bool) -> bytes:
    told = "".join(f"{name}: {value}\r\n" for name, value in headers)
    ends = "Connection: close\r\n" if is_last else ""
    return f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n{told}{ends}\r\n".encode("latin-1")


def _environ(request: Request) -> dict[str, Any]:
    path, _, query = request.target.partition("?")
    named = {f"HTTP_{name.upper().replace('-', '_')}": value for name, value in request.headers.items()}
    return {
        **named,
        "REQUEST_METHOD": request.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote(path, "latin-1"),
        "QUERY_STRING": query,
        "SERVER_NAME": "dashboard",
        "SERVER_PORT": "0",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


class Door:
    """The open connections."""

    def __init__(self, gateway: Gateway) -> None:
        self.gateway = gateway
        self.workers = ThreadPoolExecutor(WORKERS, "page")
        self._open: set[Connection] = set()
        self._working: dict[str, list[tuple[Connection, Request]]] = {}  # by target: who waits for the same
        self._heard = deque([-math.inf] * FEW, FEW)  # when the last few questions came
        self._napped_at: float | None = None

    def come(self, connection: Connection) -> bool:
        """Whether it is let in: there are not too many."""
        if len(self._open) >= MOST_CONNECTIONS:
            return False
        self._open.add(connection)
        self.gateway.desk.watchers = len(self._open)
        return True

    def go(self, connection: Connection) -> None:
        self._open.discard(connection)
        self.gateway.desk.watchers = len(self._open)

    def work(self, request: Request, asker: Connection) -> None:
        """On another thread. What many ask for at the same moment is worked out for the first of them.

        Of those who are let in, that is: nobody waits for a stranger.
        """
        is_shared = self.gateway.lets_in(request)
        if is_shared and request.target in self._working:
            self._working[request.target].append((asker, request))
            return
        if is_shared:
            self._working[request.target] = []
        done = asyncio.get_running_loop().run_in_executor(self.workers, self.gateway.slow, request)
        done.add_done_callback(lambda done: self._worked(done, request, asker, is_shared=is_shared))

    def _worked(self, done: asyncio.Future[bytes], request: Request, asker: Connection, *, is_shared: bool) -> None:
        others = self._working.pop(request.target, []) if is_shared else []
        asker.worked(done, request.is_last)
        for each, asked in others:
            each.again(asked)

    def hear(self, loop: asyncio.AbstractEventLoop) -> None:
        """A question has come. Where many do, they are gathered: being woken by each costs ten times its answer."""
        self._heard.append(loop.time())
        are_many = len(self._open) > FEW or self._heard[-1] - self._heard[0] < MANY_SECONDS
        if are_many and self._napped_at is None:
            self._napped_at = loop.time()
            loop.call_soon(self._nap, loop)

    def _nap(self, loop: asyncio.AbstractEventLoop, turns: int = 0) -> None:
        """All that comes meanwhile is heard within the next turns: a new connection, its request, its end."""
        if turns:
            loop.call_soon(self._nap, loop, turns - 1)
        elif self._napped_at is not None and self._heard[-1] >= self._napped_at:
            self._napped_at = loop.time()
            time.sleep(NAP_SECONDS)
            loop.call_soon(self._nap, loop, TURNS)
        else:
            self._napped_at = None

    def sweep(self) -> None:
        """Closes what has said nothing for too long."""
        loop = asyncio.get_running_loop()
        for each in [each for each in self._open if each.idle_seconds(loop.time()) > IDLE_SECONDS]:
            each.close()
        loop.call_later(SWEEP_SECONDS, self.sweep)

    def close(self) -> None:
        for each in list(self._open):
            each.close()
        self.workers.shutdown(wait=False, cancel_futures=True)


class Connection(asyncio.Protocol):
    """One connection: requests are answered one after the other, in their order."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._loop = asyncio.get_running_loop()
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[Request] = deque()
        self._is_busy = self._is_refused = self._is_ending = self._is_full = False
        self._active_at = self._loop.time()
        self._begin()

    def _begin(self) -> None:
        self._target = b""
        self._headers: dict[str, str] = {}
        self._size = 0

    def idle_seconds(self, now: float) -> float:
        return 0.0 if self._is_busy else now - self._active_at

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    # --- from the transport ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        if not self._door.come(self):
            self._refuse(503)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._door.go(self)

    def eof_received(self) -> bool:
        """Who has said all still hears the answer."""
        self._is_ending = True
        return self._is_busy

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            return
        self._active_at = self._loop.time()
        self._size += len(data)  # set back by each request that is complete
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._refuse(400)
        if self._size > LARGEST_HEAD:
            self._refuse(431)

    def pause_writing(self) -> None:
        """Who does not read what it was told is not heard any more, until it does."""
        self._is_full = True
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_writing(self) -> None:
        self._is_full = False
        if self._transport is not None:
            self._transport.resume_reading()
        self._next()

    # --- from the parser ---------------------------------------------------------------------------------------------

    def on_url(self, url: bytes) -> None:
        self._target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode("latin-1")
        is_last = not self._parser.should_keep_alive()
        self._waiting.append(Request(method, self._target.decode("latin-1"), self._headers, is_last))
        self._begin()
        self._door.hear(self._loop)
        if len(self._waiting) > MOST_WAITING:
            self._refuse(429)
        elif not self._is_busy:
            self._next()

    # --- answering ---------------------------------------------------------------------------------------------------

    def _next(self) -> None:
        while self._waiting and not self._is_busy and not self._is_refused and not self._is_full:
            request = self._waiting.popleft()
            answer = self._door.gateway.quick(request)
            if answer is not None:
                self._write(answer, request.is_last)
                continue
            self._is_busy = True
            self._door.work(request, self)

    def again(self, request: Request) -> None:
        """Somebody else's answer to the same is there."""
        self._is_busy = False
        self._waiting.appendleft(request)
        self._go_on()

    def worked(self, done: asyncio.Future[bytes], is_last: bool) -> None:
        self._is_busy = False
        if done.cancelled():
            return
        error = done.exception()
        if error is not None:
            log.error("an answer failed", exc_info=error)
            self._refuse(500)
            return
        self._write(done.result(), is_last)
        self._go_on()

    def _go_on(self) -> None:
        self._next()
        if self._is_ending and not self._is_busy:
            self.close()

    def _write(self, answer: bytes, is_last: bool) -> None:
        if self._transport is None:
            return
        self._transport.write(answer)
        self._active_at = self._loop.time()
        if is_last:
            self._transport.close()

    def _refuse(self, status: int) -> None:
        if self._is_refused:
            return
        self._is_refused = True
        self._waiting.clear()
        self._write(_head(status, [("Content-Length", "0")], is_last=True), is_last=True)


@contextmanager
def serving(desk: Desk, guard: Guard, address: str) -> Iterator[int]:
    """Serves it at HOST:PORT meanwhile; gives the port."""
    listener = _listening(address)
    loop = uvloop.new_event_loop()
    door = Door(Gateway(desk, guard))
    thread = threading.Thread(target=_serve, args=(loop, door, listener), name="page", daemon=True)
    thread.start()
    try:
        yield int(listener.getsockname()[1])
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()


def _listening(address: str) -> socket.socket:
    """`[::]:8090` is for both kinds of addresses."""
    host, _, port = address.rpartition(":")
    is_six = ":" in host
    return socket.create_server(
        (host.strip("[]"), int(port)),
        family=socket.AF_INET6 if is_six else socket.AF_INET,
        backlog=512,
        dualstack_ipv6=is_six and socket.has_dualstack_ipv6(),
    )


def _serve(loop: asyncio.AbstractEventLoop, door: Door, listener: socket.socket) -> None:
    asyncio.set_event_loop(loop)
    server = loop.run_until_complete(loop.create_server(lambda: Connection(door), sock=listener))
    loop.call_soon(door.sweep)
    try:
        loop.run_forever()
    finally:
        server.close()
        door.close()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
