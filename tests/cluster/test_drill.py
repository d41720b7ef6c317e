"""A drill tells beforehand what a real loss then does."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pytest

from cli.main import main
from localcluster import Choice, LocalCluster, Way
from placement import names
from tests.builders.api import raw_workload
from tests.cluster.namespaceuser import NamespaceUser

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
    user: NamespaceUser, restored: LocalCluster, target: str, choice: Choice, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pods that were ready, counted on the nodes that are gone, for each workload."""
    for name, replicas, settings in (("web", 12, {names.MIN_AVAILABLE: "12"}), ("some", 5, {})):
        user.create(raw_workload("Deployment", name, replicas, settings))
    user.create(raw_workload("StatefulSet", "store", 4))
    for name, kind in (("web", "Deployment"), ("some", "Deployment"), ("store", "StatefulSet")):
        user.rest(name, kind)
    place = {pod["metadata"]["name"]: pod for pod in user.client.get_json(user.pods_path)["items"]}
    nodes = len(user.client.get_json("/api/v1/nodes")["items"])
    capsys.readouterr()
    arguments = ["drill", target, "-n", user.namespace, "-o", "json", "--kubeconfig", str(user.kubeconfig)]
    code = main(arguments)
    told = json.loads(capsys.readouterr().out)
    restored.reclaim(choice, Way.CLOUD)
    left = {node["metadata"]["name"] for node in user.client.get_json("/api/v1/nodes")["items"]}
    gone = [pod for pod in place.values() if pod["spec"]["nodeName"] not in left]
    assert {each["name"]: each["lost"] for each in told["losses"]} == Counter(
        pod["metadata"]["labels"]["app"] for pod in gone
    )
    assert (told["replicas"], told["nodes"]) == (len(gone), nodes - len(left))
    assert code == 1  # of twelve all must serve
