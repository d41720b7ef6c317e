"""A released pod has a controller at every moment: what others that look at it see, and that an undo is exact."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from demo.supervisor import Installed, access_for
from kube.client import Client, connect
from kube.errors import Conflict, NotFound
from kube.podwriter import PodWriter
from localcluster import LocalCluster
from placement import names
from placement.model import Key
from placement.outcome import Outcome
from tests.builders.api import raw_budget, raw_workload
from tests.cluster.clustersetup import ClusterSetup, cluster_setup
from tests.cluster.longreleases import serve_with_slow_replacements, start_releases
from tests.cluster.manualrelease import path_of, put_back, read_pod, release_pod
from tests.cluster.namespaceuser import NamespaceUser, wait_for

pytestmark = pytest.mark.cluster

# What Cluster Autoscaler takes for a controller that brings a pod back (`--skip-nodes-with-custom-controller-pods`).
REPLICATED = ("ReplicationController", "Job", "ReplicaSet", "StatefulSet")


@pytest.fixture(scope="module")
def rebalancer(
    cluster: LocalCluster, installed: Installed, admin: Client, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Client]:
    """Who has the rebalancer's token, and no other."""
    path = tmp_path_factory.mktemp("access") / "kubeconfig"
    path.write_bytes(access_for(Path(cluster.kubeconfig), admin, names.REBALANCER_ACCOUNT))
    client = connect(path, user_agent="spotweave-tests")
    yield client
    client.close()


@pytest.fixture
def writer(rebalancer: Client) -> PodWriter:
    return PodWriter(rebalancer)


def serving(user: NamespaceUser, replicas: int, **budget: Any) -> list[Key]:
    """The pods of a Deployment at rest, with a budget if one is given."""
    user.create(raw_workload("Deployment", "web", replicas))
    if budget:
        path = f"/apis/policy/v1/namespaces/{user.namespace}/poddisruptionbudgets"
        user.client.post(path, raw_budget("web", **budget))
    user.rest("web")
    return [Key(user.namespace, raw["metadata"]["name"]) for raw in user.pods("web")]


def metadata(user: NamespaceUser, key: Key) -> dict[str, Any]:
    """Without what every write changes."""
    found: dict[str, Any] = user.client.get_json(path_of(key))["metadata"]
    return {name: value for name, value in found.items() if name not in ("resourceVersion", "managedFields")}


OTHERS: dict[str, dict[str, Any]] = {
    "nothing of its own": {},
    "its own word that it may go": {"annotations": {names.SAFE_TO_EVICT: "true"}},
    "its own word that it is to stay": {"annotations": {names.SAFE_TO_EVICT: "false"}},
    "another owner before its controller": {"owner": True},
}


