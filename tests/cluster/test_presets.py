"""Other node labels than the default one, on the real scheduler: Karpenter's and a key of one's own, at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube.client import connect
from localcluster import LocalCluster, Options
from localcluster.profile import NodePool, Profile, ProfileTaint
from placement import names
from tests.builders.api import raw_namespace, raw_template, raw_workload
from tests.cluster.idleleader import holding_lease
from tests.cluster.killing import running
from tests.cluster.namespaceuser import NamespaceUser, is_exact, label, wait_for

pytestmark = pytest.mark.cluster

KARPENTER = "karpenter.sh/capacity-type"
OWN = "example.com/lifecycle"
CONFIGURATION = f"""
classes:
- karpenter
- key: {OWN}
  spot: [preemptible]
  onDemand: [reserved]
  taints: [{OWN}=preemptible]
"""
SPOT = {"spot-a": {KARPENTER: "spot"}, "spot-b": {OWN: "preemptible"}, "spot-c": {KARPENTER: "spot"}}
PROFILE = Profile(
    (
        # Nobody says of what class these are: they are used as on-demand.
        *(NodePool(f"plain-{zone}", f"zone-{zone}", "m5.2xlarge", 1, "8", "32Gi") for zone in "abc"),
        NodePool("spot-a", "zone-a", "m5.2xlarge", 1, "8", "32Gi", labels=SPOT["spot-a"]),
        NodePool(
            *("spot-b", "zone-b", "c5.2xlarge", 1, "8", "32Gi"),
            labels=SPOT["spot-b"],
            taints=(ProfileTaint(OWN, "NoSchedule", "preemptible"),),
        ),
        NodePool("spot-c", "zone-c", "m5.large", 1, "1", "32Gi", labels=SPOT["spot-c"]),  # room for one pod of 600m
    )
)


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NamespaceUser]:
    """A cluster of its own, whose nodes are labelled otherwise, and a webhook that is told so."""
    config = tmp_path_factory.mktemp("presets") / "config.yaml"
    config.write_text(CONFIGURATION)
    fast = Options(controller_qps=200, controller_burst=400)
    with (
        LocalCluster.start(PROFILE, options=fast) as cluster,
        running(cluster.kubeconfig, 1, config, log_level="warning"),
    ):
        client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
        client.post("/api/v1/namespaces", raw_namespace("shop"))
        label(client, "shop")
        with holding_lease(client):
            yield NamespaceUser(client, Path(cluster.kubeconfig), "shop")
        client.close()


def pools(pods: list[dict[str, Any]]) -> Counter[str]:
    """How many pods each pool has; "" for those that have no node."""
    return Counter(pod["spec"].get("nodeName", "").rpartition("-")[0] for pod in pods)


def test_two_labels_tell_the_class_at_once_and_unlabelled_nodes_are_on_demand(user: NamespaceUser) -> None:
    """Spot pods run on nodes of either label, also tainted ones; the others on nodes that nobody has labelled."""
    user.create(raw_workload("Deployment", "web", 10))
    status = user.rest("web")
    assert is_exact(status, 7, 3)
    by_class = {
        of: pools([pod for pod in user.pods("web") if pod["metadata"]["labels"][names.CLASS] == of])
        for of in ("spot", "on-demand")
    }
    assert set(by_class["spot"]) == set(SPOT)
    assert set(by_class["on-demand"]) <= {"plain-a", "plain-b", "plain-c"}
    user.delete("Deployment", "web")


def crowded(name: str, spread: str) -> dict[str, Any]:
    """Six pods that all want spot, of which zone c can take one."""
    container = {"name": "app", "image": "example/app:1.0", "resources": {"requests": {"cpu": "600m"}}}
    settings = {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0", names.SPREAD: spread}
    return raw_workload("Deployment", name, 6, settings, template=raw_template(name, containers=[container]))


def test_a_hard_spread_over_zones_is_kept_by_the_scheduler(user: NamespaceUser) -> None:
    """Two, two and one: the sixth pod waits for zone c, and would run in another zone if the spread were soft."""
    user.create(crowded("hard", "zone:hard"))
    wait_for("the sixth pod to be stuck", lambda: is_stuck(user, "hard"))
    assert pools(user.pods("hard")) == {"spot-a": 2, "spot-b": 2, "spot-c": 1, "": 1}
    user.delete("Deployment", "hard")
    wait_for("the pods to go", lambda: not user.client.get_json(user.pods_path)["items"])
    user.create(crowded("soft", "zone:soft"))
    assert is_exact(user.rest("soft"), 6, 0)
    user.delete("Deployment", "soft")


def is_stuck(user: NamespaceUser, app: str) -> bool:
    """Five have a node, and the scheduler has said that it finds none for the sixth."""
    waiting = [pod for pod in user.pods(app) if not pod["spec"].get("nodeName")]
    reasons = [each.get("reason") for pod in waiting for each in pod["status"].get("conditions", [])]
    return len(waiting) == 1 and "Unschedulable" in reasons
