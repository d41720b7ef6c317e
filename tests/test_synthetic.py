"""The synthetic cluster of the benchmarks is what it claims to be: else they would measure something else."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

from benchmarks.feed import changes
from benchmarks.stores import FilledStores, index_in_memory
from benchmarks.synthetic import PODS_PER_WORKLOAD, SLOTS, Size
from kube.resources import PODS_IN_FULL, node_name, owner_uid
from placement import names
from placement.model import Kind
from placement.slots import Mix

T = TypeVar("T")
SIZE = Size(nodes=200, workloads=400, old_revisions=2)


@pytest.fixture(scope="module")
def stores() -> FilledStores:
    return index_in_memory(SIZE)[0]


def grouped(objects: Iterable[T], key: Callable[[T], str | None]) -> dict[str | None, list[T]]:
    groups: dict[str | None, list[T]] = defaultdict(list)
    for each in objects:
        groups[key(each)].append(each)
    return groups


def test_everything_is_there_once(stores: FilledStores) -> None:
    """No two objects have one name, and none was left out because it does not decode; old revisions are not kept."""
    assert (len(stores.pods), len(stores.nodes), len(stores.namespaces)) == (6000, 200, 8)
    assert (len(stores.deployments), len(stores.stateful_sets), len(stores.replica_sets)) == (360, 40, 360)
    assert (len(stores.budgets), len(stores.quotas)) == (400, 8)


def test_every_workload_has_the_mix_that_it_should_have(stores: FilledStores) -> None:
    """There is nothing to do: pods run, ready, on nodes of the class of their slot; the others on on-demand."""
    snapshot = stores.snapshot()
    classes = {node.name: node.labels[names.CAPACITY] for node in snapshot.nodes.values()}
    owners = {each.uid: each.owner.uid for each in snapshot.replica_sets if each.owner is not None}
    found = Counter(
        (owners.get(pod.owner.uid, pod.owner.uid), classes[pod.node])
        for pod in snapshot.pods
        if pod.ready and pod.owner is not None
    )
    for workload in snapshot.workloads:
        opted_in = snapshot.namespaces[workload.namespace].is_opted_in
        wanted = SLOTS.mix(PODS_PER_WORKLOAD) if opted_in else Mix(0, PODS_PER_WORKLOAD)
        assert Mix(found[workload.uid, "spot"], found[workload.uid, "on-demand"]) == wanted


def test_pods_have_slots_where_they_are_placed(stores: FilledStores) -> None:
    """Each slot of a placed workload once; none elsewhere."""
    opted_in = {each.name for each in stores.namespaces.values() if each.is_opted_in}
    revisions, pods = grouped(stores.replica_sets.values(), owner_uid), grouped(stores.pods.values(), owner_uid)
    for workload in (*stores.deployments.values(), *stores.stateful_sets.values()):
        revision = workload.uid
        if workload.kind is Kind.DEPLOYMENT:
            (revision,) = (each.uid for each in revisions[workload.uid] if each.replicas)
        slots = [pod.slot for pod in pods[revision]]
        assert slots == (list(range(PODS_PER_WORKLOAD)) if workload.namespace in opted_in else [None] * 15)


def test_nodes_have_room_for_their_pods(stores: FilledStores) -> None:
    """In each resource, or the scheduler would not have put them there."""
    on_node = grouped(stores.pods.values(), node_name)
    for node in stores.nodes.values():
        pods = on_node[node.name]
        asked = sum((Counter(pod.needs.requests) for pod in pods), Counter({"pods": len(pods)}))
        assert all(amount <= node.allocatable[resource] for resource, amount in asked.items())


def test_changes_are_changes_of_pods_that_are_there(stores: FilledStores) -> None:
    """Each of another pod, and each a difference."""
    read = [PODS_IN_FULL.shape.event(line).item for line in changes(SIZE, 500)]
    assert len({pod.key for pod in read if pod is not None}) == 500
    for pod in read:
        assert pod is not None
        before = stores.pods.get(pod.key)
        assert before is not None
        assert (before.ready, pod.ready) == (True, False)