@pytest.mark.parametrize("others", OTHERS.values(), ids=OTHERS.keys())
def test_an_undo_is_exact(user: NamespaceUser, writer: PodWriter, others: dict[str, Any]) -> None:
    """Where owner references are guarded (OwnerReferencesPermissionEnforcement), with the rebalancer's own rights."""
    (key,) = serving(user, 1)
    _add(user, key, others)
    before = metadata(user, key)
    assert release_pod(user.client, writer, key) is Outcome.DONE
    wait_for("its replacement", lambda: len(user.pods("web")) == 2)
    released = metadata(user, key)
    controllers = [each for each in released["ownerReferences"] if each.get("controller")]
    deployment = user.client.get_json(user.path("Deployment", "web"))["metadata"]
    assert controllers == [
        {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": deployment["uid"], "controller": True}
    ]
    assert put_back(user.client, writer, key) is Outcome.DONE
    assert metadata(user, key) == before
    wait_for("the newcomer to go", lambda: len(user.pods("web")) == 1)
    assert metadata(user, key) == before
    assert user.client.get_json(user.path("Deployment", "web"))["metadata"]["generation"] == deployment["generation"]


def _add(user: NamespaceUser, key: Key, others: dict[str, Any]) -> None:
    """What somebody else wrote on the pod before."""
    if "annotations" in others:
        user.client.patch(path_of(key), {"metadata": {"annotations": others["annotations"]}})
    if "owner" in others:
        account = user.client.get_json(f"/api/v1/namespaces/{user.namespace}/serviceaccounts/default")["metadata"]
        other = {"apiVersion": "v1", "kind": "ServiceAccount", "name": "default", "uid": account["uid"]}
        own = user.client.get_json(path_of(key))["metadata"]["ownerReferences"]
        user.client.patch(path_of(key), {"metadata": {"ownerReferences": [other, *own]}})


def test_a_patch_that_was_made_for_another_state_changes_nothing(user: NamespaceUser, writer: PodWriter) -> None:
    """Released or put back twice, or after somebody else's change: it is planned anew."""
    (key,) = serving(user, 1)
    fresh = read_pod(user.client, key)
    assert release_pod(user.client, writer, key) is Outcome.DONE
    after = metadata(user, key)
    released = read_pod(user.client, key)
    assert fresh.owner is not None
    for stale in (fresh, released):
        assert writer.hand_over(stale, fresh.owner, {}, {names.POD_TEMPLATE_HASH: "x"}) in (
            Outcome.BUSY,
            Outcome.IMPOSSIBLE,
        )
    assert metadata(user, key) == after
    assert put_back(user.client, writer, key) is Outcome.DONE
    again = metadata(user, key)
    assert writer.hand_over(released, fresh.owner, {names.RELEASED: None}, {}) is Outcome.BUSY
    assert metadata(user, key) == again


def test_a_pod_that_lost_its_owner_gets_its_replica_set_back(user: NamespaceUser, writer: PodWriter) -> None:
    """`--cascade=orphan`, and the version before; also beside another owner."""
    for others in ({}, {"owner": True}):
        (key,) = serving(user, 1)
        _add(user, key, others)
        before = metadata(user, key)["ownerReferences"]
        assert release_pod(user.client, writer, key) is Outcome.DONE
        rest = [each for each in before if not each.get("controller")]
        user.client.patch(path_of(key), {"metadata": {"ownerReferences": rest}})
        assert put_back(user.client, writer, key) is Outcome.DONE
        assert metadata(user, key)["ownerReferences"] == before
        user.delete("Deployment", "web")
        user.delete_pod(key.name)  # nothing collects it that has another owner
        wait_for("its pods to go", lambda: not user.pods("web"))


def test_without_the_right_to_finalizers_an_undo_blocks_nothing(
    user: NamespaceUser, writer: PodWriter, admin: Client
) -> None:
    """OwnerReferencesPermissionEnforcement refuses the exact one."""
    (key,) = serving(user, 1)
    assert release_pod(user.client, writer, key) is Outcome.DONE
    path = f"/apis/rbac.authorization.k8s.io/v1/clusterroles/{names.REBALANCER_ACCOUNT}"
    role = admin.get_json(path)
    fewer = [rule for rule in role["rules"] if "replicasets/finalizers" not in rule["resources"]]
    assert len(fewer) < len(role["rules"])
    admin.patch(path, {"rules": fewer})
    try:
        wait_for("the right to be gone", lambda: not _may_set_finalizers(admin))
        assert put_back(user.client, writer, key) is Outcome.DONE
    finally:
        admin.patch(path, {"rules": role["rules"]})
    (owner,) = metadata(user, key)["ownerReferences"]
    assert (owner["kind"], owner["controller"], "blockOwnerDeletion" in owner) == ("ReplicaSet", True, False)


def _may_set_finalizers(admin: Client) -> bool:
    asked = {"group": "apps", "resource": "replicasets", "subresource": "finalizers", "verb": "update"}
    account = f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{names.REBALANCER_ACCOUNT}"
    review = {"spec": {"user": account, "resourceAttributes": asked}}
    answer = admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


# --- what others see -------------------------------------------------------------------------------------------------


def is_replicated(raw_metadata: dict[str, Any]) -> bool:
    """Cluster Autoscaler may evict it: its controller brings it back, or it says so itself."""
    kinds = [each["kind"] for each in raw_metadata.get("ownerReferences", []) if each.get("controller")]
    return bool(set(kinds) & set(REPLICATED)) or raw_metadata["annotations"].get(names.SAFE_TO_EVICT) == "true"


def is_top_level(raw_metadata: dict[str, Any]) -> bool:
    """Argo CD takes it for a resource of its own, and prunes it."""
    return not raw_metadata.get("ownerReferences")


def test_autoscaler_and_argo_see_a_pod_that_something_brings_back(user: NamespaceUser, writer: PodWriter) -> None:
    """At every moment: before, as the release returns, and after its undo."""
    (key,) = serving(user, 1)
    for act in (release_pod, put_back):
        before = metadata(user, key)
        assert is_replicated(before)
        assert not is_top_level(before)
        assert act(user.client, writer, key) is Outcome.DONE
        after = metadata(user, key)
        assert is_replicated(after)
        assert not is_top_level(after)


BUDGETS: dict[str, tuple[int, dict[str, Any], tuple[int, int, int]]] = {
    "a lone replica with maxUnavailable 0": (1, {"maxUnavailable": 0}, (1, 2, 1)),
    "four with minAvailable 100 %": (4, {"minAvailable": "100%"}, (4, 5, 1)),
}


@pytest.mark.parametrize(("replicas", "budget", "expected"), BUDGETS.values(), ids=BUDGETS.keys())
def test_a_budget_counts_a_released_pod_once(
    user: NamespaceUser, writer: PodWriter, replicas: int, budget: dict[str, Any], expected: tuple[int, int, int]
) -> None:
    """It expects what the Deployment wants, sees one more, and allows one to go: the old one. It warns of nothing."""
    key, *_ = serving(user, replicas, **budget)
    assert release_pod(user.client, writer, key) is Outcome.DONE
    wait_for("its replacement", lambda: _counted(user) == expected)
    pod = read_pod(user.client, key)
    assert writer.evict_replaced(key, pod.uid) is Outcome.DONE
    wait_for("the old pod's end", lambda: not user.exists(path_of(key)))
    assert [event["reason"] for event in user.events("UnmanagedPods")] == []


def _counted(user: NamespaceUser) -> tuple[int, int, int]:
    path = f"/apis/policy/v1/namespaces/{user.namespace}/poddisruptionbudgets/web"
    status = user.client.get_json(path).get("status", {})
    return (status.get("expectedPods", 0), status.get("currentHealthy", 0), status.get("disruptionsAllowed", 0))


def test_an_eviction_that_is_under_way_leaves_alone_what_was_put_back(
    user: NamespaceUser, writer: PodWriter, rebalancer: Client
) -> None:
    """It was decided on for a released pod: another version of it is another matter."""
    (key,) = serving(user, 1)
    assert release_pod(user.client, writer, key) is Outcome.DONE
    read = user.client.get_json(path_of(key))["metadata"]
    assert put_back(user.client, writer, key) is Outcome.DONE
    late = {"uid": read["uid"], "resourceVersion": read["resourceVersion"]}
    eviction = {"metadata": {"name": key.name}, "deleteOptions": {"preconditions": late}}
    with pytest.raises(Conflict):
        rebalancer.post(f"{path_of(key)}/eviction", {"apiVersion": "policy/v1", "kind": "Eviction", **eviction})
    assert "deletionTimestamp" not in metadata(user, key)


def test_a_released_pod_is_collected_with_its_deployment(user: NamespaceUser, writer: PodWriter) -> None:
    """By Kubernetes alone, in the background and in the foreground."""
    for policy in ("Background", "Foreground"):
        key, *_ = serving(user, 2)
        assert release_pod(user.client, writer, key) is Outcome.DONE
        user.client.delete(user.path("Deployment", "web"), query={"propagationPolicy": policy})
        wait_for("all of it to go", lambda: not user.exists(user.path("Deployment", "web")))
        wait_for("its pods to go", lambda: not user.pods("web"))


# --- without a rebalancer --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shared_setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    with cluster_setup(tmp_path_factory.mktemp("config"), rebalancers=1, webhooks=1) as made:
        yield made


def test_who_deletes_the_manifests_in_the_midst_of_moves_leaves_no_pod_without_a_controller(
    shared_setup: ClusterSetup, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `kubectl delete -k` does: roles, fence, webhook, namespace. `spotweave uninstall` puts them back even then."""
    serve_with_slow_replacements(shared_setup, {"web": 10})
    start_releases(shared_setup, "web", 10)
    for each in shared_setup.installed.processes:
        each.process.kill()
        each.process.wait()
    client = shared_setup.user.client
    _delete_everything(client)
    released = set(shared_setup.released("web"))
    assert released
    for pod in shared_setup.user.pods("web"):
        controllers = [each["kind"] for each in pod["metadata"]["ownerReferences"] if each.get("controller")]
        assert controllers == ["Deployment" if pod["metadata"]["name"] in released else "ReplicaSet"]
    assert main(["uninstall", "--kubeconfig", str(shared_setup.user.kubeconfig)]) == 0
    assert f"Put back {len(released)} pod" in capsys.readouterr().out
    wait_for("the newcomers to go", lambda: len(shared_setup.user.pods("web")) == 10)
    owners = [pod["metadata"]["ownerReferences"] for pod in shared_setup.user.pods("web")]
    assert {(each["kind"], each["blockOwnerDeletion"]) for (each,) in owners} == {("ReplicaSet", True)}
    assert released <= {pod["metadata"]["name"] for pod in shared_setup.user.pods("web")}
    shared_setup.user.delete("Deployment", "web")
    wait_for("all of it to go", lambda: not shared_setup.user.pods("web"))


def _delete_everything(client: Client) -> None:
    """What `manifests/base` holds, cluster-wide things first."""
    group = "/apis/admissionregistration.k8s.io/v1"
    paths = [
        f"{group}/mutatingwebhookconfigurations/{names.WEBHOOK_CONFIGURATION}",
        f"{group}/validatingadmissionpolicybindings/{names.FENCE_POLICY}",
        f"{group}/validatingadmissionpolicies/{names.FENCE_POLICY}",
        *(
            f"/apis/rbac.authorization.k8s.io/v1/{kind}/{names.REBALANCER_ACCOUNT}"
            for kind in ("clusterrolebindings", "clusterroles")
        ),
        f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}",
    ]
    for path in paths:
        client.delete(path)
    wait_for("the namespace to go", lambda: not _exists(client, paths[-1]))


def _exists(client: Client, path: str) -> bool:
    try:
        client.get(path)
    except NotFound:
        return False
    return True
