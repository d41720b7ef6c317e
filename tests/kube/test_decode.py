"""API objects → model: what is kept, what is dropped, and that nothing odd does harm."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from kube.convert import seconds
from kube.interning import Shared
from kube.resources import (
    BUDGETS,
    DELETED_NODES,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    NOMINATIONS,
    PLANNED_REMOVALS,
    PODS,
    PODS_IN_FULL,
    PRIORITY_CLASSES,
    QUOTAS,
    REPLICA_SETS,
    REPLICA_SETS_IN_USE,
    SCALE_UPS,
    STATEFUL_SETS,
    UNSCHEDULED,
    Resource,
)
from placement import names
from placement.model import (
    Budget,
    Key,
    Kind,
    Namespace,
    Node,
    NodeRequirement,
    NodeTaint,
    Owner,
    Pod,
    PriorityClass,
    Quota,
    ReplicaSet,
    Rollout,
    Sign,
    Template,
    Workload,
)
from tests.builders.api import Raw, bookmark, event, page, raw_pod, status


def decoded(resource: Resource[Any], raw: Raw) -> Any:
    """The one object of a page that holds it."""
    (item,) = resource.shape.page(page(raw)).items
    return item


def named(**fields: Any) -> Raw:
    return {"metadata": {"name": "a", "namespace": "shop", "uid": "u"}, **fields}


OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs-uid", "controller": True}
FULL_POD: Raw = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": "web-1",
        "namespace": "shop",
        "uid": "pod-uid",
        "resourceVersion": "77",
        "creationTimestamp": "2026-11-16T11:00:00Z",
        "deletionTimestamp": "2026-11-16T12:00:00Z",
        "labels": {"app": "web"},
        "annotations": {
            "spotweave.dev/slot": "3",
            "controller.kubernetes.io/pod-deletion-cost": "-3",
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
            "karpenter.sh/do-not-disrupt": "true",
            "spotweave.dev/future": "not read",
            "spotweave.development": "not ours",
            "kubectl.kubernetes.io/last-applied-configuration": "{}",
        },
        "ownerReferences": [{**OWNER, "controller": False, "uid": "other"}, OWNER],
        "managedFields": [{"fieldsV1": {"f:metadata": {}}}],
    },
    "spec": {
        "nodeName": "n1",
        "containers": [{"name": "app"}],
        "affinity": {
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [
                        {
                            "matchExpressions": [
                                {"key": "zone", "operator": "In", "values": ["a", "b"]},
                                {"key": "gpu", "operator": "DoesNotExist"},
                            ],
                            "matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}],
                        },
                        {"matchExpressions": [{"key": "arm", "operator": "Exists"}]},
                    ]
                }
            }
        },
    },
    "status": {
        "phase": "Running",
        "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-16T11:00:01Z"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-16T11:00:10Z"},
        ],
    },
}
ELEVEN = 1794826800.0  # o'clock on 16 November 2026


def test_a_pod_keeps_what_placement_looks_at() -> None:
    """Of annotations ours and those that we heed, of owners the controller, of affinity what is required."""
    assert decoded(PODS, FULL_POD) == Pod(
        namespace="shop",
        name="web-1",
        uid="pod-uid",
        owner=Owner("ReplicaSet", "rs", "rs-uid", "apps", index=1),
        labels={"app": "web"},
        annotations={
            "spotweave.dev/slot": "3",
            "controller.kubernetes.io/pod-deletion-cost": "-3",
            "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
            "karpenter.sh/do-not-disrupt": "true",
        },
        node="n1",
        phase="Running",
        ready=True,
        terminating=True,
        unschedulable="",
        required_terms=(
            (
                NodeRequirement("zone", "In", ("a", "b")),
                NodeRequirement("gpu", "DoesNotExist"),
                NodeRequirement("metadata.name", "In", ("n1",)),
            ),
            (NodeRequirement("arm", "Exists"),),
        ),
        created=ELEVEN,
        changed=ELEVEN + 10,
    )


def test_pods_of_one_slot_share_their_annotations() -> None:
    """The decision, which differs, is kept apart: 112,500 pods are told apart by fifteen sets of annotations."""
    written = [{names.SLOT: "3", names.DECISION: f"rs/{each}", "note": each} for each in ("a", "b")]
    one, other = (decoded(PODS, {"metadata": {"name": "a", "annotations": each}}) for each in written)
    assert (one.decision, other.decision) == ("rs/a", "rs/b")
    assert one.annotations == {names.SLOT: "3"}
    assert one.annotations is other.annotations


def condition(kind: str, status: str, second: int) -> Raw:
    reason = "Unschedulable" if (kind, status) == ("PodScheduled", "False") else None
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "lastTransitionTime": f"2026-11-16T11:00:{second:02d}Z",
    }


CHANGES: dict[str, tuple[list[Raw] | None, float]] = {
    "it was found unschedulable": ([condition("PodScheduled", "False", 4)], ELEVEN + 4),
    "and is not ready": ([condition("Ready", "False", 5), condition("PodScheduled", "False", 4)], ELEVEN + 4),
    "in either order": ([condition("PodScheduled", "False", 4), condition("Ready", "False", 5)], ELEVEN + 4),
    "it became ready": ([condition("PodScheduled", "True", 1), condition("Ready", "True", 2)], ELEVEN + 2),
    "it is not ready any more": ([condition("PodScheduled", "True", 1), condition("Ready", "False", 2)], 0.0),
    "ready at no moment": ([{"type": "Ready", "status": "True"}], 0.0),
    "others do not count": ([condition("Initialized", "True", 6)], 0.0),
    "none": (None, 0.0),
    "no moment": ([{"type": "PodScheduled", "status": "False", "lastTransitionTime": None}], 0.0),
}


@pytest.mark.parametrize(("conditions", "expected"), CHANGES.values(), ids=CHANGES.keys())
def test_since_when_a_pod_is_ready_or_unschedulable(conditions: list[Raw] | None, expected: float) -> None:
    """How long it has served, or waited, is counted from this."""
    assert decoded(PODS, named(status={"conditions": conditions})).changed == expected


MOMENTS: dict[str, tuple[str | None, float]] = {
    "as the API writes it": ("2026-11-16T11:00:00Z", ELEVEN),
    "with a fraction": ("2026-11-16T11:00:00.250000Z", ELEVEN + 0.25),
    "in another zone": ("2026-11-16T12:00:00+01:00", ELEVEN),
    "in none": ("2026-11-16T11:00:00", ELEVEN),
    "long ago": ("0001-01-01T00:00:00Z", -62135596800.0),
    "nothing": (None, 0.0),
    "no moment": ("soon", 0.0),
    "no such day": ("2026-02-30T00:00:00Z", 0.0),
}


@pytest.mark.parametrize(("text", "expected"), MOMENTS.values(), ids=MOMENTS.keys())
def test_moments_are_seconds_since_1970(text: str | None, expected: float) -> None:
    """What is absent or cannot be read is 0, and never raises."""
    assert seconds(text) == expected


SCHEDULING = {
    "the scheduler's sentence is kept": (
        {"status": "False", "reason": "Unschedulable", "message": "0/5 nodes are available"},
        ("0/5 nodes are available", ""),
    ),
    "without a sentence, its reason": ({"status": "False", "reason": "Unschedulable"}, ("Unschedulable", "")),
    "a gate": ({"status": "False", "reason": "SchedulingGated"}, ("", "SchedulingGated")),
    "with neither, still not empty": ({"status": "False"}, ("", "not scheduled")),
    "a placed pod has none, whatever the message": ({"status": "True", "message": "done"}, ("", "")),
}


@pytest.mark.parametrize(("condition", "expected"), SCHEDULING.values(), ids=SCHEDULING.keys())
def test_why_a_pod_is_not_placed(condition: Raw, expected: tuple[str, str]) -> None:
    """`unschedulable` is the scheduler's sentence when it found no node, `waits` when it did not look for one."""
    raw = named(status={"conditions": [{"type": "PodScheduled", **condition}]})
    found = decoded(PODS, raw)
    assert (found.unschedulable, found.waits) == expected
    assert found.why_pending == expected[0] + expected[1]


