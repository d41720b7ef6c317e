"""Writes to pods: what goes over the wire, and the outcome of every answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kube.client import JSON_PATCH, STRATEGIC_PATCH, Client
from kube.crashpoints import Faults, parse_fault
from kube.errors import Garbled, Unreachable, error_from
from kube.podwriter import PodWriter, outcome_of
from placement import names
from placement.handover import patches
from placement.model import Key, Owner, Pod
from placement.outcome import Outcome
from tests.builders.api import raw_pod, status
from tests.kube.scripted import Answer, ReceivedRequest, Script
from tests.kube.sigkill import Died, die

KEY = Key("shop", "web-1")
PATH = "/api/v1/namespaces/shop/pods/web-1"
Act = Callable[[PodWriter], Outcome]


@pytest.fixture
def writer(client: Client) -> PodWriter:
    return PodWriter(client, gone_seconds=0)


def refused(code: int, reason: str, message: str = "", **details: Any) -> Answer:
    return Answer(status(code, reason, message, **details), status=code)


def pod(uid: str = "u1", node: str = "n1", phase: str = "Running") -> bytes:
    return json.dumps({**raw_pod("web-1", uid=uid, node=node), "status": {"phase": phase}}).encode()


def asked(script: Script) -> list[ReceivedRequest]:
    return [script.next_request() for _ in range(script.asked.qsize())]


def spoken(script: Script) -> list[str]:
    return [f"{request.method} {request.path}" for request in asked(script)]


WRITES: dict[str, tuple[Act, str, object]] = {
    "annotate": (
        lambda writer: writer.annotate(KEY, "u1", {"a": "1", "b": None}, {"c": None}),
        f"PATCH {PATH}",
        {"metadata": {"uid": "u1", "annotations": {"a": "1", "b": None}, "labels": {"c": None}}},
    ),
    "evict": (
        lambda writer: writer.evict(KEY, "u1"),
        f"POST {PATH}/eviction",
        {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": "web-1", "namespace": "shop"},
            "deleteOptions": {"preconditions": {"uid": "u1"}},
        },
    ),
    "delete": (
        lambda writer: writer.delete(KEY, "u1"),
        f"DELETE {PATH}",
        {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u1"}},
    ),
    "delete at once": (
        lambda writer: writer.delete(KEY, "u1", 0),
        f"DELETE {PATH}",
        {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": "u1"}, "gracePeriodSeconds": 0},
    ),
}


@pytest.mark.parametrize(("act", "line", "body"), WRITES.values(), ids=WRITES.keys())
def test_every_write_names_the_uid(script: Script, writer: PodWriter, act: Act, line: str, body: object) -> None:
    """Of the pod that was meant, so that its successor under the same name is safe."""
    script.answer(b"{}")
    assert act(writer) is Outcome.DONE
    request = script.next_request()
    assert (f"{request.method} {request.path}", json.loads(request.body)) == (line, body)


BUDGET: dict[str, Any] = {"causes": [{"reason": "DisruptionBudget", "message": "needs 9 healthy pods and has 9"}]}
IMMUTABLE: dict[str, Any] = {"causes": [{"reason": "FieldValueInvalid", "field": "metadata.uid"}]}
TWO = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
REFUSALS: dict[str, tuple[int, bytes, Outcome]] = {
    "it is gone": (404, status(404, "NotFound"), Outcome.GONE),
    "a budget forbids it": (429, status(429, "TooManyRequests", **BUDGET), Outcome.BLOCKED),
    "the server is busy": (429, status(429, "TooManyRequests"), Outcome.BUSY),
    "a proxy is busy, and says so in a page of text": (429, b"slow down", Outcome.BUSY),
    "the server failed": (500, status(500, "InternalError"), Outcome.BUSY),
    "the server is starting": (503, b"", Outcome.BUSY),
    "the server timed out": (504, status(504, "Timeout"), Outcome.BUSY),
    "the token is being renewed": (401, status(401, "Unauthorized"), Outcome.BUSY),
    "others wrote at the same time": (409, status(409, "Conflict"), Outcome.BUSY),
    "two budgets select it": (500, status(500, "", TWO), Outcome.IMPOSSIBLE),
    "the fence or RBAC refuses": (403, status(403, "Forbidden"), Outcome.IMPOSSIBLE),
    "the API's rules forbid it": (422, status(422, "Invalid", **IMMUTABLE), Outcome.IMPOSSIBLE),
    "a JSON patch does not apply any more": (422, status(422, "Invalid"), Outcome.BUSY),
    "the request makes no sense": (400, status(400, "BadRequest"), Outcome.IMPOSSIBLE),
}


@pytest.mark.parametrize(("code", "body", "outcome"), REFUSALS.values(), ids=REFUSALS.keys())
def test_every_refusal_has_an_outcome(code: int, body: bytes, outcome: Outcome) -> None:
    """Nobody above reads status codes."""
    assert outcome_of(error_from("POST /x", code, body)) is outcome


def test_no_answer_is_no_refusal() -> None:
    """It may have been done."""
    assert outcome_of(Unreachable("POST /x", "timed out")) is Outcome.BUSY
    assert outcome_of(Garbled("POST /x", "<html>")) is Outcome.BUSY


def test_a_conflict_is_looked_into(script: Script, writer: PodWriter) -> None:
    """Another pod under the name: gone. The same pod: somebody wrote at the same time. No pod: gone."""
    conflict = refused(409, "Conflict")
    script.answer(conflict, pod("u2"), conflict, pod("u1"), conflict, refused(404, "NotFound"))
    outcomes = [writer.evict(KEY, "u1"), writer.delete(KEY, "u1"), writer.annotate(KEY, "u1", {})]
    assert outcomes == [Outcome.GONE, Outcome.BUSY, Outcome.GONE]


def test_a_pod_that_waits_is_evicted_as_it_was_read(script: Script, writer: PodWriter) -> None:
    """Where it has got a node by now, or has changed since, the plan is made anew."""
    waits = json.dumps({"metadata": {"uid": "u1", "resourceVersion": "7"}, "spec": {}}).encode()
    script.answer(waits, b"{}", pod("u1", "n1"), pod("u2", ""), refused(404, "NotFound"))
    assert writer.evict_waiting(KEY, "u1") is Outcome.DONE
    body = json.loads(asked(script)[1].body)
    assert body["deleteOptions"] == {"preconditions": {"uid": "u1", "resourceVersion": "7"}}
    assert [writer.evict_waiting(KEY, "u1") for _ in range(3)] == [Outcome.BUSY, Outcome.GONE, Outcome.GONE]
    script.answer(waits, refused(409, "Conflict"), pod("u1", "n1"))
    assert writer.evict_waiting(KEY, "u1") is Outcome.BUSY


def released(uid: str = "u1", label: str = "released-h", version: str = "7") -> bytes:
    labels = {names.POD_TEMPLATE_HASH: label}
    return json.dumps({"metadata": {"uid": uid, "resourceVersion": version, "labels": labels}, "spec": {}}).encode()


def test_a_released_pod_is_evicted_as_it_was_read(script: Script, writer: PodWriter) -> None:
    """Put back meanwhile, it is another version: whatever eviction is still under way leaves it alone."""
    script.answer(released(), b"{}", released(label="h"), released("u2"), released(), refused(409, "Conflict"), pod())
    assert writer.evict_replaced(KEY, "u1") is Outcome.DONE
    body = json.loads(asked(script)[1].body)
    assert body["deleteOptions"] == {"preconditions": {"uid": "u1", "resourceVersion": "7"}}
    outcomes = [writer.evict_replaced(KEY, "u1") for _ in range(3)]
    assert outcomes == [Outcome.BUSY, Outcome.GONE, Outcome.BUSY]


def test_a_pod_that_changed_after_it_was_read_is_read_again(script: Script, writer: PodWriter) -> None:
    """A kubelet may write its status at any time. Two such writes delay the eviction, a third ends the try."""
    conflict = refused(409, "Conflict")
    script.answer(released(version="7"), conflict, released(version="8"), conflict, released(version="9"), b"{}")
    assert writer.evict_replaced(KEY, "u1") is Outcome.DONE
    posted = [json.loads(request.body) for request in asked(script) if request.method == "POST"]
    assert [each["deleteOptions"]["preconditions"]["resourceVersion"] for each in posted] == ["7", "8", "9"]
    changing: list[Answer | bytes] = [released(), conflict]
    script.answer(*changing * 3)
    assert writer.evict_replaced(KEY, "u1") is Outcome.BUSY
    assert len(asked(script)) == 6


def test_who_leads_no_longer_reads_no_pod_again(script: Script, client: Client) -> None:
    script.answer(released(), refused(409, "Conflict"))
    writer = PodWriter(client, is_leading=lambda: False)
    assert writer.evict_replaced(KEY, "u1") is Outcome.BUSY
    assert len(asked(script)) == 2


# --- hand-overs ------------------------------------------------------------------------------------------------------

POD = Pod("shop", "web-1", "u1", Owner("Deployment", "web", "d"), decision="rs/1", annotations={names.RELEASED: "x"})
ORPHAN = replace(POD, owner=None)
TO_SET = Owner("ReplicaSet", "web-h", "rs")
STALE, FORBIDDEN = refused(422, "Invalid"), refused(403, "Forbidden")
FOUND = pod("u1")
HAND_OVERS: dict[str, tuple[Pod, list[Answer | bytes], Outcome, int]] = {
    "done": (POD, [b"{}"], Outcome.DONE, 1),
    "without the right to block deletion": (POD, [FORBIDDEN, b"{}"], Outcome.DONE, 2),
    "refused altogether": (POD, [FORBIDDEN, FORBIDDEN], Outcome.IMPOSSIBLE, 2),
    "changed since": (POD, [STALE, STALE, FOUND], Outcome.BUSY, 3),
    "another pod has its name": (POD, [STALE, STALE, pod("u2")], Outcome.GONE, 3),
    "gone": (POD, [refused(404, "NotFound")], Outcome.GONE, 1),
    "the server is busy": (POD, [refused(429, "TooManyRequests")], Outcome.BUSY, 1),
    "no owner at all": (ORPHAN, [b"{}"], Outcome.DONE, 1),
    "no controller, but another owner": (ORPHAN, [STALE, b"{}"], Outcome.DONE, 2),
    "another owner, and no right to block": (ORPHAN, [STALE, FORBIDDEN, STALE, b"{}"], Outcome.DONE, 4),
}


@pytest.mark.parametrize(("given", "answers", "outcome", "requests"), HAND_OVERS.values(), ids=HAND_OVERS.keys())
def test_a_hand_over_is_one_patch_or_nothing(
    script: Script, writer: PodWriter, given: Pod, answers: list[Answer | bytes], outcome: Outcome, requests: int
) -> None:
    """Where the exact one is refused the next is tried, which is as safe."""
    script.answer(*answers)
    labels = {names.POD_TEMPLATE_HASH: "h"}
    assert writer.hand_over(given, TO_SET, {names.RELEASED: None}, labels) is outcome
    sent = asked(script)
    assert len(sent) == requests
    written = [request for request in sent if request.method == "PATCH"]
    assert {request.headers["content-type"] for request in written} == {JSON_PATCH}
    wanted = list(patches(given, TO_SET, {names.RELEASED: None}, labels))
    assert [json.loads(request.body) for request in written] == wanted[: len(written)]


def test_who_does_not_lead_any_more_tries_no_other_patch(script: Script, client: Client) -> None:
    script.answer(FORBIDDEN)
    writer = PodWriter(client, is_leading=lambda: False)
    assert writer.hand_over(POD, TO_SET, {}, {}) is Outcome.IMPOSSIBLE
    assert len(asked(script)) == 1


def test_so_is_silence(script: Script, client: Client) -> None:
    """The server may have done it, or may be trying a successor under the name again and again."""
    writer = PodWriter(client, call_seconds=0.2)
    late = Answer(b"{}", delay_seconds=1.0)
    script.answer(late, pod("u2"), late, pod("u1"), late, refused(404, "NotFound"))
    outcomes = [writer.evict(KEY, "u1"), writer.evict(KEY, "u1"), writer.evict(KEY, "u1")]
    assert outcomes == [Outcome.GONE, Outcome.BUSY, Outcome.GONE]


def test_so_is_what_the_rules_forbid(script: Script, writer: PodWriter) -> None:
    """To a patch, another UID is an immutable field."""
    invalid = refused(422, "Invalid", "metadata.uid: Invalid value: field is immutable", **IMMUTABLE)
    script.answer(invalid, pod("u2"), invalid, pod("u1"))
    outcomes = [writer.annotate(KEY, "u1", {}), writer.annotate(KEY, "u1", {})]
    assert outcomes == [Outcome.GONE, Outcome.IMPOSSIBLE]


# --- pods whose node is gone -----------------------------------------------------------------------------------------

NO_NODE = refused(404, "NotFound")
ORDER = [f"GET {PATH}", "GET /api/v1/nodes/n1", f"PATCH {PATH}/status", "GET /api/v1/nodes/n1", f"DELETE {PATH}"]


def test_a_lost_pod_fails_and_goes(script: Script, writer: PodWriter) -> None:
    """As pod GC does it; the node is looked for before each step."""
    script.answer(pod(), NO_NODE, b"{}", NO_NODE, b"{}")
    assert writer.fail_lost(KEY, "u1", "its node n1 is gone") is Outcome.DONE
    requests = asked(script)
    assert [f"{request.method} {request.path}" for request in requests] == ORDER
    assert requests[2].headers["content-type"] == STRATEGIC_PATCH
    patch = json.loads(requests[2].body)
    (condition,) = patch["status"]["conditions"]
    assert condition.pop("lastTransitionTime").endswith("Z")
    assert patch["metadata"] == {"uid": "u1"}
    assert patch["status"]["phase"] == "Failed"
    assert condition == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionBySpotweave",
        "message": "its node n1 is gone",
    }
    assert json.loads(requests[4].body)["preconditions"] == {"uid": "u1"}
    assert json.loads(requests[4].body)["gracePeriodSeconds"] == 0


LOST: dict[str, tuple[list[Answer | bytes], Outcome, int]] = {
    "gone already": ([refused(404, "NotFound")], Outcome.GONE, 1),
    "another under its name": ([pod("u2")], Outcome.GONE, 1),
    "never had a node": ([pod(node="")], Outcome.BUSY, 1),
    "its node is there": ([pod(), b"{}"], Outcome.BUSY, 2),
    "nobody can tell whether its node is there": ([pod(), refused(500, "InternalError")], Outcome.BUSY, 2),
    "we may not see nodes": ([pod(), refused(403, "Forbidden")], Outcome.IMPOSSIBLE, 2),
    "failed already: deleted only": ([pod(phase="Failed"), NO_NODE, b"{}"], Outcome.DONE, 3),
    "we may not fail it, so it is not deleted": ([pod(), NO_NODE, refused(403, "Forbidden")], Outcome.IMPOSSIBLE, 3),
    "gone before we could fail it": ([pod(), NO_NODE, refused(404, "NotFound")], Outcome.GONE, 3),
    "its node returns between": ([pod(), NO_NODE, b"{}", b"{}"], Outcome.BUSY, 4),
    "pod GC was faster": ([pod(), NO_NODE, b"{}", NO_NODE, refused(404, "NotFound")], Outcome.GONE, 5),
}


@pytest.mark.parametrize(("answers", "outcome", "requests"), LOST.values(), ids=LOST.keys())
def test_only_a_lost_pod_is_ended(
    script: Script, writer: PodWriter, answers: list[Answer | bytes], outcome: Outcome, requests: int
) -> None:
    """Whatever else is the case, it is left alone from that step on."""
    script.answer(*answers)
    assert writer.fail_lost(KEY, "u1", "why") is outcome
    assert len(spoken(script)) == requests


@pytest.mark.parametrize(("leads", "requests"), [([False], 2), ([True, False], 4)], ids=["before", "between"])
def test_who_does_not_lead_any_more_ends_no_lost_pod(
    script: Script, client: Client, leads: list[bool], requests: int
) -> None:
    """The calls may take longer than the Lease: it is asked for before each of the two writes."""
    script.answer(pod(), NO_NODE, b"{}", NO_NODE)
    writer = PodWriter(client, gone_seconds=0, is_leading=lambda: leads.pop(0))
    assert writer.fail_lost(KEY, "u1", "why") is Outcome.BUSY
    assert len(spoken(script)) == requests


def test_a_node_is_gone_only_if_the_api_says_so(script: Script, writer: PodWriter) -> None:
    """A failed read is never an empty read."""
    script.answer(NO_NODE, b"{}", refused(503, ""))
    assert writer.node_is_gone("n1")
    assert not writer.node_is_gone("n1")
    with pytest.raises(Exception, match="503"):
        writer.node_is_gone("n1")


DEATHS = {"before:fail:1": 2, "after:fail:1": 3, "before:delete:1": 4, "after:delete:1": 5, "after:any:2": 5}


@pytest.mark.parametrize(("fault", "requests"), DEATHS.items(), ids=DEATHS.keys())
def test_a_death_can_be_had_at_each_write(script: Script, client: Client, fault: str, requests: int) -> None:
    """Reads are not counted."""
    script.answer(pod(), NO_NODE, b"{}", NO_NODE, b"{}")
    with pytest.raises(Died):
        PodWriter(client, Faults(parse_fault(fault), die), gone_seconds=0).fail_lost(KEY, "u1", "why")
    assert len(spoken(script)) == requests
