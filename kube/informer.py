"""Keeps a store equal to a collection of the API: lists it, then follows its changes while the program runs.

A failed read is never an empty read. Whatever goes wrong, the store stays as it was, `age_seconds` grows, and the
informer tries again. `next_step` alone decides what follows a failure.
"""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

from kube.client import Client, Stream
from kube.decode import WatchEvent
from kube.errors import (
    VERSION_TOO_LARGE,
    ApiError,
    Forbidden,
    Garbled,
    Gone,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
    error_from,
)
from kube.resources import PAGE_SIZE, Resource, pages
from kube.store import Keyed, Store

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Keyed)
Random = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Pace:
    """Durations and time-outs. Tests use shorter ones than programs."""

    page_size: int = PAGE_SIZE
    watch_seconds: tuple[float, float] = (60.0, 90.0)  # chosen at random, so that watches do not end together
    silence_seconds: float = 105.0  # the server ends a watch sooner; a longer silence means a dead connection
    first_delay_seconds: float = 0.25
    longest_delay_seconds: float = 10.0
    shortest_watch_seconds: float = 1.0  # a watch that ends sooner, without any event, counts as failed
    absent_seconds: float = 20.0  # until an optional resource that is not served is asked for again


class NextStep(StrEnum):
    """What follows a failure."""

    RESUME = "resume"  # continue the watch from the last version seen
    RELIST = "relist"  # the last version can no longer be used


class Stage(StrEnum):
    """What an informer is doing, for people to read."""

    STOPPED = "stopped"
    LISTING = "listing"
    WATCHING = "watching"
    RETRYING = "retrying"
    ABSENT = "absent"  # there is no such resource


# Failures that say nothing about the version we hold. Listing 150,000 pods after each would cause a stampede.
_PASSING = (Unreachable, Garbled, ServerError, TooManyRequests, Unauthorized, Forbidden)


def next_step(failure: ApiError) -> NextStep:
    """Whether a watch can continue where it was. A version from before an etcd restore cannot: it is "too large"."""
    if isinstance(failure, Gone) or failure.has_cause(VERSION_TOO_LARGE):
        return NextStep.RELIST
    return NextStep.RESUME if isinstance(failure, _PASSING) else NextStep.RELIST


def delay_seconds(failures: int, failure: ApiError, pace: Pace, chance: Random) -> float:
    """Full jitter: up to 0.25, 0.5, 1, 2 … 10 s after the 1st, 2nd … failure; never less than the server asks for."""
    doublings = min(failures - 1, 16)
    bound = min(pace.longest_delay_seconds, pace.first_delay_seconds * 2.0**doublings)
    return max(chance() * bound, failure.retry_after_seconds or 0.0)


def _number(version: str | None) -> int:
    """Versions of one collection can be compared. One that is not a number counts as the oldest."""
    return int(version) if version and version.isdigit() else 0


