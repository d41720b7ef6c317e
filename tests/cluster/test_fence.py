"""What our own tokens may write to pods: what they need, where they may, and nothing else."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from demo.supervisor import Installed, access_for
from kube.client import JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, Client, connect
from kube.configmaps import change_outages
from kube.errors import ApiError, Forbidden
from kube.evictionnote import note_eviction
from kube.lease import Leader
from kube.podwriter import PodWriter
from localcluster import LocalCluster
from placement import names
from placement.handover import patches
from placement.model import Key, Owner, Pod
from placement.outcome import Outcome
from placement.plan.release import put_back_to
from tests.builders.api import raw_pod_spec, raw_workload
from tests.cluster.manualrelease import path_of, put_back, read_pod, read_revision, release_action, release_pod
from tests.cluster.namespaceuser import NamespaceUser, wait_for

pytestmark = pytest.mark.cluster

FENCE = "ValidatingAdmissionPolicy 'spotweave-fence'"
RELEASED = {names.RELEASED: "2030-01-01T00:00:00Z/abc"}
FAILED = {
    "phase": "Failed",
    "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": names.DISRUPTION_REASON}],
}
_numbers = itertools.count()


@pytest.fixture(scope="module")
def rebalancer(
    cluster: LocalCluster, installed: Installed, admin: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """Who has the rebalancer's token, and no other; the fence is in force."""
    path = tmp_path_factory.mktemp("access") / "kubeconfig"
    path.write_bytes(access_for(Path(cluster.kubeconfig), admin, names.REBALANCER_ACCOUNT))
    client = connect(path, user_agent="spotweave-tests")
    pod = make_pod(admin, "default")

    def is_in_force() -> bool:
        try:
            client.patch(path_of(pod[0]), {"metadata": {"labels": {"x": "y"}}}, {"dryRun": "All"})
        except Forbidden as error:
            return FENCE in error.message
        return False

    wait_for("the fence to be in force", is_in_force)
    admin.delete(path_of(pod[0]), query={"gracePeriodSeconds": 0})
    yield client
    client.close()


@pytest.fixture
def writer(rebalancer: Client) -> PodWriter:
    return PodWriter(rebalancer)


