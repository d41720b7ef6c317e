"""A drill tells beforehand what a real loss then does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from cli.main import main
from localcluster import Choice, LocalCluster, Way
from placement import names
from tests.cluster.world import World, workload

pytestmark = pytest.mark.cluster

LOSSES: dict[str, tuple[str, Choice]] = {
    "a pool": ("pool=zone-a/m5.2xlarge", Choice(pool="spot-a-m5")),
    "a zone": ("zone=zone-b", Choice(zone="zone-b")),
    "all spot": ("spot", Choice(all_spot=True)),
}


@pytest.fixture
def restored(cluster: LocalCluster) -> Iterator[LocalCluster]:
    yield cluster
    cluster.restore()


@pytest.mark.parametrize(("target", "choice"), LOSSES.values(), ids=LOSSES.keys())
def test_replicas_lost_are_those_that_the_drill_told(
    world: World, restored: LocalCluster, target: str, choice: Choice, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pods that were ready, counted on the nodes that are gone, for each workload."""
    for name, replicas, settings in (("web", 12, {names.MIN_AVAILABLE: "12"}), ("some", 5, {})):
        world.create(workload("Deployment", name, replicas, settings))
    world.create(workload("StatefulSet", "store", 4))
    for name, kind in (("web", "Deployment"), ("some", "Deployment"), ("store", "StatefulSet")):
        world.rest(name, kind)
    place = {pod["metadata"]["name"]: pod for pod in world.client.get_json(world.pods_path)["items"]}
    capsys.readouterr()
    arguments = ["drill", target, "-n", world.namespace, "-o", "json", "--kubeconfig", str(world.kubeconfig)]
    code = main(arguments)
    told = json.loads(capsys.readouterr().out)
    restored.reclaim(choice, Way.CLOUD)
    left = {node["metadata"]["name"] for node in world.client.get_json("/api/v1/nodes")["items"]}
    gone = [pod for pod in place.values() if pod["spec"]["nodeName"] not in left]
    assert {each["name"]: each["lost"] for each in told["workloads"]} == Counter(
        pod["metadata"]["labels"]["app"] for pod in gone
    )
    assert {pod["spec"]["nodeName"] for pod in gone} <= set(told["nodes"])
    assert set(told["nodes"]).isdisjoint(left)
    assert code == 1  # of twelve all must serve