def test_a_pod_that_the_scheduler_makes_room_for_is_not_unschedulable() -> None:
    told = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/5"}
    found = decoded(PODS, named(status={"conditions": [told], "nominatedNodeName": "n"}))
    assert (found.unschedulable, found.waits) == ("", "room on n: 0/5")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [("EvictionByEvictionAPI", True), ("PreemptionByScheduler", False), ("TerminationByKubelet", False)],
)
def test_who_is_evicted_is_told_by_the_api_server(reason: str, expected: bool) -> None:
    told = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    assert decoded(PODS, named(status={"conditions": [told]})).evicted is expected


OWNERS: dict[str, tuple[list[Raw] | None, Owner | None]] = {
    "none": (None, None),
    "one that does not control": ([{**OWNER, "controller": None}], None),
    "of the core group": ([{**OWNER, "apiVersion": "v1"}], Owner("ReplicaSet", "rs", "rs-uid", "")),
    "of another group": (
        [{**OWNER, "apiVersion": "argoproj.io/v1alpha1", "kind": "Rollout"}],
        Owner("Rollout", "rs", "rs-uid", "argoproj.io"),
    ),
}


@pytest.mark.parametrize(("references", "expected"), OWNERS.values(), ids=OWNERS.keys())
def test_the_owner_is_the_controller(references: list[Raw] | None, expected: Owner | None) -> None:
    """The API group tells a Deployment's ReplicaSet from its namesakes."""
    assert decoded(PODS, raw_pod("a", ownerReferences=references)).owner == expected