def make_pod(
    admin: Client, namespace: str, annotations: dict[str, str] | None = None, **labels: str
) -> tuple[Key, str]:
    """A pod that runs, on a node that is none; with an owner, and somebody's label, annotation and conditions."""
    key = Key(namespace, f"p{next(_numbers)}")
    account = admin.get_json(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")["metadata"]
    metadata = {
        "name": key.name,
        "labels": {"app": "web", names.POD_TEMPLATE_HASH: "abc", **labels},
        "annotations": {"theirs": "1", **(annotations or {})},
        "ownerReferences": [{"apiVersion": "v1", "kind": "ServiceAccount", "name": "default", "uid": account["uid"]}],
    }
    raw = {"metadata": metadata, "spec": raw_pod_spec(nodeName="nowhere")}
    uid = str(admin.post(f"/api/v1/namespaces/{namespace}/pods", raw)["metadata"]["uid"])
    conditions = [{"type": "Ready", "status": "True"}, {"type": "ContainersReady", "status": "True"}]
    status = {"phase": "Running", "podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}], "conditions": conditions}
    admin.patch(f"{path_of(key)}/status", {"status": status})
    return key, uid


# --- what it needs ---------------------------------------------------------------------------------------------------


def test_notes_are_written_and_removed(user: NamespaceUser, writer: PodWriter) -> None:
    """Our annotations and labels, and the deletion cost."""
    key, uid = make_pod(user.client, user.namespace)
    notes = {names.SLOT: "3", names.DELETION_COST: "-3", names.MOVED: "x"}
    assert writer.annotate(key, uid, notes, {names.CLASS: "spot"}) is Outcome.DONE
    assert writer.annotate(key, uid, dict.fromkeys(notes), {names.CLASS: None}) is Outcome.DONE
    metadata = user.client.get_json(path_of(key))["metadata"]
    assert metadata["annotations"] == {"theirs": "1"}
    assert metadata["labels"] == {"app": "web", names.POD_TEMPLATE_HASH: "abc"}


def deployed(user: NamespaceUser, name: str = "web") -> Key:
    """The one pod of a Deployment, at rest."""
    user.create(raw_workload("Deployment", name, 1))
    user.rest(name)
    (pod,) = user.pods(name)
    return Key(user.namespace, pod["metadata"]["name"])


def test_a_real_pod_is_released_and_put_back(user: NamespaceUser, writer: PodWriter) -> None:
    """One of a Deployment: its ReplicaSet lets go of it and makes another; then it takes it back and ends the other."""
    key = deployed(user)
    uid = user.client.get_json(path_of(key))["metadata"]["uid"]
    assert release_pod(user.client, writer, key) is Outcome.DONE
    wait_for("its replacement", lambda: len(user.pods("web")) == 2)
    assert put_back(user.client, writer, key) is Outcome.DONE
    wait_for("the replacement's end", lambda: [each["metadata"]["uid"] for each in user.pods("web")] == [uid])
    user.delete("Deployment", "web")


def test_a_released_pod_is_evicted(user: NamespaceUser, writer: PodWriter) -> None:
    """As long as it is released. So it may be deleted; a pod that is neither released nor has ended may not."""
    key = deployed(user)
    uid = user.client.get_json(path_of(key))["metadata"]["uid"]
    assert writer.evict_replaced(key, uid) is Outcome.BUSY
    assert release_pod(user.client, writer, key) is Outcome.DONE
    assert writer.evict_replaced(key, uid) is Outcome.DONE
    user.delete("Deployment", "web")
    key, uid = make_pod(user.client, user.namespace)
    assert writer.delete(key, uid, 0) is Outcome.IMPOSSIBLE
    user.client.patch(f"{path_of(key)}/status", {"status": {"phase": "Succeeded"}})
    assert writer.delete(key, uid, 0) is Outcome.DONE
    assert not user.exists(path_of(key))


def test_a_lost_pod_is_failed_and_deleted(user: NamespaceUser, writer: PodWriter) -> None:
    """Both steps pass."""
    key, uid = make_pod(user.client, user.namespace)
    assert writer.fail_lost(key, uid, "its node nowhere is gone") is Outcome.DONE
    assert not user.exists(path_of(key))


def gated(user: NamespaceUser, *gates: str, **labels: str) -> Key:
    """A pod that waits for its gates, as a member of a gang does."""
    key = Key(user.namespace, f"p{next(_numbers)}")
    metadata = {"name": key.name, "labels": {names.GANG_LABEL: names.GANG_MEMBER, **labels}}
    spec = raw_pod_spec(schedulingGates=[{"name": gate} for gate in gates])
    user.client.post(user.pods_path, {"metadata": metadata, "spec": spec})
    return key


WITHOUT_OURS = {"spec": {"schedulingGates": [{"$patch": "delete", "name": names.GANG_GATE}]}}


def test_our_gate_is_taken_off_though_gangs_are_off(user: NamespaceUser, rebalancer: Client) -> None:
    """So that no pod waits for ever. Somebody else's gate stays, and the annotation of the plan may go with ours."""
    key = gated(user, "example.com/wait", names.GANG_GATE)
    user.client.patch(path_of(key), metadata(annotations={names.GANG_PLAN: "x"}))
    patch = {**WITHOUT_OURS, **metadata(annotations={names.GANG_PLAN: None})}
    rebalancer.patch(path_of(key), patch, content_type=STRATEGIC_PATCH)
    written = user.client.get_json(path_of(key))
    assert written["spec"]["schedulingGates"] == [{"name": "example.com/wait"}]
    assert names.GANG_PLAN not in written["metadata"].get("annotations", {})


def test_our_gate_is_taken_off_after_an_opt_out(user: NamespaceUser, rebalancer: Client, writer: PodWriter) -> None:
    """And a nomination is cleared; nothing else is done there."""
    key, other = gated(user, names.GANG_GATE), gated(user, names.GANG_GATE)
    for each in (key, other):
        user.client.patch(f"{path_of(each)}/status", status(nominatedNodeName="nowhere"))
    user.client.patch(f"/api/v1/namespaces/{user.namespace}", metadata(labels={names.PLACEMENT: None}))
    uid, tries = user.client.get_json(path_of(key))["metadata"]["uid"], map(str, count())
    wait_for(
        "the opt-out to be seen", lambda: writer.annotate(key, uid, {names.MOVED: next(tries)}) is Outcome.IMPOSSIBLE
    )
    rebalancer.patch(path_of(key), WITHOUT_OURS, content_type=STRATEGIC_PATCH)
    rebalancer.patch(f"{path_of(other)}/status", status(nominatedNodeName=None))
    with pytest.raises(Forbidden, match=FENCE):
        rebalancer.patch(f"{path_of(other)}/status", status(nominatedNodeName="elsewhere"))
    assert "schedulingGates" not in user.client.get_json(path_of(key))["spec"]
    assert "nominatedNodeName" not in user.client.get_json(path_of(other))["status"]


@pytest.mark.usefixtures("no_leader")
def test_state_lease_and_reads_are_its_own(rebalancer: Client, admin: Client, installed: Installed) -> None:
    """What else the program does with this token."""
    for path in (
        "/api/v1/pods",
        "/api/v1/nodes",
        "/api/v1/namespaces",
        "/api/v1/resourcequotas",
        "/api/v1/events",
        "/apis/apps/v1/deployments",
        "/apis/apps/v1/statefulsets",
        "/apis/apps/v1/replicasets",
        "/apis/policy/v1/poddisruptionbudgets",
        "/api/v1/persistentvolumeclaims",
        "/api/v1/persistentvolumes",
        "/apis/storage.k8s.io/v1/csinodes",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        "/apis/events.k8s.io/v1/events",
        f"/apis/coordination.k8s.io/v1/namespaces/{names.SYSTEM_NAMESPACE}/leases",
    ):
        rebalancer.get(path, {"limit": 1})
    assert change_outages(rebalancer, lambda known: known) == change_outages(rebalancer, lambda known: known)
    leader = Leader(rebalancer, "test")
    leader.start()
    wait_for("it to lead", leader.is_leading)
    leader.stop()
    assert leader.holder == "test"
    lease = f"/apis/coordination.k8s.io/v1/namespaces/{names.SYSTEM_NAMESPACE}/leases/{names.LEASE}"
    assert admin.get_json(lease)["spec"]["holderIdentity"] == ""


# --- what it must not ------------------------------------------------------------------------------------------------

Body = dict[str, Any] | list[dict[str, Any]]
Attempt = tuple[str, Body, str, str]  # subresource, patch, its type, what the fence says


def metadata(**fields: Any) -> dict[str, Any]:
    return {"metadata": fields}


def status(**fields: Any) -> dict[str, Any]:
    return {"status": fields}


def put(path: str, value: Any) -> Body:
    return [{"op": "add", "path": path, "value": value}]


IMAGE = put("/spec/containers/0/image", "evil/miner:1")
ADDRESS = [*put("/status/podIP", "10.6.6.6"), *put("/status/podIPs", [{"ip": "10.6.6.6"}])]
READY = {"conditions": [{"type": "Ready", "status": "False", "reason": "spoofed"}]}
SPEC, OWN, HASH = "no pod's spec", "labels and annotations of its own", "what to put back"
FIELDS, PHASE, CONDITION = "only phase, conditions and nominatedNodeName", "no phase but Failed", "no condition but"
STRATEGIC = STRATEGIC_PATCH

REFUSED: dict[str, Attempt] = {
    "another image": ("", IMAGE, JSON_PATCH, SPEC),
    "a deadline": ("", put("/spec/activeDeadlineSeconds", 1), JSON_PATCH, SPEC),
    "no owner": ("", put("/metadata/ownerReferences", []), JSON_PATCH, "a pod's owner"),
    "a finalizer": ("", put("/metadata/finalizers", ["example.com/wait"]), JSON_PATCH, "finalizers"),
    "a user's label": ("", metadata(labels={"app": "other"}), STRATEGIC, OWN),
    "a user's label removed": ("", metadata(labels={"app": None}), STRATEGIC, OWN),
    "a label that is new": ("", metadata(labels={"team": "x"}), STRATEGIC, OWN),
    "a user's annotation": ("", metadata(annotations={"theirs": "2"}), STRATEGIC, OWN),
    "a user's annotation removed": ("", metadata(annotations={"theirs": None}), STRATEGIC, OWN),
    "a label by way of the status": ("status", metadata(labels={"app": "other"}), STRATEGIC, OWN),
    "a release without a note": ("", metadata(labels={names.POD_TEMPLATE_HASH: "x"}), STRATEGIC, HASH),
    "a release with a wrong note": (
        "",
        metadata(labels={names.POD_TEMPLATE_HASH: "x"}, annotations={names.RELEASED: "2030/wrong"}),
        STRATEGIC,
        HASH,
    ),
    "an address": ("status", ADDRESS, JSON_PATCH, FIELDS),
    "a start time": ("status", status(startTime="2020-01-01T00:00:00Z"), STRATEGIC, FIELDS),
    "success": ("status", status(phase="Succeeded"), STRATEGIC, PHASE),
    "failure without a reason": ("status", status(phase="Failed"), STRATEGIC, PHASE),
    "readiness": ("status", status(**READY), STRATEGIC, CONDITION),
    "all conditions but ours": ("status", status(**FAILED), MERGE_PATCH, CONDITION),
}


@pytest.mark.parametrize(("part", "patch", "kind", "says"), REFUSED.values(), ids=REFUSED.keys())
def test_no_more_than_that(
    user: NamespaceUser, rebalancer: Client, part: str, patch: Body, kind: str, says: str
) -> None:
    """In an opted-in namespace, with every right that RBAC can give or withhold."""
    key, _ = make_pod(user.client, user.namespace)
    before = user.client.get_json(path_of(key))
    with pytest.raises(Forbidden, match=says) as caught:
        rebalancer.patch(f"{path_of(key)}/{part}" if part else path_of(key), patch, content_type=kind)
    assert FENCE in caught.value.message
    assert user.client.get_json(path_of(key)) == before


def with_affinity(*values: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": names.HOSTNAME, "operator": "In", "values": list(values)}]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"spec": {**WITHOUT_OURS["spec"], "affinity": {"nodeAffinity": required}}}


NOT_WITHOUT_GANGS: dict[str, tuple[str, dict[str, Any], str]] = {
    "a node is nominated": ("status", status(nominatedNodeName="nowhere"), "nominates nodes only"),
    "a member is started on chosen nodes": ("", with_affinity("n1"), "no pod's spec"),
    "somebody else's gate is taken off": (
        "",
        {"spec": {"schedulingGates": [{"$patch": "delete", "name": "example.com/wait"}]}},
        "no pod's spec",
    ),
    "all gates are taken off": ("", {"spec": {"schedulingGates": None}}, "no pod's spec"),
    "a selector is added beside": (
        "",
        {"spec": {**WITHOUT_OURS["spec"], "nodeSelector": {"a": "b"}}},
        "no pod's spec",
    ),
}


@pytest.mark.parametrize(("part", "patch", "says"), NOT_WITHOUT_GANGS.values(), ids=NOT_WITHOUT_GANGS.keys())
def test_what_only_gangs_need_is_refused_while_they_are_off(
    user: NamespaceUser, rebalancer: Client, part: str, patch: dict[str, Any], says: str
) -> None:
    """RBAC cannot tell it from what the rebalancer needs anyway."""
    key = gated(user, "example.com/wait", names.GANG_GATE)
    before = user.client.get_json(path_of(key))
    with pytest.raises(Forbidden, match=says) as caught:
        rebalancer.patch(f"{path_of(key)}/{part}" if part else path_of(key), patch, content_type=STRATEGIC_PATCH)
    assert FENCE in caught.value.message
    assert user.client.get_json(path_of(key)) == before


def test_nobody_becomes_a_member_later(user: NamespaceUser, rebalancer: Client) -> None:
    """Else any pod that waits could be given nodes. The label may go."""
    key, _ = make_pod(user.client, user.namespace)
    with pytest.raises(Forbidden, match="no pod a member"):
        rebalancer.patch(path_of(key), metadata(labels={names.GANG_LABEL: names.GANG_MEMBER}))
    rebalancer.patch(path_of(gated(user, names.GANG_GATE)), metadata(labels={names.GANG_LABEL: None}))


def test_members_are_not_deleted_where_gangs_are_off(user: NamespaceUser, writer: PodWriter) -> None:
    """Only the component of gangs allows that."""
    key = gated(user, names.GANG_GATE)
    uid = user.client.get_json(path_of(key))["metadata"]["uid"]
    assert writer.delete(key, uid, 0) is Outcome.IMPOSSIBLE


ACTS: dict[str, Callable[[PodWriter, Key, str], Outcome]] = {
    "an annotation": lambda writer, key, uid: writer.annotate(key, uid, {names.SLOT: "1"}),
    "a label": lambda writer, key, uid: writer.annotate(key, uid, {}, {names.CLASS: "spot"}),
    "a release": lambda writer, key, uid: writer.annotate(key, uid, RELEASED, {names.POD_TEMPLATE_HASH: "x"}),
    "an owner": lambda writer, key, uid: writer.hand_over(
        Pod(*key, uid, decision="rs/1"), Owner("ReplicaSet", "web-abc", "rs"), {}, {}
    ),
    "an eviction": lambda writer, key, uid: writer.evict(key, uid),
    "a deletion": lambda writer, key, uid: writer.delete(key, uid),
    "the end of a lost pod": lambda writer, key, uid: writer.fail_lost(key, uid, "why"),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS.keys())
def test_nothing_where_nobody_opted_in(
    outsider: NamespaceUser, writer: PodWriter, act: Callable[[PodWriter, Key, str], Outcome]
) -> None:
    """Whatever the planner thinks."""
    key, uid = make_pod(outsider.client, outsider.namespace, {names.DECISION: "rs/1"})
    before = outsider.client.get_json(path_of(key))["metadata"]["resourceVersion"]
    assert act(writer, key, uid) is Outcome.IMPOSSIBLE
    assert outsider.client.get_json(path_of(key))["metadata"]["resourceVersion"] == before


@pytest.mark.parametrize("namespace", ["kube-system", names.SYSTEM_NAMESPACE])
def test_nothing_in_namespaces_that_cannot_opt_in(
    rebalancer: Client, admin: Client, writer: PodWriter, namespace: str
) -> None:
    """Even if somebody labels them."""
    labelled = metadata(labels={names.PLACEMENT: names.ENABLED})
    admin.patch(f"/api/v1/namespaces/{namespace}", labelled)
    try:
        secure = {"securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}}
        spec = raw_pod_spec(nodeName="nowhere", **secure)
        spec["containers"][0]["securityContext"] = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        raw = {"metadata": {"name": "fenced"}, "spec": spec}
        wait_for("the default ServiceAccount", lambda: _has_account(admin, namespace))
        uid = admin.post(f"/api/v1/namespaces/{namespace}/pods", raw)["metadata"]["uid"]
        assert writer.annotate(Key(namespace, "fenced"), uid, {names.SLOT: "1"}) is Outcome.IMPOSSIBLE
        assert writer.evict(Key(namespace, "fenced"), uid) is Outcome.IMPOSSIBLE
        admin.delete(f"/api/v1/namespaces/{namespace}/pods/fenced", query={"gracePeriodSeconds": 0})
    finally:
        admin.patch(f"/api/v1/namespaces/{namespace}", metadata(labels={names.PLACEMENT: None}))


def _has_account(admin: Client, namespace: str) -> bool:
    try:
        admin.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
    except ApiError:
        return False
    return True


def test_after_an_opt_out_it_may_tidy_up_and_nothing_else(user: NamespaceUser, writer: PodWriter) -> None:
    """What it wrote goes, and a released pod is put back or deleted; then there is nothing left to do."""
    keys = deployed(user, "web"), deployed(user, "api")
    uids = [str(user.client.get_json(path_of(key))["metadata"]["uid"]) for key in keys]
    (key, other), (uid, other_uid) = keys, uids
    assert [release_pod(user.client, writer, each) for each in keys] == [Outcome.DONE] * 2
    user.client.patch(f"/api/v1/namespaces/{user.namespace}", metadata(labels={names.PLACEMENT: None}))
    tries = map(str, count())  # each another value: what changes nothing is never refused
    wait_for(
        "the opt-out to be seen", lambda: writer.annotate(key, uid, {names.MOVED: next(tries)}) is Outcome.IMPOSSIBLE
    )
    assert writer.annotate(key, uid, {names.MOVED: None}) is Outcome.DONE
    assert writer.annotate(key, uid, {names.RELEASED: None}, {names.POD_TEMPLATE_HASH: "x"}) is Outcome.IMPOSSIBLE
    assert writer.evict_replaced(key, uid) is Outcome.IMPOSSIBLE
    assert writer.annotate(key, uid, {names.SLOT: None}, {names.CLASS: None}) is Outcome.DONE
    assert writer.annotate(key, uid, {names.DELETION_COST: None}) is Outcome.DONE
    assert put_back(user.client, writer, key) is Outcome.DONE
    found = user.client.get_json(path_of(key))["metadata"]
    assert found["ownerReferences"][0]["kind"] == "ReplicaSet"
    assert set(found["annotations"]) == {names.DECISION, names.REASON}
    assert release_pod(user.client, writer, key) is Outcome.IMPOSSIBLE
    assert writer.delete(key, uid) is Outcome.IMPOSSIBLE
    assert writer.delete(other, other_uid) is Outcome.DONE


# --- who owns a pod --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Handed:
    """Two pods of a Deployment, one of them released; and what a patch of each is made from."""

    client: Client
    pods: tuple[Pod, Pod]

    def operations(self, index: int) -> Body:
        """The exact release of the first, the exact undo of the second."""
        pod = self.pods[index]
        action = put_back_to(pod, read_revision(self.client, pod), "") if index else release_action(self.client, pod)
        assert action.owner is not None
        return next(patches(pod, action.owner, action.annotations, action.labels))


@pytest.fixture(scope="module")
def handed(rebalancer: Client, admin: Client, cluster: LocalCluster) -> Iterator[Handed]:
    name = "handed"
    admin.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": {names.PLACEMENT: names.ENABLED}}})
    user = NamespaceUser(admin, Path(cluster.kubeconfig), name)
    wait_for("the default ServiceAccount", lambda: _has_account(admin, name))
    user.create(raw_workload("Deployment", "web", 2))
    user.rest("web")
    first, second = (Key(name, raw["metadata"]["name"]) for raw in user.pods("web"))
    assert release_pod(admin, PodWriter(rebalancer), second) is Outcome.DONE
    yield Handed(admin, (read_pod(admin, first), read_pod(admin, second)))
    admin.delete(f"/api/v1/namespaces/{name}")


OWNER, HASH_PATH = "/metadata/ownerReferences/0", f"/metadata/labels/{names.POD_TEMPLATE_HASH}"
NOTE = f"/metadata/annotations/{names.RELEASED.replace('/', '~1')}"
SAFE = f"/metadata/annotations/{names.SAFE_TO_EVICT.replace('/', '~1')}"
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap", "name": "c", "uid": "c"}
SPARED = f"/metadata/annotations/{names.DO_NOT_DISRUPT.replace('/', '~1')}"
TOGETHER, ONLY_SAFE, ONLY_SPARED = "change only together", "safe-to-evict is set", "do-not-disrupt is set"
GUARDED = "cannot set blockOwnerDeletion"  # OwnerReferencesPermissionEnforcement is asked before the fence


def with_owner(**fields: Any) -> Callable[[Body], Body]:
    """The same patch with another owner; None removes a field."""

    def changed(operations: Body) -> Body:
        return [_with_value(each, fields) if each["path"] == OWNER else each for each in _listed(operations)]

    return changed


def _listed(operations: Body) -> list[dict[str, Any]]:
    assert isinstance(operations, list)
    return operations


def _with_value(operation: dict[str, Any], fields: dict[str, Any]) -> dict[str, Any]:
    value = {key: each for key, each in {**operation["value"], **fields}.items() if each is not None}
    return {**operation, "value": value}


def without(*paths: str) -> Callable[[Body], Body]:
    return lambda operations: [each for each in _listed(operations) if each["path"] not in paths]


def with_value(path: str, value: str) -> Callable[[Body], Body]:
    return lambda operations: [
        {**each, "value": value} if each["path"] == path and each["op"] != "test" else each
        for each in _listed(operations)
    ]


def and_also(*more: dict[str, Any]) -> Callable[[Body], Body]:
    return lambda operations: [*_listed(operations), *more]


def only(*paths: str) -> Callable[[Body], Body]:
    return lambda operations: [each for each in _listed(operations) if each["path"] in paths]


NOT_HANDED: dict[str, tuple[int, Callable[[Body], Body], str]] = {
    "released to another Deployment": (0, with_owner(name="other"), TOGETHER),
    "released to another kind": (0, with_owner(kind="StatefulSet"), TOGETHER),
    "released to another API": (0, with_owner(apiVersion="example.com/v1"), TOGETHER),
    "released to no controller": (0, with_owner(controller=None), TOGETHER),
    "released to an owner whose deletion it blocks": (0, with_owner(blockOwnerDeletion=True), GUARDED),
    "released without its owner": (0, without(OWNER), TOGETHER),
    "released without its label": (0, without(HASH_PATH), TOGETHER),
    "released without a note": (0, without(NOTE, SAFE, SPARED), TOGETHER),
    "released with a note of another label": (0, with_value(NOTE, "2030-01-01T00:00:00Z/abc"), TOGETHER),
    "released, and kept from Karpenter for good": (0, with_value(SPARED, "true"), ONLY_SPARED),
    "kept from Karpenter, and not released": (0, only(SPARED), ONLY_SPARED),
    "Karpenter's again, and still released": (1, only(SPARED), ONLY_SPARED),
    "released with another label": (0, with_value(HASH_PATH, "released-abc"), TOGETHER),
    "released to two owners": (0, and_also(*put("/metadata/ownerReferences/-", CONFIG_MAP)), TOGETHER),
    "released, and kept from eviction": (0, with_value(SAFE, "false"), ONLY_SAFE),
    "safe to evict, and not released": (0, only(SAFE), ONLY_SAFE),
    "put back to another ReplicaSet": (1, with_owner(name="other-abc"), TOGETHER),
    "put back to another of that name": (1, with_owner(uid="3b241101-e2bb-4255-8caf-4136c566a962"), TOGETHER),
    "put back to another kind": (1, with_owner(kind="StatefulSet", blockOwnerDeletion=None), TOGETHER),
    "put back to no controller": (1, with_owner(controller=None, blockOwnerDeletion=None), TOGETHER),
    "put back without its owner": (1, without(OWNER), TOGETHER),
    "put back without its label": (1, without(HASH_PATH), TOGETHER),
    "put back with its note left": (1, without(NOTE), TOGETHER),
    "not safe to evict, and still released": (1, only(SAFE), ONLY_SAFE),
}


@pytest.mark.parametrize(("index", "change", "says"), NOT_HANDED.values(), ids=NOT_HANDED.keys())
def test_a_pod_changes_hands_only_as_a_release_and_its_undo_do(
    rebalancer: Client, handed: Handed, index: int, change: Callable[[Body], Body], says: str
) -> None:
    """Each is the exact patch but for one thing; what is only asked for is refused as what is done."""
    pod = handed.pods[index]
    with pytest.raises(Forbidden, match=says) as caught:
        _try(rebalancer, pod, change(handed.operations(index)))
    assert FENCE in caught.value.message or says == GUARDED


def _try(rebalancer: Client, pod: Pod, operations: Body) -> None:
    rebalancer.patch(path_of(pod.key), operations, {"dryRun": "All"}, content_type=JSON_PATCH)


@pytest.mark.parametrize("index", [0, 1], ids=["a release", "an undo"])
def test_the_exact_patch_passes(rebalancer: Client, handed: Handed, index: int) -> None:
    """So that the table above shows what it says; an undo also where it must not block its owner's deletion."""
    _try(rebalancer, handed.pods[index], handed.operations(index))
    if index:
        _try(rebalancer, handed.pods[index], with_owner(blockOwnerDeletion=None)(handed.operations(index)))


def test_a_word_on_eviction_that_is_not_ours_stays(user: NamespaceUser, rebalancer: Client, writer: PodWriter) -> None:
    """Neither a release nor its undo touches it."""
    key = deployed(user)
    user.client.patch(path_of(key), metadata(annotations={names.SAFE_TO_EVICT: "true"}))
    assert release_pod(user.client, writer, key) is Outcome.DONE
    pod = read_pod(user.client, key)
    removed: list[dict[str, Any]] = [{"op": "remove", "path": SAFE}]
    exact = Handed(user.client, (pod, pod)).operations(1)
    with pytest.raises(Forbidden, match=ONLY_SAFE):
        _try(rebalancer, pod, [*_listed(exact), *removed])
    assert put_back(user.client, writer, key) is Outcome.DONE
    assert user.client.get_json(path_of(key))["metadata"]["annotations"][names.SAFE_TO_EVICT] == "true"


def test_others_are_not_fenced(outsider: NamespaceUser) -> None:
    """An administrator, a kubelet, a controller: as ever."""
    key, _ = make_pod(outsider.client, outsider.namespace)
    outsider.client.patch(path_of(key), metadata(labels={"app": "other"}))
    outsider.client.patch(path_of(key), IMAGE, content_type=JSON_PATCH)
    outsider.client.patch(f"{path_of(key)}/status", status(phase="Succeeded"))


# --- the webhook's token ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def webhook(
    cluster: LocalCluster, rebalancer: Client, admin: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """Who has the webhook's token, and no other; the fence is in force, since it is for the rebalancer."""
    path = tmp_path_factory.mktemp("access") / "kubeconfig"
    path.write_bytes(access_for(Path(cluster.kubeconfig), admin, names.WEBHOOK_ACCOUNT))
    client = connect(path, user_agent="spotweave-tests")
    yield client
    client.close()


def test_the_webhook_notes_once_that_an_eviction_was_asked_for(user: NamespaceUser, webhook: Client) -> None:
    """The first note stays. There is none for a pod that is gone, or for another one of its name."""
    key, uid = make_pod(user.client, user.namespace)
    pod = Pod(key.namespace, key.name, uid)
    assert note_eviction(webhook, pod, "2030-01-01T00:00:00Z/alice")
    assert note_eviction(webhook, pod, "2030-01-01T00:00:09Z/bob")
    assert not note_eviction(webhook, Pod(key.namespace, key.name, "another"), "2030-01-01T00:00:00Z/alice")
    assert not note_eviction(webhook, Pod(key.namespace, "gone", uid), "2030-01-01T00:00:00Z/alice")
    written = user.client.get_json(path_of(key))["metadata"]["annotations"]
    assert written[names.EVICTION_ASKED] == "2030-01-01T00:00:00Z/alice"


NOT_THE_WEBHOOKS: dict[str, dict[str, Any]] = {
    "any other annotation of ours": {"metadata": {"annotations": {names.SLOT: "1"}}},
    "another annotation beside it": {"metadata": {"annotations": {names.EVICTION_ASKED: "x", names.SLOT: "1"}}},
    "a label of ours": {"metadata": {"labels": {names.CLASS: "spot"}}},
    "an image": {"spec": {"containers": [{"name": "app", "image": "evil"}]}},
}


@pytest.mark.parametrize("patch", NOT_THE_WEBHOOKS.values(), ids=NOT_THE_WEBHOOKS.keys())
def test_the_webhook_writes_nothing_else_to_pods(user: NamespaceUser, webhook: Client, patch: dict[str, Any]) -> None:
    key, _ = make_pod(user.client, user.namespace)
    with pytest.raises(ApiError, match=r"spotweave-fence|[Ff]orbidden"):
        webhook.patch(path_of(key), patch, content_type=STRATEGIC_PATCH)


def test_the_webhook_notes_nothing_outside_and_the_rebalancer_nothing_at_all(
    user: NamespaceUser, webhook: Client, rebalancer: Client, admin: Client
) -> None:
    note = {"metadata": {"annotations": {names.EVICTION_ASKED: "2030-01-01T00:00:00Z/alice"}}}
    outside, _ = make_pod(admin, "default")
    with pytest.raises(Forbidden, match=FENCE):
        webhook.patch(path_of(outside), note)
    admin.delete(path_of(outside), query={"gracePeriodSeconds": 0})
    inside, _ = make_pod(user.client, user.namespace)
    with pytest.raises(Forbidden, match=FENCE):
        rebalancer.patch(path_of(inside), note)
