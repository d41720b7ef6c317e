"""Events: one for the same thing, its count raised now and then, and nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from kube.errors import AlreadyExists, Conflict, Forbidden, Garbled, NotFound, Unreachable
from kube.events import BURST, NOTE_BYTES, Bucket, EventWriter, Note, Reporter, Tally, raw_event, write
from tests.builders.model import workload
from tests.manualclock import ManualClock

NOW = datetime(2026, 3, 1, 12, 0, 0, 250_000, UTC)
WEB = workload(uid="uid-web")
TOLD = Note.about(WEB, "PolicyMistake", "70 does not count")
PATH = "/apis/events.k8s.io/v1/namespaces/shop/events"


class FakeEvents:
    """Events as an API server keeps them; stands at the seam of `kube.client`."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {}
        self.version = 0
        self.failure: Exception | None = None

    def _store(self, path: str, raw: dict[str, Any]) -> Any:
        self.version += 1
        raw = deepcopy(raw)
        raw["metadata"]["resourceVersion"] = str(self.version)
        self.objects[path] = raw
        return raw

    def get_json(self, path: str) -> Any:
        if path not in self.objects:
            raise NotFound(f"GET {path}", 404, "NotFound", "")
        return deepcopy(self.objects[path])

    def post(self, path: str, body: Any) -> Any:
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        name = f"{path}/{body['metadata']['name']}"
        if name in self.objects:
            raise AlreadyExists(f"POST {path}", 409, "AlreadyExists", "")
        return self._store(name, body)

    def patch(self, path: str, body: Any) -> Any:
        there = self.get_json(path)
        if body["metadata"]["resourceVersion"] != there["metadata"]["resourceVersion"]:
            raise Conflict(f"PATCH {path}", 409, "Conflict", "")
        return self._store(path, {**there, "series": body["series"]})

    @property
    def counts(self) -> list[int]:
        return [(raw.get("series") or {"count": 1})["count"] for raw in self.objects.values()]


# --- what is written, and when ---------------------------------------------------------------------------------------


def test_the_first_time_is_written_at_once_and_the_rest_every_few_minutes() -> None:
    """Told every second from 0 s to 600 s with a pause of 300 s: once, then 300 more, then 300 more."""
    clock = ManualClock()
    tally = Tally(clock, every_seconds=300)
    written = []
    for second in range(601):
        clock.now = 1000.0 + second
        note = tally.count(TOLD)
        if note is not None:
            written.append((second, note.count))
    assert written == [(0, 1), (300, 300), (600, 300)]


@pytest.mark.parametrize(
    "other",
    [replace(TOLD, uid="uid-2"), replace(TOLD, reason="Another"), replace(TOLD, text="75 does not count")],
    ids=["another workload", "another reason", "another text"],
)
def test_another_thing_is_another_event(other: Note) -> None:
    """A mistake that was changed into another mistake is told at once."""
    tally = Tally(ManualClock())
    assert (tally.count(TOLD), tally.count(other)) == (TOLD, other)
    assert TOLD.event_name != other.event_name


def test_what_could_not_be_written_is_due_when_it_is_told_again() -> None:
    """With the times that were not written."""
    tally = Tally(ManualClock())
    first = tally.count(TOLD)
    assert first is not None
    tally.put_back(first)
    assert tally.count(TOLD) == replace(TOLD, count=2)


def test_memory_is_bounded() -> None:
    """A thousand workloads with mistakes take no more room than was given."""
    tally = Tally(ManualClock(), remembered=100)
    for number in range(1000):
        tally.count(replace(TOLD, uid=str(number)))
    assert len(tally) == 100


def test_a_bucket_gives_a_burst_and_then_so_many_a_second() -> None:
    """25 at once, none after that, 5 more a second later, never more than 25."""
    clock = ManualClock()
    bucket = Bucket(clock, per_second=5, burst=25)
    assert [bucket.take() for _ in range(26)].count(True) == 25
    clock.now += 1
    assert [bucket.take() for _ in range(10)].count(True) == 5
    clock.now += 1000
    assert [bucket.take() for _ in range(50)].count(True) == 25


# --- the Event itself ------------------------------------------------------------------------------------------------

TEXTS = {
    "a short text stays": ("short", "short"),
    "as long as the API takes": ("x" * NOTE_BYTES, "x" * NOTE_BYTES),
    "longer is cut": ("x" * 5000, "x" * (NOTE_BYTES - 3) + "…"),
    "never within a letter": ("ü" * 5000, "ü" * 510 + "…"),
    "half of a surrogate pair": ("\ud800", "?"),
}


@pytest.mark.parametrize(("text", "expected"), TEXTS.values(), ids=TEXTS.keys())
def test_a_text_is_cut_to_what_the_api_takes(text: str, expected: str) -> None:
    """1,024 bytes of UTF-8."""
    note = Note.about(WEB, "PolicyMistake", text)
    assert note.text == expected
    assert len(note.text.encode()) <= NOTE_BYTES


