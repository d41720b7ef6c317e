"""API objects → model: what is kept, what is dropped, and that nothing odd does harm."""

import json
from typing import Any

import msgspec
import pytest

from kube.resources import (
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS,
    PRIORITY_CLASSES,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
)
from kube.shared import Shared
from placement.model import (
    Key,
    Kind,
    Namespace,
    Node,
    NodeRequirement,
    NodeTaint,
    Owner,
    Pod,
    PriorityClass,
    ReplicaSet,
    Rollout,
    Template,
    Workload,
)
from tests.kube.objects import Raw, bookmark, event, page, raw_pod, status


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
        "deletionTimestamp": "2026-11-16T12:00:00Z",
        "labels": {"app": "web"},
        "annotations": {
            "spotweave.dev/slot": "3",
            "controller.kubernetes.io/pod-deletion-cost": "-3",
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
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
    },
}


def test_a_pod_keeps_what_placement_looks_at() -> None:
    """Of the annotations ours and the deletion cost, of the owners the controller, of the affinity what is required."""
    assert decoded(PODS, FULL_POD) == Pod(
        namespace="shop",
        name="web-1",
        uid="pod-uid",
        owner=Owner("ReplicaSet", "rs", "rs-uid", "apps"),
        labels={"app": "web"},
        annotations={"spotweave.dev/slot": "3", "controller.kubernetes.io/pod-deletion-cost": "-3"},
        node="n1",
        phase="Running",
        ready=True,
        terminating=True,
        unschedulable="",
        required_terms=(
            (NodeRequirement("zone", "In", ("a", "b")), NodeRequirement("gpu", "DoesNotExist")),
            (NodeRequirement("arm", "Exists"),),
        ),
    )


SCHEDULING = {
    "the scheduler's sentence is kept": (
        {"status": "False", "reason": "Unschedulable", "message": "0/5 nodes are available"},
        "0/5 nodes are available",
    ),
    "without a sentence, its reason": ({"status": "False", "reason": "SchedulingGated"}, "SchedulingGated"),
    "with neither, still not empty": ({"status": "False"}, "not scheduled"),
    "a placed pod has none, whatever the message": ({"status": "True", "message": "done"}, ""),
}


@pytest.mark.parametrize(("condition", "expected"), SCHEDULING.values(), ids=SCHEDULING.keys())
def test_why_a_pod_is_not_placed(condition: Raw, expected: str) -> None:
    """`unschedulable` is not empty exactly while PodScheduled is False."""
    raw = named(status={"conditions": [{"type": "PodScheduled", **condition}]})
    assert decoded(PODS, raw).unschedulable == expected


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
    "node": (NODES, Node("a", ready=False)),
    "namespace": (NAMESPACES, Namespace("a")),
    "deployment": (DEPLOYMENTS, Workload(Kind.DEPLOYMENT, "", "a", "", 1)),
    "stateful set": (
        STATEFUL_SETS,
        Workload(Kind.STATEFUL_SET, "", "a", "", 1, rollout=Rollout(False, 1, 0), ordered=True),
    ),
    "replica set": (REPLICA_SETS, ReplicaSet("", "a", "", None, 1)),
    "priority class": (PRIORITY_CLASSES, PriorityClass("a", 0)),
}


@pytest.mark.parametrize(("resource", "expected"), BARE.values(), ids=BARE.keys())
def test_absent_and_null_fields_mean_the_defaults(resource: Resource[Any], expected: object) -> None:
    """Nothing but a name, the same with nulls, and fields that we have never heard of: all read alike."""
    bare = {"metadata": {"name": "a"}}
    assert decoded(resource, bare) == expected
    assert decoded(resource, nulled(FULL_POD | {"value": 1})) == expected
    assert decoded(resource, bare | {"future": {"x": [1]}}) == expected


def test_a_node_tells_class_health_and_taints() -> None:
    """Taints; cordoned; ready only if it says so."""
    raw: Raw = {
        "metadata": {"name": "n1", "labels": {"topology.kubernetes.io/zone": "z1"}},
        "spec": {"taints": [{"key": "spot", "value": "x", "effect": "NoSchedule"}], "unschedulable": True},
        "status": {"conditions": [{"type": "DiskPressure", "status": "True"}, {"type": "Ready", "status": "True"}]},
    }
    expected = Node(
        "n1", {"topology.kubernetes.io/zone": "z1"}, (NodeTaint("spot", "x"),), unschedulable=True, ready=True
    )
    assert decoded(NODES, raw) == expected
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


def test_a_recreating_deployment_says_so() -> None:
    """With Recreate no replacement comes up first."""
    assert decoded(DEPLOYMENTS, named(spec={"strategy": {"type": "Recreate"}})).rollout.recreate


def test_a_stateful_set_has_ordinals_and_an_order() -> None:
    """Ordered unless Parallel; ordinals may start above 0; it never surges."""
    spec = {
        "replicas": 3,
        "podManagementPolicy": "Parallel",
        "ordinals": {"start": 5},
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 2, "partition": 0}},
    }
    workload = decoded(STATEFUL_SETS, named(spec=spec))
    assert (workload.kind, workload.replicas, workload.ordered, workload.first_ordinal, workload.rollout) == (
        Kind.STATEFUL_SET,
        3,
        False,
        5,
        Rollout(False, 2, 0),
    )


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
    }
    expected = ReplicaSet(
        "shop", "rs", "u", Owner("Deployment", "rs", "rs-uid"), 4, SELECTOR, Template({"app": "web"}, "high", True)
    )
    assert decoded(REPLICA_SETS, raw) == expected


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
    assert len(shared) <= 8
    assert built.count(b"often") == 1
