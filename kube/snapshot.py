"""What is known of the cluster at one moment: read once, for the command line, or taken from stores that follow it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from kube.client import Client
from kube.errors import Gone
from kube.resources import (
    BUDGETS,
    DEPLOYMENTS,
    NAMESPACES,
    NODES,
    PODS_IN_FULL,
    QUOTAS,
    REPLICA_SETS,
    STATEFUL_SETS,
    Resource,
    pages,
)
from kube.store import Store
from placement.model import Budget, Namespace, Node, Pod, Quota, ReplicaSet, Snapshot, Workload, with_drains

T = TypeVar("T")

STARTS = 3  # how often a list whose continue token expires is begun anew


def read_snapshot(client: Client) -> Snapshot:
    """Lists everything once. Any list that fails raises: half a snapshot would look like a loss."""
    return _snapshot(
        namespaces=read_all(client, NAMESPACES),
        nodes=read_all(client, NODES),
        workloads=(*read_all(client, DEPLOYMENTS), *read_all(client, STATEFUL_SETS)),
        replica_sets=read_all(client, REPLICA_SETS),
        pods=read_all(client, PODS_IN_FULL),
        budgets=read_all(client, BUDGETS),
        quotas=read_all(client, QUOTAS),
    )


def snapshot_of(
    *,
    namespaces: Store[Namespace],
    nodes: Store[Node],
    deployments: Store[Workload],
    stateful_sets: Store[Workload],
    replica_sets: Store[ReplicaSet],
    pods: Store[Pod],
    budgets: Store[Budget],
    quotas: Store[Quota],
) -> Snapshot:
    """What the stores hold now. Each is consistent in itself; they may be some milliseconds apart."""
    return _snapshot(
        namespaces=namespaces.values(),
        nodes=nodes.values(),
        workloads=(*deployments.values(), *stateful_sets.values()),
        replica_sets=replica_sets.values(),
        pods=pods.values(),
        budgets=budgets.values(),
        quotas=quotas.values(),
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


def _snapshot(
    namespaces: Iterable[Namespace],
    nodes: Iterable[Node],
    workloads: tuple[Workload, ...],
    replica_sets: tuple[ReplicaSet, ...],
    pods: tuple[Pod, ...],
    budgets: tuple[Budget, ...],
    quotas: tuple[Quota, ...],
) -> Snapshot:
    return Snapshot(
        namespaces={namespace.name: namespace for namespace in namespaces},
        nodes={node.name: node for node in with_drains(nodes, pods)},
        workloads=workloads,
        replica_sets=replica_sets,
        pods=pods,
        budgets=budgets,
        quotas=quotas,
    )