class Informer(Generic[T]):
    """Follows one resource in its own thread and writes what it sees into `store`."""

    def __init__(
        self,
        client: Client,
        resource: Resource[T],
        store: Store[T],
        *,
        pace: Pace | None = None,
        clock: Callable[[], float] = time.monotonic,
        chance: Random = random.random,
    ) -> None:
        self.resource = resource
        self.store = store
        self.rejected = 0  # objects that did not decode
        self.state = Stage.STOPPED
        self.latest = 0  # the store contains nothing newer than this version
        self.applied = 0  # and everything up to this one
        self._client = client
        self._pace = pace or Pace()
        self._clock = clock
        self._chance = chance
        self._version: str | None = None  # None: list next
        self._failures = 0
        self._is_served = True
        self._heard_at = -math.inf
        self._synced = threading.Event()
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._stream: Stream | None = None
        self._thread = threading.Thread(target=self._run, name=f"informer-{resource.name}", daemon=True)

    @property
    def synced(self) -> bool:
        """The first list is done. It stays True; `age_seconds` shows how old the data is."""
        return self._synced.is_set()

    @property
    def is_served(self) -> bool | None:
        """Whether the API server has such a resource, as of the last list; None: it was never read."""
        return self._is_served if self.synced else None

    def wait_synced(self, timeout_seconds: float) -> bool:
        return self._synced.wait(timeout_seconds)

    def age_seconds(self, now: float) -> float:
        """Time since the server last sent anything: a page, an event, a bookmark, or the opening of a watch.

        `now` comes from the injected clock. Up to a minute is normal for a resource without changes.
        """
        return now - self._heard_at

    def is_current(self, now: float) -> bool:
        """Synced, with an open watch that has not been silent for longer than the interval of bookmarks."""
        return self.synced and self.state is Stage.WATCHING and self.age_seconds(now) <= self._pace.silence_seconds

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_seconds: float = 2.0) -> None:
        """End the thread. Returns at once while it watches or waits, or after the time-out if it hangs in a read."""
        self._stopping.set()
        with self._lock:
            if self._stream is not None:
                self._stream.close()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        try:
            while not self._stopping.is_set():
                self._stopping.wait(self._attempt())
        finally:
            self.state = Stage.STOPPED

    def _attempt(self) -> float:
        """One list or one watch. Returns how long to wait before the next."""
        try:
            if self._version is None:
                self._list()
            else:
                self._watch(self._version)
        except NotFound as failure:
            is_absent = self.resource.is_optional and self._version is None
            return self._absent() if is_absent else self._after(failure)
        except ApiError as failure:
            return self._after(failure)
        return 0.0

    def _absent(self) -> float:
        """The API server itself says so. Then none exist."""
        if self.state is not Stage.ABSENT:
            log.info("%s: not served", self.resource.name)
        self.state, self._failures = Stage.ABSENT, 0
        self.store.replace(())
        self._is_served = False
        self._synced.set()
        return self._pace.absent_seconds * (0.5 + self._chance())

    def _after(self, failure: ApiError) -> float:
        if self._stopping.is_set():
            return 0.0
        step = next_step(failure)
        if step is NextStep.RELIST:
            self._version = None
        self._failures += 1
        self.state = Stage.RETRYING
        delay = delay_seconds(self._failures, failure, self._pace, self._chance)
        level = logging.WARNING if self._failures == 1 and not isinstance(failure, Gone) else logging.DEBUG
        log.log(level, "%s: %s in %.1f s because of %s", self.resource.name, step, delay, failure)
        return delay

    def _list(self) -> None:
        self.state = Stage.LISTING
        version = ""

        def objects() -> Iterator[T]:
            nonlocal version
            for page in pages(self._client, self.resource, self._pace.page_size):
                self._heard_at = self._clock()
                self.rejected += page.rejected
                version = page.version
                self.latest = _number(version)
                yield from filter(self.resource.keeps, page.items)
                if self._stopping.is_set():
                    raise Unreachable(f"GET {self.resource.path}", "stopped")

        self.store.replace(objects())
        self._version = version
        self.applied = self.latest
        self._is_served = True
        self._synced.set()
        log.info("%s: listed %d at version %s", self.resource.name, len(self.store), version)

    def _watch(self, version: str) -> None:
        """Follow changes from `version` until the watch ends, which it does every few minutes."""
        opened_at = self._clock()
        heard_something = False
        stream = self._open(version)
        try:
            for line in stream:
                self._hear(line)
                heard_something = True
        finally:
            self._let_go(stream)
        if not heard_something and self._clock() - opened_at < self._pace.shortest_watch_seconds:
            raise Unreachable(f"GET {self.resource.path}", "the watch ended as soon as it began")
        self._recovered()

    def _open(self, version: str) -> Stream:
        shortest, longest = self._pace.watch_seconds
        query = {
            **self.resource.query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": math.ceil(shortest + self._chance() * (longest - shortest)),
        }
        stream = self._client.stream(self.resource.path, query, read_timeout_seconds=self._pace.silence_seconds)
        self._heard_at = self._clock()
        self.state = Stage.WATCHING
        with self._lock:
            self._stream = stream
            if self._stopping.is_set():
                stream.close()
        return stream

    def _let_go(self, stream: Stream) -> None:
        with self._lock:
            self._stream = None
        stream.close()

    def _hear(self, line: bytes) -> None:
        """Process one line. A line that is not an event ends the watch, which resumes from the last good version."""
        event = self._event(line)
        self._heard_at = self._clock()
        if event.type == "ERROR":
            raise error_from(f"WATCH {self.resource.path}", 500, event.status)
        if event.type != "BOOKMARK":  # each replica gets bookmarks at other times
            self.latest = _number(event.version)
        self._apply(event)
        self._version = event.version or self._version
        self.applied = max(self.latest, _number(event.version))
        self._recovered()

    def _event(self, line: bytes) -> WatchEvent[T]:
        try:
            return self.resource.shape.event(line)
        except msgspec.DecodeError as error:
            raise Garbled(f"WATCH {self.resource.path}", f"{error}: {line[:80]!r}") from error

    def _apply(self, event: WatchEvent[T]) -> None:
        """Write one change to the store. An object that does not decode stays as it was, but can still be deleted."""
        if event.mistake:
            self.rejected += 1
            log.warning("%s: cannot decode %s: %s", self.resource.name, event.key, event.mistake)
        is_gone = event.type == "DELETED" or (event.item is not None and not self.resource.keeps(event.item))
        if is_gone and event.key is not None:
            self.store.remove(event.key)
        elif event.item is not None:
            self.store.put(event.item)

    def _recovered(self) -> None:
        if self._failures:
            log.info("%s: the watch works again (failures: %d)", self.resource.name, self._failures)
        self._failures = 0


class InformerSet:
    """Informers that are started, awaited and stopped together."""

    def __init__(self, informers: Iterable[Informer[Any]]) -> None:
        self._informers = tuple(informers)

    def __iter__(self) -> Iterator[Informer[Any]]:
        return iter(self._informers)

    @property
    def synced(self) -> bool:
        return all(informer.synced for informer in self._informers)

    def start(self) -> None:
        for informer in self._informers:
            informer.start()

    def wait_synced(self, timeout_seconds: float) -> bool:
        """Whether all were synced within the time-out, which they share."""
        deadline = time.monotonic() + timeout_seconds
        return all(informer.wait_synced(max(0.0, deadline - time.monotonic())) for informer in self._informers)

    def age_seconds(self, now: float) -> float:
        """The age of the oldest."""
        return max((informer.age_seconds(now) for informer in self._informers), default=0.0)

    def is_current(self, now: float) -> bool:
        return all(informer.is_current(now) for informer in self._informers)

    def stop(self) -> None:
        """Signals all informers first, so that stopping takes as long as the slowest, not as long as their sum."""
        for informer in self._informers:
            informer.stop(timeout_seconds=0.0)
        for informer in self._informers:
            informer.stop()
