"""Admission: one pod after the other, through stores in memory."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from placement import names
from placement.autostate import Chosen, key_of
from placement.configuration import Configuration, NamespaceLimit
from placement.decide import Reason
from placement.model import (
    Budget,
    Class,
    Key,
    Namespace,
    Node,
    NodeTaint,
    Owner,
    Pod,
    PriorityClass,
    Template,
)
from placement.observation import Rates
from placement.outage import Outage, Outages
from placement.policy import Limit
from placement.promise import SpotLimit
from rebalancer.index import Index
from tests.builders.api import raw_new_pod
from tests.builders.model import DEPLOYMENT, REPLICA_SET, STATEFUL_SET, budget, namespace, node
from tests.webhook.admissionharness import DB, WEB, WEB_ABC, AdmissionHarness
from webhook.admission import NotYet
from webhook.review import Verdict

O, S = Class.ON_DEMAND, Class.SPOT  # noqa: E741 - as in the design's example
OFF = {names.PLACEMENT: "disabled"}


@pytest.fixture
def harness() -> AdmissionHarness:
    return AdmissionHarness()


def placed(verdict: Verdict) -> tuple[Class | None, int | None]:
    assert verdict.decision is not None
    return verdict.decision.placed, verdict.decision.slot


def test_a_deployments_pods_take_slots_in_order(harness: AdmissionHarness) -> None:
    """O S S O S S O S S S, before any of them has been seen."""
    verdicts = [placed(harness.place(raw_new_pod())) for _ in range(10)]
    assert verdicts == list(zip([O, S, S, O, S, S, O, S, S, S], range(10), strict=True))


def test_a_lost_pod_is_replaced_by_one_of_its_class(harness: AdmissionHarness) -> None:
    """Also after the whole way through patch, store and ledger."""
    for number in range(10):
        harness.create(raw_new_pod(), f"web-abc-{number}")
    harness.stores.pods.remove(Key("shop", "web-abc-3"))
    assert placed(harness.place(raw_new_pod())) == (O, 3)


def test_each_revision_counts_for_itself(harness: AdmissionHarness) -> None:
    """A rollout starts at slot 0."""
    harness.place(raw_new_pod())
    harness.put(replace(WEB_ABC, name="web-def", uid="rs2"))
    assert placed(harness.place(raw_new_pod(Owner("ReplicaSet", "web-def", "rs2")))) == (O, 0)


def test_a_stateful_sets_slot_is_its_ordinal(harness: AdmissionHarness) -> None:
    """In whatever order they come, and however often."""
    ordinals = [3, 1, 1, 0, 9]
    verdicts = [placed(harness.place(raw_new_pod(STATEFUL_SET, f"db-{ordinal}"))) for ordinal in ordinals]
    assert verdicts == [(O, 3), (S, 1), (S, 1), (O, 0), (S, 9)]
    assert len(harness.admission.ledger) == 0


def test_a_stateful_sets_ordinals_may_start_elsewhere(harness: AdmissionHarness) -> None:
    """The slot is the ordinal less `spec.ordinals.start`; one below it counts as the first."""
    harness.put(replace(DB, first_ordinal=5))
    verdicts = [placed(harness.place(raw_new_pod(STATEFUL_SET, f"db-{ordinal}"))) for ordinal in (5, 6, 4)]
    assert verdicts == [(O, 0), (S, 1), (O, 0)]


ARGO = Owner("Rollout", "web", "d", "argoproj.io")
UNTOUCHED: dict[str, tuple[list[Any], dict[str, Any], Reason]] = {
    "the workload's label": ([replace(WEB, labels=OFF)], raw_new_pod(), Reason.OPTED_OUT),
    "the workload's annotation": ([replace(WEB, annotations=OFF)], raw_new_pod(), Reason.OPTED_OUT),
    "the template's label": ([replace(WEB, template=Template(OFF))], raw_new_pod(), Reason.OPTED_OUT),
    "the pod's own label, which came from the template": ([], raw_new_pod(labels=OFF), Reason.OPTED_OUT),
    "a bare ReplicaSet": ([replace(WEB_ABC, owner=None)], raw_new_pod(), Reason.NOT_A_WORKLOAD),
    "an Argo Rollout's ReplicaSet": ([replace(WEB_ABC, owner=ARGO)], raw_new_pod(), Reason.NOT_A_WORKLOAD),
    "another group's Deployment": (
        [replace(WEB_ABC, owner=Owner("Deployment", "web", "d", "example.com"))],
        raw_new_pod(),
        Reason.NOT_A_WORKLOAD,
    ),
    "a DaemonSet's pod": ([], raw_new_pod(Owner("DaemonSet", "x", "u")), Reason.NOT_A_WORKLOAD),
    "a Job's pod": ([], raw_new_pod(Owner("Job", "x", "u", "batch")), Reason.NOT_A_WORKLOAD),
    "another group's ReplicaSet": ([], raw_new_pod(replace(REPLICA_SET, api_group="x.io")), Reason.NOT_A_WORKLOAD),
    "a core object's pod": ([], raw_new_pod(Owner("ReplicationController", "x", "u", "")), Reason.NOT_A_WORKLOAD),
    "a bare pod": ([], raw_new_pod(None), Reason.NOT_A_WORKLOAD),
    "owners of null": ([], raw_new_pod(None, ownerReferences=None), Reason.NOT_A_WORKLOAD),
    "an owner that is not the controller": (
        [],
        raw_new_pod(
            None, ownerReferences=[{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "rs"}]
        ),
        Reason.NOT_A_WORKLOAD,
    ),
    "a node that is named": ([], raw_new_pod(spec={"nodeName": "n"}), Reason.PRESET_NODE),
    "another scheduler": ([], raw_new_pod(spec={"schedulerName": "volcano"}), Reason.FOREIGN_SCHEDULER),
    "a static pod's mirror": ([], raw_new_pod(annotations={names.MIRROR: "x"}), Reason.MIRROR),
}


GUARD = [{"op": "add", "path": "/spec/priorityClassName", "value": "spotweave-never-default"}]
GUARDED: dict[str, tuple[dict[str, Any], bool]] = {
    "a Deployment's pod": (raw_new_pod(), True),
    "a Job's pod": (raw_new_pod(Owner("Job", "x", "u", "batch")), True),
    "a bare pod": (raw_new_pod(None), True),
    "a DaemonSet's pod": (raw_new_pod(Owner("DaemonSet", "x", "u")), False),
    "opted out": (raw_new_pod(labels=OFF), False),
    "another scheduler": (raw_new_pod(spec={"schedulerName": "volcano"}), False),
}


@pytest.mark.parametrize(("raw_pod", "is_guarded"), GUARDED.values(), ids=GUARDED.keys())
def test_pods_without_a_gang_preempt_nobody_where_they_are_guarded(raw_pod: dict[str, Any], is_guarded: bool) -> None:
    """Beside what a workload's pod gets anyway; elsewhere nothing of it is there."""
    plain = AdmissionHarness().place(raw_pod)
    found = AdmissionHarness(guard=lambda _call: GUARD).place(raw_pod)
    assert list(found.patch) == [*plain.patch, *(GUARD if is_guarded else [])]
    assert found.reason is plain.reason


