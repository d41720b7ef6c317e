"""Admission: one pod after the other, through stores in memory."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from placement import names
from placement.configuration import Configuration, NamespaceLimit
from placement.decide import Reason
from placement.model import (
    Budget,
    Class,
    Key,
    Kind,
    Namespace,
    Node,
    NodeTaint,
    Owner,
    Pod,
    PriorityClass,
    ReplicaSet,
    Template,
    Workload,
)
from placement.observation import Rates
from placement.outage import Outage, Outages
from placement.policy import Limit
from rebalancer.index import Index
from tests.webhook.world import (
    DEPLOYMENT,
    OPTED_IN,
    REPLICA_SET,
    STATEFUL_SET,
    World,
    raw_pod,
)
from webhook.admission import NotYet
from webhook.review import Verdict

O, S = Class.ON_DEMAND, Class.SPOT  # noqa: E741 - as in the design's example
WEB = Workload(Kind.DEPLOYMENT, "shop", "web", "d", 10)
DB = Workload(Kind.STATEFUL_SET, "shop", "db", "ss", 10)
WEB_ABC = ReplicaSet("shop", "web-abc", "rs", DEPLOYMENT, 10)
OFF = {names.PLACEMENT: "disabled"}


@pytest.fixture
def world() -> World:
    return World()


def placed(verdict: Verdict) -> tuple[Class | None, int | None]:
    assert verdict.decision is not None
    return verdict.decision.placed, verdict.decision.slot


def test_a_deployments_pods_take_slots_in_order(world: World) -> None:
    """O S S O S S O S S S, before any of them has been seen."""
    verdicts = [placed(world.place(raw_pod())) for _ in range(10)]
    assert verdicts == list(zip([O, S, S, O, S, S, O, S, S, S], range(10), strict=True))


def test_a_lost_pod_is_replaced_by_one_of_its_class(world: World) -> None:
    """Also after the whole way through patch, store and ledger."""
    for number in range(10):
        world.create(raw_pod(), f"web-abc-{number}")
    world.stores.pods.remove(Key("shop", "web-abc-3"))
    assert placed(world.place(raw_pod())) == (O, 3)


def test_each_revision_counts_for_itself(world: World) -> None:
    """A rollout starts at slot 0."""
    world.place(raw_pod())
    world.put(replace(WEB_ABC, name="web-def", uid="rs2"))
    assert placed(world.place(raw_pod(Owner("ReplicaSet", "web-def", "rs2")))) == (O, 0)


def test_a_stateful_sets_slot_is_its_ordinal(world: World) -> None:
    """In whatever order they come, and however often."""
    ordinals = [3, 1, 1, 0, 9]
    verdicts = [placed(world.place(raw_pod(STATEFUL_SET, f"db-{ordinal}"))) for ordinal in ordinals]
    assert verdicts == [(O, 3), (S, 1), (S, 1), (O, 0), (S, 9)]
    assert len(world.admission.ledger) == 0


def test_a_stateful_sets_ordinals_may_start_elsewhere(world: World) -> None:
    """The slot is the ordinal less `spec.ordinals.start`; one below it counts as the first."""
    world.put(replace(DB, first_ordinal=5))
    verdicts = [placed(world.place(raw_pod(STATEFUL_SET, f"db-{ordinal}"))) for ordinal in (5, 6, 4)]
    assert verdicts == [(O, 0), (S, 1), (O, 0)]


ARGO = Owner("Rollout", "web", "d", "argoproj.io")
UNTOUCHED: dict[str, tuple[list[Any], dict[str, Any], Reason]] = {
    "the workload's label": ([replace(WEB, labels=OFF)], raw_pod(), Reason.OPTED_OUT),
    "the workload's annotation": ([replace(WEB, annotations=OFF)], raw_pod(), Reason.OPTED_OUT),
    "the template's label": ([replace(WEB, template=Template(OFF))], raw_pod(), Reason.OPTED_OUT),
    "the pod's own label, which came from the template": ([], raw_pod(labels=OFF), Reason.OPTED_OUT),
    "a bare ReplicaSet": ([replace(WEB_ABC, owner=None)], raw_pod(), Reason.NOT_A_WORKLOAD),
    "an Argo Rollout's ReplicaSet": ([replace(WEB_ABC, owner=ARGO)], raw_pod(), Reason.NOT_A_WORKLOAD),
    "another group's Deployment": (
        [replace(WEB_ABC, owner=Owner("Deployment", "web", "d", "example.com"))],
        raw_pod(),
        Reason.NOT_A_WORKLOAD,
    ),
    "a DaemonSet's pod": ([], raw_pod(Owner("DaemonSet", "x", "u")), Reason.NOT_A_WORKLOAD),
    "a Job's pod": ([], raw_pod(Owner("Job", "x", "u", "batch")), Reason.NOT_A_WORKLOAD),
    "another group's ReplicaSet": ([], raw_pod(replace(REPLICA_SET, api_group="x.io")), Reason.NOT_A_WORKLOAD),
    "a core object's pod": ([], raw_pod(Owner("ReplicationController", "x", "u", "")), Reason.NOT_A_WORKLOAD),
    "a bare pod": ([], raw_pod(None), Reason.NOT_A_WORKLOAD),
    "owners of null": ([], raw_pod(None, ownerReferences=None), Reason.NOT_A_WORKLOAD),
    "an owner that is not the controller": (
        [],
        raw_pod(
            None, ownerReferences=[{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-abc", "uid": "rs"}]
        ),
        Reason.NOT_A_WORKLOAD,
    ),
    "a node that is named": ([], raw_pod(spec={"nodeName": "n"}), Reason.PRESET_NODE),
    "another scheduler": ([], raw_pod(spec={"schedulerName": "volcano"}), Reason.FOREIGN_SCHEDULER),
    "a static pod's mirror": ([], raw_pod(annotations={names.MIRROR: "x"}), Reason.MIRROR),
}


def test_a_namespace_that_is_not_opted_in_is_untouched(world: World) -> None:
    """A patient caller waits: the API server asks us because of a label, which we may not have seen yet."""
    world.put(Namespace("shop"))
    assert world.place(raw_pod()) == Verdict(Reason.NOT_OPTED_IN)
    with pytest.raises(NotYet):
        world.place(raw_pod(), patient=True)


@pytest.mark.parametrize(("objects", "pod", "reason"), UNTOUCHED.values(), ids=UNTOUCHED.keys())
def test_what_is_not_ours_is_untouched(world: World, objects: list[Any], pod: dict[str, Any], reason: Reason) -> None:
    """No decision, no slot, no patch, also for a patient caller."""
    world.put(*objects)
    assert world.place(pod, patient=True) == Verdict(reason)
    assert world.create(pod) == pod
    assert len(world.admission.ledger) == 0


def test_no_scheduler_means_the_default_one(world: World) -> None:
    """As the API server sees it."""
    assert placed(world.place(raw_pod(spec={"schedulerName": ""}))) == (O, 0)


def test_not_synced_means_untouched(world: World) -> None:
    """A cache that has not been filled is not an empty cluster."""
    world.is_synced = False
    assert world.place(raw_pod(), patient=True) == Verdict(Reason.NOT_READY)
    world.is_synced = True
    assert placed(world.place(raw_pod())) == (O, 0)


# --- owners that the caches do not know ------------------------------------------------------------------------------


def unknown_to_the_caches(world: World) -> None:
    world.stores.replica_sets.remove(WEB_ABC.key)
    world.stores.deployments.remove(WEB.key)


def test_an_unknown_owner_is_waited_for_and_then_left(world: World) -> None:
    """A patient caller hears what to look up; the last call is answered with the reason."""
    unknown_to_the_caches(world)
    with pytest.raises(NotYet) as behind:
        world.place(raw_pod(), patient=True)
    assert behind.value.owner == REPLICA_SET
    assert world.place(raw_pod()) == Verdict(Reason.UNKNOWN_OWNER)


def test_a_looked_up_owner_is_placed(world: World) -> None:
    """The ReplicaSet, and its Deployment where that is not known either."""
    unknown_to_the_caches(world)
    world.known_to_the_api = {"rs": WEB_ABC, "d": WEB}
    world.admission.learn(world.admission.find(REPLICA_SET, "shop"))
    assert world.looked_up == [REPLICA_SET, DEPLOYMENT]
    assert placed(world.place(raw_pod(), patient=True)) == (O, 0)


def test_a_known_deployment_is_not_looked_up(world: World) -> None:
    """One question is enough."""
    world.stores.replica_sets.remove(WEB_ABC.key)
    world.known_to_the_api = {"rs": WEB_ABC}
    world.admission.learn(world.admission.find(REPLICA_SET, "shop"))
    assert world.looked_up == [REPLICA_SET]
    assert placed(world.place(raw_pod())) == (O, 0)


def test_what_the_api_does_not_know_stays_unknown(world: World) -> None:
    """The look-up may fail or find another object; the pod is left alone."""
    unknown_to_the_caches(world)
    world.admission.learn(world.admission.find(REPLICA_SET, "shop"))
    assert world.place(raw_pod()) == Verdict(Reason.UNKNOWN_OWNER)


def test_a_looked_up_stateful_set_is_placed(world: World) -> None:
    """There is no ReplicaSet between."""
    world.stores.stateful_sets.remove(DB.key)
    assert world.place(raw_pod(STATEFUL_SET, "db-1")) == Verdict(Reason.UNKNOWN_OWNER)
    world.known_to_the_api = {"ss": DB}
    world.admission.learn(world.admission.find(STATEFUL_SET, "shop"))
    assert placed(world.place(raw_pod(STATEFUL_SET, "db-1"))) == (S, 1)


RECREATED: dict[str, Any] = {
    "the ReplicaSet": replace(WEB_ABC, uid="rs-old"),
    "the Deployment": replace(WEB, uid="d-old"),
}


@pytest.mark.parametrize("old", RECREATED.values(), ids=RECREATED.keys())
def test_an_object_of_the_same_name_is_not_the_owner(world: World, old: Any) -> None:
    """Deleted and created again while the cache still holds the old one: its UID tells."""
    world.put(old)
    with pytest.raises(NotYet):
        world.place(raw_pod(), patient=True)
    assert world.place(raw_pod()) == Verdict(Reason.UNKNOWN_OWNER)


def test_the_cache_counts_for_more_than_what_was_looked_up(world: World) -> None:
    """What was looked up is a moment old; the cache goes on."""
    world.known_to_the_api = {"rs": replace(WEB_ABC, replicas=1), "d": WEB}
    world.admission.learn(world.admission.find(REPLICA_SET, "shop"))
    assert [placed(world.place(raw_pod(), patient=True)) for _ in range(3)] == [(O, 0), (S, 1), (S, 2)]


def test_an_unknown_namespace_is_waited_for_and_then_opted_in(world: World) -> None:
    """The API server asked us because of its label."""
    world.stores.namespaces.remove(Key("", "shop"))
    with pytest.raises(NotYet) as behind:
        world.place(raw_pod(), patient=True)
    assert behind.value.owner is None
    assert placed(world.place(raw_pod())) == (O, 0)


def test_more_pods_than_replicas_are_waited_for(world: World) -> None:
    """The caches are behind; if that does not change, the slot of a create that must have failed is given again."""
    world.put(replace(WEB_ABC, replicas=2))
    world.place(raw_pod())
    world.place(raw_pod())
    with pytest.raises(NotYet) as behind:
        world.place(raw_pod(), patient=True)
    assert behind.value.owner is None
    assert placed(world.place(raw_pod())) == (O, 0)


# --- once, and only once ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("pod", [raw_pod(), raw_pod(STATEFUL_SET, "db-1")], ids=["Deployment", "StatefulSet"])
def test_a_pod_that_is_decided_is_left_as_it_is(world: World, pod: dict[str, Any]) -> None:
    """A second call for one request has a new uid; it changes nothing and counts nothing."""
    once = world.create(pod)
    counted = len(world.admission.ledger)
    assert once != pod
    assert world.place(once).reason is Reason.DECIDED
    assert world.create(once) == once
    assert len(world.admission.ledger) == counted


COPIED: dict[str, tuple[Owner, str, str]] = {
    "of another ReplicaSet": (REPLICA_SET, "", "rs-old/id"),
    "of nobody": (REPLICA_SET, "", "id"),
    "of another ordinal of the same StatefulSet": (STATEFUL_SET, "db-3", "ss/id"),
}


@pytest.mark.parametrize(("owner", "name", "decision"), COPIED.values(), ids=COPIED.keys())
def test_copied_annotations_do_not_count(world: World, owner: Owner, name: str, decision: str) -> None:
    """They came with a template that was made from a running pod; none of them survives."""
    copied = dict.fromkeys(names.POD_ANNOTATIONS, "old") | {names.DECISION: decision, names.SLOT: "7", "app": "x"}
    created = world.create(raw_pod(owner, name, annotations=copied))
    written = created["metadata"]["annotations"]
    assert written[names.DECISION] == f"{owner.uid}/request-1"
    assert written[names.SLOT] == ("3" if name else "0")
    assert written["app"] == "x"
    assert written.keys() & {*names.POD_ANNOTATIONS} == {names.DECISION, names.SLOT, names.REASON}
    assert "old" not in written[names.REASON]


def test_a_dry_run_changes_no_count(world: World) -> None:
    """It is answered like a real call."""
    dry = [placed(world.place(raw_pod(), dry_run=True)) for _ in range(3)]
    assert dry == [(O, 0)] * 3
    assert len(world.admission.ledger) == 0
    assert placed(world.place(raw_pod())) == (O, 0)


def test_pods_that_admission_missed_are_counted_by_their_class(world: World) -> None:
    """One runs on an unlabelled node, so it holds slot 0; one is pending with terms that mean spot: slot 1."""
    terms = Configuration().classes.terms(S)
    world.put(Pod("shop", "a", owner=REPLICA_SET, node="demand-1", phase="Running"))
    world.put(Pod("shop", "b", owner=REPLICA_SET, required_terms=terms))
    assert placed(world.place(raw_pod())) == (S, 2)


# --- policy and the cluster ------------------------------------------------------------------------------------------


def test_mistakes_are_warned_about_and_do_not_count(world: World) -> None:
    """The pod is placed by the next valid level, and every mistake is named."""
    world.put(replace(WEB, annotations={names.SPOT_RATIO: "70", names.SPREAD: "x"}))
    world.put(Namespace("shop", OPTED_IN, {names.SPOT_RATIO: "0%"}))
    verdicts = [world.place(raw_pod()) for _ in range(3)]
    assert [placed(verdict)[0] for verdict in verdicts] == [O, O, O]
    assert verdicts[0].warnings == tuple(map(str, verdicts[0].mistakes))
    assert [warning.partition(":")[0] for warning in verdicts[0].warnings] == [
        f"workload {names.SPOT_RATIO}",
        f"workload {names.SPREAD}",
    ]


def test_a_changed_policy_counts_from_the_next_pod_on(world: World) -> None:
    """What was worked out for one set of annotations is not used for another."""
    world.put(replace(WEB, annotations={names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}))
    assert placed(world.place(raw_pod())) == (S, 0)
    world.put(replace(WEB, annotations={names.SPOT_RATIO: "0%"}))
    assert placed(world.place(raw_pod())) == (O, 1)


def test_limits_hold_for_the_namespaces_they_select() -> None:
    """The configuration's limit clamps what the workload asks for, and says so."""
    world = World(Configuration(limits=(NamespaceLimit(Limit(Fraction(0))),)))
    world.put(replace(WEB, annotations={names.SPOT_RATIO: "90%"}))
    world.place(raw_pod())
    verdict = world.place(raw_pod())
    assert placed(verdict) == (O, 1)
    assert "at most 0%" in verdict.warnings[0]


