"""The synthetic cluster of the benchmarks is what it claims to be: else they would measure something else."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TypeVar

import pytest

from benchmarks.feed import changes
from benchmarks.stores import index_in_memory
from benchmarks.synthetic import PODS_PER_WORKLOAD, SLOTS, Size
from kube.following import Stores
from kube.resources import (
    ATTACH_LIMITS,
    BUDGETS,
    CLAIMS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS_IN_FULL,
    QUOTAS,
    REPLICA_SETS_IN_USE,
    STATEFUL_SETS,
    VOLUMES,
)
from kube.snapshot import snapshot_from
from placement import names
from placement.model import Kind, Pod, ReplicaSet
from placement.plan.storage import claims_of, storage_in
from placement.slots import Mix

T = TypeVar("T")
SIZE = Size(nodes=200, workloads=400, old_revisions=2)


@pytest.fixture(scope="module")
def stores() -> Stores:
    return index_in_memory(SIZE)[0]


def grouped(objects: Iterable[T], key: Callable[[T], str | None]) -> dict[str | None, list[T]]:
    groups: dict[str | None, list[T]] = defaultdict(list)
    for each in objects:
        groups[key(each)].append(each)
    return groups


def owner_uid(owned: Pod | ReplicaSet) -> str | None:
    return owned.owner.uid if owned.owner is not None else None


def test_everything_is_there_once(stores: Stores) -> None:
    """No two objects have one name, and none was left out because it does not decode; old revisions are not kept."""
    counts = {resource: len(store) for resource, store in stores}
    assert (counts[PODS_IN_FULL], counts[NODES], counts[NAMESPACES]) == (6000, 200, 8)
    assert (counts[DEPLOYMENTS], counts[STATEFUL_SETS], counts[REPLICA_SETS_IN_USE]) == (360, 40, 360)
    assert (counts[BUDGETS], counts[QUOTAS]) == (400, 8)
    assert (counts[CLAIMS], counts[VOLUMES], counts[ATTACH_LIMITS]) == (600, 600, 200)


def test_every_pod_of_a_stateful_set_has_a_volume_that_its_node_can_use(stores: Stores) -> None:
    """So that the fit test finds it, and no pod is left out as not modelled."""
    facts = [fact for _, store in stores for fact in store.values()]
    storage, nodes = storage_in(facts), {node.name: node for node in stores.of(NODES).values()}
    claiming = [pod for pod in stores.of(PODS_IN_FULL).values() if pod.needs.claims]
    assert len(claiming) == 600
    for pod in claiming:
        (key,) = claims_of(pod)
        ((zone,),) = storage.volumes[storage.claims[key].volume].terms
        assert zone.allows(nodes[pod.node].labels[names.ZONE])


def test_every_workload_has_the_mix_that_it_should_have(stores: Stores) -> None:
    """There is nothing to do: pods run, ready, on nodes of the class of their slot; the others on on-demand."""
    snapshot = snapshot_from(fact for _, store in stores for fact in store.values())
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


def test_pods_have_slots_where_they_are_placed(stores: Stores) -> None:
    """Each slot of a placed workload once; none elsewhere."""
    opted_in = {each.name for each in stores.of(NAMESPACES).values() if each.is_opted_in}
    revisions = grouped(stores.of(REPLICA_SETS_IN_USE).values(), owner_uid)
    pods = grouped(stores.of(PODS_IN_FULL).values(), owner_uid)
    for workload in (*stores.of(DEPLOYMENTS).values(), *stores.of(STATEFUL_SETS).values()):
        revision = workload.uid
        if workload.kind is Kind.DEPLOYMENT:
            (revision,) = (each.uid for each in revisions[workload.uid] if each.replicas)
        slots = [pod.slot for pod in pods[revision]]
        assert slots == (list(range(PODS_PER_WORKLOAD)) if workload.namespace in opted_in else [None] * 15)


def test_nodes_have_room_for_their_pods(stores: Stores) -> None:
    """In each resource, or the scheduler would not have put them there."""
    on_node = grouped(stores.of(PODS_IN_FULL).values(), lambda pod: pod.node)
    for node in stores.of(NODES).values():
        pods = on_node[node.name]
        asked = sum((Counter(pod.needs.requests) for pod in pods), Counter({"pods": len(pods)}))
        assert all(amount <= node.allocatable[resource] for resource, amount in asked.items())


def test_changes_are_changes_of_pods_that_are_there(stores: Stores) -> None:
    """Each of another pod, and each a difference."""
    read = [PODS_IN_FULL.shape.event(line).item for line in changes(SIZE, 500)]
    assert len({pod.key for pod in read if pod is not None}) == 500
    for pod in read:
        assert pod is not None
        before = stores.of(PODS_IN_FULL).get(pod.key)
        assert before is not None
        assert (before.ready, pod.ready) == (True, False)
