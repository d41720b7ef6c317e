"""Several webhook replicas decide as one: exact in bursts, rollouts and scale-downs, and when one of them goes."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cli.run import Installed, running, wait_until_ready
from kube.client import connect
from localcluster import LocalCluster, Options, demo_profile
from placement.status import WorkloadStatus
from tests.cluster.conftest import label
from tests.cluster.world import World, wait_for, workload

pytestmark = pytest.mark.cluster

RATES = {"default rate": Options(), "200/400 a second": Options(controller_qps=200, controller_burst=400)}
Scene = tuple[World, Installed]


CROWDS = [
    pytest.param((2, "default rate"), id="two at the default rate"),
    pytest.param((3, "200/400 a second"), id="three at 200/400 a second"),
    pytest.param((2, "200/400 a second"), id="two at 200/400 a second", marks=pytest.mark.soak),
    pytest.param((3, "default rate"), id="three at the default rate", marks=pytest.mark.soak),
]


@pytest.fixture(params=CROWDS, scope="module")
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    """A cluster with two or three webhooks behind one address."""
    replicas, rate = request.param
    with (
        LocalCluster.start(demo_profile(), options=RATES[rate]) as cluster,
        running(cluster.kubeconfig, replicas, log_level="warning") as installed,
    ):
        client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
        client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        label(client, "shop")
        yield World(client, Path(cluster.kubeconfig), "shop"), installed
        client.close()


def is_safe(status: WorkloadStatus) -> bool:
    """Off by at most one pod, and never with too few on on-demand; nobody was missed."""
    surplus = status.actual.on_demand - status.wanted.on_demand
    return 0 <= surplus <= 1 and not status.missed


def test_bursts_rollouts_and_scale_downs_together_stay_within_one(scene: Scene) -> None:
    """A burst of 500, one of 200, a rollout of 60 and a scale-down from 150 to 20, at once."""
    world, _ = scene
    world.create(workload("Deployment", "rolling", 60))
    world.create(workload("Deployment", "shrinking", 150))
    world.rest("rolling")
    world.rest("shrinking")
    world.create(workload("Deployment", "large", 500))
    world.create(workload("Deployment", "small", 200))
    world.roll_out("rolling")
    world.scale("shrinking", 20)
    for name in ("large", "small", "rolling", "shrinking"):
        status = world.rest(name)
        assert is_safe(status), f"{name}: {status.actual}, wanted {status.wanted}, missed {status.missed}"
    assert world.events("FailedCreate") == []
    for name in ("large", "small", "rolling", "shrinking"):
        world.delete("Deployment", name)
    wait_for("the pods to go", lambda: not world.client.get_json(world.pods_path)["items"])


def test_a_walk_of_sizes_with_a_rollout_and_deletions_stays_within_one(scene: Scene) -> None:
    """Replicas change every quarter of a second, pods are deleted, a rollout runs; at rest the mix is right."""
    world, _ = scene
    chance = random.Random(5)
    world.create(workload("Deployment", "walk", 20))
    world.rest("walk")
    for step in range(24):
        world.scale("walk", chance.randint(1, 60))
        if step == 12:
            world.roll_out("walk")
        for pod in chance.sample(pods := world.pods("walk"), min(2, len(pods))):
            world.delete_pod(pod["metadata"]["name"])
        time.sleep(0.25)  # the pace of the walk, not a wait
    status = world.rest("walk")
    assert is_safe(status), f"{status.actual}, wanted {status.wanted}"
    world.delete("Deployment", "walk")


def test_a_replica_that_is_stopped_misses_no_pod(scene: Scene) -> None:
    """SIGTERM of one under a burst of 400, and another joins: every pod is placed, and the mix is right."""
    world, installed = scene
    leaving = next(each for each in installed.processes if each.process.poll() is None)
    world.create(workload("Deployment", "burst", 400))
    wait_for("the burst to begin", lambda: len(world.pods("burst")) > 40)
    leaving.process.terminate()
    joining = installed.add()
    status = world.rest("burst")
    assert is_safe(status), f"{status.actual}, wanted {status.wanted}, missed {status.missed}"
    wait_until_ready([joining])
    assert leaving.process.wait(30) == 0
    world.delete("Deployment", "burst")