def test_a_contradiction_is_left_alone_and_told(world: World) -> None:
    """The user's own selector wins; the pod is only annotated with the reason."""
    own = raw_pod(spec={"nodeSelector": {names.CAPACITY: "spot"}})
    verdict = world.place(own, dry_run=True)
    assert verdict.reason is Reason.CONTRADICTION
    assert verdict.decision is not None
    assert verdict.warnings == (verdict.decision.explanation,)
    created = world.create(own)
    assert created["spec"] == own["spec"]
    assert "labels" not in created["metadata"]


def node(name: str, zone: str, **changes: Any) -> Node:
    labels = {names.CAPACITY: "spot", names.ZONE: zone, names.INSTANCE_TYPE: "m"}
    return replace(Node(name, labels), **changes)


def preferred_zones(world: World) -> set[str]:
    """Over the first nine pods of a StatefulSet, which count nothing."""
    verdicts = [world.place(raw_pod(STATEFUL_SET, f"db-{ordinal}")) for ordinal in range(10)]
    preferences = [each for verdict in verdicts if verdict.decision for each in verdict.decision.injection.preferred]
    return {each.values[0] for preference in preferences for each in preference.term if each.key == names.ZONE}


LEAVING: dict[str, Node | None] = {
    "cordoned": node("b", "zone-b", unschedulable=True),
    "about to be terminated": node("b", "zone-b", taints=(NodeTaint("aws-node-termination-handler/spot-itn"),)),
    "not ready": node("b", "zone-b", ready=False),
    "on-demand now": Node("b", {names.ZONE: "zone-b"}),
    "gone": None,
}