def nulled(raw: Any) -> Any:
    """The same object with every field below metadata's name set to null."""
    metadata = dict.fromkeys(raw["metadata"]) | {"name": "a"}
    return dict.fromkeys(raw) | {"metadata": metadata}


BARE: dict[str, tuple[Resource[Any], object]] = {
    "pod": (PODS, Pod("", "a")),
    "pod in full": (PODS_IN_FULL, Pod("", "a")),
    "node": (NODES, Node("a", ready=False)),
    "namespace": (NAMESPACES, Namespace("a")),
    "deployment": (DEPLOYMENTS, Workload(Kind.DEPLOYMENT, "", "a", "", 1)),
    "stateful set": (
        STATEFUL_SETS,
        Workload(Kind.STATEFUL_SET, "", "a", "", 1, rollout=Rollout(False, 1, 0), ordered=True),
    ),
    "replica set": (REPLICA_SETS, ReplicaSet("", "a", "", None, 1)),
    "priority class": (PRIORITY_CLASSES, PriorityClass("a", 0)),
    "budget": (BUDGETS, Budget("", "a")),
    "quota": (QUOTAS, Quota("", "a")),
    "sign": (SCALE_UPS, Sign("", "a", "", "")),
}


@pytest.mark.parametrize(("resource", "expected"), BARE.values(), ids=BARE.keys())
def test_absent_and_null_fields_mean_the_defaults(resource: Resource[Any], expected: object) -> None:
    """Nothing but a name, the same with nulls, and fields that we have never heard of: all read alike."""
    bare = {"metadata": {"name": "a"}}
    assert decoded(resource, bare) == expected
    assert decoded(resource, nulled(FULL_POD | {"value": 1})) == expected
    assert decoded(resource, bare | {"future": {"x": [1]}}) == expected


def test_a_node_tells_class_health_and_taints() -> None:
    """Taints; cordoned; ready only if it says so; how much fits; since when it is there, and whether it is to go."""
    raw: Raw = {
        "metadata": {
            "name": "n1",
            "labels": {"topology.kubernetes.io/zone": "z1"},
            "creationTimestamp": "2026-11-16T11:00:00Z",
            "deletionTimestamp": "2026-11-16T12:00:00Z",
        },
        "spec": {
            "taints": [{"key": "spot", "value": "x", "effect": "NoSchedule"}],
            "unschedulable": True,
            "providerID": "aws:///z1/i-1",
        },
        "status": {
            "conditions": [{"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": "True"}],
            "allocatable": {"cpu": "3920m", "memory": "15Gi", "pods": "110", "example.com/gpu": "1"},
            "capacity": {"cpu": "4"},
        },
    }
    expected = Node(
        "n1",
        {"topology.kubernetes.io/zone": "z1"},
        (NodeTaint("spot", "x"),),
        unschedulable=True,
        ready=True,
        allocatable={"cpu": 3920, "memory": 15 * 2**30, "pods": 110, "example.com/gpu": 1},
        deleting=True,
        created=ELEVEN,
        provider_id="aws:///z1/i-1",
    )
    assert decoded(NODES, raw) == expected
    raw["metadata"]["finalizers"] = ["somebody.example/else"]
    assert decoded(NODES, raw) == expected
    raw["metadata"]["finalizers"].append("karpenter.sh/termination")
    assert decoded(NODES, raw).outlives_machine
    raw["status"]["conditions"][1]["status"] = "Unknown"
    assert not decoded(NODES, raw).ready


