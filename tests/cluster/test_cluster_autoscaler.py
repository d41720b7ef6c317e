"""Cluster Autoscaler's rules for a node that is one too many, played by the test: its program has no place to run here.

It taints the node, evicts all pods at once, tries each again every ten seconds, and gives up after two minutes. It
never touches a node with a pod whose controller it does not know, unless that pod says that it may be evicted.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kube.errors import NotFound, TooManyRequests
from placement import names
from tests.cluster.clustersetup import ClusterSetup, cluster_setup
from tests.cluster.namespaceuser import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

RETRY_SECONDS = 10.0
GIVES_UP_SECONDS = 120.0
KNOWN_CONTROLLERS = {"ReplicaSet", "StatefulSet", "Job", "ReplicationController", "DaemonSet"}
WORKLOADS = {"lone": 1, "web": 10}


@pytest.fixture(scope="module")
def shared_setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    with cluster_setup(tmp_path_factory.mktemp("config"), rebalancers=1) as made:
        yield made


def pods_on(setup: ClusterSetup, node: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = setup.user.client.get_json(
        setup.user.pods_path, {"fieldSelector": f"spec.nodeName={node}"}
    )["items"]
    return found


def is_replicated(pod: dict[str, Any]) -> bool:
    kinds = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", ()) if owner.get("controller")}
    return bool(kinds & KNOWN_CONTROLLERS) or pod["metadata"].get("annotations", {}).get(names.SAFE_TO_EVICT) == "true"


def evicted_in_time(setup: ClusterSetup, name: str) -> bool:
    deadline = time.monotonic() + GIVES_UP_SECONDS
    while time.monotonic() < deadline:
        try:
            setup.user.evict(name)
        except NotFound:
            return True
        except TooManyRequests:
            time.sleep(RETRY_SECONDS)  # its pace, not a wait
        else:
            return True
    return False


def test_a_node_that_is_one_too_many_is_emptied_in_time_and_costs_no_replica(setup: ClusterSetup) -> None:
    """Two of them, one after the other. At every moment each pod is one that may be evicted by its rules."""
    for name, replicas in WORKLOADS.items():
        setup.serves(name, replicas)
    setup.falls_silent(2)
    setup.history.forget()
    before = setup.let_through()
    strange: list[str] = []
    for app in WORKLOADS:
        node = setup.user.pods(app)[0]["spec"]["nodeName"]
        taint = {"key": names.SCALED_DOWN, "value": "1", "effect": "NoSchedule"}
        setup.user.client.patch(f"/api/v1/nodes/{node}", {"spec": {"taints": [taint]}})
        going = [pod["metadata"]["name"] for pod in pods_on(setup, node)]
        with ThreadPoolExecutor(len(going)) as pool:
            asked = [pool.submit(evicted_in_time, setup, name) for name in going]
            while not all(each.done() for each in asked):
                strange += [pod["metadata"]["name"] for pod in pods_on(setup, node) if not is_replicated(pod)]
                time.sleep(0.1)  # between two looks
        assert [each.result() for each in asked] == [True] * len(going)
        wait_for("the node to be empty", lambda: not pods_on(setup, node))  # noqa: B023
        setup.user.client.delete(f"/api/v1/nodes/{node}")
    assert strange == []
    missing = sum(replicas - setup.history.worst(name) for name, replicas in WORKLOADS.items())
    assert missing <= setup.let_through() - before