@pytest.mark.parametrize("change", LEAVING.values(), ids=LEAVING.keys())
def test_only_live_spot_pools_are_preferred(world: World, change: Node | None) -> None:
    """What is leaving is never a target; a change of nodes is seen by the next pod."""
    world.stores.nodes.remove(Key("", "spot-1"))
    world.put(node("a", "zone-a"), node("b", "zone-b", taints=(NodeTaint("some/taint"),)))
    assert preferred_zones(world) == {"zone-a", "zone-b"}
    if change is None:
        world.stores.nodes.remove(Key("", "b"))
    else:
        world.put(change)
    assert preferred_zones(world) == {"zone-a"}


def test_while_spot_is_out_pods_are_soft(world: World) -> None:
    """And what the service does not need gets the overflow class, as soon as that exists."""
    world.put(replace(WEB, annotations={names.MIN_AVAILABLE: "1"}))
    world.outages = Outages(1, (Outage(S, 1000.5),))
    world.place(raw_pod())
    first = world.place(raw_pod()).decision
    assert first is not None
    assert (first.soft, first.injection.priority_class) == (True, "")
    world.put(PriorityClass(names.OVERFLOW_PRIORITY, -5))
    second = world.place(raw_pod()).decision
    assert second is not None
    assert (second.soft, second.injection.priority_class) == (True, names.OVERFLOW_PRIORITY)
    world.outages = Outages(2, (Outage(S, 1000.0),))
    assert world.place(raw_pod(STATEFUL_SET, "db-1")).reason is Reason.SLOT


