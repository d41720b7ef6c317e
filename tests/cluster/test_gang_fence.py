"""What gangs add to the rights of our accounts, where they are switched on: what they need, and nothing beside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from demo.supervisor import access_for
from kube.client import JSON_PATCH, STRATEGIC_PATCH, Client, connect
from kube.errors import ApiError, Forbidden, Invalid
from kube.gates import GatedPod, ungate
from kube.podwriter import PodWriter
from kube.twins import TwinWriter, twin_object
from placement import names
from placement.gang.twins import TwinChange, twin_name
from placement.model import Key, Owner
from placement.outcome import Outcome
from tests.builders.api import raw_pod_spec
from tests.cluster.clustersetup import ClusterSetup
from tests.cluster.gangs import FOREIGN, GROUP, create, raw_member
from tests.cluster.manualrelease import path_of
from tests.cluster.namespaceuser import NamespaceUser, wait_for

pytestmark = pytest.mark.cluster

FENCE = f"ValidatingAdmissionPolicy '{names.FENCE_POLICY}'"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
Patch = list[dict[str, Any]]
_numbers = itertools.count()


@pytest.fixture(scope="module")
def rebalancer(gangs: ClusterSetup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Who has the rebalancer's token, and no other; the fence is in force."""
    yield from token_of(names.REBALANCER_ACCOUNT, gangs, tmp_path_factory.mktemp("access"))


