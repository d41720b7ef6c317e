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
from placement.model import Class, Key, Owner, Pod
from placement.outcome import Outcome
from rebalancer.executor import Writer
from tests.builders.api import raw_budget, raw_owner, raw_pod_spec, raw_template, raw_workload
from tests.builders.model import budget, pod
from tests.rebalancer.rebalancing import SimulatedRebalancer
from tests.rebalancer.simulation import POD_NEEDS, PodFacts, SimulatedCluster

# Stands in for a ReplicaSet: of the same group, and no controller acts on it while the test writes.
SET_KIND = "ControllerRevision"
LABELS = {"app": "web", names.POD_TEMPLATE_HASH: "abc"}
Changes = tuple[dict[str, str | None], dict[str, str | None]]  # of annotations and labels
RELEASE: Changes = ({names.RELEASED: "2030-01-01T00:00:00Z/abc"}, {names.POD_TEMPLATE_HASH: "released-abc"})
UNDO: Changes = ({names.RELEASED: None}, {names.POD_TEMPLATE_HASH: "abc"})


class WriterSetup(Protocol):
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


class SimulatedWriterSetup:
    def __init__(self) -> None:
        self._cluster = SimulatedCluster()
        self._cluster.opt_in("shop")
        self._node = self._cluster.add_node(Class.SPOT).name
        self.writer: Writer = SimulatedRebalancer(self._cluster)
        self.owner = Owner(SET_KIND, "web-abc", "set-uid")
        self.deployment = Owner("Deployment", "web", "deployment-uid")

    def create(self, name: str = "a", *, on_node: bool = True, node_is_there: bool = True) -> Pod:
        node = (self._node if node_is_there else "nowhere") if on_node else ""
        decision = f"{self.owner.uid}/1"
        made = pod(name, None, node, self.owner, uid=f"{name}-uid", labels=LABELS, decision=decision, needs=POD_NEEDS)
        self._cluster.facts[made.uid] = PodFacts()
        self._cluster.put(made)
        return made

    def read(self, pod: Pod) -> Pod | None:
        return self._cluster.pod(pod.key, pod.uid)

    def budget(self, name: str) -> None:
        self._cluster.put(budget(name, selector={"matchLabels": {"app": "web"}}, min_available=9, settled=True))


@dataclass
class RealWriterSetup:
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
        metadata = {
            "name": name,
            "labels": LABELS,
            "annotations": {names.DECISION: f"{self.owner.uid}/1"},
            "ownerReferences": [raw_owner(self.owner)],
        }
        spec = raw_pod_spec(schedulerName="nobody", terminationGracePeriodSeconds=0, **node)
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
        path = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets"
        self.client.post(path, raw_budget(name, "web", minAvailable=9))


def made_real(client: Client, namespace: str) -> RealWriterSetup:
    """The owners exist, else the garbage collector would take the pods."""
    node = client.get_json("/api/v1/nodes")["items"][0]["metadata"]["name"]
    labels, path = {"app": "none"}, f"/apis/apps/v1/namespaces/{namespace}"
    revision = client.post(f"{path}/controllerrevisions", {"metadata": {"name": "web-abc"}, "revision": 1, "data": {}})
    spec = {"selector": {"matchLabels": labels}, "template": raw_template("none")}
    deployment = client.post(f"{path}/deployments", raw_workload("Deployment", "web", 0, **spec))
    owner = Owner(SET_KIND, "web-abc", revision["metadata"]["uid"])
    return RealWriterSetup(client, namespace, node, owner, Owner("Deployment", "web", deployment["metadata"]["uid"]))


@pytest.fixture(params=["simulated", pytest.param("real", marks=pytest.mark.cluster)])
def setup(request: pytest.FixtureRequest) -> Iterator[WriterSetup]:
    if request.param == "simulated":
        yield SimulatedWriterSetup()
        return
    cluster: LocalCluster = request.getfixturevalue("cluster")
    with closing(connect(cluster.kubeconfig, user_agent="spotweave-tests")) as client:
        yield made_real(client, request.getfixturevalue("namespace"))


def is_ending(setup: WriterSetup, pod: Pod) -> bool:
    found = setup.read(pod)
    return found is None or found.terminating


# --- what is not there -----------------------------------------------------------------------------------------------


def test_a_pod_that_is_not_there_is_gone(setup: WriterSetup) -> None:
    writer, key = setup.writer, Key(setup.create().namespace, "never")
    never = replace(setup.create("b"), name="never", uid="never-uid")
    outcomes = [
        writer.annotate(key, "u", {names.SLOT: "1"}),
        writer.evict(key, "u"),
        writer.evict_waiting(key, "u"),
        writer.evict_replaced(key, "u"),
        writer.delete(key, "u"),
        writer.fail_lost(key, "u", "why"),
        writer.hand_over(never, setup.deployment, *RELEASE),
    ]
    assert outcomes == [Outcome.GONE] * len(outcomes)


def test_a_successor_under_the_same_name_is_left_alone(setup: WriterSetup) -> None:
    pod = setup.create(node_is_there=False)
    writer, other = setup.writer, replace(pod, uid="another")
    outcomes = [
        writer.annotate(pod.key, "another", {names.SLOT: "1"}),
        writer.evict(pod.key, "another"),
        writer.delete(pod.key, "another"),
        writer.fail_lost(pod.key, "another", "why"),
    ]
    assert outcomes == [Outcome.GONE] * 4
    assert writer.hand_over(other, setup.deployment, *RELEASE) in (Outcome.GONE, Outcome.BUSY)
    assert setup.read(pod) == pod