def test_what_a_budget_wants_to_serve_is_no_overflow(world: World) -> None:
    """Of ten, one is assumed to be more than the service needs; none is while a budget wants all of them."""
    world.outages = Outages(1, (Outage(S, 2000.0),))
    world.put(PriorityClass(names.OVERFLOW_PRIORITY, -5), replace(DB, template=Template(labels={"app": "db"})))
    assert overflow(world) == [9]
    budget = Budget("shop", "db", {"matchLabels": {"app": "db"}}, min_available=10)
    world.put(budget)
    assert overflow(world) == []
    world.put(replace(budget, min_available="75%"))
    assert overflow(world) == [8, 9]


def overflow(world: World) -> list[int]:
    """The ordinals that get the overflow class."""
    decisions = (world.place(raw_pod(STATEFUL_SET, f"db-{ordinal}")).decision for ordinal in range(10))
    return [each.slot or 0 for each in decisions if each and each.injection.priority_class == names.OVERFLOW_PRIORITY]


def test_an_ordered_stateful_sets_spot_ordinals_are_soft(world: World) -> None:
    """One that is pending would block all later ones."""
    world.put(replace(DB, ordered=True))
    reasons = [world.place(raw_pod(STATEFUL_SET, f"db-{ordinal}")).reason for ordinal in (0, 1)]
    assert reasons == [Reason.SLOT, Reason.ORDERED]


