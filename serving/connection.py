"""One connection: its requests are answered one after the other, in their order, within limits."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import Protocol, cast

from serving.crowd import Rank, Seat
from serving.messages import CONTINUE, Answer, Request, Response, text, written
from serving.parser import KIB, Ask, Limits, Parser, Rejection
from serving.turns import Turns

log = logging.getLogger(__name__)

ARRIVAL_SECONDS = 3.0  # for TLS and a request; the API server waits no longer for its answer
LARGEST_READ = 64 * KIB  # what is read ahead of a connection that is paused


class Host(Protocol):
    """What a connection asks of its listener."""

    answer: Answer
    limits: Limits
    is_stopping: bool
    is_secure: bool
    held_bytes: int
    turns: Turns[Connection]
    unread: dict[Connection, None]

    def arrived(self, connection: Connection) -> None:
        """It is through with TLS."""

    def forget(self, connection: Connection) -> None:
        """It is gone."""

    def answer_soon(self, connection: Connection) -> None:
        """Something of it is complete."""

    def relieve(self) -> None:
        """More bodies are held than may be."""


class Connection(asyncio.Protocol):
    """One connection. Its listener counts it from the moment that it is accepted."""

    def __init__(self, listener: Host, source: str) -> None:
        self.source = source
        self.held_bytes = 0  # of bodies, from the first byte until the answer is written
        self._listener = listener
        self._limits = listener.limits
        self._loop = asyncio.get_running_loop()
        self._parser = Parser(listener.limits)
        self._waiting: deque[Request | Rejection] = deque()  # the first may be under way
        self._task: asyncio.Future[Response] | None = None
        self._transport: asyncio.Transport | None = None
        self._active_at = self._loop.time()
        self._begun_at: float | None = None  # the request that is not complete
        self._turn: asyncio.TimerHandle | None = None  # the end of our turn to send a large body
        self._rest: asyncio.TimerHandle | None = None  # the end of a pause within our turn
        self._is_ready = self._is_full = self._is_paused = self._is_ending = False
        self._is_queued = self._is_proven = False

    def idle_seconds(self, now: float) -> float:
        """Since something was complete: a request that drips in byte by byte is idle, and so is who does not read."""
        return 0.0 if self._task is not None else now - self._active_at

    @property
    def is_under_way(self) -> bool:
        """Whether an answer is being worked out."""
        return self._task is not None

    @property
    def progress(self) -> int:
        """How far what it holds has come: it is on its way, it is read in its turn, it is being answered."""
        return 2 if self._task is not None else int(self._turn is not None)

    def claim(self, now: float) -> Seat:
        """What others may do about it when they want its place."""
        if self._waiting:
            return Seat(self.source, Rank.BUSY, self._active_at)
        if not self._is_proven:
            is_new = now - self._active_at < ARRIVAL_SECONDS
            return Seat(self.source, Rank.ARRIVING if is_new else Rank.SILENT, self._active_at)
        if self._begun_at is not None or self._is_queued:
            return Seat(self.source, Rank.SENDING, self._active_at)
        return Seat(self.source, Rank.IDLE, self._active_at)

    def look(self, now: float) -> None:
        """Closes what has been idle for longer than the caller would keep it, or takes too long to send a request."""
        if self._begun_at is not None and now - self._begun_at > self._limits.request_seconds and not self._waiting:
            self.reject(408, "the request did not arrive in time")
        elif self.idle_seconds(now) > self._limits.idle_seconds:
            self.close()

    def close(self) -> None:
        """What was written is still sent, except to a client that does not read it."""
        if self._transport is not None:
            self._transport.abort() if self._is_full else self._transport.close()

    def abort(self) -> None:
        """At once, without ending TLS. Frees what it held."""
        self._release()
        if self._transport is not None:
            self._transport.abort()

    # --- from the transport ------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's are none by inheritance
        if hasattr(transport, "set_read_buffer_limits"):  # TLS alone has such a buffer
            transport.set_read_buffer_limits(LARGEST_READ)
        self._listener.arrived(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._release()
        self._listener.forget(self)

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
                self._is_proven = self._is_proven or isinstance(event, Request)
        self._note_progress()
        if self._turn is not None:
            self._rest_after(len(data))
        self._go_on()
        if self._listener.held_bytes > self._limits.held_bytes:
            self._listener.relieve()

    def pause_writing(self) -> None:
        """A client that does not read its answers is not read from, and not answered, until it does.

        The one that has not read for longest is cut off when there are many of them.
        """
        self._is_full = True
        self._pause(True)
        unread = self._listener.unread
        unread[self] = None
        if len(unread) > self._limits.unread:
            next(iter(unread)).abort()

    def resume_writing(self) -> None:
        self._is_full = False
        self._listener.unread.pop(self, None)
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
            self.reject(500, "internal error")
            raise  # the loop logs it
        if isinstance(answer, Response):
            return answer
        self._task = asyncio.ensure_future(answer)
        self._task.add_done_callback(self._answered)
        return None

    def finish(self, response: Response) -> None:
        """Writes the answer to the first that waits; then it is the next one's turn."""
        if self._transport is None or not self._waiting:
            return
        first = self._waiting.popleft()
        is_over = self._listener.is_stopping or self._is_ending
        is_last = first.is_last or first.size > self._limits.large_bytes or (is_over and not self._waiting)
        self._transport.write(written(response, is_last=is_last, is_head=first.method == "HEAD"))
        self._active_at = self._loop.time()
        if is_last:
            self._end()
        self._go_on()

    def reject(self, status: int, why: str) -> None:
        """Instead of all that waits, except for what is under way."""
        self._parser.stop()
        under_way = [] if self._task is None else [self._waiting[0]]
        self._waiting = deque([*under_way, Rejection(status, why)])
        self._note_progress()
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
            self.reject(500, "internal error")

    def _go_on(self) -> None:
        """After whatever has changed: counts bodies, reads or does not, and lets the next one be answered."""
        waiting, held = self._waiting, len(self._parser.body)
        for each in waiting:
            held += len(each.body)
        self._listener.held_bytes += held - self.held_bytes
        self.held_bytes = held
        is_held_up = self._is_queued or self._rest is not None
        if self._is_paused or is_held_up or 2 * len(waiting) > self._limits.waiting:
            self._pause(self._is_full or is_held_up or bool(waiting))
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
        self._note_progress()
        if self._transport is not None:
            self._transport.close()

    def _release(self) -> None:
        """Keeps nothing, and waits for nothing."""
        self._waiting.clear()
        self._parser.stop()
        self._note_progress()
        self._go_on()
        self._listener.unread.pop(self, None)
        if self._task is not None:
            self._task.cancel()

    def _invite(self) -> None:
        """To send the body, unless earlier answers are due first."""
        if not self._waiting and self._transport is not None:
            self._transport.write(CONTINUE)

    # --- large bodies ------------------------------------------------------------------------------------------------

    def _note_progress(self) -> None:
        """A request has begun, has become large, or is complete."""
        if not self._parser.is_within:
            self._begun_at = None
            if self._turn is not None or self._is_queued:
                self._leave()
            return
        if self._begun_at is None:
            self._begun_at = self._loop.time()
        if self._turn is None and not self._is_queued and self._parser.size > self._limits.large_bytes:
            if self._listener.turns.ask(self, self.source):
                self.take_turn()
            else:
                self._is_queued = True

    def take_turn(self) -> None:
        """From now on it is read, for a while at least; what it has waited does not count."""
        self._is_queued = False
        self._begun_at = self._loop.time()
        self._turn = self._loop.call_later(self._limits.large_seconds, self._turn_over)
        self._go_on()

    def _turn_over(self) -> None:
        if self._listener.turns.is_wanted:
            self.reject(408, "the body did not arrive in time")
        else:
            self._turn = self._loop.call_later(self._limits.large_seconds, self._turn_over)

    def _rest_after(self, size: int) -> None:
        """Between two pieces of a large body others are served, as if it came over a slower line."""
        if self._rest is None:
            self._rest = self._loop.call_later(size / self._limits.large_bytes_per_second, self._read_on)

    def _read_on(self) -> None:
        self._rest = None
        self._go_on()

    def _leave(self) -> None:
        for timer in (self._turn, self._rest):
            if timer is not None:
                timer.cancel()
        self._turn = self._rest = None
        self._is_queued = False
        following = self._listener.turns.leave(self, self.source)
        if following is not None:
            following.take_turn()