def test_a_namespace_keeps_labels_and_our_annotations() -> None:
    """Labels select limits, annotations of ours are defaults; others are dropped."""
    metadata = {
        "name": "shop",
        "labels": {"team": "blue"},
        "annotations": {"spotweave.dev/spot-ratio": "50%", "x": "y"},
    }
    assert decoded(NAMESPACES, {"metadata": metadata}) == Namespace(
        "shop", {"team": "blue"}, {"spotweave.dev/spot-ratio": "50%"}
    )


TEMPLATE = {
    "metadata": {"labels": {"app": "web"}, "annotations": {"controller.kubernetes.io/pod-deletion-cost": "5"}},
    "spec": {"priorityClassName": "high"},
}
SELECTOR = {"matchLabels": {"app": "web"}, "matchExpressions": [{"key": "x", "operator": "Exists"}]}


def test_a_deployment_is_a_workload() -> None:
    """Replicas (zero is not "absent"), selector, template and strategy as written."""
    spec = {
        "replicas": 0,
        "selector": SELECTOR,
        "template": TEMPLATE,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 0, "maxSurge": "10%"}},
    }
    assert decoded(DEPLOYMENTS, named(spec=spec)) == Workload(
        Kind.DEPLOYMENT,
        "shop",
        "a",
        "u",
        replicas=0,
        selector=SELECTOR,
        template=Template({"app": "web"}, "high", has_deletion_cost=True),
        rollout=Rollout(False, 0, "10%"),
    )


ENDED = {"type": "Progressing", "reason": "NewReplicaSetAvailable", "lastUpdateTime": "2026-03-01T12:00:00Z"}
ROLLED_OUT = {
    "a rollout that ended": ("2", ENDED, datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()),
    "a rollout that is under way": ("2", {**ENDED, "reason": "ReplicaSetUpdated"}, 0.0),
    "the first revision": ("1", ENDED, 0.0),
    "a condition without a time": ("2", {"type": "Progressing", "reason": "NewReplicaSetAvailable"}, 0.0),
}


@pytest.mark.parametrize(("revision", "condition", "expected"), ROLLED_OUT.values(), ids=ROLLED_OUT.keys())
def test_a_deployment_says_when_its_rollout_ended(revision: str, condition: dict[str, str], expected: float) -> None:
    """The first revision is no rollout: nothing was there before."""
    available = {"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable"}
    raw = named(spec={}, status={"conditions": [available, condition]})
    raw["metadata"]["annotations"] = {"deployment.kubernetes.io/revision": revision}
    assert decoded(DEPLOYMENTS, raw).rolled_out == expected


def test_a_recreating_deployment_says_so() -> None:
    """With Recreate no replacement comes up first."""
    assert decoded(DEPLOYMENTS, named(spec={"strategy": {"type": "Recreate"}})).rollout.recreate


def test_a_paused_deployment_says_so() -> None:
    """Nothing is rolled out meanwhile, however old its pods."""
    assert decoded(DEPLOYMENTS, named(spec={"paused": True})).rollout.paused
    assert not decoded(DEPLOYMENTS, named(spec={"paused": None})).rollout.paused


SETTLED: dict[str, tuple[int | None, Raw | None, bool]] = {
    "seen": (3, {"observedGeneration": 3}, True),
    "not seen yet": (3, {"observedGeneration": 2}, False),
    "never seen": (1, {}, False),
    "no status": (1, None, False),
    "neither": (None, None, True),
}


@pytest.mark.parametrize(("generation", "status_", "expected"), SETTLED.values(), ids=SETTLED.keys())
@pytest.mark.parametrize("resource", [DEPLOYMENTS, STATEFUL_SETS, REPLICA_SETS, BUDGETS], ids=lambda each: each.name)
def test_what_its_controller_has_acted_on_is_settled(
    resource: Resource[Any], generation: int | None, status_: Raw | None, expected: bool
) -> None:
    """Until then its status tells of an older spec."""
    raw = {"metadata": {"name": "a", "generation": generation}, "status": status_}
    assert decoded(resource, raw).settled is expected


