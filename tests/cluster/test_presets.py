"""Other node labels than the default one, on the real scheduler: Karpenter's and a key of one's own, at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.supervisor import running
from kube.client import connect
from localcluster import LocalCluster, Options
from localcluster.profile import NodePool, Profile, ProfileTaint
from placement import names
from tests.cluster.lead import leading
from tests.cluster.world import World, is_exact, label, template, wait_for, workload

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
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A cluster of its own, whose nodes are labelled otherwise, and a webhook that is told so."""
    config = tmp_path_factory.mktemp("presets") / "config.yaml"
    config.write_text(CONFIGURATION)
    fast = Options(controller_qps=200, controller_burst=400)
    with (
        LocalCluster.start(PROFILE, options=fast) as cluster,
        running(cluster.kubeconfig, 1, config, log_level="warning"),
    ):
        client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
        client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        label(client, "shop")
        with leading(client):
            yield World(client, Path(cluster.kubeconfig), "shop")
        client.close()


def pools(pods: list[dict[str, Any]]) -> Counter[str]:
    """How many pods each pool has; "" for those that have no node."""
    return Counter(pod["spec"].get("nodeName", "").rpartition("-")[0] for pod in pods)


def test_two_labels_tell_the_class_at_once_and_unlabelled_nodes_are_on_demand(world: World) -> None:
    """Spot pods run on nodes of either label, also tainted ones; the others on nodes that nobody has labelled."""
    world.create(workload("Deployment", "web", 10))
    status = world.rest("web")
    assert is_exact(status, 7, 3)
    by_class = {
        of: pools([pod for pod in world.pods("web") if pod["metadata"]["labels"][names.CLASS] == of])
        for of in ("spot", "on-demand")
    }
    assert set(by_class["spot"]) == set(SPOT)
    assert set(by_class["on-demand"]) <= {"plain-a", "plain-b", "plain-c"}
    world.delete("Deployment", "web")


def crowded(name: str, spread: str) -> dict[str, Any]:
    """Six pods that all want spot, of which zone c can take one."""
    container = {"name": "app", "image": "example/app:1.0", "resources": {"requests": {"cpu": "600m"}}}
    settings = {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0", names.SPREAD: spread}
    return workload("Deployment", name, 6, settings, template=template(name, containers=[container]))


def test_a_hard_spread_over_zones_is_kept_by_the_scheduler(world: World) -> None:
    """Two, two and one: the sixth pod waits for zone c, and would run in another zone if the spread were soft."""
    world.create(crowded("hard", "zone:hard"))
    wait_for("the sixth pod to be stuck", lambda: is_stuck(world, "hard"))
    assert pools(world.pods("hard")) == {"spot-a": 2, "spot-b": 2, "spot-c": 1, "": 1}
    world.delete("Deployment", "hard")
    wait_for("the pods to go", lambda: not world.client.get_json(world.pods_path)["items"])
    world.create(crowded("soft", "zone:soft"))
    assert is_exact(world.rest("soft"), 6, 0)
    world.delete("Deployment", "soft")


def is_stuck(world: World, app: str) -> bool:
    """Five have a node, and the scheduler has said that it finds none for the sixth."""
    waiting = [pod for pod in world.pods(app) if not pod["spec"].get("nodeName")]
    reasons = [each.get("reason") for pod in waiting for each in pod["status"].get("conditions", [])]
    return len(waiting) == 1 and "Unschedulable" in reasons
