"""Answers from the latest view. What is asked again is not worked out or encoded again.

A body holds what a question comes to, and is kept until that is something else. What it is worth (its age, whether this
replica leads) goes in front of it, and into a header beside it: a client that knows the body gets the header alone.
With its age, an answer is good for a tenth of a second; in that time it is compressed once for all who ask.
"""

from __future__ import annotations

import gzip
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from threading import Lock
from typing import Any, NamedTuple

import msgspec

from dashboard.viewer import LASTS_SECONDS, Viewer
from report.answers import Raw, Unclear, Unknown
from report.history import History
from report.view import View
from serving.messages import Response

MOST_KEPT = 16 * 1024**2  # bytes of answers
LARGEST_PLAIN = 1024  # bytes; longer answers are compressed for clients that take that
LARGEST_QUICK = 64 * 1024  # bytes that are compressed on the event loop: less than a millisecond
STATE = "Spotweave-State"
JSON = "application/json"
PACE_SECONDS = 2.0  # the page asks again after so long
SOONEST_SECONDS = 0.5
SAME_SECONDS = 0.1  # for this long all clients get the same answer, its age included
MOST_QUESTIONS = 15  # a second, of all pages together: the more there are, the rarer each asks

WorkOut = Callable[[View], Raw]


class Body(NamedTuple):
    """What a question comes to, without its opening brace."""

    plain: bytes
    etag: str


class Said(NamedTuple):
    """What was answered a moment ago, by question, whether it was packed, and whether the asker knew it."""

    stamp: tuple[int, float] | None  # of the view
    at: float
    replies: dict[tuple[str, bool, bool], Response]


class KeptBodies(NamedTuple):
    """Bodies by question, and what they were made of: the number of a view, and the version of the history."""

    made_of: tuple[int, int]
    bodies: dict[str, Body]


