"""Members of gangs at the webhook: they take no slot, and each gets the twin of its PriorityClass where it is there."""

from __future__ import annotations

import json
from base64 import b64decode
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.scopes import ScopedQuotaObject, scoped_quota
from kube.store import Store
from placement import names
from placement.decide import Reason
from placement.gang.exclusive import taint_of
from placement.gang.twins import ScopedQuota, twin_name
from placement.model import Key, Owner, PriorityClass
from tests.builders.api import raw_new_pod, review
from tests.examples import examples
from webhook.gangs import GangAdmission, GangCaches, GangReviewer
from webhook.metrics import WebhookMetrics
from webhook.review import MalformedReview, controller, left_out, parse

GATES = [{"name": "example.com/wait"}, {"name": names.GANG_GATE}]
HIGH = {"priorityClassName": "high", "priority": 1000, "preemptionPolicy": "PreemptLowerPriority"}
JOB = Owner("Job", "train", "j", "batch")
QUOTA = ScopedQuota("shop", "q", by_priority=True)


def caches(*quotas: ScopedQuota, is_synced: bool = True) -> GangCaches:
    """With the twin of `high` and that of pods without a class."""
    classes, scoped = Store[PriorityClass](), Store[ScopedQuota]()
    for each in (PriorityClass("high", 1000), PriorityClass(twin_name("high"), 1000, never=True)):
        classes.put(each)
    classes.put(PriorityClass(twin_name(""), 0, never=True))
    for quota in quotas:
        scoped.put(quota)
    return GangCaches(classes, scoped, lambda: is_synced)


def member(**spec: Any) -> dict[str, Any]:
    """As the API server sends it: the gate is there, and priority is worked out."""
    labels = {names.GANG_LABEL: names.GANG_MEMBER}
    own = {"schedulingGates": GATES, "priority": 0, "preemptionPolicy": "PreemptLowerPriority", **spec}
    return raw_new_pod(JOB, annotations={names.POD_GROUP: "train"}, labels=labels, spec=own)


def answered(raw_pod: dict[str, Any], given_caches: GangCaches | None = None) -> tuple[Reason, list[dict[str, Any]]]:
    """The reason, and the patch in the answer; it is allowed in any case."""
    admission, body = GangAdmission(given_caches or caches()), review(raw_pod)
    response = json.loads(GangReviewer(admission, WebhookMetrics()).answer(body))["response"]
    assert response["allowed"] is True
    patch = json.loads(b64decode(response["patch"])) if "patch" in response else []
    return admission.place(parse(body)).reason, patch


def twin_patch(name: str, *removed: str) -> list[dict[str, Any]]:
    return [
        {"op": "add", "path": "/spec/priorityClassName", "value": twin_name(name)},
        *({"op": "remove", "path": f"/spec/{each}"} for each in removed),
    ]


def test_a_member_gets_the_twin_of_its_class() -> None:
    """What the API server has worked out from the class goes, as far as it is there: else the patch does not apply."""
    both = ("priority", "preemptionPolicy")
    assert answered(member(**HIGH)) == (Reason.TWIN, twin_patch("high", *both))
    assert answered(member()) == (Reason.TWIN, twin_patch("", *both))
    without = member()
    del without["spec"]["preemptionPolicy"]
    assert answered(without) == (Reason.TWIN, twin_patch("", "priority"))


def exclusive(kind: str, **spec: Any) -> dict[str, Any]:
    raw = member(priorityClassName=twin_name("high"), priority=1000, preemptionPolicy="Never", **spec)
    raw["metadata"]["annotations"] = {names.POD_GROUP: "train", names.EXCLUSIVE_NODE: kind}
    return raw


