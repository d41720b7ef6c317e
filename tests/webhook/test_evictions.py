"""Evictions as the API server asks about them: held with 429, or allowed; never an error, never without a note."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from kube.errors import Unreachable
from placement import names
from placement.configuration import Configuration
from placement.eviction import RELEASE_SECONDS, EvictionAsked
from placement.model import Node, NodeTaint, Pod, Workload
from placement.plan.marks import Released, moment
from serving.messages import Request, Response
from tests.builders.model import DEPLOYMENT, REPLICA_SET, STATEFUL_SET, pod
from tests.jumpingclock import run_at_once
from tests.webhook.admissionharness import AdmissionHarness
from tests.webhook.replicas import Network, WebhookReplica
from webhook.evictionledger import OWNED, UNSEEN_SECONDS, EvictionLedger
from webhook.evictions import EvictionReviewer, parse_eviction
from webhook.metrics import WebhookMetrics
from webhook.nodeends import NodeEnds
from webhook.nodeturns import NodeTurns
from webhook.peers import ranked
from webhook.review import MalformedReview
from webhook.reviewer import Reviewer
from webhook.routes import ports

NOW = 1000.0
LABELS = {"app": "web", names.POD_TEMPLATE_HASH: "abc"}
POD = pod("web-1", 1, "spot-1", REPLICA_SET, decision="rs/1", labels=LABELS)


def eviction(options: dict[str, Any] | None = None, **request: Any) -> bytes:
    """As the API server sends it."""
    raw = {
        "uid": "u1",
        "operation": "CREATE",
        "subResource": "eviction",
        "name": "web-1",
        "namespace": "shop",
        "userInfo": {"username": "alice"},
        "dryRun": False,
        "object": {"kind": "Eviction", "deleteOptions": options or {}},
        **request,
    }
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": raw}).encode()


class EvictionHarness:
    """The reviewer of evictions over a small cluster, and what it wrote."""

    def __init__(self, of: Pod | None = POD, **replaced: Any) -> None:
        self.admission = AdmissionHarness()
        if of is not None:
            self.admission.put(of)
        self.notes: list[str] = []
        self.metrics = WebhookMetrics()
        self.hooks = {"note": self._note, "now": lambda: NOW, **replaced}
        self.reviewer = EvictionReviewer(
            self.admission.admission, self.metrics, Configuration(), self.hooks.pop("note"), **self.hooks
        )

    def _note(self, _pod: Pod, text: str) -> str:
        self.notes.append(text)
        return text

    def answer(self, body: bytes) -> dict[str, Any]:
        async def answered() -> bytes:
            answer = self.reviewer.answer(body)
            return answer if isinstance(answer, bytes) else await answer

        response: dict[str, Any] = json.loads(asyncio.run(answered()))["response"]
        return response

    def counted(self) -> dict[str, float]:
        lines = [line for line in self.metrics.text().decode().splitlines() if line.startswith(names.METRIC_EVICTIONS)]
        return {line.partition('answer="')[2].partition('"')[0]: float(line.rpartition(" ")[2]) for line in lines}


def test_the_first_question_is_noted_and_held() -> None:
    """Without `retryAfterSeconds`, with which clients retry inside the call and the drainer sees nothing."""
    harness = EvictionHarness()
    answer = harness.answer(eviction())
    assert (answer["uid"], answer["allowed"]) == ("u1", False)
    assert answer["status"].keys() == {"code", "reason", "message"}
    assert (answer["status"]["code"], answer["status"]["reason"]) == (429, "TooManyRequests")
    assert "Spotweave holds the eviction of pod web-1" in answer["status"]["message"]
    assert harness.notes == [EvictionAsked(NOW, "alice").text()]
    assert harness.counted() == {"held": 1.0}


def test_a_question_that_is_noted_already_is_not_noted_again() -> None:
    harness = EvictionHarness(
        replace(POD, annotations={**POD.annotations, names.EVICTION_ASKED: EvictionAsked(NOW, "bob").text()})
    )
    assert harness.answer(eviction())["allowed"] is False
    assert harness.notes == []


@pytest.mark.parametrize("is_paused", [True, False])
def test_replicas_are_counted_only_where_the_answer_needs_it(is_paused: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """To count them takes a look at each pod of the namespace."""
    harness = EvictionHarness(is_paused=lambda _now: is_paused)
    counted: list[str] = []
    count = harness.admission.admission.pods_of

    def pods_of(workload: Workload) -> list[Pod]:
        counted.append(workload.name)
        return count(workload)

    monkeypatch.setattr(harness.admission.admission, "pods_of", pods_of)
    assert harness.answer(eviction())["allowed"] is is_paused
    assert counted == ([] if is_paused else ["web"])


DRY = {"in the call": eviction(dryRun=True), "in the Eviction alone": eviction({"dryRun": ["All"]})}


@pytest.mark.parametrize("body", DRY.values(), ids=DRY.keys())
def test_a_dry_run_is_answered_and_writes_nothing(body: bytes) -> None:
    harness = EvictionHarness()
    assert harness.answer(body)["allowed"] is False
    assert harness.notes == []


def unreachable(_pod: Pod, _text: str) -> str:
    raise Unreachable("PATCH /x", "no answer")


def broken(_pod: Pod, _text: str) -> str:
    raise RuntimeError("an error of ours")


RELEASED = replace(
    POD,
    owner=DEPLOYMENT,
    labels={"app": "web", names.POD_TEMPLATE_HASH: "released-abc"},
    annotations={names.RELEASED: Released(NOW + 300, "abc").text()},
)


def leaving(since: float, *taints: str, **fields: Any) -> NodeEnds:
    """The pod's node leaves since then."""
    ends = NodeEnds(Configuration(), lambda: since)
    ends.see(None, Node("spot-1", {names.CAPACITY: "spot"}, tuple(map(NodeTaint, taints)), **fields))
    return ends