def test_a_namespace_that_is_not_opted_in_is_untouched(harness: AdmissionHarness) -> None:
    """A patient caller waits: the API server asks us because of a label, which we may not have seen yet."""
    harness.put(Namespace("shop"))
    assert harness.place(raw_new_pod()) == Verdict(Reason.NOT_OPTED_IN)
    with pytest.raises(NotYet):
        harness.place(raw_new_pod(), patient=True)


@pytest.mark.parametrize(("objects", "pod", "reason"), UNTOUCHED.values(), ids=UNTOUCHED.keys())
def test_what_is_not_ours_is_untouched(
    harness: AdmissionHarness, objects: list[Any], pod: dict[str, Any], reason: Reason
) -> None:
    """No decision, no slot, no patch, also for a patient caller."""
    harness.put(*objects)
    assert harness.place(pod, patient=True) == Verdict(reason)
    assert harness.create(pod) == pod
    assert len(harness.admission.ledger) == 0


def test_no_scheduler_means_the_default_one(harness: AdmissionHarness) -> None:
    """As the API server sees it."""
    assert placed(harness.place(raw_new_pod(spec={"schedulerName": ""}))) == (O, 0)


def test_not_synced_means_untouched(harness: AdmissionHarness) -> None:
    """A cache that has not been filled is not an empty cluster."""
    harness.is_synced = False
    assert harness.place(raw_new_pod(), patient=True) == Verdict(Reason.NOT_READY)
    harness.is_synced = True
    assert placed(harness.place(raw_new_pod())) == (O, 0)


