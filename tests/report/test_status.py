"""Status: what is wanted, what is there, and why they differ, on small snapshots."""

from dataclasses import replace
from typing import Any

import pytest

from placement import names
from placement.configuration import Configuration, NamespaceLimit
from placement.model import Budget, Class, Kind, Namespace, Node, Owner, Pod, ReplicaSet, Snapshot, Template, Workload
from placement.policy import Limit, Mistake, Policy, resolve
from placement.slots import Mix
from report.status import WorkloadStatus, statuses
from report.statusjson import policy_json
from tests.builders.model import namespace, pod, replica_set, workload

SPOT = Node("spot-1", {names.CAPACITY: "spot"})
DEMAND = Node("demand-1", {names.CAPACITY: "on-demand"})
PLAIN = Node("plain-1")
NODES = {node.name: node for node in (SPOT, DEMAND, PLAIN)}
WEB = workload(replicas=3)  # wants 2 spot and 1 on-demand
DB = workload("db", 3, Kind.STATEFUL_SET, uid="s")
FIRST = replica_set("web-1", "r1", 3)
SECOND = replica_set("web-2", "r2", 1)


def placed(slot: int | None, node: str = "", *, revision: str = "r1", **changes: Any) -> Pod:
    """A pod that we placed and that serves if it has a node; of class spot unless its slot is 0 or 3."""
    labels = {names.CLASS: "on-demand" if slot in (0, 3) else "spot"}
    written = {names.SLOT: str(slot), names.REASON: "because"}
    made = pod(f"{revision}-{slot}", slot, node, revision, labels=labels, annotations=written)
    return replace(made, **{"decision": f"{revision}/id", **changes})


THREE = (placed(0, "demand-1"), placed(1, "spot-1"), placed(2, "spot-1"))
LEFT_ALONE = {names.LEFT_ALONE: "true", names.REASON: "left alone"}


def seen(*pods: Pod, replica_sets: tuple[ReplicaSet, ...] = (FIRST,), of: Workload = WEB) -> Snapshot:
    return Snapshot({"shop": namespace()}, NODES, (of,), replica_sets, pods)


def status(of: Snapshot, configuration: Configuration | None = None) -> WorkloadStatus:
    (only,) = statuses(of, configuration or Configuration())
    return only