@pytest.fixture(scope="module")
def webhook(gangs: ClusterSetup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """The same with the webhook's."""
    yield from token_of(names.WEBHOOK_ACCOUNT, gangs, tmp_path_factory.mktemp("access"))


def token_of(account: str, gangs: ClusterSetup, directory: Path) -> Iterator[Client]:
    path = directory / "kubeconfig"
    path.write_bytes(access_for(Path(gangs.cluster.kubeconfig), gangs.user.client, account))
    client = connect(path, user_agent="spotweave-tests")
    wait_for("the fence to be in force", lambda: is_fenced(client, member(gangs.user)))
    yield client
    client.close()


def is_fenced(client: Client, key: Key) -> bool:
    try:
        client.patch(path_of(key), {"metadata": {"labels": {"x": "y"}}}, {"dryRun": "All"})
    except Forbidden as error:
        return FENCE in error.message
    return False


def member(user: NamespaceUser, **spec: Any) -> Key:
    """A new one, which waits."""
    return Key(user.namespace, create(user, raw_member(f"m{next(_numbers)}", GROUP, **spec))["metadata"]["name"])


def stranger(user: NamespaceUser) -> Key:
    """A pod that waits for somebody else."""
    raw = raw_member(f"m{next(_numbers)}", {}, schedulingGates=[FOREIGN, {"name": names.GANG_GATE}])
    return Key(user.namespace, create(user, raw)["metadata"]["name"])


def hosts(*values: str, key: str = names.HOSTNAME, operator: str = "In") -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def terms(*expressions: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Node affinity of so many terms."""
    return {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": each} for each in expressions]}, **more}


ZONE = hosts("a", key=names.ZONE)
SPOT = hosts("spot", key=names.CAPACITY)
NODES = hosts("n1", "n2")
PREFERENCE = [{"weight": 1, "preference": {"matchExpressions": [SPOT]}}]
TEAMS = {
    PREFERRED: [
        {"weight": 1, "podAffinityTerm": {"topologyKey": names.ZONE, "labelSelector": {"matchLabels": {"app": "a"}}}}
    ]
}


def start(affinity: dict[str, Any] | None = None, gate: int = 0, **more: Any) -> Patch:
    """The gate goes, and the whole affinity is as given."""
    gone: Patch = [{"op": "remove", "path": f"/spec/schedulingGates/{gate}"}]
    pinned: Patch = [{"op": "add", "path": "/spec/affinity", "value": {"nodeAffinity": affinity, **more}}]
    return gone + (pinned if affinity is not None else [])


def patched(client: Client, key: Key, patch: Patch) -> dict[str, Any]:
    written: dict[str, Any] = client.patch(path_of(key), patch, content_type=JSON_PATCH)
    return written


STARTED: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {
    "nodes alone": ({}, terms([NODES])),
    "nodes beside a term": ({"nodeAffinity": terms([ZONE])}, terms([ZONE, NODES])),
    "nodes in each of two terms": ({"nodeAffinity": terms([ZONE], [SPOT])}, terms([ZONE, NODES], [SPOT, NODES])),
    "a preference beside": ({"nodeAffinity": {PREFERRED: PREFERENCE}}, terms([NODES], **{PREFERRED: PREFERENCE})),
    "no nodes": ({"nodeAffinity": terms([ZONE])}, None),
}


@pytest.mark.parametrize(("before", "affinity"), STARTED.values(), ids=STARTED.keys())
def test_a_member_is_reserved_and_started(
    gangs: ClusterSetup, rebalancer: Client, before: dict[str, Any], affinity: dict[str, Any] | None
) -> None:
    """A node is nominated and the plan noted in one patch, cleared again, and set; then the gate goes."""
    key = member(gangs.user, affinity=before)
    for node, plan in (("n1", "p/1/n1"), (None, None), ("n1", "p/2/n1")):
        note = {"metadata": {"annotations": {names.GANG_PLAN: plan}}, "status": {"nominatedNodeName": node}}
        rebalancer.patch(f"{path_of(key)}/status", note)
    started = patched(rebalancer, key, start(affinity))
    assert "schedulingGates" not in started["spec"]
    assert started["status"]["nominatedNodeName"] == "n1"
    expected = before.get("nodeAffinity") if affinity is None else affinity
    assert started["spec"]["affinity"].get("nodeAffinity") == expected
    gangs.user.delete_pod(key.name)


def test_a_foreign_gate_stays_and_another_term_of_the_spec_too(gangs: ClusterSetup, rebalancer: Client) -> None:
    """Pod affinity beside node affinity, and a gate of somebody else."""
    key = member(gangs.user, schedulingGates=[FOREIGN], affinity={"podAffinity": TEAMS})
    started = patched(rebalancer, key, start(terms([NODES]), gate=1, podAffinity=TEAMS))
    assert started["spec"]["schedulingGates"] == [FOREIGN]
    gangs.user.delete_pod(key.name)


WHOLE = {"nodeAffinity": terms([ZONE], **{PREFERRED: PREFERENCE}), "podAffinity": TEAMS}
EXACT = {PREFERRED: PREFERENCE}
OTHER = [{"weight": 9, "preference": {"matchExpressions": [SPOT]}}]
REFUSED: dict[str, Patch] = {
    "nodes without the gate": [{"op": "add", "path": "/spec/affinity/nodeAffinity", "value": terms([ZONE, NODES])}],
    "somebody else's gate": start(terms([ZONE, NODES], **EXACT), gate=1, podAffinity=TEAMS),
    "both gates": [*start(), *start()],
    "another key": start(terms([ZONE, SPOT], **EXACT), podAffinity=TEAMS),
    "not these nodes": start(terms([ZONE, hosts("n1", operator="NotIn")], **EXACT), podAffinity=TEAMS),
    "a term less": start({PREFERRED: PREFERENCE}, podAffinity=TEAMS),
    "a term more": start(terms([ZONE, NODES], [NODES], **EXACT), podAffinity=TEAMS),
    "an expression less": start(terms([NODES], **EXACT), podAffinity=TEAMS),
    "another preference": start(terms([ZONE, NODES], **{PREFERRED: OTHER}), podAffinity=TEAMS),
    "no preference": start(terms([ZONE, NODES]), podAffinity=TEAMS),
    "no pod affinity": start(terms([ZONE, NODES], **EXACT)),
    "a selector beside": [*start(), {"op": "add", "path": "/spec/nodeSelector", "value": {"a": "b"}}],
    "an image beside": [*start(), {"op": "replace", "path": "/spec/containers/0/image", "value": "evil"}],
    "a toleration beside": [*start(), {"op": "add", "path": "/spec/tolerations/-", "value": {"operator": "Exists"}}],
    "a user's label beside": [*start(), {"op": "add", "path": "/metadata/labels/app", "value": "evil"}],
}


@pytest.mark.parametrize("patch", REFUSED.values(), ids=REFUSED.keys())
def test_a_start_is_nothing_but_a_start(gangs: ClusterSetup, rebalancer: Client, patch: Patch) -> None:
    """Each is the exact patch but for one thing; some the API server refuses by itself."""
    key = member(gangs.user, schedulingGates=[{"name": names.GANG_GATE}, FOREIGN], affinity=WHOLE)
    before = gangs.user.client.get_json(path_of(key))
    with pytest.raises((Forbidden, Invalid)) as caught:
        patched(rebalancer, key, patch)
    assert isinstance(caught.value, Invalid) or FENCE in caught.value.message
    assert gangs.user.client.get_json(path_of(key)) == before
    gangs.user.delete_pod(key.name)


def test_the_exact_start_passes(gangs: ClusterSetup, rebalancer: Client) -> None:
    """So that the table above shows what it says."""
    key = member(gangs.user, schedulingGates=[{"name": names.GANG_GATE}, FOREIGN], affinity=WHOLE)
    patched(rebalancer, key, start(terms([ZONE, NODES], **EXACT), podAffinity=TEAMS))
    gangs.user.delete_pod(key.name)


def test_pods_that_are_no_members_are_not_placed(gangs: ClusterSetup, rebalancer: Client) -> None:
    """Whatever gates they have: our gate may go, but nobody names their nodes, and nobody makes them members."""
    key = stranger(gangs.user)
    label = {"metadata": {"labels": {names.GANG_LABEL: names.GANG_MEMBER}}}
    for path, patch in (
        (f"{path_of(key)}/status", {"status": {"nominatedNodeName": "n1"}}),
        (path_of(key), label),
        (f"{path_of(key)}/status", {**label, "status": {"nominatedNodeName": "n1"}}),
    ):
        with pytest.raises(Forbidden, match=FENCE):
            rebalancer.patch(path, patch)
    with pytest.raises(Forbidden, match=FENCE):
        patched(rebalancer, key, start(terms([NODES]), gate=1))
    patched(rebalancer, key, start(gate=1))
    gangs.user.delete_pod(key.name)


def test_members_of_a_namespace_that_opted_out_are_let_go_and_not_started(
    gangs: ClusterSetup, rebalancer: Client
) -> None:
    """The gate may go, or they would wait for ever; but nobody names their nodes any more."""
    user = gangs.user
    key = member(user)
    path = f"/api/v1/namespaces/{user.namespace}"
    user.client.patch(path, {"metadata": {"labels": {names.PLACEMENT: None}}})
    try:
        wait_for("the opt-out to be seen", lambda: is_refused(rebalancer, key, start(terms([NODES]))))
        patched(rebalancer, key, start())
    finally:
        user.client.patch(path, {"metadata": {"labels": {names.PLACEMENT: names.ENABLED}}})
        user.delete_pod(key.name)


def is_refused(client: Client, key: Key, patch: Patch) -> bool:
    """By a dry run: the API server may hear a moment later that the namespace has another label."""
    try:
        client.patch(path_of(key), patch, {"dryRun": "All"}, content_type=JSON_PATCH)
    except Forbidden as error:
        return FENCE in error.message
    return False


def test_a_member_without_a_gate_is_not_nominated(gangs: ClusterSetup, rebalancer: Client) -> None:
    """The scheduler decides then. To clear a nomination is no harm."""
    key = member(gangs.user, nodeSelector={"no": "such"})
    rebalancer.patch(f"{path_of(key)}/status", {"status": {"nominatedNodeName": "n1"}})
    patched(rebalancer, key, start())
    with pytest.raises(Forbidden, match="nominates nodes only"):
        rebalancer.patch(f"{path_of(key)}/status", {"status": {"nominatedNodeName": "n2"}})
    rebalancer.patch(f"{path_of(key)}/status", {"status": {"nominatedNodeName": None}})
    gangs.user.delete_pod(key.name)


def test_the_webhook_starts_nobody(gangs: ClusterSetup, webhook: Client) -> None:
    """Nor takes a gate off."""
    key = member(gangs.user)
    for patch in (start(), start(terms([NODES]))):
        with pytest.raises(Forbidden, match=FENCE):
            patched(webhook, key, patch)
    with pytest.raises(ApiError):
        webhook.patch(f"{path_of(key)}/status", {"status": {"nominatedNodeName": "n1"}})
    gangs.user.delete_pod(key.name)


def test_the_break_glass_patch_passes(gangs: ClusterSetup, rebalancer: Client) -> None:
    """By the gate's name, so that it makes no difference where in the list it stands."""
    key = member(gangs.user, schedulingGates=[FOREIGN])
    uid = gangs.user.client.get_json(path_of(key))["metadata"]["uid"]
    assert ungate(rebalancer, GatedPod(*key, uid, ()))
    assert gangs.user.client.get_json(path_of(key))["spec"]["schedulingGates"] == [FOREIGN]
    assert not ungate(rebalancer, GatedPod(*key, "another", ()))
    gangs.user.delete_pod(key.name)


# --- Jobs ------------------------------------------------------------------------------------------------------------


def job(user: NamespaceUser, namespace: str = "") -> str:
    """Its path; its pods wait, since nobody starts them."""
    path = f"/apis/batch/v1/namespaces/{namespace or user.namespace}/jobs"
    template = {"metadata": {"annotations": GROUP}, "spec": {**raw_pod_spec(), "restartPolicy": "Never"}}
    name = f"j{next(_numbers)}"
    user.client.post(path, {"metadata": {"name": name}, "spec": {"parallelism": 1, "template": template}})
    return f"{path}/{name}"


SUSPEND: dict[str, Any] = {"spec": {"suspend": True}}
NOT_SUSPENDING: dict[str, dict[str, Any]] = {
    "more pods": {"spec": {"suspend": True, "parallelism": 9}},
    "more failures": {"spec": {"suspend": True, "backoffLimit": 99}},
    "an annotation": {**SUSPEND, "metadata": {"annotations": {names.TIME_LIMIT: "9h"}}},
    "a label": {**SUSPEND, "metadata": {"labels": {"a": "b"}}},
    "a finalizer": {**SUSPEND, "metadata": {"finalizers": ["example.com/mine"]}},
    "an owner": {
        **SUSPEND,
        "metadata": {"ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "a"}]},
    },
}


@pytest.mark.parametrize("patch", NOT_SUSPENDING.values(), ids=NOT_SUSPENDING.keys())
def test_nothing_but_the_suspension_of_a_job_is_written(
    gangs: ClusterSetup, rebalancer: Client, patch: dict[str, Any]
) -> None:
    """Whatever comes with it. Owners the API server itself refuses to accounts that may not delete the Job."""
    path = job(gangs.user)
    with pytest.raises(Forbidden, match=f"{names.JOB_FENCE_POLICY}|cannot set an ownerRef"):
        rebalancer.patch(path, patch)
    gangs.user.client.delete(path, query={"propagationPolicy": "Background"})


def test_a_job_is_suspended_and_not_resumed(gangs: ClusterSetup, rebalancer: Client, webhook: Client) -> None:
    """People resume it. The webhook does neither; nobody deletes it, or writes its status."""
    user, path = gangs.user, job(gangs.user)
    with pytest.raises(Forbidden):
        webhook.patch(path, SUSPEND)
    raw = user.client.get_json(path)["metadata"]
    owner, writer = Owner("Job", raw["name"], raw["uid"], "batch"), PodWriter(rebalancer)
    assert writer.suspend(replace(owner, uid="another"), user.namespace) is not Outcome.DONE
    assert not user.client.get_json(path)["spec"]["suspend"]
    assert writer.suspend(owner, user.namespace) is Outcome.DONE
    assert writer.suspend(owner, user.namespace) is Outcome.DONE
    assert user.client.get_json(path)["spec"]["suspend"]
    with pytest.raises(Forbidden, match=names.JOB_FENCE_POLICY):
        rebalancer.patch(path, {"spec": {"suspend": False}})
    with pytest.raises(Forbidden):
        rebalancer.delete(path)
    with pytest.raises(Forbidden):
        rebalancer.patch(f"{path}/status", {"status": {"failed": 9}})
    user.client.delete(path, query={"propagationPolicy": "Background"})


def test_no_job_is_suspended_where_nobody_opted_in(gangs: ClusterSetup, rebalancer: Client) -> None:
    """Whatever its pods say."""
    user = gangs.user
    path = job(user, "default")
    with pytest.raises(Forbidden, match=names.JOB_FENCE_POLICY):
        rebalancer.patch(path, SUSPEND)
    user.client.delete(path, query={"propagationPolicy": "Background"})


def test_only_members_without_an_owner_are_deleted(gangs: ClusterSetup, rebalancer: Client) -> None:
    """Not a pod that is no member, nor a member that somebody creates again."""
    user, writer = gangs.user, PodWriter(rebalancer)
    bare, other = member(user), stranger(user)
    assert writer.delete(other, uid_of(user, other), 0) is Outcome.IMPOSSIBLE
    assert writer.delete(bare, uid_of(user, bare), 0) is Outcome.DONE
    path = job(user)
    wait_for("its pod", lambda: bool(pods_of_job(user, path)))
    (owned,) = pods_of_job(user, path)
    assert writer.delete(owned, uid_of(user, owned), 0) is Outcome.IMPOSSIBLE
    user.client.delete(path, query={"propagationPolicy": "Background"})
    user.delete_pod(other.name)


def uid_of(user: NamespaceUser, key: Key) -> str:
    uid: str = user.client.get_json(path_of(key))["metadata"]["uid"]
    return uid


def pods_of_job(user: NamespaceUser, path: str) -> list[Key]:
    name = path.rpartition("/")[2]
    found = user.client.get_json(user.pods_path, {"labelSelector": f"batch.kubernetes.io/job-name={name}"})["items"]
    return [Key(user.namespace, each["metadata"]["name"]) for each in found]


# --- PriorityClasses -------------------------------------------------------------------------------------------------

TWIN = twin_object(TwinChange("high", twin_name("high"), 5))
NOT_TWINS: dict[str, dict[str, Any]] = {
    "another name": {"metadata": {"name": "mine", "labels": {names.TWIN_OF: "high"}}},
    "no label": {"metadata": {"name": twin_name("high")}},
    "one that preempts": {"preemptionPolicy": "PreemptLowerPriority"},
    "one for all pods": {"globalDefault": True},
}


@pytest.mark.parametrize("change", NOT_TWINS.values(), ids=NOT_TWINS.keys())
def test_no_other_priority_class_is_made(rebalancer: Client, change: dict[str, Any]) -> None:
    """A class of a high value would let whoever holds the token push all others out."""
    with pytest.raises(Forbidden, match=names.TWIN_FENCE_POLICY):
        rebalancer.post(CLASSES, {**TWIN, **change})


def test_twins_come_and_go_and_others_stay(gangs: ClusterSetup, rebalancer: Client, webhook: Client) -> None:
    """The webhook makes none."""
    writer = TwinWriter(rebalancer)
    writer.make(TwinChange("high", twin_name("high"), 5))
    writer.make(TwinChange("high", twin_name("high"), 6, replaces=True))
    assert gangs.user.client.get_json(f"{CLASSES}/{twin_name('high')}")["value"] == 6
    gangs.user.client.post(CLASSES, {"metadata": {"name": "theirs"}, "value": 3})
    with pytest.raises(Forbidden, match=names.TWIN_FENCE_POLICY):
        rebalancer.delete(f"{CLASSES}/theirs")
    with pytest.raises(Forbidden):
        rebalancer.patch(f"{CLASSES}/{twin_name('high')}", {"description": "x"}, content_type=STRATEGIC_PATCH)
    with pytest.raises(Forbidden):
        webhook.post(CLASSES, twin_object(TwinChange("low", twin_name("low"), 1)))
    assert writer.remove_all() >= 1
