"""The rebalancer on a real control plane: mixes stay right through everything, and nobody serves one replica less."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cli.run import Installed, running
from kube.client import connect
from localcluster import Choice, LocalCluster, Options, Way, demo_profile
from placement import names
from placement.status import WorkloadStatus
from tests.cluster.conftest import label
from tests.cluster.watcher import Watcher, watching
from tests.cluster.world import World, wait_for, workload

pytestmark = pytest.mark.cluster

CONFIGURATION = "moves: {minAge: 1s, coolDown: 2m, timeout: 60s}\n"
START_SECONDS = 2
PATIENCE_SECONDS = 120.0


@dataclass(frozen=True)
class Scene:
    """A cluster of its own with Spotweave on it, and somebody who counts serving replicas all the while."""

    cluster: LocalCluster
    installed: Installed
    world: World
    watcher: Watcher

    def serves(self, name: str, replicas: int, annotations: dict[str, str] | None = None, **budget: Any) -> None:
        """A Deployment whose pods take a while to become ready, with a budget if one is given; waits for it."""
        self.create(name, replicas, annotations, **budget)
        self.world.rest(name)

    def create(self, name: str, replicas: int, annotations: dict[str, str] | None = None, **budget: Any) -> None:
        raw = workload("Deployment", name, replicas, annotations)
        ready_after = {"localcluster.spotweave.dev/ready-after": f"{START_SECONDS}s"}
        raw["spec"]["template"]["metadata"]["annotations"] = ready_after
        self.world.create(raw)
        if budget:
            self.world.client.post(
                f"/apis/policy/v1/namespaces/{self.world.namespace}/poddisruptionbudgets",
                {
                    "apiVersion": "policy/v1",
                    "kind": "PodDisruptionBudget",
                    "metadata": {"name": name},
                    "spec": {"selector": {"matchLabels": {"app": name}}, **budget},
                },
            )

    def annotate(self, name: str, **settings: str | None) -> None:
        written = {names.PREFIX + key.replace("_", "-"): value for key, value in settings.items()}
        self.world.client.patch(self.world.path("Deployment", name), {"metadata": {"annotations": written}})

    def settles(self, *apps: str) -> dict[str, WorkloadStatus]:
        """Waits until every mix is exact, no slot is doubled and nothing is released any more."""
        found: dict[str, WorkloadStatus] = {}

        def is_settled() -> bool:
            found.update({name: self.world.status(name) for name in apps})
            return all(map(self._is_settled, found.values()))

        wait_for(f"{apps} to settle", is_settled, PATIENCE_SECONDS)
        return found

    def _is_settled(self, status: WorkloadStatus) -> bool:
        replicas = status.workload.replicas
        live = [each for each in status.pods if each.pod.is_live]
        all_pods = self.world.pods(status.workload.name)
        return (
            status.is_exact
            and len(all_pods) == len(live) == replicas
            and sorted(each.pod.slot for each in live if each.pod.slot is not None) == list(range(replicas))
        )

    def serves_in_full(self, name: str, replicas: int) -> bool:
        return self.watcher.serving(name) >= replicas

    def moves(self) -> int:
        """How many releases and evictions there were."""
        prefix = f"{names.METRIC_ACTIONS}_total"
        lines = self.installed.metrics("rebalancer-0").splitlines()
        wanted = ('action="release"', 'action="evict"')
        found = [line for line in lines if line.startswith(prefix) and any(each in line for each in wanted)]
        return sum(int(float(line.rpartition(" ")[2])) for line in found if 'outcome="done"' in line)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    config = tmp_path_factory.mktemp("config") / "config.yaml"
    config.write_text(CONFIGURATION)
    options = Options(controller_qps=200, controller_burst=400)
    with (
        LocalCluster.start(demo_profile(), options=options) as cluster,
        running(cluster.kubeconfig, 2, config, log_level="info", rebalancers=1) as installed,
    ):
        client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
        client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        label(client, "shop")
        with watching(client) as watcher:
            yield Scene(cluster, installed, World(client, Path(cluster.kubeconfig), "shop"), watcher)
        client.close()


@pytest.fixture(autouse=True)
def nothing_left(scene: Scene) -> Iterator[None]:
    yield
    scene.cluster.restore()
    client, namespace = scene.world.client, scene.world.namespace
    client.delete(f"/apis/apps/v1/namespaces/{namespace}/deployments")
    client.delete(f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
    wait_for("the pods to go", lambda: not client.get_json(scene.world.pods_path)["items"])


def test_a_changed_ratio_costs_the_difference_and_no_serving_replica(scene: Scene) -> None:
    """70 → 30 → 90 % of 50 replicas under `minAvailable: 100%`: 20 and 30 moves; 50 serve all the while."""
    scene.serves("web", 50, minAvailable="100%")
    scene.settles("web")
    scene.watcher.forget()
    before = scene.moves()
    scene.annotate("web", spot_ratio="30%")
    scene.settles("web")
    assert scene.moves() - before == 20
    scene.annotate("web", spot_ratio="90%")
    scene.settles("web")
    assert scene.moves() - before == 50
    assert scene.watcher.worst("web") == 50


def test_a_lone_replica_on_the_wrong_class_is_moved_and_serves_all_the_while(scene: Scene) -> None:
    """Under `minAvailable: 1`, which a plain eviction cannot pass."""
    scene.serves("lone", 1, {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}, minAvailable=1)
    scene.watcher.forget()
    scene.annotate("lone", spot_ratio=None, min_on_demand=None)
    scene.settles("lone")
    assert scene.watcher.worst("lone") == 1


POLICIES: dict[str, tuple[int, dict[str, str], dict[str, Any]]] = {
    "plain": (10, {}, {}),
    "half": (8, {names.SPOT_RATIO: "50%"}, {}),
    "all": (6, {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}, {}),
    "none": (4, {names.SPOT_RATIO: "0"}, {}),
    "lone": (1, {}, {"minAvailable": 1}),
    "pair": (2, {}, {"minAvailable": 1}),
    "guarded": (10, {}, {"minAvailable": 9}),
    "strict": (5, {names.SPOT_RATIO: "80%"}, {"maxUnavailable": 0}),
    "floor": (9, {names.MIN_ON_DEMAND: "5"}, {"minAvailable": "50%"}),
    "wide": (30, {names.SPOT_RATIO: "90%"}, {"minAvailable": "100%"}),
}
REPLICAS = {name: replicas for name, (replicas, _, _) in POLICIES.items()}
NO_LOSS_ALLOWED = ("none", "lone", "strict", "wide")  # of these a drainer may take no replica that serves


def ten_workloads(scene: Scene) -> dict[str, WorkloadStatus]:
    for name, (replicas, settings, budget) in POLICIES.items():
        scene.create(name, replicas, settings, **budget)
    return scene.settles(*POLICIES)


def returns_to_spot(scene: Scene) -> None:
    """All mixes are exact again; nobody served one replica less, and no pod was moved twice."""
    scene.watcher.forget()
    before = scene.moves()
    astray = sum(each.wanted.spot - each.actual.spot for each in map(scene.world.status, POLICIES))
    scene.cluster.restore()
    scene.settles(*POLICIES)
    assert {name: scene.watcher.worst(name) for name in POLICIES} == REPLICAS
    assert scene.moves() - before <= astray


def test_all_spot_lost_and_back(scene: Scene) -> None:
    """Ten workloads of different policies: each serves again after its pods' start; back on spot, never one less."""
    at_first = ten_workloads(scene)
    scene.watcher.forget()
    scene.cluster.reclaim(Choice(all_spot=True), Way.CLOUD)
    gone_at = time.monotonic()
    for name, replicas in REPLICAS.items():
        wait_for(f"{name} to serve again", partial(scene.serves_in_full, name, replicas))
    for name, replicas in REPLICAS.items():
        assert scene.watcher.worst(name) >= replicas - at_first[name].actual.spot, name
        assert scene.watcher.worst_on_demand(name) >= at_first[name].actual.on_demand, name
    slowest = max(scene.watcher.full_since(name, replicas) for name, replicas in REPLICAS.items()) - gone_at
    print(f"all serve again {slowest:.1f} s after the loss; pods take {START_SECONDS} s to start")
    returns_to_spot(scene)


