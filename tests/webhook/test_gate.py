"""Members that get their gate at the webhook: the same ones as by the policy, and never a member without its gate."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import pytest

from placement import names
from placement.decide import Reason
from placement.gang.settings import Gangs
from placement.model import Owner
from serving.messages import Request
from tests.builders.api import raw_new_pod, review
from webhook.gate import GateReviewer, gated
from webhook.metrics import WebhookMetrics
from webhook.review import AdmissionCall, MalformedReview, parse
from webhook.routes import GangRoute

JOB = Owner("Job", "train", "j", "batch")
GATE, FOREIGN = {"name": names.GANG_GATE}, {"name": "example.com/wait"}
GROUP = {names.POD_GROUP: "train"}
MEMBER = {names.GANG_LABEL: names.GANG_MEMBER}
LABELLED = {"op": "add", "path": "/metadata/labels", "value": {**MEMBER}}
TWIN = {"op": "add", "path": "/spec/priorityClassName", "value": "spotweave-never-x"}


def twin(_call: AdmissionCall) -> list[dict[str, Any]]:
    return [TWIN]


def member(owner: Owner = JOB, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    return raw_new_pod(owner, annotations=GROUP, labels=labels or {}, spec=spec)


def patch_of(raw_pod: dict[str, Any], reviewer: GateReviewer | None = None) -> list[dict[str, Any]]:
    answer = (reviewer or GateReviewer(WebhookMetrics(), twin)).answer(review(raw_pod))
    response = json.loads(answer)["response"]
    assert response["allowed"] is True
    patch: list[dict[str, Any]] = json.loads(b64decode(response["patch"])) if "patch" in response else []
    return patch


def gates(*given: dict[str, str]) -> dict[str, Any]:
    return {"op": "add", "path": "/spec/schedulingGates", "value": list(given)}


def test_a_member_gets_gate_label_and_priority() -> None:
    assert patch_of(member()) == [LABELLED, gates(GATE), TWIN]


WITH_BARE = Gangs(enabled=True, bare_annotations=True, scheduler_names=("volcano",))


def bare(annotations: dict[str, str], **spec: Any) -> dict[str, Any]:
    """The patch of such a pod, by path, where annotations without a prefix count."""
    raw = raw_new_pod(JOB, annotations=annotations, labels={}, spec=spec)
    patch = patch_of(raw, GateReviewer(WebhookMetrics(), twin, WITH_BARE))
    return {each["path"]: each["value"] for each in patch}


def test_annotations_without_a_prefix_count_where_that_is_switched_on() -> None:
    """And a listed scheduler is replaced; the gate comes with all of it. A priority alone makes no member."""
    made = bare({"pod-group": "a", "priority": "7"}, schedulerName="volcano")
    annotations = {"pod-group": "a", "priority": "7", names.POD_GROUP: "a", names.PRIORITY: "7"}
    assert made["/metadata/annotations"] == annotations
    assert (made["/spec/schedulingGates"], made["/spec/schedulerName"]) == ([GATE], "default-scheduler")
    assert "/metadata/labels" in made
    assert bare({}, schedulerName="volcano").keys() >= {"/spec/schedulingGates", "/spec/schedulerName"}
    assert bare({"priority": "7"}) == {"/metadata/annotations": {"priority": "7", names.PRIORITY: "7"}}
    assert bare({"pod-group": "a"}, schedulerName="other") == {}
    assert bare({"pod-group": "a"}, schedulerName="volcano", nodeName="n1") == {}


def test_annotations_without_a_prefix_are_nothing_else() -> None:
    """Nor is another scheduler's name."""
    raw = raw_new_pod(JOB, annotations={"pod-group": "a"}, labels={}, spec={})
    assert patch_of(raw) == []
    assert patch_of(member(schedulerName="volcano")) == []


def test_a_label_names_a_group_too() -> None:
    raw = raw_new_pod(JOB, annotations={}, labels={names.POD_GROUP_LABEL: "a"}, spec={})
    assert gates(GATE) in patch_of(raw)


def test_what_is_there_stays() -> None:
    """Other labels and gates. A second call changes nothing of them."""
    labels = {"app": "a"}
    first = patch_of(member(labels=labels, schedulingGates=[FOREIGN]))
    assert first[:2] == [{**LABELLED, "value": {**labels, **MEMBER}}, gates(FOREIGN, GATE)]
    assert patch_of(member(labels={**labels, **MEMBER}, schedulingGates=[GATE])) == [TWIN]


NONE: dict[str, dict[str, Any]] = {
    "no group": raw_new_pod(JOB),
    "a group of blanks": raw_new_pod(JOB, annotations={names.POD_GROUP: " "}),
    "a node": member(nodeName="n1"),
    "another scheduler": member(schedulerName="volcano"),
    "opted out": member(labels={names.PLACEMENT: names.DISABLED}),
    "of a DaemonSet": member(Owner("DaemonSet", "agent", "d", "apps")),
    "static": raw_new_pod(JOB, annotations={**GROUP, names.MIRROR: "x"}),
}


@pytest.mark.parametrize("raw_pod", NONE.values(), ids=NONE.keys())
def test_who_is_no_member(raw_pod: dict[str, Any]) -> None:
    """As in the policy, although the entry's conditions do not send these."""
    assert patch_of(raw_pod) == []
    assert gated(parse(review(raw_pod)), twin).reason is Reason.NOT_A_MEMBER


def test_while_gangs_are_off_nobody_is_gated() -> None:
    """Nobody would take the gate off. The entry may be there before the setting, and after it."""
    assert patch_of(member(), GateReviewer(WebhookMetrics(), None)) == []


def test_a_member_that_cannot_be_gated_is_refused() -> None:
    """Without a readable review, or with one that is too large, there is no answer that lets it through."""
    reviewer = GateReviewer(WebhookMetrics(), twin)
    for body, dropped in ((b"{}", 0), (b"not json", 0), (review(member()), 1)):
        with pytest.raises(MalformedReview):
            reviewer.answer(body, dropped)
    request = Request("POST", names.GATE_PATH, {b"content-type": b"application/json"}, b"{}")
    assert GangRoute(reviewer).review(request).status == 400


def test_a_mistake_of_ours_lets_no_member_through() -> None:
    """The server answers it with 500, which the entry's failurePolicy takes for no."""

    def fails(_call: AdmissionCall) -> list[dict[str, Any]]:
        raise RuntimeError("a mistake")

    with pytest.raises(RuntimeError):
        GateReviewer(WebhookMetrics(), fails).answer(review(member()))