# --- owners that the caches do not know ------------------------------------------------------------------------------


def unknown_to_the_caches(harness: AdmissionHarness) -> None:
    harness.stores.replica_sets.remove(WEB_ABC.key)
    harness.stores.deployments.remove(WEB.key)


def test_an_unknown_owner_is_waited_for_and_then_left(harness: AdmissionHarness) -> None:
    """A patient caller hears what to look up; the last call is answered with the reason."""
    unknown_to_the_caches(harness)
    with pytest.raises(NotYet) as behind:
        harness.place(raw_new_pod(), patient=True)
    assert behind.value.owner == REPLICA_SET
    assert harness.place(raw_new_pod()) == Verdict(Reason.UNKNOWN_OWNER)


def test_a_looked_up_owner_is_placed(harness: AdmissionHarness) -> None:
    """The ReplicaSet, and its Deployment where that is not known either."""
    unknown_to_the_caches(harness)
    harness.known_to_the_api = {"rs": WEB_ABC, "d": WEB}
    harness.admission.learn(harness.admission.find(REPLICA_SET, "shop"))
    assert harness.looked_up == [REPLICA_SET, DEPLOYMENT]
    assert placed(harness.place(raw_new_pod(), patient=True)) == (O, 0)


def test_a_known_deployment_is_not_looked_up(harness: AdmissionHarness) -> None:
    """One question is enough."""
    harness.stores.replica_sets.remove(WEB_ABC.key)
    harness.known_to_the_api = {"rs": WEB_ABC}
    harness.admission.learn(harness.admission.find(REPLICA_SET, "shop"))
    assert harness.looked_up == [REPLICA_SET]
    assert placed(harness.place(raw_new_pod())) == (O, 0)


def test_what_the_api_does_not_know_stays_unknown(harness: AdmissionHarness) -> None:
    """The look-up may fail or find another object; the pod is left alone."""
    unknown_to_the_caches(harness)
    harness.admission.learn(harness.admission.find(REPLICA_SET, "shop"))
    assert harness.place(raw_new_pod()) == Verdict(Reason.UNKNOWN_OWNER)


def test_a_looked_up_stateful_set_is_placed(harness: AdmissionHarness) -> None:
    """There is no ReplicaSet between."""
    harness.stores.stateful_sets.remove(DB.key)
    assert harness.place(raw_new_pod(STATEFUL_SET, "db-1")) == Verdict(Reason.UNKNOWN_OWNER)
    harness.known_to_the_api = {"ss": DB}
    harness.admission.learn(harness.admission.find(STATEFUL_SET, "shop"))
    assert placed(harness.place(raw_new_pod(STATEFUL_SET, "db-1"))) == (S, 1)


RECREATED: dict[str, Any] = {
    "the ReplicaSet": replace(WEB_ABC, uid="rs-old"),
    "the Deployment": replace(WEB, uid="d-old"),
}


@pytest.mark.parametrize("old", RECREATED.values(), ids=RECREATED.keys())
def test_an_object_of_the_same_name_is_not_the_owner(harness: AdmissionHarness, old: Any) -> None:
    """Deleted and created again while the cache still holds the old one: its UID tells."""
    harness.put(old)
    with pytest.raises(NotYet):
        harness.place(raw_new_pod(), patient=True)
    assert harness.place(raw_new_pod()) == Verdict(Reason.UNKNOWN_OWNER)


def test_the_cache_counts_for_more_than_what_was_looked_up(harness: AdmissionHarness) -> None:
    """What was looked up is a moment old; the cache goes on."""
    harness.known_to_the_api = {"rs": replace(WEB_ABC, replicas=1), "d": WEB}
    harness.admission.learn(harness.admission.find(REPLICA_SET, "shop"))
    assert [placed(harness.place(raw_new_pod(), patient=True)) for _ in range(3)] == [(O, 0), (S, 1), (S, 2)]


def test_an_unknown_namespace_is_waited_for_and_then_opted_in(harness: AdmissionHarness) -> None:
    """The API server asked us because of its label."""
    harness.stores.namespaces.remove(Key("", "shop"))
    with pytest.raises(NotYet) as behind:
        harness.place(raw_new_pod(), patient=True)
    assert behind.value.owner is None
    assert placed(harness.place(raw_new_pod())) == (O, 0)