def test_the_name_is_valid_for_any_workload() -> None:
    """Workloads' names may have 253 letters and dots; the cut may fall behind one."""
    name = ("a" * 199 + "." + "b" * 53, "web")
    assert [Note.about(replace(WEB, name=each), "R", "t").event_name[:-17] for each in name] == ["a" * 199, "web"]


def test_an_event_names_the_workload_and_the_text() -> None:
    """What `kubectl describe` shows beneath the workload."""
    raw = raw_event(TOLD, Reporter(instance="webhook-1"), NOW)
    assert raw["regarding"] == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "namespace": "shop",
        "name": "web",
        "uid": "uid-web",
    }
    assert (raw["type"], raw["reason"], raw["note"]) == ("Warning", "PolicyMistake", "70 does not count")
    assert raw["eventTime"] == "2026-03-01T12:00:00.250000Z"
    assert "series" not in raw


def test_a_second_write_raises_the_count() -> None:
    """Also that of an Event which another replica, or this one before a restart, has written."""
    api = FakeEvents()
    write(api, TOLD, Reporter(instance="webhook-1"), NOW)
    write(api, replace(TOLD, count=200), Reporter(instance="webhook-2"), NOW)
    write(api, replace(TOLD, count=3), Reporter(instance="webhook-1"), NOW)
    assert api.counts == [204]


def test_what_is_said_once_has_no_count() -> None:
    """A new leader does not know what the last one said, and says it again: nothing changes."""
    api = FakeEvents()
    for instance in ("rebalancer-1", "rebalancer-2"):
        write(api, replace(TOLD, is_once=True), Reporter(instance=instance), NOW)
    assert api.counts == [1]


def test_an_event_that_expires_in_between_is_created_anew() -> None:
    """The name was taken, then it is not there to be read."""
    api = FakeEvents()
    api.failure = AlreadyExists("POST", 409, "AlreadyExists", "")
    write(api, replace(TOLD, count=7), Reporter(instance="webhook-1"), NOW)
    assert api.counts == [7]


def test_an_answer_that_is_no_event_is_an_error_of_the_api() -> None:
    """Which the thread survives; anything else would end the program."""

    class Odd(FakeEvents):
        def get_json(self, path: str) -> Any:
            return ["a proxy's page"]

    api = Odd()
    write(api, TOLD, Reporter(instance="webhook-1"), NOW)
    with pytest.raises(Garbled):
        write(api, TOLD, Reporter(instance="webhook-1"), NOW)


# --- the thread ------------------------------------------------------------------------------------------------------


@pytest.fixture
def api() -> FakeEvents:
    return FakeEvents()


@pytest.fixture
def writer(api: FakeEvents) -> Iterator[EventWriter]:
    writer = EventWriter(api, "webhook-1", now=ManualClock(), clock=lambda: NOW)
    writer.start()
    yield writer
    writer.stop()


def test_five_hundred_pods_make_one_event(api: FakeEvents, writer: EventWriter) -> None:
    """Not one a pod."""
    for _ in range(500):
        writer.tell(WEB, "PolicyMistake", "70 does not count")
    writer.stop()
    assert api.counts == [1]


@pytest.mark.parametrize(
    "failure",
    [Forbidden("POST", 403, "Forbidden", ""), Unreachable("POST", "refused"), Conflict("POST", 409, "Conflict", "")],
    ids=lambda failure: type(failure).__name__,
)
def test_a_failed_write_ends_nothing(api: FakeEvents, writer: EventWriter, failure: Exception) -> None:
    """The thread goes on: the next Event is written."""
    api.failure = failure
    writer.tell(WEB, "PolicyMistake", "first")
    writer.tell(WEB, "PolicyMistake", "second")
    writer.stop()
    assert [raw["note"] for raw in api.objects.values()] == ["second"]


def test_a_crowd_of_workloads_is_written_within_the_rate(api: FakeEvents, writer: EventWriter) -> None:
    """A thousand workloads at one moment: the burst is written, the rest when they are told again."""
    for number in range(1000):
        writer.tell(replace(WEB, uid=str(number)), "PolicyMistake", "70")
    writer.stop()
    assert len(api.objects) == int(BURST)


def test_telling_never_waits_for_an_api_that_hangs() -> None:
    """The queue fills, the thread is stuck, and whoever tells returns."""
    released = threading.Event()

    class HangingEvents(FakeEvents):
        def post(self, path: str, body: Any) -> Any:
            released.wait(30)
            return super().post(path, body)

    api = HangingEvents()
    writer = EventWriter(api, "webhook-1", now=ManualClock(), queued=3)
    writer.start()
    for number in range(20):
        writer.tell(replace(WEB, uid=str(number)), "PolicyMistake", "70")
    assert api.objects == {}
    released.set()
    writer.stop()
    assert 3 <= len(api.objects) <= 4