# --- without a rebalancer --------------------------------------------------------------------------------------------


def reasons(world: World, **spec: Any) -> list[Reason]:
    """Of an on-demand and a spot ordinal of a StatefulSet, which count nothing."""
    return [world.place(raw_pod(STATEFUL_SET, f"db-{ordinal}", spec=spec)).reason for ordinal in (0, 1)]


def test_without_a_leader_for_a_minute_nothing_is_required(world: World) -> None:
    """From the next pod on, and until somebody leads again: what was worked out before does not count."""
    seen = []
    for world.unled_seconds in (59.9, 60.0, 1000.0, 0.5):
        seen.append(reasons(world))
    required, preferred = [Reason.SLOT] * 2, [Reason.NO_LEADER] * 2
    assert seen == [required, preferred, preferred, required]


def test_a_class_that_has_no_node_is_not_required_once_the_leader_is_late(world: World) -> None:
    """If the leader has died nobody would free the pod, and there is no place for it."""
    world.stores.nodes.remove(Key("", "spot-1"))
    seen = []
    for world.unled_seconds in (14.9, 15.0):
        seen.append(reasons(world))
    assert seen == [[Reason.SLOT, Reason.SLOT], [Reason.SLOT, Reason.NO_LEADER]]
    world.put(node("a", "zone-a"))
    assert reasons(world) == [Reason.SLOT, Reason.SLOT]
    elsewhere = [{"matchExpressions": [{"key": names.ZONE, "operator": "In", "values": ["zone-b"]}]}]
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": elsewhere}}
    assert reasons(world, affinity={"nodeAffinity": terms}) == [Reason.NO_LEADER] * 2