ACTUAL: dict[str, tuple[Snapshot, Mix, Mix, str]] = {
    "exact": (seen(*THREE), Mix(2, 1), Mix(), ""),
    "an unlabelled node counts as on-demand": (
        seen(placed(0, "plain-1"), *THREE[1:]),
        Mix(2, 1),
        Mix(),
        "",
    ),
    "nothing there yet": (seen(), Mix(), Mix(), "0 of 3 pods exist"),
    "pending, each by the class of its slot": (
        seen(THREE[0], placed(1), placed(2, unschedulable="0/3 nodes are available")),
        Mix(0, 1),
        Mix(2, 0),
        "1 pod unschedulable: 0/3 nodes are available; 1 pod not ready yet",
    ),
    "an on-demand pod that is pending": (
        seen(placed(0), *THREE[1:]),
        Mix(2, 0),
        Mix(0, 1),
        "1 pod not ready yet",
    ),
    "placed but not ready": (
        seen(*THREE[:2], placed(2, "spot-1", ready=False)),
        Mix(1, 1),
        Mix(1, 0),
        "1 pod not ready yet",
    ),
    "not ready, and on the other class than its slot's: counted as its slot's": (
        seen(*THREE[:2], placed(2, "demand-1", ready=False)),
        Mix(1, 1),
        Mix(1, 0),
        "1 pod not ready yet",
    ),
    "on a node that is gone, where Kubernetes still calls it ready": (
        seen(*THREE[:2], placed(2, "spot-9")),
        Mix(1, 1),
        Mix(1, 0),
        "1 pod on nodes that are gone",
    ),
    "a terminating pod serves no more": (
        seen(*THREE[:2], placed(2, "spot-1", terminating=True)),
        Mix(1, 1),
        Mix(),
        "2 of 3 pods exist",
    ),
    "a failed pod is not pending": (
        seen(*THREE[:2], placed(2, phase="Failed")),
        Mix(1, 1),
        Mix(),
        "2 of 3 pods exist",
    ),
    "a soft pod that ran on on-demand": (
        seen(*THREE[:2], placed(2, "demand-1")),
        Mix(1, 2),
        Mix(),
        "1 pod not on the class of their slot",
    ),
    "missed by admission, and on the wrong class": (
        seen(*THREE[:2], placed(2, "demand-1", annotations={}, decision="")),
        Mix(1, 2),
        Mix(),
        "1 pod missed by admission",
    ),
    "left alone": (
        seen(*THREE[:2], placed(2, "demand-1", annotations=LEFT_ALONE)),
        Mix(1, 2),
        Mix(),
        "1 pod left alone: own node selector or affinity excludes the class",
    ),
    "the policy has changed since": (
        seen(*THREE, of=replace(WEB, annotations={names.SPOT_RATIO: "0%"})),
        Mix(2, 1),
        Mix(),
        "2 pods not on the class of their slot",
    ),
    "they were adopted, and not moved yet": (
        seen(
            placed(0, "demand-1"),
            *(replace(placed(slot, "demand-1"), labels={names.CLASS: "on-demand"}) for slot in (1, 2)),
        ),
        Mix(0, 3),
        Mix(),
        "2 pods not on the class of their slot",
    ),
    "two pods have the same slot": (
        seen(placed(0, "demand-1"), replace(placed(0, "demand-1"), name="other"), placed(1, "spot-1")),
        Mix(1, 2),
        Mix(),
        "two pods have the same slot; the rebalancer rewrites it",
    ),
    "others' pods do not count": (
        seen(*THREE, placed(1, "spot-1", revision="foreign"), Pod("shop", "bare", node="spot-1", ready=True)),
        Mix(2, 1),
        Mix(),
        "",
    ),
}


@pytest.mark.parametrize(("of", "actual", "pending", "reason"), ACTUAL.values(), ids=ACTUAL.keys())
def test_what_is_there_and_why_it_differs(of: Snapshot, actual: Mix, pending: Mix, reason: str) -> None:
    """`actual` counts Ready, non-terminating pods by the class of their existing node."""
    told = status(of)
    assert (told.actual, told.pending, told.reason) == (actual, pending, reason)
    assert told.is_exact is (told.actual == told.wanted) is (reason == "")


def test_a_rollout_wants_the_sum_of_its_revisions() -> None:
    """Three of the old revision want 2 + 1, one of the new wants 0 + 1; empty revisions do not count."""
    empty = replace(FIRST, name="web-0", uid="r0", replicas=0)
    rollout = seen(*THREE, placed(0, revision="r2"), replica_sets=(empty, FIRST, SECOND))
    told = status(rollout)
    assert (told.wanted, told.actual, told.pending, told.revisions) == (Mix(2, 2), Mix(2, 1), Mix(0, 1), 2)
    assert told.reason == "a rollout is under way (2 revisions); 1 pod not ready yet"


def test_a_single_active_revision_wants_the_formula_on_the_workload() -> None:
    """Also while the ReplicaSet is behind the Deployment."""
    behind = seen(*THREE, of=replace(WEB, replicas=10))
    told = status(behind)
    assert (told.wanted, told.revisions, told.reason) == (Mix(7, 3), 1, "3 of 10 pods exist")


def test_a_stateful_sets_pods_are_its_own() -> None:
    """There is no ReplicaSet between them."""
    pods = [placed(slot, node, revision="s") for slot, node in enumerate(("demand-1", "spot-1", "spot-1"))]
    told = status(seen(*pods, replica_sets=(), of=DB))
    assert (told.wanted, told.actual, told.reason) == (Mix(2, 1), Mix(2, 1), "")