def test_more_pods_than_replicas_are_waited_for(harness: AdmissionHarness) -> None:
    """The caches are behind; if that does not change, the slot of a create that must have failed is given again."""
    harness.put(replace(WEB_ABC, replicas=2))
    harness.place(raw_new_pod())
    harness.place(raw_new_pod())
    with pytest.raises(NotYet) as behind:
        harness.place(raw_new_pod(), patient=True)
    assert behind.value.owner is None
    assert placed(harness.place(raw_new_pod())) == (O, 0)


# --- once, and only once ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pod", [raw_new_pod(), raw_new_pod(STATEFUL_SET, "db-1")], ids=["Deployment", "StatefulSet"])
def test_a_pod_that_is_decided_is_left_as_it_is(harness: AdmissionHarness, pod: dict[str, Any]) -> None:
    """A second call for one request has a new uid; it changes nothing and counts nothing."""
    once = harness.create(pod)
    counted = len(harness.admission.ledger)
    assert once != pod
    assert harness.place(once).reason is Reason.DECIDED
    assert harness.create(once) == once
    assert len(harness.admission.ledger) == counted


COPIED: dict[str, tuple[Owner, str, str]] = {
    "of another ReplicaSet": (REPLICA_SET, "", "rs-old/id"),
    "of nobody": (REPLICA_SET, "", "id"),
    "of another ordinal of the same StatefulSet": (STATEFUL_SET, "db-3", "ss/id"),
}


@pytest.mark.parametrize(("owner", "name", "decision"), COPIED.values(), ids=COPIED.keys())
def test_copied_annotations_do_not_count(harness: AdmissionHarness, owner: Owner, name: str, decision: str) -> None:
    """They came with a template that was made from a running pod; none of them survives."""
    copied = dict.fromkeys(names.POD_ANNOTATIONS, "old") | {names.DECISION: decision, names.SLOT: "7", "app": "x"}
    created = harness.create(raw_new_pod(owner, name, annotations=copied))
    written = created["metadata"]["annotations"]
    assert written[names.DECISION] == f"{owner.uid}/request-1"
    assert written[names.SLOT] == ("3" if name else "0")
    assert written["app"] == "x"
    assert written.keys() & {*names.POD_ANNOTATIONS} == {names.DECISION, names.SLOT, names.REASON}
    assert "old" not in written[names.REASON]


def test_a_dry_run_changes_no_count(harness: AdmissionHarness) -> None:
    """It is answered like a real call."""
    dry = [placed(harness.place(raw_new_pod(), dry_run=True)) for _ in range(3)]
    assert dry == [(O, 0)] * 3
    assert len(harness.admission.ledger) == 0
    assert placed(harness.place(raw_new_pod())) == (O, 0)


def test_pods_that_admission_missed_are_counted_by_their_class(harness: AdmissionHarness) -> None:
    """One runs on an unlabelled node, so it holds slot 0; one is pending with terms that mean spot: slot 1."""
    terms = Configuration().classes.terms(S)
    harness.put(Pod("shop", "a", owner=REPLICA_SET, node="demand-1", phase="Running"))
    harness.put(Pod("shop", "b", owner=REPLICA_SET, required_terms=terms))
    assert placed(harness.place(raw_new_pod())) == (S, 2)


# --- policy and the cluster ------------------------------------------------------------------------------------------


def test_mistakes_are_warned_about_and_do_not_count(harness: AdmissionHarness) -> None:
    """The pod is placed by the next valid level, and every mistake is named."""
    harness.put(replace(WEB, annotations={names.SPOT_RATIO: "70", names.SPREAD: "x"}))
    harness.put(namespace(spot_ratio="0%"))
    verdicts = [harness.place(raw_new_pod()) for _ in range(3)]
    assert [placed(verdict)[0] for verdict in verdicts] == [O, O, O]
    assert verdicts[0].warnings == tuple(map(str, verdicts[0].mistakes))
    assert [warning.partition(":")[0] for warning in verdicts[0].warnings] == [
        f"workload {names.SPOT_RATIO}",
        f"workload {names.SPREAD}",
    ]


def test_a_changed_policy_counts_from_the_next_pod_on(harness: AdmissionHarness) -> None:
    """What was worked out for one set of annotations is not used for another."""
    harness.put(replace(WEB, annotations={names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}))
    assert placed(harness.place(raw_new_pod())) == (S, 0)
    harness.put(replace(WEB, annotations={names.SPOT_RATIO: "0%"}))
    assert placed(harness.place(raw_new_pod())) == (O, 1)