class AnswerCache:
    """`watchers` is how many look, as far as the server knows."""

    def __init__(self, viewer: Viewer, history: History) -> None:
        self.history = history
        self.watchers = 0
        self.worked_out = 0  # answers, ever
        self._viewer = viewer
        self._lock = Lock()  # one at a time: answering must not take the processor from the loop
        self._kept = KeptBodies((-1, -1), {})
        self._latest: tuple[tuple[int, float] | None, tuple[int, int]] = (None, (-1, -1))
        self._size = 0
        self._said = Said(None, 0.0, {})

    def answer(self, asked: str, work_out: WorkOut, *, takes_gzip: bool = False, known: str = "") -> Response:
        """`known` is what the asker has: If-None-Match."""
        view = self._viewer.view(self.view_seconds)
        if view is None:
            return self._failed(503, view, "not synced yet: nothing has been read")
        try:
            body = self._body(view, asked, work_out)
        except Unknown as error:
            return self._failed(404, view, str(error))
        except Unclear as error:
            return self._failed(400, view, str(error))
        return self._said_now(view, asked, body, takes_gzip, known == body.etag)

    def quick(self, asked: str, *, takes_gzip: bool, known: str) -> Response | None:
        """The same if it costs almost nothing; otherwise None."""
        view, kept = self._viewer.renewed(self.view_seconds), self._kept
        if view is None or kept.made_of != self._made_of(view):
            return None
        body = kept.bodies.get(asked)
        return None if body is None else self._again(view, asked, body, takes_gzip, known == body.etag)

    def count_watchers(self, count: int) -> None:
        self.watchers = count

    def _again(self, view: View, asked: str, body: Body, takes_gzip: bool, is_known: bool) -> Response | None:
        """Pages ask at the same moment, and all get the same answer."""
        said = self._said
        is_now = said.stamp == view.stamp and abs(self._viewer.around.now() - said.at) < SAME_SECONDS
        reply = said.replies.get((asked, takes_gzip, is_known)) if is_now else None
        if reply is not None:
            return reply
        is_large = takes_gzip and not is_known and len(body.plain) > LARGEST_QUICK
        return None if is_large else self._said_now(view, asked, body, takes_gzip, is_known)

    def _said_now(self, view: View, asked: str, body: Body, takes_gzip: bool, is_known: bool) -> Response:
        """Made now, and kept for who asks within the next moment."""
        said, now = self._said, self._viewer.around.now()
        if said.stamp != view.stamp or abs(now - said.at) >= SAME_SECONDS:
            said = self._said = Said(view.stamp, now, {})
        reply = self._reply(view, body, takes_gzip, is_known)
        if takes_gzip or len(reply.body) <= LARGEST_QUICK:  # a large one is soon made again, unless it is compressed
            said.replies[asked, takes_gzip, is_known] = reply
        return reply

    @property
    def pace_seconds(self) -> float:
        """Doubled until it is enough, so that clients with an earlier pace still ask at the same moments."""
        pace = PACE_SECONDS
        while self.watchers > MOST_QUESTIONS * pace:
            pace *= 2
        return pace

    @property
    def view_seconds(self) -> float:
        """How long a view is good enough while nothing happens to nodes: where many look, until they ask once more."""
        pace = self.pace_seconds
        return LASTS_SECONDS if pace == PACE_SECONDS else 2 * pace - 2 * LASTS_SECONDS

    def _ask_again_seconds(self) -> float:
        """Until all pages ask: being woken by each of them on its own would cost more than all the answers."""
        pace = self.pace_seconds
        wait = pace - self._viewer.around.now() % pace
        return round(wait if wait > SOONEST_SECONDS else wait + pace, 2)

    def _made_of(self, view: View) -> tuple[int, int]:
        """What its answers are made of. The history goes on; while a view lasts, it is that of when it was new."""
        latest, made_of = self._latest
        if latest != view.stamp:
            made_of = (view.number, self.history.version)
            self._latest = (view.stamp, made_of)
        return made_of

    def _reply(self, view: View, body: Body, takes_gzip: bool, is_known: bool) -> Response:
        state = self._state(view)
        headers = (("ETag", body.etag), (STATE, state), ("Vary", "Accept-Encoding"))
        if is_known:
            return Response(304, b"", JSON, headers)
        whole = state[:-1].encode() + b"," + body.plain
        if takes_gzip and len(body.plain) > LARGEST_PLAIN:
            return Response(200, gzip.compress(whole, 1, mtime=0), JSON, (*headers, ("Content-Encoding", "gzip")))
        return Response(200, whole, JSON, headers)

    def _failed(self, status: int, view: View | None, why: str) -> Response:
        state = self._state(view)
        text = state[:-1].encode() + b"," + msgspec.json.encode({"error": why})[1:]
        return Response(status, text, JSON, ((STATE, state),))

    def _state(self, view: View | None) -> str:
        """How much the rest is worth: how old it is, whether this replica leads and hears from the API server."""
        around = self._viewer.around
        at = None if view is None else view.taken.at
        told: dict[str, Any] = {
            "generatedAt": None if at is None else datetime.fromtimestamp(at, UTC).isoformat(),
            "ageSeconds": None if at is None else round(max(0.0, around.now() - at), 1),
            "leading": around.is_leading(),
            "synced": view is not None and around.is_synced(),
            "askAgainSeconds": self._ask_again_seconds(),
        }
        return msgspec.json.encode(told).decode()

    def _body(self, view: View, asked: str, work_out: WorkOut) -> Body:
        with self._lock:
            made_of = self._made_of(view)
            if self._kept.made_of != made_of:
                self._kept, self._size = KeptBodies(made_of, {}), 0
            known = self._kept.bodies.get(asked)
            if known is not None:
                return known
            self.worked_out += 1
            body = encoded(msgspec.json.encode(work_out(view)))
            self._size += len(asked) + len(body.plain)
            if self._size > MOST_KEPT:
                self._kept.bodies.clear()
                self._size = len(asked) + len(body.plain)
            self._kept.bodies[asked] = body
            return body


def encoded(raw: bytes) -> Body:
    """Bodies with the same bytes have the same tag, so a client keeps what it has."""
    plain = raw[1:]
    return Body(plain, f'W/"{sha256(plain).hexdigest()[:16]}"')