TAINT = taint_of(Key("shop", "train"))
TOLERATED = {"key": names.EXCLUSIVE_TAINT, "operator": "Equal", "value": TAINT.value, "effect": "NoSchedule"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
APART = {
    "labelSelector": {"matchLabels": {names.GANG_LABEL: names.GANG_MEMBER}},
    "namespaceSelector": {},
    "topologyKey": names.HOSTNAME,
}


def by_path(patch: list[dict[str, Any]]) -> dict[str, Any]:
    return {each["path"]: each["value"] for each in patch}


def test_members_with_nodes_of_their_own_tolerate_the_taint_of_their_gang() -> None:
    """Beside what they tolerate already; each on a node of its own keeps apart from other members, too."""
    theirs = {"key": "team", "operator": "Exists"}
    tolerations = {"/spec/tolerations": [theirs, TOLERATED]}
    assert by_path(answered(exclusive("gang", tolerations=[theirs]))[1]) == tolerations
    anti = {"podAntiAffinity": {REQUIRED: [{"topologyKey": "x"}]}, "nodeAffinity": {"a": "b"}}
    made = by_path(answered(exclusive("pod", tolerations=[theirs], affinity=anti))[1])
    both = {"nodeAffinity": {"a": "b"}, "podAntiAffinity": {REQUIRED: [{"topologyKey": "x"}, APART]}}
    assert made == {**tolerations, "/spec/affinity": both}


def test_a_second_call_adds_nothing_to_them() -> None:
    again = exclusive("pod", tolerations=[TOLERATED], affinity={"podAntiAffinity": {REQUIRED: [APART]}})
    assert answered(again) == (Reason.NO_TWIN, [])


def test_they_need_no_cache() -> None:
    """The webhook has just been started: priorities are not known yet, and the toleration cannot come later."""
    reason, patch = answered(exclusive("gang"), caches(is_synced=False))
    assert (reason, by_path(patch)) == (Reason.NOT_READY, {"/spec/tolerations": [TOLERATED]})


@pytest.mark.parametrize("kind", ["", "node", "POD"])
def test_a_mistake_keeps_nobody_apart(kind: str) -> None:
    assert answered(exclusive(kind)) == (Reason.NO_TWIN, [])


KEPT: dict[str, tuple[dict[str, Any], GangCaches, Reason]] = {
    "a second call": (
        member(priorityClassName=twin_name("high"), priority=1000, preemptionPolicy="Never"),
        caches(),
        Reason.NO_TWIN,
    ),
    "a class without a twin": (member(priorityClassName="low", priority=1), caches(), Reason.NO_TWIN),
    "a quota by class": (member(**HIGH), caches(QUOTA), Reason.NO_TWIN),
    "a priority that is no number": (member(priority="high"), caches(), Reason.NO_TWIN),
    "caches that are not read yet": (member(**HIGH), caches(is_synced=False), Reason.NOT_READY),
    "the label alone": (member(schedulingGates=[{"name": "example.com/wait"}]), caches(), Reason.NOT_A_MEMBER),
    "gates that are no list": (member(schedulingGates="x"), caches(), Reason.NOT_A_MEMBER),
}


@pytest.mark.parametrize(("raw_pod", "given_caches", "reason"), KEPT.values(), ids=KEPT.keys())
def test_in_doubt_it_keeps_its_class(raw_pod: dict[str, Any], given_caches: GangCaches, reason: Reason) -> None:
    """It has its gate all the same, and its gang starts into free room only."""
    assert answered(raw_pod, given_caches) == (reason, [])


def test_a_quota_of_another_namespace_makes_no_difference() -> None:
    """Nor does one that counts pods by something else."""
    elsewhere = caches(ScopedQuota("other", "q", by_priority=True), ScopedQuota("shop", "q"))
    assert answered(member(**HIGH), elsewhere)[0] is Reason.TWIN


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=5), inner, max_size=2),
    max_leaves=4,
)


