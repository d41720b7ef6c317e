"""Events: report to people on the workload, where they look. Callers never wait.

The same message about the same object is one Event, whose count increases at most every few minutes. `Tally` decides
at once what is to be written, and is pure except for its clock. A separate thread does the writing.
"""

from __future__ import annotations

import hashlib
import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from cachetools import TTLCache

from kube.errors import AlreadyExists, ApiError, Garbled, NotFound
from kube.paths import collection_in, path_of
from placement import names
from placement.model import Subject, Workload

log = logging.getLogger(__name__)

EVENTS = "/apis/events.k8s.io/v1/events"
EVERY_SECONDS = 300.0  # how often the count of one Event increases
REMEMBERED = 4096  # how many Events are counted at once
REMEMBERED_SECONDS = 3600.0  # the API server forgets Events after an hour, too
QUEUED = 256
WRITES_PER_SECOND = 5.0
BURST = 25.0
NOTE_BYTES = 1024  # the API's limit
NAME_LENGTH = 200  # of the workload's name within the Event's, which may have 253


@dataclass(frozen=True, slots=True)
class Note:
    """A message about a workload."""

    kind: str
    namespace: str
    name: str
    uid: str
    reason: str
    text: str
    count: int = 1
    is_warning: bool = True
    is_once: bool = False  # it has no count: an Event that is there already says it all
    api_version: str = "apps/v1"

    @classmethod
    def about(
        cls, about: Workload | Subject, reason: str, text: str, *, is_warning: bool = True, is_once: bool = False
    ) -> Note:
        on = about if isinstance(about, Subject) else about.subject
        said = (on.kind, on.namespace, on.name, on.uid, reason, _cut(text))
        return cls(*said, is_warning=is_warning, is_once=is_once, api_version=on.api_version)

    @property
    def event_name(self) -> str:
        """The same name for the same message, so that all replicas write to one Event."""
        told = hashlib.sha256("\0".join((self.uid, self.reason, self.text)).encode())
        return f"{self.name[:NAME_LENGTH].rstrip('-.')}.{told.hexdigest()[:16]}"


def _cut(text: str) -> str:
    encoded = text.encode(errors="replace")
    if len(encoded) <= NOTE_BYTES:
        return encoded.decode()
    return encoded[: NOTE_BYTES - len("…".encode())].decode(errors="ignore") + "…"


class Tally:
    """Counts messages. Returns a note to write the first time, then at most once per `every_seconds`.

    Example with 300 s: reported at 0 s, 1 s, …, 500 s. Written at 0 s (count 1) and at 300 s (300 more).
    """

    def __init__(
        self, now: Callable[[], float], every_seconds: float = EVERY_SECONDS, remembered: int = REMEMBERED
    ) -> None:
        self._now = now
        self._every_seconds = every_seconds
        self._told: TTLCache[str, tuple[int, float]] = TTLCache(remembered, REMEMBERED_SECONDS, timer=now)

    def count(self, note: Note) -> Note | None:
        """The note to write now, with the number of reports since it was last written; None if it is not due."""
        now, name = self._now(), note.event_name
        waiting, due = self._told.get(name, (0, now))
        waiting += 1
        if now < due:
            self._told[name] = waiting, due
            return None
        self._told[name] = 0, now + self._every_seconds
        return replace(note, count=waiting)

    def put_back(self, note: Note) -> None:
        """The note could not be written. It is due the next time it is reported."""
        self._told[note.event_name] = note.count, self._now()

    def __len__(self) -> int:
        return len(self._told)


class Bucket:
    """A rate limit: a burst, then a fixed rate per second."""

    def __init__(self, now: Callable[[], float], per_second: float = WRITES_PER_SECOND, burst: float = BURST) -> None:
        self._now = now
        self._per_second = per_second
        self._burst = burst
        self._left = burst
        self._since = now()

    def take(self) -> bool:
        now = self._now()
        self._left = min(self._burst, self._left + (now - self._since) * self._per_second)
        self._since = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


@dataclass(frozen=True, slots=True)
class Reporter:
    """The source of an Event: the program, its component and the replica."""

    controller: str = names.EVENT_CONTROLLER
    action: str = names.EVENT_ACTION
    instance: str = ""


