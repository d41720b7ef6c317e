"""The informer against a server that misbehaves on purpose, and its decisions as a table."""

import logging
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from kube.client import Client
from kube.errors import AnswerTooLarge, ApiError, Cause, Garbled, Unreachable, error_from
from kube.informer import Informer, InformerSet, NextStep, Pace, Stage, delay_seconds, next_step
from kube.resources import NODES, PODS, Resource
from kube.store import Store
from placement.model import Node, Pod
from tests.builders.api import bookmark, event, page, raw_pod, status
from tests.kube.scripted import Answer, Script, WatchLines

FAST = Pace(first_delay_seconds=0.001, longest_delay_seconds=0.01, silence_seconds=5.0, shortest_watch_seconds=0.0)
EXPIRED = status(410, "Expired", "too old resource version")
EXPIRED_EVENT = b'{"type":"ERROR","object":' + EXPIRED + b"}"

Change = tuple[Pod | None, Pod | None]


# --- what to do next ----------------------------------------------------------------------------------------------

TOO_LARGE = ApiError("GET /x", 504, "Timeout", "", (Cause("ResourceVersionTooLarge"),))
STEPS: dict[str, tuple[ApiError, NextStep]] = {
    "no answer: the version is still good": (Unreachable("GET /x", "reset"), NextStep.RESUME),
    "a garbled line: read on from before it": (Garbled("GET /x", "?"), NextStep.RESUME),
    "the server is ill": (error_from("GET /x", 503, b""), NextStep.RESUME),
    "the server is busy": (error_from("GET /x", 429, b""), NextStep.RESUME),
    "the token has expired and will be refreshed": (error_from("GET /x", 401, b""), NextStep.RESUME),
    "the role is not bound, and may be any moment": (error_from("GET /x", 403, b""), NextStep.RESUME),
    "the version has expired": (error_from("GET /x", 410, b""), NextStep.RELIST),
    "the version is from the future, as after a restore of etcd": (TOO_LARGE, NextStep.RELIST),
    "the server does not understand the version": (error_from("GET /x", 400, b""), NextStep.RELIST),
    "the resource is gone": (error_from("GET /x", 404, b""), NextStep.RELIST),
    "a line that is too long would be there again": (AnswerTooLarge("GET /x", "?"), NextStep.RELIST),
}


@pytest.mark.parametrize(("failure", "expected"), STEPS.values(), ids=STEPS.keys())
def test_what_follows_a_failure(failure: ApiError, expected: NextStep) -> None:
    """A watch goes on where it was, unless the failure says that its version is of no use."""
    assert next_step(failure) is expected


@pytest.mark.parametrize(("failures", "bound"), [(1, 0.25), (2, 0.5), (3, 1.0), (6, 8.0), (7, 10.0), (1000, 10.0)])
def test_the_delay_doubles_up_to_its_bound(failures: int, bound: float) -> None:
    """Full jitter: with the highest chance the bound, with the lowest nothing."""
    failure = Unreachable("GET /x", "reset")
    assert delay_seconds(failures, failure, Pace(), lambda: 1.0) == bound
    assert delay_seconds(failures, failure, Pace(), lambda: 0.0) == 0.0


def test_the_delay_is_never_shorter_than_the_server_asks_for() -> None:
    """Retry-After outweighs the chance."""
    failure = error_from("GET /x", 429, b"", "7")
    assert delay_seconds(1, failure, Pace(), lambda: 1.0) == 7.0


# --- against a scripted server ------------------------------------------------------------------------------------