def test_missed_pods_are_named() -> None:
    """Pods without a decision of ours for their own controller, as long as they count."""
    copied = placed(1, "spot-1", decision="other/id", annotations={names.SLOT: "1"})
    leaving = placed(7, "spot-1", annotations={}, decision="", terminating=True)
    told = status(seen(THREE[0], copied, placed(2, "spot-1", annotations={}, decision=""), leaving))
    assert told.missed == ("r1-1", "r1-2")
    assert [each.reason for each in told.pods] == ["because", *["missed by admission"] * 3]
    assert [each.given for each in told.pods] == [Class.ON_DEMAND, None, None, None]


def test_a_missed_pod_that_is_pending_counts_as_on_demand() -> None:
    """Nobody gave it a class; unlabelled, unplaced and unknown count as on-demand."""
    assert status(seen(placed(1, annotations={}, decision=""))).pending == Mix(0, 1)


def test_soft_pods_are_counted_while_they_live() -> None:
    """Those that were admitted with a preference instead of a requirement."""
    soft = {**THREE[1].annotations, names.SOFT: "true"}
    pods = [replace(THREE[1], annotations=soft), placed(2, "spot-1", annotations=soft, terminating=True)]
    assert status(seen(THREE[0], *pods)).soft == 1


ABSENT = {
    "the namespace is not opted in": replace(seen(*THREE), namespaces={"shop": Namespace("shop")}),
    "the namespace is not known": replace(seen(*THREE), namespaces={}),
    "opted out by label": seen(*THREE, of=replace(WEB, labels={names.PLACEMENT: "disabled"})),
    "opted out by annotation": seen(*THREE, of=replace(WEB, annotations={names.PLACEMENT: "disabled"})),
    "opted out by template": seen(*THREE, of=replace(WEB, template=Template({names.PLACEMENT: "disabled"}))),
}


@pytest.mark.parametrize("of", ABSENT.values(), ids=ABSENT.keys())
def test_what_is_not_ours_is_absent(of: Snapshot) -> None:
    """Only what is opted in is told of."""
    assert statuses(of, Configuration()) == ()


def test_workloads_are_told_in_order() -> None:
    """By namespace, kind and name."""
    every = (DB, replace(WEB, name="zoo", uid="z"), WEB, replace(WEB, namespace="bar", uid="b"))
    both = Snapshot({"shop": namespace(), "bar": namespace("bar")}, {}, every)
    told = [(each.workload.namespace, each.workload.name) for each in statuses(both, Configuration())]
    assert told == [("bar", "web"), ("shop", "web"), ("shop", "zoo"), ("shop", "db")]


def test_policy_and_mistakes_come_from_all_levels() -> None:
    """The workload's, the namespace's, the configuration's defaults, and its limits."""
    web = replace(WEB, replicas=10, annotations={names.SPOT_RATIO: "70"})
    configuration = Configuration(defaults={names.MIN_ON_DEMAND: "2"}, limits=(NamespaceLimit(Limit(min_on_demand=4)),))
    told = status(replace(seen(of=web), namespaces={"shop": namespace(spot_ratio="90%")}), configuration)
    assert told.wanted == Mix(6, 4)
    assert [mistake.value for mistake in told.mistakes] == ["70"]
    assert isinstance(told.mistakes[0], Mistake)
    assert (told.policy.source["spot-ratio"], told.policy.source["min-on-demand"]) == ("namespace", "configuration")


def test_nothing_is_wanted_of_a_workload_scaled_to_none() -> None:
    """And that is exact."""
    none = status(seen(of=replace(WEB, replicas=0), replica_sets=(replace(FIRST, replicas=0),)))
    assert (none.wanted, none.revisions, none.reason) == (Mix(), 1, "")


