"""What is known of the cluster at one moment, for the command line: each resource of the table is listed once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, TypeVar

from kube.client import Client
from kube.errors import Gone
from kube.resources import RESOURCES, SNAPSHOT, Resource, pages, rows_of
from placement.model import Budget, Namespace, Node, Pod, Quota, ReplicaSet, Snapshot, Workload, with_drains

T = TypeVar("T")

STARTS = 3  # how often a list is restarted when its continue token expires


def read_snapshot(client: Client, rows: Iterable[Resource[Any]] = RESOURCES) -> Snapshot:
    """Lists everything once. Any list that fails raises: half a snapshot would look like a loss."""
    awaited = [row for row in rows_of(SNAPSHOT, rows) if row.is_awaited]
    return snapshot_from(fact for row in awaited for fact in read_all(client, row))


def snapshot_from(facts: Iterable[Any]) -> Snapshot:
    """Objects of any kinds, each in its place by its type."""
    of: dict[type, list[Any]] = {}
    for fact in facts:
        of.setdefault(type(fact), []).append(fact)
    pods = tuple(of.pop(Pod, ()))
    return Snapshot(
        namespaces={namespace.name: namespace for namespace in of.pop(Namespace, ())},
        nodes={node.name: node for node in with_drains(of.pop(Node, ()), pods)},
        workloads=tuple(of.pop(Workload, ())),
        replica_sets=tuple(of.pop(ReplicaSet, ())),
        pods=pods,
        budgets=tuple(of.pop(Budget, ())),
        quotas=tuple(of.pop(Quota, ())),
        others=tuple(chain.from_iterable(of.values())),
    )


def facts_of(snapshot: Snapshot) -> Iterator[Any]:
    """All of it, as an index hears it."""
    return chain(
        snapshot.namespaces.values(),
        snapshot.nodes.values(),
        snapshot.workloads,
        snapshot.replica_sets,
        snapshot.pods,
        snapshot.budgets,
        snapshot.quotas,
        snapshot.others,
    )


def read_all(client: Client, resource: Resource[T]) -> tuple[T, ...]:
    """All objects of a resource, as of one moment."""
    for _ in range(STARTS - 1):
        try:
            return _read_once(client, resource)
        except Gone:
            continue
    return _read_once(client, resource)


def _read_once(client: Client, resource: Resource[T]) -> tuple[T, ...]:
    return tuple(item for page in pages(client, resource) for item in page.items)