def test_a_stateful_set_has_ordinals_and_an_order() -> None:
    """Ordered unless Parallel; ordinals may start above 0; it never surges."""
    spec = {
        "replicas": 3,
        "podManagementPolicy": "Parallel",
        "ordinals": {"start": 5},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2, "partition": 4}},
    }
    workload = decoded(STATEFUL_SETS, named(spec=spec))
    assert (workload.kind, workload.replicas, workload.ordered, workload.first_ordinal, workload.rollout) == (
        Kind.STATEFUL_SET,
        3,
        False,
        5,
        Rollout(False, 2, 0, partition=4),
    )
    assert decoded(STATEFUL_SETS, named(spec={"updateStrategy": {"type": "OnDelete"}})).rollout.on_delete


@pytest.mark.parametrize("resource", [DEPLOYMENTS, STATEFUL_SETS], ids=["Deployment", "StatefulSet"])
def test_a_workload_says_how_long_its_pods_must_be_ready(resource: Resource[Workload]) -> None:
    """Nothing is no time at all."""
    assert decoded(resource, named(spec={"minReadySeconds": 20})).min_ready_seconds == 20
    assert decoded(resource, named(spec={"minReadySeconds": None})).min_ready_seconds == 0
    assert decoded(resource, named()).min_ready_seconds == 0


def test_a_stateful_set_tells_which_revision_its_pods_are_to_have() -> None:
    """That `currentRevision` is another one says nothing: under OnDelete it stays for ever."""
    status = {"currentRevision": "db-1", "updateRevision": "db-2"}
    assert decoded(STATEFUL_SETS, named(status=status)).revision == "db-2"
    assert decoded(STATEFUL_SETS, named()).revision == ""


def test_a_replica_set_knows_its_deployment_and_its_own_pods() -> None:
    """Owner, replicas, selector and template are those of the revision."""
    raw = {
        "metadata": {
            "name": "rs",
            "namespace": "shop",
            "uid": "u",
            "ownerReferences": [OWNER | {"kind": "Deployment"}],
        },
        "spec": {"replicas": 4, "selector": SELECTOR, "template": TEMPLATE},
        "status": {"replicas": 3, "readyReplicas": 2},
    }
    template = Template({"app": "web"}, "high", True)
    owner = Owner("Deployment", "rs", "rs-uid")
    expected = ReplicaSet("shop", "rs", "u", owner, 4, SELECTOR, template, observed=3)
    assert decoded(REPLICA_SETS, raw) == expected


REVISIONS: dict[str, tuple[Raw, bool]] = {
    "it is to have pods": ({"spec": {"replicas": 1}, "status": {"replicas": 0}}, True),
    "it still has some": ({"spec": {"replicas": 0}, "status": {"replicas": 1}}, True),
    "one replica is the default": ({"spec": {}}, True),
    "an old one": ({"spec": {"replicas": 0}, "status": {"replicas": 0}}, False),
    "an old one without a status": ({"spec": {"replicas": 0}, "status": None}, False),
}


@pytest.mark.parametrize(("fields", "expected"), REVISIONS.values(), ids=REVISIONS.keys())
def test_in_brief_old_revisions_lose_selector_and_template_alone(fields: Raw, expected: bool) -> None:
    """Most ReplicaSets have no pods and are to have none; the rest reads as ever."""
    raw = named(**fields)
    raw["spec"] |= {"selector": SELECTOR, "template": TEMPLATE}
    full, brief = decoded(REPLICA_SETS, raw), decoded(REPLICA_SETS_IN_USE, raw)
    assert full.selector == SELECTOR
    assert brief == (full if expected else replace(full, selector={}, template=Template()))
    assert bool(REPLICA_SETS_IN_USE.keeps(brief)) is expected