class FollowedPods:
    """An informer of pods under test, with what its store was told."""

    def __init__(self, client: Client, pace: Pace, step_seconds: float, resource: Resource[Pod]) -> None:
        self.store: Store[Pod] = Store()
        self.changes: queue.Queue[Change] = queue.Queue()
        self.store.subscribe(self._take)
        self.now = 100.0
        self._step_seconds = step_seconds  # the clock moves by this with each change
        self.informer = Informer(client, resource, self.store, pace=pace, clock=lambda: self.now)

    def _take(self, old: Pod | None, new: Pod | None) -> None:
        self.now += self._step_seconds
        self.changes.put((old, new))

    def next_change(self) -> tuple[str, str]:
        """The next change, as the pod's name on each side."""
        old, new = self.changes.get(timeout=5)
        return (old.name if old else "", new.name if new else "")

    @property
    def names(self) -> list[str]:
        return sorted(pod.name for pod in self.store.values())


Follow = Callable[..., FollowedPods]


def eventually(condition: Callable[[], bool], timeout_seconds: float = 5.0) -> bool:
    """Polls what nobody announces."""
    deadline = time.monotonic() + timeout_seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.001)
    return condition()


@pytest.fixture
def follow(script: Script, client: Client) -> Iterator[Follow]:
    """Starts an informer of pods; stops it in the end, and sees its thread end when the server lets go of it."""
    followers: list[FollowedPods] = []

    def make(
        pace: Pace = FAST, step_seconds: float = 0.0, *, start: bool = True, resource: Resource[Pod] = PODS
    ) -> FollowedPods:
        followers.append(FollowedPods(client, pace, step_seconds, resource))
        if start:
            followers[-1].informer.start()
        return followers[-1]

    yield make
    for follower in followers:
        follower.informer.stop(timeout_seconds=0.0)
    script.closing.set()
    for follower in followers:
        follower.informer.stop()
        assert not follower.informer._thread.is_alive()


def test_it_lists_in_pages_and_watches_from_there(script: Script, follow: Follow) -> None:
    """All pages belong to the store at once; the watch begins at the list's version and asks for bookmarks."""
    script.answer(page(raw_pod("a"), version=10, token="t1"), page(raw_pod("b"), version=10))
    follower = follow(replace(FAST, page_size=1))
    assert follower.informer.wait_synced(5)
    assert follower.names == ["a", "b"]
    assert script.next_request().query == {"limit": "1"}
    assert script.next_request().query == {"limit": "1", "continue": "t1"}
    watch = script.next_request().query
    assert 60 <= int(watch.pop("timeoutSeconds")) <= 90
    assert watch == {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "10"}


def test_it_follows_additions_updates_and_deletions(script: Script, follow: Follow) -> None:
    """Each is told to subscribers with both sides."""
    script.answer(page(raw_pod("a")))
    added, placed = event("ADDED", raw_pod("b", version=11)), event("MODIFIED", raw_pod("b", version=12, node="n1"))
    script.watch(WatchLines([added, placed, event("DELETED", raw_pod("a", version=13))]))
    follower = follow()
    changes = [follower.next_change() for _ in range(4)]
    assert changes == [("", "a"), ("", "b"), ("b", "b"), ("a", "")]
    assert [pod.node for pod in follower.store.values()] == ["n1"]


def test_what_is_not_kept_is_as_good_as_not_there(script: Script, follow: Follow) -> None:
    """In the list, and when it comes to be so, or no longer is."""
    script.answer(page(raw_pod("a", node="n1"), raw_pod("b")))
    gone, back = event("MODIFIED", raw_pod("a", version=11)), event("MODIFIED", raw_pod("b", version=12, node="n1"))
    never = event("ADDED", raw_pod("c", version=13))
    script.watch(WatchLines([gone, back, never, event("ADDED", raw_pod("d", version=14, node="n1"))]))
    follower = follow(resource=replace(PODS, keeps=lambda pod: pod.node))
    changes = [follower.next_change() for _ in range(4)]
    assert changes == [("", "a"), ("a", ""), ("", "b"), ("", "d")]