def test_a_released_pod_of_a_leaving_node_is_held_without_a_note() -> None:
    """For 90 s since the node began to leave, and no longer. A note could meet our own eviction, which would fail."""
    harness = EvictionHarness(RELEASED, node_ends=leaving(NOW - 10, deleting=True))
    answer = harness.answer(eviction())
    assert harness.notes == []
    assert answer["status"]["code"] == 429
    assert moment(NOW + 80) in answer["status"]["message"]
    harness = EvictionHarness(RELEASED, node_ends=leaving(NOW - 90, deleting=True))
    assert harness.answer(eviction())["allowed"]
    assert harness.counted() == {"time-up": 1.0}


def test_a_released_pod_of_another_node_needs_a_note() -> None:
    """It may have been released minutes ago, and whoever drains its node has just begun."""
    harness = EvictionHarness(RELEASED)
    assert moment(NOW + 90) in harness.answer(eviction())["status"]["message"]
    assert len(harness.notes) == 1


def test_a_note_that_the_cache_does_not_show_counts() -> None:
    """The watch of pods may be stuck while the API server answers: nothing is held for ever."""
    old = EvictionAsked(NOW - 30, "bob").text()
    for each in (POD, RELEASED):
        harness = EvictionHarness(each, note=lambda _pod, _text: old)
        assert moment(NOW + 60) in harness.answer(eviction())["status"]["message"]
    harness = EvictionHarness(RELEASED, note=lambda _pod, _text: EvictionAsked(NOW - 90, "bob").text())
    assert harness.answer(eviction())["allowed"]
    assert harness.counted() == {"time-up": 1.0}


def test_the_end_of_a_node_counts_from_its_announcement() -> None:
    """Announced 60 s ago, 120 s before; the pod needs 30 s to end."""
    harness = EvictionHarness(node_ends=leaving(NOW - 60, "aws-node-termination-handler/spot-itn"))
    assert moment(NOW + 30) in harness.answer(eviction())["status"]["message"]


def test_a_note_that_takes_long_is_waited_for_no_longer_than_a_release() -> None:
    """The API server is busy: the pod is held for a moment, and the note comes. If it never does, nothing is held."""
    seconds = NOW
    busy = threading.Event()

    def slow(_pod: Pod, text: str) -> str:
        busy.wait(5.0)
        return text

    harness = EvictionHarness(note=slow, now=lambda: seconds, executor=ThreadPoolExecutor(4))
    assert not harness.answer(eviction())["allowed"]
    seconds += RELEASE_SECONDS - 1
    assert not harness.answer(eviction())["allowed"]
    seconds += 1
    assert harness.answer(eviction())["allowed"]
    assert harness.counted() == {"held": 2.0, "unmarked": 1.0}
    busy.set()


def test_many_questions_at_once_are_all_noted() -> None:
    """As many as a large node has pods, and more."""
    harness = EvictionHarness()

    async def all_at_once() -> list[bytes]:
        answers = [harness.reviewer.answer(eviction()) for _ in range(300)]
        return [each if isinstance(each, bytes) else await each for each in answers]

    answers = [json.loads(each)["response"] for each in asyncio.run(all_at_once())]
    assert not any(each["allowed"] for each in answers)