def test_all_spot_announced_and_back(scene: Scene) -> None:
    """With a notice and a foreign drainer: whose budget allows no loss never serves one replica less."""
    ten_workloads(scene)
    scene.watcher.forget()
    began = time.monotonic()
    reclaimed = scene.cluster.reclaim(Choice(all_spot=True), Way.CLOUD, notice_seconds=120)
    print(f"the nodes were empty after {time.monotonic() - began:.1f} s; pods take {START_SECONDS} s to start")
    assert reclaimed.left == ()
    assert {name: scene.watcher.worst(name) for name in NO_LOSS_ALLOWED} == {
        name: REPLICAS[name] for name in NO_LOSS_ALLOWED
    }
    for name, replicas in REPLICAS.items():
        wait_for(f"{name} to serve in full", partial(scene.serves_in_full, name, replicas))
    returns_to_spot(scene)


def test_a_node_that_is_registered_again_keeps_its_pods(scene: Scene) -> None:
    """Deleted without any sign, and back within ten seconds: nothing is touched."""
    scene.serves("web", 10)
    scene.settles("web")
    before = {pod["metadata"]["uid"] for pod in scene.world.pods("web")}
    moves = scene.moves()
    scene.cluster.reclaim(Choice(zone="zone-a", all_spot=True), Way.BARE)
    time.sleep(5)  # what it is about: a node that is gone for a while
    scene.cluster.restore()
    scene.settles("web")
    assert {pod["metadata"]["uid"] for pod in scene.world.pods("web")} == before
    assert scene.moves() == moves