def test_versions_tell_what_the_store_knows(script: Script, follow: Follow) -> None:
    """While a change is told, `latest` covers it and `applied` does not yet; bookmarks move `applied` alone."""
    script.answer(page(raw_pod("a"), version=10))
    script.watch(WatchLines([event("ADDED", raw_pod("b", version=11)), bookmark(19)]))
    follower = follow(start=False)
    told: list[tuple[int, int]] = []
    follower.store.subscribe(lambda _old, _new: told.append((follower.informer.latest, follower.informer.applied)))
    follower.informer.start()
    assert eventually(lambda: follower.informer.applied == 19)
    assert told == [(10, 0), (11, 10)]
    assert follower.informer.latest == 11


def test_it_is_not_synced_before_the_last_page(script: Script, follow: Follow) -> None:
    """Half a list is no knowledge; the second page never comes."""
    script.answer(page(raw_pod("a"), token="t1"))
    follower = follow()
    script.next_request()
    script.next_request()
    assert (follower.informer.synced, follower.names) == (False, [])
    assert not follower.informer.wait_synced(0.01)


ENDS: dict[str, WatchLines] = {
    "ended by the server, as every few minutes": WatchLines([bookmark(42)], then="end"),
    "cut": WatchLines([bookmark(42)], then="cut"),
    "a line that is no JSON": WatchLines([bookmark(42), b"garbage"]),
    "a line that is no event": WatchLines([bookmark(42), b'{"kind": "Pod"}']),
    "an error that passes": WatchLines(
        [bookmark(42), b'{"type":"ERROR","object":' + status(500, "InternalError") + b"}"]
    ),
}


@pytest.mark.parametrize("watch", ENDS.values(), ids=ENDS.keys())
def test_a_watch_that_ends_is_resumed_from_the_last_version(script: Script, follow: Follow, watch: WatchLines) -> None:
    """Also from a bookmark's, which is what they are for; nothing is listed again and nothing forgotten."""
    script.answer(page(raw_pod("a"), version=10))
    script.watch(watch, WatchLines([event("ADDED", raw_pod("b", version=43))]))
    follower = follow()
    assert [follower.next_change(), follower.next_change()] == [("", "a"), ("", "b")]
    asked = [script.next_request() for _ in range(3)]
    assert [request.query.get("resourceVersion") for request in asked] == [None, "10", "42"]


def test_a_silent_connection_is_given_up_and_resumed(script: Script, follow: Follow) -> None:
    """A connection that died unnoticed shows by its silence."""
    script.answer(page(raw_pod("a"), version=10))
    script.watch(WatchLines([bookmark(42)]), WatchLines([event("ADDED", raw_pod("b", version=43))]))
    follower = follow(replace(FAST, silence_seconds=0.05))
    assert [follower.next_change(), follower.next_change()] == [("", "a"), ("", "b")]


GONE: dict[str, Answer | WatchLines] = {
    "as the status of the watch": Answer(EXPIRED, status=410),
    "as an event": WatchLines([EXPIRED_EVENT]),
    "as a version from the future": Answer(
        status(504, "Timeout", causes=[{"reason": "ResourceVersionTooLarge"}]), status=504
    ),
}


@pytest.mark.parametrize("gone", GONE.values(), ids=GONE.keys())
def test_an_expired_version_means_a_new_list(script: Script, follow: Follow, gone: Answer | WatchLines) -> None:
    """The differences are told as if they had been watched, and the watch goes on from the new list."""
    script.answer(page(raw_pod("a"), raw_pod("b"), version=10), page(raw_pod("b"), raw_pod("c"), version=50))
    script.watch(gone)
    follower = follow()
    changes = [follower.next_change() for _ in range(4)]
    assert changes == [("", "a"), ("", "b"), ("a", ""), ("", "c")]
    asked = [script.next_request() for _ in range(4)]
    assert [request.query.get("resourceVersion") for request in asked] == [None, "10", None, "50"]