AS_MEMBER = {**POD.labels, names.GANG_LABEL: names.GANG_MEMBER}
ALLOWED = {
    "a pod that is not known": (EvictionHarness(None), eviction(), "unknown"),
    "another pod of that name": (EvictionHarness(), eviction({"preconditions": {"uid": "other"}}), "unknown"),
    "a note that is not taken": (EvictionHarness(note=unreachable), eviction(), "unmarked"),
    "a pod that has gone": (EvictionHarness(note=lambda _pod, _text: None), eviction(), "unmarked"),
    "an error of ours": (EvictionHarness(note=broken), eviction(), "error"),
    "no leader": (EvictionHarness(unled_seconds=lambda: 60.0), eviction(), "unled"),
    "a pause": (EvictionHarness(is_paused=lambda _now: True), eviction(), "paused"),
    "a pod of nobody": (EvictionHarness(replace(POD, owner=None)), eviction(), "not-ours"),
    "a member of a gang": (EvictionHarness(replace(POD, labels=AS_MEMBER)), eviction(), "not-ours"),
    "no eviction": (EvictionHarness(), eviction(subResource="binding"), "error"),
}


@pytest.mark.parametrize(("harness", "body", "why"), ALLOWED.values(), ids=ALLOWED.keys())
def test_everything_else_is_allowed(harness: EvictionHarness, body: bytes, why: str) -> None:
    assert harness.answer(body) == {"uid": "u1", "allowed": True}
    assert harness.counted() == {why: 1.0}


@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b'{"apiVersion":"admission.k8s.io/v1","request":{"uid":7}}'])
def test_what_is_no_review_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedReview):
        parse_eviction(body)


def test_evictions_are_answered_over_tls_alone() -> None:
    """Over plain HTTP there is no route to them."""
    harness = EvictionHarness(None)
    reviewer = Reviewer(harness.admission.admission, harness.metrics)
    both = ports(reviewer, harness.metrics, lambda: None, harness.reviewer)
    request = Request("POST", names.EVICTION_PATH, {b"content-type": b"application/json"}, eviction())
    answers = [both.tls(request), both.plain(request), both.tls(request._replace(body=b"x"))]
    assert [each.status for each in answers if isinstance(each, Response)] == [200, 404, 400]


# --- pods that cannot run twice --------------------------------------------------------------------------------------

FIRST, SECOND, THIRD = ranked(f"{OWNED}ss", "abc")
MEMBERS = [
    pod(f"db-{number}", number, "spot-1", STATEFUL_SET, decision=f"ss/{number}", labels={"app": "db"})
    for number in range(10)
]


def asked_for(number: int) -> Request:
    body = eviction(name=f"db-{number}", uid=f"u{number}")
    return Request("POST", names.EVICTION_PATH, {b"content-type": b"application/json"}, body)


async def is_allowed(network: Network, at: str, number: int) -> bool:
    """The API server happens to ask this replica about that pod."""
    answer = network.replicas[at].ports.tls(asked_for(number))
    response = answer if isinstance(answer, Response) else await answer
    return bool(json.loads(response.body)["response"]["allowed"])


def stateful_replicas(members: str = "abc") -> Network:
    """Ten replicas of a StatefulSet, nine of which must serve; their watches bring nothing by themselves."""
    network = Network()
    for name in members:
        WebhookReplica(network, name, *members).harness.put(*MEMBERS)
    return network


def test_of_ten_that_are_asked_for_at_once_one_may_go_whoever_is_asked() -> None:
    network = stateful_replicas()

    async def scenario() -> None:
        asking = (is_allowed(network, "abc"[number % 3], number) for number in range(10))
        assert sum(await asyncio.gather(*asking)) == 1

    run_at_once(scenario())


@pytest.mark.parametrize("at", [SECOND, THIRD])
def test_what_the_leaving_replica_has_let_go_is_not_let_go_again(at: str) -> None:
    network = stateful_replicas()

    async def scenario() -> None:
        assert await is_allowed(network, FIRST, 0)
        network.replicas[FIRST].peers.is_leaving = True
        for other in (SECOND, THIRD):
            network.replicas[other].see_leave(FIRST)
        assert not await is_allowed(network, at, 1)
        assert await is_allowed(network, at, 0)  # the same one: it may go

    run_at_once(scenario())


