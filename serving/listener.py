"""A listening socket and its connections: which are accepted, which are closed, and a stop that cuts none off.

Made for a caller that is hard to serve, the API server. It keeps connections idle for 90 s and does not repeat a POST
on one that was closed. So ours live longer, and when we stop they are not cut: each gets `connection: close` with its
next answer. It dials ahead and leaves connections silent, so a connection costs no thread. Requests that are complete
are answered together, without a task: first all are decided on, then all answers are written.

Made also for callers that mean harm. We accept connections ourselves, a few at a time, and count them from then on, TLS
or not. When there are too many, `crowd` says which ones go.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress

from serving.connection import ARRIVAL_SECONDS, Connection
from serving.crowd import leaving, source_of
from serving.messages import Answer, Response
from serving.parser import KIB, Limits
from serving.turns import Turns

log = logging.getLogger(__name__)

MOST_AT_ONCE = 32  # requests that are decided on before the first answer is written: a millisecond or two
MOST_ACCEPTED = 16  # connections in one turn of the loop, so that a flood of them does not delay the others
SWEEP_SECONDS = 2.0
BREATH_SECONDS = 0.5  # before we accept again, if the machine has no files left
GOODBYE_SECONDS = 5.0  # to take the last answer and to end TLS
EVICTED = 16  # of so many connections one goes, when there is no room: to look at all of them for each would be slow
BACKLOG = 2048
# For ports that take large bodies: what the kernel keeps of each connection. More would be charged to the container,
# and read at once, before anybody else. Other ports read what is sent too much, or it would cut off the answer.
RECEIVED_BYTES = 32 * KIB


def bind(address: str, *, shared: bool = False, received_bytes: int = 0) -> socket.socket:
    """A socket at HOST:PORT that does not listen yet; `[::]:8090` is for both kinds of addresses.

    `shared` lets several processes listen there (SO_REUSEPORT). `received_bytes` limits what the kernel keeps.
    """
    host, _, port = address.rpartition(":")
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if received_bytes:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, received_bytes)
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
    """A listening socket and its connections. `counted` hears how many there are, each time that this changes."""

    def __init__(self, answer: Answer, limits: Limits, counted: Callable[[int], None] = lambda _: None) -> None:
        self.answer = answer
        self.limits = limits
        self.is_stopping = False
        self.is_secure = False
        self.held_bytes = 0  # of bodies, from the first byte until the answer is written
        self.turns: Turns[Connection] = Turns(limits.large_at_once)
        self.unread: dict[Connection, None] = {}  # whose answers are not taken, the slowest first
        self.arriving: dict[Connection, asyncio.Task[None]] = {}  # accepted, and not through with TLS
        self._counted = counted
        self._connections: dict[Connection, None] = {}
        self._ready: deque[Connection] = deque()  # each has something to answer
        self._sweeper: asyncio.TimerHandle | None = None

    async def start(self, sock: socket.socket, context: ssl.SSLContext | None = None) -> None:
        self.is_secure = context is not None
        self._socket, self._context = sock, context
        sock.setblocking(False)
        sock.listen(BACKLOG)
        self._listen()
        self._sweep()

    async def stop(self, grace_seconds: float) -> None:
        """Takes no new connection; lets each open one finish what it has, or send one request more.

        Ends when all are closed, or when the time is up.
        """
        loop = asyncio.get_running_loop()
        self.is_stopping = True
        if self._socket.fileno() >= 0:  # else we have stopped before
            loop.remove_reader(self._socket)
            self._accept_rest()
            self._socket.close()  # at once: what the kernel accepts in between is cut
        await asyncio.sleep(0)  # they arrive
        deadline = loop.time() + grace_seconds
        while self._is_expecting(loop.time()) and loop.time() < deadline:
            await asyncio.sleep(0.05)
        for task in list(self.arriving.values()):
            task.cancel()
        for connection in list(self._connections):
            connection.close()
        if self._sweeper is not None:
            self._sweeper.cancel()

    def _is_expecting(self, now: float) -> bool:
        """Whether one is open, or about to be through with TLS: its caller waits to send a request."""
        is_open = len(self._connections) > len(self.arriving)
        return is_open or any(each.idle_seconds(now) < ARRIVAL_SECONDS for each in self.arriving)

    # --- who is let in -----------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        if not self.is_stopping:
            asyncio.get_running_loop().add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(MOST_ACCEPTED):
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:  # no files or no memory: it would fail again at once, and for ever
                log.warning("cannot accept connections: %s", error)
                loop = asyncio.get_running_loop()
                loop.remove_reader(self._socket)
                loop.call_later(BREATH_SECONDS, self._listen)
                return
            self._let_in(sock, address[0])

    def _accept_rest(self) -> None:
        """Connections that the kernel has accepted and the loop has not seen yet. Closing the listener cuts them.

        On a busy machine there may be some, and their callers do not dial again.
        """
        with suppress(OSError):  # there is none
            while True:
                sock, address = self._socket.accept()
                self._let_in(sock, address[0])

    def _let_in(self, sock: socket.socket, address: str) -> None:
        """If there is room for it, or if there can be."""
        if len(self._connections) >= self.limits.connections and not self._make_room():
            sock.close()
            return
        sock.setblocking(False)
        connection = Connection(self, source_of(address))
        self._connections[connection] = None
        self._counted(len(self._connections))
        self.arriving[connection] = asyncio.ensure_future(self._take(sock, connection))

    async def _take(self, sock: socket.socket, connection: Connection) -> None:
        """A caller that gives up before it is through with TLS is no loss."""
        seconds = {"ssl_handshake_timeout": self.limits.handshake_seconds, "ssl_shutdown_timeout": GOODBYE_SECONDS}
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: connection, sock, ssl=self._context, **(seconds if self.is_secure else {})
            )
        except OSError:
            log.debug("%s: not through with TLS", connection.source)
        finally:
            if connection in self.arriving:
                self.forget(connection)

    def arrived(self, connection: Connection) -> None:
        """It is through with TLS."""
        self.arriving.pop(connection, None)

    def forget(self, connection: Connection) -> None:
        self.arriving.pop(connection, None)
        if self._connections.pop(connection, self) is None:
            self._counted(len(self._connections))

    def _make_room(self) -> bool:
        """Some have to go, which ones `crowd` says; none where all are being answered."""
        now = asyncio.get_running_loop().time()
        crowd = {each: each.claim(now) for each in self._connections}
        chosen = leaving(crowd, max(1, self.limits.connections // EVICTED))
        for each in chosen:
            task = self.arriving.get(each)
            if task is not None:
                task.cancel()
            self.forget(each)
            each.abort()
        return bool(chosen)

    def relieve(self) -> None:
        """Gives up bodies until there is room again: the largest one of the source that holds the most.

        First of those that wait for their turn, then of those that have it. One that an answer is worked out for goes
        last: it costs the most to do again.
        """
        while self.held_bytes > self.limits.held_bytes:
            holding = [each for each in self._connections if each.held_bytes]
            by_source: Counter[str] = Counter()
            for each in holding:
                by_source[each.source] += each.held_bytes
            chosen = max(holding, key=lambda each: (by_source[each.source], -each.progress, each.held_bytes))
            if chosen.is_under_way:
                chosen.abort()
            else:
                chosen.reject(503, "too many large requests at once")

    # --- who is answered ---------------------------------------------------------------------------------------------

    def answer_soon(self, connection: Connection) -> None:
        """In another turn of the loop, so that a client with many requests does not delay the others."""
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
        finally:  # a failure costs the other connections no answer
            if self._ready:
                asyncio.get_running_loop().call_soon(self._answer_ready)
            for connection, answer in answers:
                if answer is not None:
                    connection.finish(answer)

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        for connection in list(self._connections):
            if connection not in self.arriving:  # TLS has a time-out of its own
                connection.look(loop.time())
        self._sweeper = loop.call_later(SWEEP_SECONDS, self._sweep)