REBALANCER = Reporter(names.EVENT_REBALANCER, names.EVENT_MOVE_ACTION)


class EventApi(Protocol):
    """What Events need from the API client."""

    def get_json(self, path: str) -> Any: ...
    def post(self, path: str, body: object) -> Any: ...
    def patch(self, path: str, body: object) -> Any: ...


class EventWriter:
    """Writes Events from its own thread. `tell` returns at once; what exceeds the rate limit is left for later."""

    def __init__(
        self,
        api: EventApi,
        instance: str,
        *,
        source: Reporter | None = None,
        now: Callable[[], float] = time.monotonic,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
        queued: int = QUEUED,
    ) -> None:
        self._api = api
        self._source = replace(source or Reporter(), instance=instance[:128])
        self._clock = clock
        self._lock = threading.Lock()
        self._tally = Tally(now)
        self._bucket = Bucket(now)
        self._queue: queue.Queue[Note | None] = queue.Queue(queued)
        self._thread = threading.Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float = 2.0) -> None:
        """Writes the queued Events, if that takes no longer than the time-out."""
        try:
            self._queue.put(None, timeout=timeout_seconds)
        except queue.Full:
            return  # the thread is a daemon: it ends with the program
        self._thread.join(timeout_seconds)

    def tell(
        self, about: Workload | Subject, reason: str, text: str, *, is_warning: bool = True, is_once: bool = False
    ) -> None:
        with self._lock:
            note = self._tally.count(Note.about(about, reason, text, is_warning=is_warning, is_once=is_once))
            if note is not None and not self._enqueue(note):
                self._tally.put_back(note)

    def _enqueue(self, note: Note) -> bool:
        if not self._bucket.take():
            return False
        try:
            self._queue.put_nowait(note)
        except queue.Full:
            return False
        return True

    def _run(self) -> None:
        while (note := self._queue.get()) is not None:
            try:
                write(self._api, note, self._source, self._clock())
            except ApiError as error:  # reported again when it happens again
                log.info("event on %s %s/%s not written: %s", note.kind, note.namespace, note.name, error)


def write(api: EventApi, note: Note, source: Reporter, now: datetime) -> None:
    """Creates the Event, or raises the count of the one that is there. An expired Event is created again.

    What is said once has no count. So a new leader, which does not know what the last one said, repeats nothing.
    """
    try:
        api.post(_path(note), raw_event(note, source, now))
    except AlreadyExists:
        if not note.is_once:
            _raise_count(api, note, source, now)


def _raise_count(api: EventApi, note: Note, source: Reporter, now: datetime) -> None:
    path = path_of(EVENTS, note.event_name, note.namespace)
    try:
        version, count = _version_and_count(path, api.get_json(path))
        series = {"count": count + note.count, "lastObservedTime": _micro_time(now)}
        api.patch(path, {"metadata": {"resourceVersion": version}, "series": series})
    except NotFound:
        api.post(_path(note), raw_event(note, source, now))


def _version_and_count(path: str, raw: object) -> tuple[str, int]:
    match raw:
        case {"metadata": {"resourceVersion": str(version)}, "series": {"count": int(count)}}:
            return version, count
        case {"metadata": {"resourceVersion": str(version)}}:
            return version, 1
    raise Garbled(f"GET {path}", "not an Event")


def raw_event(note: Note, source: Reporter, now: datetime) -> dict[str, Any]:
    event = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": note.event_name, "namespace": note.namespace},
        "eventTime": _micro_time(now),
        "reportingController": source.controller,
        "reportingInstance": source.instance,
        "action": source.action,
        "reason": note.reason,
        "type": "Warning" if note.is_warning else "Normal",
        "note": note.text,
        "regarding": {
            "apiVersion": note.api_version,
            "kind": note.kind,
            "namespace": note.namespace,
            "name": note.name,
            "uid": note.uid,
        },
    }
    if note.count > 1:
        event["series"] = {"count": note.count, "lastObservedTime": _micro_time(now)}
    return event


def _path(note: Note) -> str:
    return collection_in(EVENTS, note.namespace)


def _micro_time(now: datetime) -> str:
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