def test_an_expired_page_starts_the_list_over(script: Script, follow: Follow) -> None:
    """Pages of two moments are never mixed: "old" was on a page of the list that failed."""
    script.answer(page(raw_pod("old"), token="t1"), Answer(EXPIRED, status=410), page(raw_pod("new")))
    follower = follow()
    assert follower.informer.wait_synced(5)
    assert follower.names == ["new"]


BAD_LISTS: dict[str, Answer] = {
    "refused": Answer(status(403, "Forbidden"), status=403),
    "the server fails": Answer(b"oops", status=500),
    "busy": Answer(status(429, "TooManyRequests"), status=429),
    "an empty object": Answer(b"{}"),
    "a page of text": Answer(b"<html>"),
    "a list without a version": Answer(b'{"metadata": {}, "items": []}'),
    "an empty answer": Answer(b""),
}


@pytest.mark.parametrize("bad", BAD_LISTS.values(), ids=BAD_LISTS.keys())
def test_a_failed_list_leaves_the_store_as_it_was(script: Script, follow: Follow, bad: Answer) -> None:
    """A failed read is never an empty read; when the server is well again the list is repeated."""
    script.answer(page(raw_pod("a"), version=10), bad, page(raw_pod("b"), version=50))
    script.watch(WatchLines([EXPIRED_EVENT]))
    follower = follow()
    seen_while_failing: list[list[str]] = []
    follower.store.subscribe(lambda old, new: seen_while_failing.append(follower.names))
    assert [follower.next_change() for _ in range(3)] == [("", "a"), ("a", ""), ("", "b")]
    assert follower.informer.synced
    assert [] not in seen_while_failing


def test_an_optional_resource_may_be_missing_and_come_later(script: Script, follow: Follow) -> None:
    """Its CRD is not installed: it is synced and empty, and asked for now and then. Then it is, and then it goes."""
    missing = Answer(status(404, "NotFound", "the server could not find the requested resource"), 404)
    script.answer(missing, missing, page(raw_pod("a"), version=10), missing)
    script.watch(WatchLines([EXPIRED_EVENT]))
    follower = follow(replace(FAST, absent_seconds=0.01), start=False, resource=replace(PODS, is_optional=True))
    seen = [follower.informer.is_served]
    follower.informer.start()
    assert follower.next_change() == ("", "a")
    assert follower.next_change() == ("a", "")
    assert eventually(lambda: follower.informer.state is Stage.ABSENT)
    assert follower.informer.synced
    assert [*seen, follower.informer.is_served] == [None, False]


def test_another_resource_that_is_missing_is_not_read_as_empty(script: Script, follow: Follow) -> None:
    """404 is a failure there."""
    missing = Answer(status(404, "NotFound", "the server could not find the requested resource"), 404)
    script.answer(missing, missing, page(raw_pod("a"), version=10))
    follower = follow(start=False)
    follower.informer.start()
    assert follower.next_change() == ("", "a")
    assert follower.informer.is_served


def test_a_slow_list_is_waited_for(script: Script, follow: Follow) -> None:
    """Slowness within the time-out is no failure: one request, one list."""
    script.answer(Answer(page(raw_pod("a")), delay_seconds=0.1))
    follower = follow()
    assert follower.informer.wait_synced(5)
    assert [script.next_request().is_watch, script.next_request().is_watch] == [False, True]


def test_a_bad_object_does_not_end_the_watch(script: Script, follow: Follow) -> None:
    """It is counted and stays as it was; what comes after it is followed; its deletion still counts."""
    odd = raw_pod("a", version=11, node="n1") | {"status": "odd"}
    script.answer(page(raw_pod("a"), raw_pod("bad", labels=3), version=10))
    script.watch(WatchLines([event("MODIFIED", odd), event("ADDED", raw_pod("b", version=12)), event("DELETED", odd)]))
    follower = follow()
    assert [follower.next_change() for _ in range(3)] == [("", "a"), ("", "b"), ("a", "")]
    assert follower.informer.rejected == 3


