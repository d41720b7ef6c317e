"""The contract of who writes to pods: the simulation's writer and the real one, on a real API server, answer alike.

Every test runs twice. So what the simulation proves about moves holds for the real API as far as this contract goes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pytest

from kube.client import Client, connect
from kube.errors import NotFound
from kube.podwriter import PodWriter
from kube.resources import PODS_IN_FULL
from localcluster import LocalCluster
from placement import names
from placement.model import Budget, Class, Key, Owner, Pod
from placement.outcome import Outcome
from rebalancer.executor import Writer
from tests.rebalancer.rebalancing import Rebalancer
from tests.rebalancer.simulation import NEEDS, Cluster, Facts

# Stands in for a ReplicaSet: of the same group, and no controller acts on it while the test writes.
SET_KIND = "ControllerRevision"
LABELS = {"app": "web", names.POD_TEMPLATE_HASH: "abc"}
Changes = tuple[dict[str, str | None], dict[str, str | None]]  # of annotations and labels
RELEASE: Changes = ({names.RELEASED: "2030-01-01T00:00:00Z/abc"}, {names.POD_TEMPLATE_HASH: "released-abc"})
UNDO: Changes = ({names.RELEASED: None}, {names.POD_TEMPLATE_HASH: "abc"})


class Bench(Protocol):
    """A writer, and a cluster that it writes to."""

    @property
    def writer(self) -> Writer: ...
    @property
    def owner(self) -> Owner:
        """Of the pods that are created."""
        ...

    @property
    def deployment(self) -> Owner: ...
    def create(self, name: str = "a", *, on_node: bool = True, node_is_there: bool = True) -> Pod:
        """One with a node runs and is ready."""
        ...

    def read(self, pod: Pod) -> Pod | None: ...
    def budget(self, name: str) -> None:
        """That allows no disruption of any pod."""
        ...


# --- the two ---------------------------------------------------------------------------------------------------------


class SimulatedBench:
    def __init__(self) -> None:
        self._cluster = Cluster()
        self._cluster.opt_in("shop")
        self._node = self._cluster.add_node(Class.SPOT).name
        self.writer: Writer = Rebalancer(self._cluster)
        self.owner = Owner(SET_KIND, "web-abc", "set-uid")
        self.deployment = Owner("Deployment", "web", "deployment-uid")

    def create(self, name: str = "a", *, on_node: bool = True, node_is_there: bool = True) -> Pod:
        node = (self._node if node_is_there else "nowhere") if on_node else ""
        pod = Pod(
            "shop",
            name,
            f"{name}-uid",
            owner=self.owner,
            node=node,
            ready=on_node,
            phase="Running" if on_node else "Pending",
            labels=LABELS,
            decision=f"{self.owner.uid}/1",
            needs=NEEDS,
        )
        self._cluster.facts[pod.uid] = Facts()
        self._cluster.put(pod)
        return pod

    def read(self, pod: Pod) -> Pod | None:
        return self._cluster.pod(pod.key, pod.uid)

    def budget(self, name: str) -> None:
        self._cluster.put(Budget("shop", name, selector={"matchLabels": {"app": "web"}}, min_available=9, settled=True))


@dataclass
class RealBench:
    client: Client
    namespace: str
    node: str
    owner: Owner
    deployment: Owner

    @property
    def writer(self) -> Writer:
        return PodWriter(self.client)

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def create(self, name: str = "a", *, on_node: bool = True, node_is_there: bool = True) -> Pod:
        node = {"nodeName": self.node if node_is_there else f"not-in-{self.namespace}"} if on_node else {}
        owner = {"kind": self.owner.kind, "name": self.owner.name, "uid": self.owner.uid}
        metadata = {
            "name": name,
            "labels": LABELS,
            "annotations": {names.DECISION: f"{self.owner.uid}/1"},
            "ownerReferences": [{"apiVersion": "apps/v1", "controller": True, **owner}],
        }
        spec = {
            "containers": [{"name": "app", "image": "app"}],
            "schedulerName": "nobody",
            "terminationGracePeriodSeconds": 0,
            **node,
        }
        self.client.post(self._pods, {"metadata": metadata, "spec": spec})
        if on_node:
            ready = [{"type": "Ready", "status": "True"}]
            self.client.patch(f"{self._pods}/{name}/status", {"status": {"phase": "Running", "conditions": ready}})
        return PODS_IN_FULL.shape.single(self.client.get(f"{self._pods}/{name}"))

    def read(self, pod: Pod) -> Pod | None:
        try:
            return PODS_IN_FULL.shape.single(self.client.get(f"{self._pods}/{pod.name}"))
        except NotFound:
            return None

    def budget(self, name: str) -> None:
        spec = {"minAvailable": 9, "selector": {"matchLabels": {"app": "web"}}}
        path = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        self.client.post(path, {"apiVersion": "policy/v1", "metadata": {"name": name}, "spec": spec})


def made_real(client: Client, namespace: str) -> RealBench:
    """The owners exist, else the garbage collector would take the pods."""
    node = client.get_json("/api/v1/nodes")["items"][0]["metadata"]["name"]
    labels, path = {"app": "none"}, f"/apis/apps/v1/namespaces/{namespace}"
    revision = client.post(f"{path}/controllerrevisions", {"metadata": {"name": "web-abc"}, "revision": 1, "data": {}})
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}}
    spec = {"replicas": 0, "selector": {"matchLabels": labels}, "template": template}
    deployment = client.post(f"{path}/deployments", {"metadata": {"name": "web"}, "spec": spec})
    owner = Owner(SET_KIND, "web-abc", revision["metadata"]["uid"])
    return RealBench(client, namespace, node, owner, Owner("Deployment", "web", deployment["metadata"]["uid"]))


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.cluster)])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    if request.param == "simulated":
        yield SimulatedBench()
        return
    cluster: LocalCluster = request.getfixturevalue("cluster")
    with closing(connect(cluster.kubeconfig, user_agent="spotweave-tests")) as client:
        yield made_real(client, request.getfixturevalue("namespace"))


def is_ending(bench: Bench, pod: Pod) -> bool:
    found = bench.read(pod)
    return found is None or found.terminating


# --- what is not there -----------------------------------------------------------------------------------------------


def test_a_pod_that_is_not_there_is_gone(bench: Bench) -> None:
    writer, key = bench.writer, Key(bench.create().namespace, "never")
    never = replace(bench.create("b"), name="never", uid="never-uid")
    outcomes = [
        writer.annotate(key, "u", {names.SLOT: "1"}),
        writer.evict(key, "u"),
        writer.evict_waiting(key, "u"),
        writer.evict_replaced(key, "u"),
        writer.delete(key, "u"),
        writer.fail_lost(key, "u", "why"),
        writer.hand_over(never, bench.deployment, *RELEASE),
    ]
    assert outcomes == [Outcome.GONE] * len(outcomes)


def test_a_successor_under_the_same_name_is_left_alone(bench: Bench) -> None:
    pod = bench.create(node_is_there=False)
    writer, other = bench.writer, replace(pod, uid="another")
    outcomes = [
        writer.annotate(pod.key, "another", {names.SLOT: "1"}),
        writer.evict(pod.key, "another"),
        writer.delete(pod.key, "another"),
        writer.fail_lost(pod.key, "another", "why"),
    ]
    assert outcomes == [Outcome.GONE] * 4
    assert writer.hand_over(other, bench.deployment, *RELEASE) in (Outcome.GONE, Outcome.BUSY)
    assert bench.read(pod) == pod


# --- notes -----------------------------------------------------------------------------------------------------------


def test_annotations_and_labels_are_written_and_removed_and_others_stay(bench: Bench) -> None:
    pod = bench.create()
    first = bench.writer.annotate(pod.key, pod.uid, {names.SLOT: "3", names.MOVED: "x"}, {names.CLASS: "spot"})
    second = bench.writer.annotate(pod.key, pod.uid, {names.MOVED: None}, {names.CLASS: None})
    assert (first, second) == (Outcome.DONE, Outcome.DONE)
    found = bench.read(pod)
    assert found is not None
    assert (found.annotations, found.labels, found.decision) == ({names.SLOT: "3"}, pod.labels, pod.decision)


# --- releases --------------------------------------------------------------------------------------------------------


def test_a_release_and_its_undo_change_owner_label_and_note_together(bench: Bench) -> None:
    pod = bench.create()
    assert bench.writer.hand_over(pod, bench.deployment, *RELEASE) is Outcome.DONE
    released = bench.read(pod)
    assert released is not None
    assert released.is_released
    assert released.owner is not None
    assert (released.owner.kind, released.owner.uid) == (bench.deployment.kind, bench.deployment.uid)
    assert bench.writer.hand_over(released, bench.owner, *UNDO) is Outcome.DONE
    undone = bench.read(pod)
    assert undone is not None
    assert undone.owner is not None
    assert (undone.owner.uid, undone.labels, undone.annotations) == (bench.owner.uid, pod.labels, pod.annotations)


def test_a_patch_made_for_another_state_of_the_pod_changes_nothing(bench: Bench) -> None:
    """The pod as it was planned for was released meanwhile, or put back."""
    pod = bench.create()
    assert bench.writer.hand_over(pod, bench.deployment, *RELEASE) is Outcome.DONE
    released = bench.read(pod)
    assert released is not None
    assert bench.writer.hand_over(pod, bench.deployment, *RELEASE) is Outcome.BUSY
    now = bench.read(pod)
    assert now is not None
    assert (now.owner, now.labels, now.annotations) == (released.owner, released.labels, released.annotations)
    assert bench.writer.hand_over(released, bench.owner, *UNDO) is Outcome.DONE
    assert bench.writer.hand_over(released, bench.owner, *UNDO) is Outcome.BUSY


# --- ends ------------------------------------------------------------------------------------------------------------


def test_an_eviction_and_a_deletion_end_a_pod(bench: Bench) -> None:
    one, other = bench.create("one"), bench.create("other")
    assert bench.writer.evict(one.key, one.uid) is Outcome.DONE
    assert bench.writer.hand_over(other, bench.deployment, *RELEASE) is Outcome.DONE
    assert bench.writer.delete(other.key, other.uid) is Outcome.DONE
    assert is_ending(bench, one)
    assert is_ending(bench, other)


def test_a_budget_blocks_and_two_of_them_make_it_impossible(bench: Bench) -> None:
    pod = bench.create()
    bench.budget("one")
    assert bench.writer.evict(pod.key, pod.uid) is Outcome.BLOCKED
    bench.budget("two")
    assert bench.writer.evict(pod.key, pod.uid) is Outcome.IMPOSSIBLE
    assert not is_ending(bench, pod)


def test_no_budget_keeps_a_pod_that_waits_for_a_node(bench: Bench) -> None:
    waiting, placed = bench.create("waiting", on_node=False), bench.create("placed")
    bench.budget("one")
    assert bench.writer.evict_waiting(placed.key, placed.uid) is Outcome.BUSY
    assert bench.writer.evict_waiting(waiting.key, waiting.uid) is Outcome.DONE
    assert is_ending(bench, waiting)
    assert not is_ending(bench, placed)


def test_only_a_released_pod_is_evicted_as_replaced(bench: Bench) -> None:
    """It may have been put back a moment ago."""
    pod = bench.create()
    assert bench.writer.evict_replaced(pod.key, pod.uid) is Outcome.BUSY
    assert bench.writer.hand_over(pod, bench.deployment, *RELEASE) is Outcome.DONE
    assert bench.writer.evict_replaced(pod.key, pod.uid) is Outcome.DONE
    assert is_ending(bench, pod)


LOST: dict[str, tuple[dict[str, Any], Outcome]] = {
    "its node is gone": ({"node_is_there": False}, Outcome.DONE),
    "its node is there": ({}, Outcome.BUSY),
    "it waits for one": ({"on_node": False}, Outcome.BUSY),
}


@pytest.mark.parametrize(("made", "expected"), LOST.values(), ids=LOST.keys())
def test_only_a_pod_whose_node_is_gone_is_lost(bench: Bench, made: dict[str, Any], expected: Outcome) -> None:
    pod = bench.create(**made)
    assert bench.writer.fail_lost(pod.key, pod.uid, "why") is expected
    assert is_ending(bench, pod) is (expected is Outcome.DONE)