def test_a_budget_says_whom_it_guards_and_what_is_left() -> None:
    """Amounts as written; what its controller counted."""
    raw = named(
        spec={"minAvailable": "80%", "maxUnavailable": None, "selector": SELECTOR},
        status={
            "observedGeneration": 1,
            "disruptionsAllowed": 2,
            "currentHealthy": 10,
            "desiredHealthy": 8,
            "expectedPods": 11,
            "disruptedPods": {"web-1": "2026-11-16T11:00:00Z"},
        },
    )
    expected = Budget("shop", "a", SELECTOR, min_available="80%", allowed=2, healthy=10, desired=8, expected=11)
    assert decoded(BUDGETS, raw) == expected
    assert decoded(BUDGETS, named(spec={"maxUnavailable": 0})).max_unavailable == 0


def test_a_quota_says_how_much_there_may_be_and_is() -> None:
    """In the units of the model, by the names that were written."""
    hard = {"pods": "10", "requests.cpu": "2", "requests.memory": "1Gi"}
    used = {"pods": "3", "requests.cpu": "150m", "requests.memory": "64Mi"}
    assert decoded(QUOTAS, named(spec={"hard": hard}, status={"hard": hard, "used": used})) == Quota(
        "shop",
        "a",
        {"pods": 10, "requests.cpu": 2000, "requests.memory": 2**30},
        {"pods": 3, "requests.cpu": 150, "requests.memory": 64 * 2**20},
    )


SCOPES: dict[str, tuple[Raw, bool]] = {
    "all pods": ({"scopes": [], "scopeSelector": None}, False),
    "by a scope": ({"scopes": ["BestEffort"]}, True),
    "by a selector": ({"scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass"}]}}, True),
}


@pytest.mark.parametrize(("spec", "expected"), SCOPES.values(), ids=SCOPES.keys())
def test_a_quota_of_some_pods_says_so(spec: Raw, expected: bool) -> None:
    """It may not count the pod that one has in mind."""
    assert decoded(QUOTAS, named(spec=spec)).is_scoped is expected


SIGNS: dict[str, tuple[Raw, float]] = {
    "as it was always written": ({"lastTimestamp": "2026-11-16T11:00:05Z", "eventTime": None}, ELEVEN + 5),
    "by the newer API": ({"lastTimestamp": None, "eventTime": "2026-11-16T11:00:05.500000Z"}, ELEVEN + 5.5),
    "again and again": (
        {"eventTime": "2026-11-16T11:00:05.000000Z", "series": {"lastObservedTime": "2026-11-16T11:00:09.000000Z"}},
        ELEVEN + 9,
    ),
    "never dated": ({"series": None}, ELEVEN),
}


@pytest.mark.parametrize(("dated", "expected"), SIGNS.values(), ids=SIGNS.keys())
def test_a_sign_is_dated_by_when_it_was_last_seen(dated: Raw, expected: float) -> None:
    """Whichever way its writer has of saying so; at worst, by when it was written."""
    raw = {
        "metadata": {"name": "e", "namespace": "default", "creationTimestamp": "2026-11-16T11:00:00Z"},
        "reason": "DeletingNode",
        "involvedObject": {"kind": "Node", "name": "n1"},
        "message": "gone",
        **dated,
    }
    assert decoded(DELETED_NODES, raw) == Sign("default", "e", "DeletingNode", "n1", expected, kind="Node")


def test_of_signs_only_those_that_we_go_by_are_asked_for() -> None:
    """A cluster has very many Events."""
    assert [resource.query for resource in (DELETED_NODES, PLANNED_REMOVALS, SCALE_UPS, NOMINATIONS)] == [
        {"fieldSelector": f"reason={reason}"}
        for reason in ("DeletingNode", "DisruptionTerminating", "TriggeredScaleUp", "Nominated")
    ]
    assert UNSCHEDULED.query == {"fieldSelector": "reason=FailedScheduling,source=karpenter"}


def test_what_karpenter_says_of_a_pod_is_read_with_its_text() -> None:
    """The text of others is not kept."""
    raw = {
        "metadata": {"name": "e", "namespace": "shop"},
        "reason": "FailedScheduling",
        "involvedObject": {"kind": "Pod", "name": "p"},
        "message": "Failed to schedule pod",
    }
    assert decoded(UNSCHEDULED, raw).message == "Failed to schedule pod"
    assert decoded(NOMINATIONS, raw).message == ""