def test_limits_hold_for_the_namespaces_they_select() -> None:
    """The configuration's limit clamps what the workload asks for, and says so."""
    harness = AdmissionHarness(Configuration(limits=(NamespaceLimit(Limit(Fraction(0))),)))
    harness.put(replace(WEB, annotations={names.SPOT_RATIO: "90%"}))
    harness.place(raw_new_pod())
    verdict = harness.place(raw_new_pod())
    assert placed(verdict) == (O, 1)
    assert "at most 0%" in verdict.warnings[0]


def test_a_contradiction_is_left_alone_and_told(harness: AdmissionHarness) -> None:
    """The user's own selector wins; the pod is only annotated with the reason."""
    own = raw_new_pod(spec={"nodeSelector": {names.CAPACITY: "spot"}})
    verdict = harness.place(own, dry_run=True)
    assert verdict.reason is Reason.CONTRADICTION
    assert verdict.decision is not None
    assert verdict.warnings == (verdict.decision.explanation,)
    created = harness.create(own)
    assert created["spec"] == own["spec"]
    assert "labels" not in created["metadata"]


def preferred_zones(harness: AdmissionHarness) -> set[str]:
    """Over the first nine pods of a StatefulSet, which count nothing."""
    verdicts = [harness.place(raw_new_pod(STATEFUL_SET, f"db-{ordinal}")) for ordinal in range(10)]
    preferences = [each for verdict in verdicts if verdict.decision for each in verdict.decision.injection.preferred]
    return {each.values[0] for preference in preferences for each in preference.term if each.key == names.ZONE}


LEAVING: dict[str, Node | None] = {
    "cordoned": node("b", S, "zone-b", unschedulable=True),
    "about to be terminated": node("b", S, "zone-b", taints=(NodeTaint("aws-node-termination-handler/spot-itn"),)),
    "not ready": node("b", S, "zone-b", ready=False),
    "on-demand now": Node("b", {names.ZONE: "zone-b"}),
    "gone": None,
}


@pytest.mark.parametrize("change", LEAVING.values(), ids=LEAVING.keys())
def test_only_live_spot_pools_are_preferred(harness: AdmissionHarness, change: Node | None) -> None:
    """What is leaving is never a target; a change of nodes is seen by the next pod."""
    harness.stores.nodes.remove(Key("", "spot-1"))
    harness.put(node("a", S, "zone-a"), node("b", S, "zone-b", taints=(NodeTaint("some/taint"),)))
    assert preferred_zones(harness) == {"zone-a", "zone-b"}
    if change is None:
        harness.stores.nodes.remove(Key("", "b"))
    else:
        harness.put(change)
    assert preferred_zones(harness) == {"zone-a"}


def test_while_spot_is_out_pods_are_soft(harness: AdmissionHarness) -> None:
    """And what the service does not need gets the overflow class, as soon as that exists."""
    harness.put(replace(WEB, annotations={names.MIN_AVAILABLE: "1"}))
    harness.outages = Outages(1, (Outage(S, 1000.5),))
    harness.place(raw_new_pod())
    first = harness.place(raw_new_pod()).decision
    assert first is not None
    assert (first.soft, first.injection.priority_class) == (True, "")
    harness.put(PriorityClass(names.OVERFLOW_PRIORITY, -5))
    second = harness.place(raw_new_pod()).decision
    assert second is not None
    assert (second.soft, second.injection.priority_class) == (True, names.OVERFLOW_PRIORITY)
    harness.outages = Outages(2, (Outage(S, 1000.0),))
    assert harness.place(raw_new_pod(STATEFUL_SET, "db-1")).reason is Reason.SLOT


def test_what_a_budget_wants_to_serve_is_no_overflow(harness: AdmissionHarness) -> None:
    """Of ten, one is assumed to be more than the service needs; none is while a budget wants all of them."""
    harness.outages = Outages(1, (Outage(S, 2000.0),))
    harness.put(PriorityClass(names.OVERFLOW_PRIORITY, -5), replace(DB, template=Template(labels={"app": "db"})))
    assert overflow(harness) == [9]
    declared = budget("db", selector={"matchLabels": {"app": "db"}}, min_available=10)
    harness.put(declared)
    assert overflow(harness) == []
    harness.put(replace(declared, min_available="75%"))
    assert overflow(harness) == [8, 9]