@examples(200)
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "priorityClassName": anything | st.just("high"),
            "priority": anything | st.just(1000),
            "preemptionPolicy": anything,
            "schedulingGates": anything | st.just(GATES),
        },
    )
)
def test_whatever_a_member_looks_like_it_is_allowed_and_the_patch_applies(spec: dict[str, Any]) -> None:
    """Only what is there is removed."""
    raw_pod = raw_new_pod(JOB, annotations={names.POD_GROUP: "train"}, spec=spec)
    response = json.loads(GangReviewer(GangAdmission(caches()), WebhookMetrics()).answer(review(raw_pod)))["response"]
    assert response["allowed"] is True
    for operation in json.loads(b64decode(response["patch"])) if "patch" in response else ():
        assert operation["op"] == "add" or operation["path"].rpartition("/")[2] in raw_pod["spec"]


def test_a_malformed_call_is_answered_where_it_says_whose_it_is() -> None:
    """And counted; a pod is never refused."""
    metrics = WebhookMetrics()
    reviewer = GangReviewer(GangAdmission(caches()), metrics)
    assert json.loads(reviewer.answer(review(None)))["response"] == {"uid": "u1", "allowed": True}
    with pytest.raises(MalformedReview):
        reviewer.answer(b"[]")
    assert b'reason="malformed"} 2.0' in metrics.text()


LEFT_OUT: dict[str, tuple[dict[str, str], dict[str, str], Reason | None]] = {
    "a group": ({names.POD_GROUP: "train"}, {}, Reason.GANG),
    "the label, which the API server adds": ({}, {names.GANG_LABEL: names.GANG_MEMBER}, Reason.GANG),
    "both": ({names.POD_GROUP: "train"}, {names.GANG_LABEL: names.GANG_MEMBER}, Reason.GANG),
    "a group without a name is none": ({names.POD_GROUP: " "}, {}, None),
    "opted out": ({names.POD_GROUP: "train"}, {names.PLACEMENT: names.DISABLED}, Reason.OPTED_OUT),
    "none": ({}, {}, None),
}


@pytest.mark.parametrize(("annotations", "labels", "reason"), LEFT_OUT.values(), ids=LEFT_OUT.keys())
def test_a_member_takes_no_slot(annotations: dict[str, str], labels: dict[str, str], reason: Reason | None) -> None:
    """Where it arrives at the other entry nevertheless, it is left out there, whoever owns it."""
    raw_pod = raw_new_pod(annotations=annotations, labels=labels)
    assert left_out(raw_pod, controller(raw_pod), leaves_gangs=True) is reason


def test_while_gangs_are_off_the_name_of_a_group_means_nothing() -> None:
    """The pod has no gate then, and counts for the mix like any other. One that has the label was not meant for us."""
    raw_pod = raw_new_pod(annotations={names.POD_GROUP: "train"})
    assert left_out(raw_pod, controller(raw_pod)) is None
    labelled = raw_new_pod(labels={names.GANG_LABEL: names.GANG_MEMBER})
    assert left_out(labelled, controller(labelled)) is Reason.GANG


SCOPES: dict[str, tuple[str, bool]] = {
    "none": ('{"hard": {"pods": "3"}}', False),
    "by name": ('{"scopes": ["NotTerminating", "PriorityClass"]}', True),
    "another": ('{"scopes": ["Terminating"]}', False),
    "a selector": (
        '{"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["a"]}]}}',
        True,
    ),
    "another selector": ('{"scopeSelector": {"matchExpressions": [{"scopeName": "BestEffort"}]}}', False),
    "nothing": ("null", False),
}


@pytest.mark.parametrize(("spec", "expected"), SCOPES.values(), ids=SCOPES.keys())
def test_a_quota_says_whether_it_counts_by_class(spec: str, expected: bool) -> None:
    """In either of two places."""
    text = f'{{"metadata": {{"namespace": "shop", "name": "q"}}, "spec": {spec}}}'
    assert scoped_quota(msgspec.json.decode(text, type=ScopedQuotaObject)) == ScopedQuota("shop", "q", expected)