WRONG: dict[str, tuple[Resource[Any], Raw]] = {
    "a budget's amount": (BUDGETS, {"spec": {"minAvailable": []}}),
    "a budget's selector": (BUDGETS, {"spec": {"selector": "x"}}),
    "a quota's amounts": (QUOTAS, {"spec": {"hard": ["pods"]}}),
    "what a sign is about": (SCALE_UPS, {"involvedObject": "web-1"}),
    "when a sign was seen": (SCALE_UPS, {"lastTimestamp": 7}),
    "what a node has": (NODES, {"status": {"allocatable": [1]}}),
    "a generation": (REPLICA_SETS, {"status": {"observedGeneration": "1"}}),
    "whether it is paused": (DEPLOYMENTS, {"spec": {"paused": "yes"}}),
}


@pytest.mark.parametrize(("resource", "fields"), WRONG.values(), ids=WRONG.keys())
def test_a_field_of_the_wrong_type_costs_only_its_object(resource: Resource[Any], fields: Raw) -> None:
    """The others of its page are read."""
    read = resource.shape.page(page(named(), named(**fields)))
    assert (len(read.items), read.rejected) == (1, 1)


def test_a_page_says_where_it_ends() -> None:
    """Version and continue token are those of the list."""
    read = PODS.shape.page(page(raw_pod("a"), version=12, token="next"))
    assert (read.version, read.continue_token, read.rejected) == ("12", "next", 0)


def test_one_bad_object_costs_only_itself(caplog: pytest.LogCaptureFixture) -> None:
    """The others of its page are read, and one line says what was left out."""
    bad = raw_pod("bad", labels=["not", "a", "map"])
    read = PODS.shape.page(page(raw_pod("a"), bad, raw_pod("b")))
    assert ([item.name for item in read.items], read.rejected, len(caplog.records)) == (["a", "b"], 1, 1)
    assert "bad" in caplog.text


def test_what_is_no_json_is_no_page() -> None:
    """A cut or foreign answer raises instead of passing for an empty list."""
    with pytest.raises(msgspec.DecodeError):
        PODS.shape.page(b'{"metadata": {"resourceVersion": "1"}, "items": [')


def test_events_are_read_with_their_version() -> None:
    """A change brings the object, a bookmark only a version."""
    change = PODS.shape.event(event("MODIFIED", raw_pod("a", version=5)))
    assert (change.type, change.version, change.item) == ("MODIFIED", "5", Pod("shop", "a", uid="uid-a"))
    mark = PODS.shape.event(bookmark(9))
    assert (mark.type, mark.version, mark.item) == ("BOOKMARK", "9", None)


@pytest.mark.parametrize("resource", [PODS, NAMESPACES], ids=lambda resource: resource.name)
def test_an_error_event_brings_the_status(resource: Resource[Any]) -> None:
    """Also where a Status object happens to look like the resource."""
    body = status(410, "Expired")
    read = resource.shape.event(b'{"type":"ERROR","object":' + body + b"}")
    assert (read.type, json.loads(read.status), read.item) == ("ERROR", json.loads(body), None)


def test_of_an_object_that_does_not_decode_the_name_is_still_known() -> None:
    """So that it can at least be deleted, and the watch go on after it."""
    read = PODS.shape.event(event("DELETED", raw_pod("a", version=6) | {"status": "odd"}))
    assert (read.key, read.version, read.item) == (Key("shop", "a"), "6", None)
    assert "status" in read.mistake


def test_siblings_share_what_they_have_in_common() -> None:
    """Labels, owner and terms are kept once, however many pods a workload has."""
    twin = json.loads(json.dumps(FULL_POD))
    twin["metadata"]["name"] = "web-2"
    one, two = PODS.shape.page(page(FULL_POD, twin)).items
    assert one.labels is two.labels
    assert one.owner is two.owner
    assert one.required_terms is two.required_terms
    assert one.node is two.node


def test_the_table_of_shared_values_is_bounded_and_keeps_what_is_used() -> None:
    """Two generations: of 100 values seen at most 8 stay, and the one that is asked for throughout is built once."""
    built: list[bytes] = []

    def build(raw: bytes) -> bytes:
        built.append(raw)
        return raw

    shared = Shared(build, limit=4)
    for number in range(100):
        shared(msgspec.Raw(b"%d" % number))
        shared(msgspec.Raw(b"often"))
    assert shared.total <= 8
    assert built.count(b"often") == 1