def overflow(harness: AdmissionHarness) -> list[int]:
    """The ordinals that get the overflow class."""
    decisions = (harness.place(raw_new_pod(STATEFUL_SET, f"db-{ordinal}")).decision for ordinal in range(10))
    return [each.slot or 0 for each in decisions if each and each.injection.priority_class == names.OVERFLOW_PRIORITY]


def test_an_ordered_stateful_sets_spot_ordinals_are_soft(harness: AdmissionHarness) -> None:
    """One that is pending would block all later ones."""
    harness.put(replace(DB, ordered=True))
    reasons = [harness.place(raw_new_pod(STATEFUL_SET, f"db-{ordinal}")).reason for ordinal in (0, 1)]
    assert reasons == [Reason.SLOT, Reason.ORDERED]


# --- without a rebalancer --------------------------------------------------------------------------------------------


def reasons(harness: AdmissionHarness, **spec: Any) -> list[Reason]:
    """Of an on-demand and a spot ordinal of a StatefulSet, which count nothing."""
    return [harness.place(raw_new_pod(STATEFUL_SET, f"db-{ordinal}", spec=spec)).reason for ordinal in (0, 1)]


def test_without_a_leader_for_a_minute_nothing_is_required(harness: AdmissionHarness) -> None:
    """From the next pod on, and until somebody leads again: what was worked out before does not count."""
    seen = []
    for harness.unled_seconds in (59.9, 60.0, 1000.0, 0.5):
        seen.append(reasons(harness))
    required, preferred = [Reason.SLOT] * 2, [Reason.NO_LEADER] * 2
    assert seen == [required, preferred, preferred, required]


def test_a_class_that_has_no_node_is_not_required_once_the_leader_is_late(harness: AdmissionHarness) -> None:
    """If the leader has died nobody would free the pod, and there is no place for it."""
    harness.stores.nodes.remove(Key("", "spot-1"))
    seen = []
    for harness.unled_seconds in (14.9, 15.0):
        seen.append(reasons(harness))
    assert seen == [[Reason.SLOT, Reason.SLOT], [Reason.SLOT, Reason.NO_LEADER]]
    harness.put(node("a", S, "zone-a"))
    assert reasons(harness) == [Reason.SLOT, Reason.SLOT]
    elsewhere = [{"matchExpressions": [{"key": names.ZONE, "operator": "In", "values": ["zone-b"]}]}]
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": elsewhere}}
    assert reasons(harness, affinity={"nodeAffinity": terms}) == [Reason.NO_LEADER] * 2


def test_a_mode_counts_from_the_next_pod_on(harness: AdmissionHarness) -> None:
    """Of the workload, or of its namespace."""
    harness.put(namespace(rebalance="plan-only"))
    assert reasons(harness) == [Reason.SLOT, Reason.PLAN_ONLY]
    harness.put(replace(DB, annotations={names.REBALANCE: "off"}))
    assert reasons(harness) == [Reason.SLOT, Reason.REBALANCE_OFF]
    harness.put(replace(DB, annotations={names.REBALANCE: "auto"}))
    assert reasons(harness) == [Reason.SLOT, Reason.SLOT]


def test_soft_pods_tolerate_what_live_nodes_of_their_class_carry(harness: AdmissionHarness) -> None:
    """Of effect PreferNoSchedule. What leaves is not looked at, and what both classes carry is not tolerated."""
    shy = NodeTaint("shy", "yes", "PreferNoSchedule")
    both = NodeTaint("both", "", "PreferNoSchedule")
    harness.put(node("a", S, "zone-a", taints=(shy, both)), Node("demand-1", taints=(both,)))
    harness.put(node("b", S, "zone-b", ready=False, taints=(NodeTaint("gone", "", "PreferNoSchedule"),)))
    harness.unled_seconds = 60.0
    own = {"tolerations": [{"key": "mine", "operator": "Exists"}]}
    once = harness.create(raw_new_pod(STATEFUL_SET, "db-1", spec=own))
    assert once["spec"]["tolerations"] == [
        {"key": "mine", "operator": "Exists"},
        {"key": names.CAPACITY, "operator": "Equal", "value": "spot"},
        {"key": "shy", "operator": "Exists", "effect": "PreferNoSchedule"},
    ]
    again = {**once, "metadata": {**once["metadata"], "annotations": {}}}
    assert harness.create(again)["spec"] == once["spec"]