@pytest.mark.parametrize("is_dead", [True, False], ids=["dead", "hung"])
def test_a_replica_that_does_not_answer_holds_nothing(is_dead: bool) -> None:
    """The pods are let go, within the time that the API server waits."""
    network = stateful_replicas()
    if is_dead:
        del network.replicas[FIRST]
    else:
        network.slow[FIRST] = asyncio.Event()

    async def scenario() -> None:
        began = asyncio.get_running_loop().time()
        assert await is_allowed(network, SECOND, 0)
        assert await is_allowed(network, SECOND, 1)
        assert asyncio.get_running_loop().time() - began < 1.0

    run_at_once(scenario())


def test_of_a_node_that_stays_one_pod_at_a_time_is_replaced() -> None:
    """The descheduler asks for all of them when the first is refused. They wait without a note, and say for whom."""
    names_of = [f"web-{number}" for number in range(1, 4)]
    harness = EvictionHarness(None)
    for number, name in enumerate(names_of):
        harness.admission.put(replace(POD, name=name, uid=name, decision=f"rs/{number}"))
    answers = [harness.answer(eviction(name=name)) for name in names_of]
    assert len(harness.notes) == 1
    assert harness.counted() == {"held": 1.0, "queued": 2.0}
    assert "until pod web-1, which was evicted from the same node, is replaced" in answers[2]["status"]["message"]
    harness.admission.put(replace(POD, name="web-1", uid="web-1", decision="rs/0", terminating=True))
    harness.answer(eviction(name="web-3"))
    assert len(harness.notes) == 2


@pytest.mark.parametrize(
    "marked", [{"unschedulable": True}, {"deleting": True}, {"taints": (NodeTaint(names.DISRUPTED),)}]
)
def test_all_pods_of_a_drained_node_are_replaced_at_once(marked: dict[str, Any]) -> None:
    harness = EvictionHarness(None)
    harness.admission.put(replace(Node("spot-1", {names.CAPACITY: "spot"}), **marked))
    for name in ("web-1", "web-2"):
        harness.admission.put(replace(POD, name=name, uid=name, decision=f"rs/{name}"))
        harness.answer(eviction(name=name))
    assert len(harness.notes) == 2


def test_a_turn_and_the_wait_for_it_end() -> None:
    """Nobody waits for longer than the hold, and a pod that does not go has its turn for as long."""
    seconds = 0.0
    turns = NodeTurns(lambda _pod: True, lambda: seconds)
    first, second = POD, replace(POD, name="web-2", uid="web-2")
    assert turns.before(first, 90.0) is None
    seconds = 80.0
    assert turns.before(second, 90.0) == (first, 170.0)
    assert turns.before(first, 90.0) is None  # it is its turn still
    seconds = 169.0
    assert turns.before(second, 90.0) == (first, 170.0)
    seconds = 170.0
    assert turns.before(second, 90.0) is None
    assert turns.before(first, 90.0) is None  # it has waited for long enough, too


@pytest.mark.parametrize("there", [None, Node("lost", ready=False)], ids=["gone", "not ready"])
def test_pods_of_a_lost_node_do_not_serve(there: Node | None) -> None:
    """Kubernetes shows them as ready for most of a minute: nine must serve, and five do."""
    network = stateful_replicas("a")
    harness = network.replicas["a"].harness
    harness.put(*(replace(each, node="lost") for each in MEMBERS[5:]))
    if there is not None:
        harness.put(there)

    async def scenario() -> None:
        assert not await is_allowed(network, "a", 0)

    run_at_once(scenario())


def test_pods_beyond_the_replicas_are_counted_as_they_go() -> None:
    """Thirteen serve and ten are wanted, as in the midst of a rollout: four may go at once, not all."""
    network = stateful_replicas("a")
    harness = network.replicas["a"].harness
    more = [replace(MEMBERS[0], name=f"db-{number}", uid=f"db-{number}") for number in range(10, 13)]
    harness.put(*more)

    async def scenario() -> None:
        assert sum([await is_allowed(network, "a", number) for number in range(13)]) == 4

    run_at_once(scenario())


def test_a_pod_that_did_not_go_after_all_is_forgotten() -> None:
    """A budget may refuse the eviction after us."""
    seconds = 0.0
    ledger = EvictionLedger(lambda: seconds)
    ledger.note("w", "a")
    seconds = UNSEEN_SECONDS - 1
    ledger.note("w", "b")
    assert ledger.of("w") == {"a", "b"}
    seconds = UNSEEN_SECONDS
    assert ledger.of("w") == {"b"}
    assert ledger.recent("w") == {"b": 0}
    assert ledger.recent("other") is None