def test_a_mode_counts_from_the_next_pod_on(world: World) -> None:
    """Of the workload, or of its namespace."""
    world.put(Namespace("shop", OPTED_IN, {names.REBALANCE: "plan-only"}))
    assert reasons(world) == [Reason.SLOT, Reason.PLAN_ONLY]
    world.put(replace(DB, annotations={names.REBALANCE: "off"}))
    assert reasons(world) == [Reason.SLOT, Reason.REBALANCE_OFF]
    world.put(replace(DB, annotations={names.REBALANCE: "auto"}))
    assert reasons(world) == [Reason.SLOT, Reason.SLOT]


def test_soft_pods_tolerate_what_live_nodes_of_their_class_carry(world: World) -> None:
    """Of effect PreferNoSchedule. What leaves is not looked at, and what both classes carry is not tolerated."""
    shy = NodeTaint("shy", "yes", "PreferNoSchedule")
    both = NodeTaint("both", "", "PreferNoSchedule")
    world.put(node("a", "zone-a", taints=(shy, both)), Node("demand-1", taints=(both,)))
    world.put(node("b", "zone-b", ready=False, taints=(NodeTaint("gone", "", "PreferNoSchedule"),)))
    world.unled_seconds = 60.0
    own = {"tolerations": [{"key": "mine", "operator": "Exists"}]}
    once = world.create(raw_pod(STATEFUL_SET, "db-1", spec=own))
    assert once["spec"]["tolerations"] == [
        {"key": "mine", "operator": "Exists"},
        {"key": names.CAPACITY, "operator": "Equal", "value": "spot"},
        {"key": "shy", "operator": "Exists", "effect": "PreferNoSchedule"},
    ]
    again = {**once, "metadata": {**once["metadata"], "annotations": {}}}
    assert world.create(again)["spec"] == once["spec"]


AUTO = replace(
    WEB,
    annotations={names.SPOT_RATIO: "auto", names.PREFIX + "availability-target": "99.99%"},
    template=Template({"app": "web"}),
)
BUDGET = Budget("shop", "web", {"matchLabels": {"app": "web"}}, max_unavailable=1)
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
def test_auto_is_the_same_for_both_programs(world: World, rates: Rates, budgets: list[Budget], expected: str) -> None:
    """Neither asks the other: both go by the rates that are noted, and by what the workload and its budgets say."""
    objects = [Namespace("shop", OPTED_IN), AUTO, WEB_ABC, *budgets]
    world.put(*objects)
    world.rates = rates
    verdict = world.place(raw_pod())
    assert verdict.decision is not None
    assert f"(spot-ratio {expected}, min-on-demand 1)" in verdict.decision.explanation
    index = Index(Configuration())
    for each in [*objects, rates]:
        index.observe(None, each)
    index.drain()
    index.refresh(0.0)
    assert index.assessments["d"].group.policy.explain() == f"spot-ratio {expected}, min-on-demand 1"


def test_auto_follows_new_rates_and_budgets(world: World) -> None:
    """What is remembered of a revision is worked out anew."""
    world.put(AUTO)

    def told() -> str:
        verdict = world.place(raw_pod(), dry_run=True)
        assert verdict.decision is not None
        return verdict.decision.explanation.partition("auto (")[2].partition(":")[0].partition(")")[0]

    seen = [told()]
    world.rates = Rates(1, {"a/m": 1.0, "b/m": 1.0})
    seen.append(told())
    world.put(BUDGET)
    seen.append(told())
    world.put(replace(BUDGET, healthy=9))
    seen.append(told())
    world.stores.budgets.remove(BUDGET.key)
    seen.append(told())
    assert seen == ["70%", "45%", "25%", "25%", "45%"]


def test_auto_goes_by_the_replica_set_where_a_scale_from_nothing_was_not_seen_yet(world: World) -> None:
    """The Deployment still seems to want none; at that size anything would do."""
    world.put(replace(AUTO, replicas=0))
    world.rates = Rates(1, {"a/m": 1.0, "b/m": 1.0})
    decision = world.place(raw_pod()).decision
    assert decision is not None
    assert "spot-ratio auto (45%:" in decision.explanation