AUTO = replace(
    WEB,
    annotations={names.SPOT_RATIO: "auto", names.PREFIX + "availability-target": "99.99%"},
    template=Template({"app": "web"}),
)
BUDGET = budget(selector={"matchLabels": {"app": "web"}}, max_unavailable=1)
AUTOS: dict[str, tuple[Rates, list[Budget], str]] = {
    "no rates yet": (Rates(), [], "auto (70%)"),
    "two pools": (Rates(1, {"a/m": 1.0, "b/m": 1.0}), [], "auto (45%: 2 pools, 2 losses a month, target 99.99%)"),
    "a budget is stricter than the rollout": (
        Rates(1, {"a/m": 1.0, "b/m": 1.0}),
        [BUDGET],
        "auto (25%: 2 pools, 2 losses a month, target 99.99%)",
    ),
    "a pool that hardly ever goes": (
        Rates(2, {"a/m": 0.25}),
        [],
        "auto (95%: 1 pool, 0.25 losses a month, target 99.99%)",
    ),
}


@pytest.mark.parametrize(("rates", "budgets", "expected"), AUTOS.values(), ids=AUTOS.keys())
def test_auto_is_the_same_for_both_programs(
    harness: AdmissionHarness, rates: Rates, budgets: list[Budget], expected: str
) -> None:
    """Neither asks the other: both go by the rates that are noted, and by what the workload and its budgets say."""
    objects = [namespace(), AUTO, WEB_ABC, *budgets]
    harness.put(*objects)
    harness.rates = rates
    verdict = harness.place(raw_new_pod())
    assert verdict.decision is not None
    assert f"(spot-ratio {expected}, min-on-demand 1)" in verdict.decision.explanation
    index = Index(Configuration())
    for each in [*objects, rates]:
        index.observe(None, each)
    index.drain()
    index.refresh(0.0)
    assert index.assessments["d"].group.policy.explain() == f"spot-ratio {expected}, min-on-demand 1"


def test_auto_follows_new_rates_and_budgets(harness: AdmissionHarness) -> None:
    """What is remembered of a revision is worked out anew."""
    harness.put(AUTO)

    def told() -> str:
        verdict = harness.place(raw_new_pod(), dry_run=True)
        assert verdict.decision is not None
        return verdict.decision.explanation.partition("auto (")[2].partition(":")[0].partition(")")[0]

    seen = [told()]
    harness.rates = Rates(1, {"a/m": 1.0, "b/m": 1.0})
    seen.append(told())
    harness.put(BUDGET)
    seen.append(told())
    harness.put(replace(BUDGET, healthy=9))
    seen.append(told())
    harness.stores.budgets.remove(BUDGET.key)
    seen.append(told())
    assert seen == ["70%", "45%", "25%", "25%", "45%"]


def test_auto_follows_what_the_leader_chose(harness: AdmissionHarness) -> None:
    """The first estimate holds until then. What is chosen for others changes nothing that is remembered."""
    harness.put(AUTO)
    pools = {"a/m": 1.0, "b/m": 1.0}

    def told(version: int, chosen: dict[str, Chosen]) -> str:
        harness.rates = Rates(version, pools, chosen)
        decision = harness.place(raw_new_pod(), dry_run=True).decision
        assert decision is not None
        return decision.explanation.partition("auto (")[2].partition(" ")[0]

    other = {key_of("another"): Chosen(3, SpotLimit.BUDGET)}
    own = key_of(AUTO.uid)
    assert told(1, {}) == "45%:"
    assert told(1, other) == "45%:"
    assert told(1, {**other, own: Chosen(12, SpotLimit.RISK)}) == "60%"
    assert told(1, {**other, own: Chosen(4, SpotLimit.BUDGET)}) == "20%"
    assert told(2, {**other, own: Chosen(4, SpotLimit.RISING)}) == "20%"


def test_auto_goes_by_the_replica_set_where_a_scale_from_nothing_was_not_seen_yet(harness: AdmissionHarness) -> None:
    """The Deployment still seems to want none; at that size anything would do."""
    harness.put(replace(AUTO, replicas=0))
    harness.rates = Rates(1, {"a/m": 1.0, "b/m": 1.0})
    decision = harness.place(raw_new_pod()).decision
    assert decision is not None
    assert "spot-ratio auto (45%:" in decision.explanation