# --- notes -----------------------------------------------------------------------------------------------------------


def test_annotations_and_labels_are_written_and_removed_and_others_stay(setup: WriterSetup) -> None:
    pod = setup.create()
    first = setup.writer.annotate(pod.key, pod.uid, {names.SLOT: "3", names.MOVED: "x"}, {names.CLASS: "spot"})
    second = setup.writer.annotate(pod.key, pod.uid, {names.MOVED: None}, {names.CLASS: None})
    assert (first, second) == (Outcome.DONE, Outcome.DONE)
    found = setup.read(pod)
    assert found is not None
    assert (found.annotations, found.labels, found.decision) == ({names.SLOT: "3"}, pod.labels, pod.decision)


# --- releases --------------------------------------------------------------------------------------------------------


def test_a_release_and_its_undo_change_owner_label_and_note_together(setup: WriterSetup) -> None:
    pod = setup.create()
    assert setup.writer.hand_over(pod, setup.deployment, *RELEASE) is Outcome.DONE
    released = setup.read(pod)
    assert released is not None
    assert released.is_released
    assert released.owner is not None
    assert (released.owner.kind, released.owner.uid) == (setup.deployment.kind, setup.deployment.uid)
    assert setup.writer.hand_over(released, setup.owner, *UNDO) is Outcome.DONE
    undone = setup.read(pod)
    assert undone is not None
    assert undone.owner is not None
    assert (undone.owner.uid, undone.labels, undone.annotations) == (setup.owner.uid, pod.labels, pod.annotations)


def test_a_patch_made_for_another_state_of_the_pod_changes_nothing(setup: WriterSetup) -> None:
    """The pod as it was planned for was released meanwhile, or put back."""
    pod = setup.create()
    assert setup.writer.hand_over(pod, setup.deployment, *RELEASE) is Outcome.DONE
    released = setup.read(pod)
    assert released is not None
    assert setup.writer.hand_over(pod, setup.deployment, *RELEASE) is Outcome.BUSY
    now = setup.read(pod)
    assert now is not None
    assert (now.owner, now.labels, now.annotations) == (released.owner, released.labels, released.annotations)
    assert setup.writer.hand_over(released, setup.owner, *UNDO) is Outcome.DONE
    assert setup.writer.hand_over(released, setup.owner, *UNDO) is Outcome.BUSY


# --- ends ------------------------------------------------------------------------------------------------------------


def test_an_eviction_and_a_deletion_end_a_pod(setup: WriterSetup) -> None:
    one, other = setup.create("one"), setup.create("other")
    assert setup.writer.evict(one.key, one.uid) is Outcome.DONE
    assert setup.writer.hand_over(other, setup.deployment, *RELEASE) is Outcome.DONE
    assert setup.writer.delete(other.key, other.uid) is Outcome.DONE
    assert is_ending(setup, one)
    assert is_ending(setup, other)


def test_a_budget_blocks_and_two_of_them_make_it_impossible(setup: WriterSetup) -> None:
    pod = setup.create()
    setup.budget("one")
    assert setup.writer.evict(pod.key, pod.uid) is Outcome.BLOCKED
    setup.budget("two")
    assert setup.writer.evict(pod.key, pod.uid) is Outcome.IMPOSSIBLE
    assert not is_ending(setup, pod)


def test_no_budget_keeps_a_pod_that_waits_for_a_node(setup: WriterSetup) -> None:
    waiting, placed = setup.create("waiting", on_node=False), setup.create("placed")
    setup.budget("one")
    assert setup.writer.evict_waiting(placed.key, placed.uid) is Outcome.BUSY
    assert setup.writer.evict_waiting(waiting.key, waiting.uid) is Outcome.DONE
    assert is_ending(setup, waiting)
    assert not is_ending(setup, placed)


def test_only_a_released_pod_is_evicted_as_replaced(setup: WriterSetup) -> None:
    """It may have been put back a moment ago."""
    pod = setup.create()
    assert setup.writer.evict_replaced(pod.key, pod.uid) is Outcome.BUSY
    assert setup.writer.hand_over(pod, setup.deployment, *RELEASE) is Outcome.DONE
    assert setup.writer.evict_replaced(pod.key, pod.uid) is Outcome.DONE
    assert is_ending(setup, pod)


LOST: dict[str, tuple[dict[str, Any], Outcome]] = {
    "its node is gone": ({"node_is_there": False}, Outcome.DONE),
    "its node is there": ({}, Outcome.BUSY),
    "it waits for one": ({"on_node": False}, Outcome.BUSY),
}


@pytest.mark.parametrize(("made", "expected"), LOST.values(), ids=LOST.keys())
def test_only_a_pod_whose_node_is_gone_is_lost(setup: WriterSetup, made: dict[str, Any], expected: Outcome) -> None:
    pod = setup.create(**made)
    assert setup.writer.fail_lost(pod.key, pod.uid, "why") is expected
    assert is_ending(setup, pod) is (expected is Outcome.DONE)