def messages(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


def test_a_watch_that_ends_at_once_again_and_again_is_not_hammered(
    script: Script, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    """An end without a word counts as a failure each time, so that the delays grow."""
    caplog.set_level(logging.DEBUG, logger="kube.informer")
    script.answer(page(version=10))
    script.watch(*[WatchLines(then="end")] * 3, WatchLines([event("ADDED", raw_pod("a", version=11))]))
    follower = follow(replace(FAST, shortest_watch_seconds=60.0))
    assert follower.next_change() == ("", "a")
    failed = [level for level, message in messages(caplog) if "the watch ended as soon as it began" in message]
    assert failed == ["WARNING", "DEBUG", "DEBUG"]


def test_trouble_is_logged_once_and_so_is_its_end(
    script: Script, follow: Follow, caplog: pytest.LogCaptureFixture
) -> None:
    """One warning for a series of failures and one line for the recovery; then the count begins anew."""
    caplog.set_level(logging.INFO, logger="kube.informer")
    added = [event("ADDED", raw_pod(name, version=11)) for name in "abcd"]
    script.answer(*[Answer(b"", status=503)] * 5, page(version=10))
    script.watch(WatchLines(added[:2], then="cut"), WatchLines(added[2:]))
    follower = follow()
    assert [follower.next_change() for _ in range(4)] == [("", "a"), ("", "b"), ("", "c"), ("", "d")]
    lines = messages(caplog)
    assert [level for level, _ in lines] == ["WARNING", "INFO", "INFO", "WARNING", "INFO"]
    assert "503" in lines[0][1]
    assert lines[1][1] == "pods: listed 0 at version 10"
    assert lines[2][1] == "pods: the watch works again (failures: 5)"
    assert "no answer" in lines[3][1]
    assert lines[4][1] == "pods: the watch works again (failures: 1)"


def test_the_age_is_the_time_since_the_server_was_heard(script: Script, follow: Follow) -> None:
    """Infinite before the first page; from then on it counts from the last page, line or opening of a watch."""
    follower = follow()
    script.next_request()
    assert follower.informer.age_seconds(follower.now) == math.inf
    assert not follower.informer.is_current(follower.now)


def test_the_opening_of_a_watch_counts_as_heard(script: Script, follow: Follow) -> None:
    """The list was read at 100, the watch opened at 200: at 200 the knowledge is fresh, though no event has come."""
    script.answer(page(raw_pod("a"), version=10))
    follower = follow(step_seconds=100.0)
    assert follower.next_change() == ("", "a")
    script.next_request(watch=True)
    assert eventually(lambda: follower.informer.state is Stage.WATCHING)
    assert follower.informer.age_seconds(200.0) == 0.0


def test_every_event_counts_as_heard(script: Script, follow: Follow) -> None:
    """Each change moves the clock by 100: the list is at 100, the watch and "b" are at 200, "c" is at 300."""
    script.answer(page(raw_pod("a"), version=10))
    script.watch(WatchLines([event("ADDED", raw_pod(name, version=11)) for name in "bc"]))
    follower = follow(step_seconds=100.0)
    assert [follower.next_change() for _ in range(3)] == [("", "a"), ("", "b"), ("", "c")]
    assert follower.informer.age_seconds(300.0) == 0.0


def test_a_quiet_watch_is_current_for_as_long_as_bookmarks_explain(script: Script, follow: Follow) -> None:
    """A minute of silence is normal, more than the pace allows is not, though the connection looks open."""
    script.answer(page(raw_pod("a"), version=10))
    script.watch(WatchLines([event("ADDED", raw_pod("b", version=11))]))
    follower = follow(replace(FAST, silence_seconds=90.0))
    assert [follower.next_change(), follower.next_change()] == [("", "a"), ("", "b")]
    informer = follower.informer
    assert informer.state is Stage.WATCHING
    assert [informer.age_seconds(100.0 + silence) for silence in (0.0, 90.0)] == [0.0, 90.0]
    assert [informer.is_current(100.0 + silence) for silence in (0.0, 90.0, 91.0)] == [True, True, False]


def test_knowledge_ages_while_the_server_is_down(script: Script, follow: Follow) -> None:
    """Still synced, since what was read was true once; but not current, and older by the second."""
    script.answer(page(raw_pod("a"), version=10))
    script.watch(Answer(b"", status=503), Answer(b"", status=503, delay_seconds=60))
    follower = follow()
    script.next_request(watch=True)
    script.next_request(watch=True)
    informer = follower.informer
    assert (informer.synced, informer.state, informer.is_current(100.0)) == (True, Stage.RETRYING, False)
    assert informer.age_seconds(130.0) == 30.0


def test_stopping_is_prompt(script: Script, follow: Follow) -> None:
    """Whether it is watching in silence or waiting to try again."""
    script.answer(page(version=10), page(version=10))
    script.watch(WatchLines([bookmark(11)]), Answer(b"", status=503, retry_after="60"))
    watching = follow(replace(FAST, silence_seconds=60.0))
    script.next_request(watch=True)
    waiting = follow()
    assert eventually(lambda: waiting.informer.state is Stage.RETRYING)
    for follower in (watching, waiting):
        follower.informer.stop(timeout_seconds=1.0)
        assert follower.informer.state is Stage.STOPPED


def test_a_subscriber_that_raises_is_not_hidden(
    script: Script, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread ends, which the program can hear of, and the informer is not current any more."""
    crashed: queue.Queue[threading.ExceptHookArgs] = queue.Queue()
    monkeypatch.setattr(threading, "excepthook", crashed.put)
    script.answer(page(raw_pod("a"), version=10))
    store: Store[Pod] = Store()
    store.subscribe(lambda old, new: (_ for _ in ()).throw(ZeroDivisionError()))
    informer = Informer(client, PODS, store, pace=FAST)
    informer.start()
    assert crashed.get(timeout=5).exc_type is ZeroDivisionError
    informer._thread.join(5)
    assert (informer.state, informer.synced) == (Stage.STOPPED, False)


def test_a_set_is_synced_when_all_are(script: Script, client: Client) -> None:
    """And as old as its oldest; started and stopped as one."""
    pods: Store[Pod] = Store()
    nodes: Store[Node] = Store()
    informers = InformerSet([Informer(client, PODS, pods, pace=FAST), Informer(client, NODES, nodes, pace=FAST)])
    script.answer(page(version=10))
    informers.start()
    try:
        script.next_request(watch=True)
        assert not informers.wait_synced(0.01)
        assert (informers.synced, informers.age_seconds(0.0)) == (False, math.inf)
    finally:
        script.closing.set()
        informers.stop()


def test_a_set_that_has_listed_everything_is_synced(script: Script, client: Client) -> None:
    """Then it is current as long as each of them is."""
    pods: Store[Pod] = Store()
    nodes: Store[Node] = Store()
    now = 7.0
    informers = InformerSet(
        [
            Informer(client, PODS, pods, pace=FAST, clock=lambda: now),
            Informer(client, NODES, nodes, pace=FAST, clock=lambda: now),
        ]
    )
    opened: queue.Queue[object] = queue.Queue()
    pods.subscribe(lambda old, new: opened.put(new))
    nodes.subscribe(lambda old, new: opened.put(new))
    script.answer(page(version=10), page(version=10))
    script.watch(*[WatchLines([event("ADDED", raw_pod("a", version=11))])] * 2)
    informers.start()
    try:
        assert informers.wait_synced(5)
        assert {type(opened.get(timeout=5)), type(opened.get(timeout=5))} == {Pod, Node}
        assert (informers.synced, informers.age_seconds(7.5), informers.is_current(7.5)) == (True, 0.5, True)
        assert [informer.state for informer in informers] == [Stage.WATCHING] * 2
    finally:
        informers.stop()
    assert not informers.is_current(7.5)