LET_GO: dict[str, Any] = {
    "owner": None,
    "labels": {names.POD_TEMPLATE_HASH: "released-h"},
    "annotations": {names.RELEASED: "1/h"},
}
HANDED_OVER = {**LET_GO, "owner": Owner("Deployment", "web", WEB.uid)}
FOUR = (*THREE, placed(4, "spot-2"))
WIDE = {**NODES, "spot-2": Node("spot-2", {names.CAPACITY: "spot"})}
DRAINED = {**WIDE, "spot-2": replace(WIDE["spot-2"], unschedulable=True, drained=True)}
CORDONED = {**WIDE, "spot-2": replace(WIDE["spot-2"], unschedulable=True)}
READY: dict[str, tuple[tuple[Pod, ...], dict[str, Node], int]] = {
    "ready on nodes that exist": (FOUR, WIDE, 4),
    "one on a node that is drained": (FOUR, DRAINED, 3),
    "one on a node that is only cordoned": (FOUR, CORDONED, 4),
    "one on a node that is gone": (FOUR, NODES, 3),
    "one that is not ready": ((*THREE, placed(4, "spot-2", ready=False)), WIDE, 3),
    "one that is terminating": ((*THREE, placed(4, "spot-2", terminating=True)), WIDE, 3),
    "one that is released": ((*THREE, placed(4, "spot-2", **HANDED_OVER)), WIDE, 3),
    "one that the version before released": ((*THREE, placed(4, "spot-2", **LET_GO)), WIDE, 3),
}


@pytest.mark.parametrize(("pods", "nodes", "expected"), READY.values(), ids=READY.keys())
def test_headroom_counts_who_serves_and_is_to_stay(
    pods: tuple[Pod, ...], nodes: dict[str, Node], expected: int
) -> None:
    """On nodes that exist and are not leaving."""
    told = status(replace(seen(*pods), nodes=nodes)).exposure
    assert (told.ready, told.headroom, told.is_assumed) == (expected, expected - 3, True)


def test_a_budget_says_how_many_must_serve() -> None:
    """Three replicas with `minAvailable: 1`; a budget of another namespace says nothing here."""
    web = replace(WEB, template=Template({"app": "web"}))
    budgets = (Budget("shop", "web", {"matchLabels": {"app": "web"}}, 1), Budget("bank", "all", min_available="100%"))
    told = status(replace(seen(*THREE, of=web), budgets=budgets)).exposure
    assert told.raw == {
        "headroom": 2,
        "assumed": False,
        "blastRadius": {"node": 2, "pool": 2, "zone": 3, "spot": 2},
        "survives": {"node": True, "pool": True, "zone": False, "spot": True},
        "incidentsPer30Days": 0.0,
        "unavailability": 0.0,
        "restsOn": "assumed",
    }


def test_a_window_is_told_as_it_was_written() -> None:
    """Scripts compare it with the annotation."""
    written = "0 22 * * 1-5 8h Europe/Berlin"
    policy, mistakes = resolve({names.REBALANCE_WINDOW: written}, {})
    assert (policy_json(policy)["rebalanceWindow"], mistakes) == (written, ())
    assert policy_json(Policy())["rebalanceWindow"] is None


WRITTEN = {
    names.EVICTION_HOLD: ("evictionHold", ("45s", "off"), "90s"),
    names.SPOT_FALLBACK_AFTER: ("spotFallbackAfter", ("30s", "600s"), "60s"),
}


@pytest.mark.parametrize(("annotation", "told"), WRITTEN.items(), ids=WRITTEN.keys())
def test_a_duration_is_reported_as_people_write_it(annotation: str, told: tuple[str, tuple[str, ...], str]) -> None:
    """As in an annotation, also where it is the default: a Python repr such as 0:01:30 helps nobody."""
    field, values, default = told
    for value in values:
        policy, mistakes = resolve({annotation: value}, {})
        assert (policy_json(policy)[field], mistakes) == (value, ())
    assert policy_json(Policy())[field] == default
