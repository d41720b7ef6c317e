"""The stores that a rebalancer holds, filled by informers from a server or, without one, from memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.feed import pages
from benchmarks.synthetic import Size
from kube import resources
from kube.client import Client
from kube.informer import Informer, InformerSet
from kube.resources import Resource
from kube.snapshot import snapshot_of
from kube.store import Store
from placement.configuration import Configuration
from placement.model import Budget, Namespace, Node, Pod, Quota, ReplicaSet, Snapshot, Workload
from rebalancer.index import Index


@dataclass(frozen=True, slots=True)
class FilledStores:
    """One for each resource. The index has the indexes."""

    namespaces: Store[Namespace] = field(default_factory=Store)
    nodes: Store[Node] = field(default_factory=Store)
    deployments: Store[Workload] = field(default_factory=Store)
    stateful_sets: Store[Workload] = field(default_factory=Store)
    replica_sets: Store[ReplicaSet] = field(default_factory=Store)
    pods: Store[Pod] = field(default_factory=Store)
    budgets: Store[Budget] = field(default_factory=Store)
    quotas: Store[Quota] = field(default_factory=Store)

    def filled_by(self) -> tuple[tuple[Resource[Any], Store[Any]], ...]:
        return (
            (resources.NAMESPACES, self.namespaces),
            (resources.NODES, self.nodes),
            (resources.DEPLOYMENTS, self.deployments),
            (resources.STATEFUL_SETS, self.stateful_sets),
            (resources.REPLICA_SETS_IN_USE, self.replica_sets),
            (resources.PODS_IN_FULL, self.pods),
            (resources.BUDGETS, self.budgets),
            (resources.QUOTAS, self.quotas),
        )

    def informers(self, client: Client) -> InformerSet:
        return InformerSet(Informer(client, resource, store) for resource, store in self.filled_by())

    def snapshot(self) -> Snapshot:
        return snapshot_of(
            namespaces=self.namespaces,
            nodes=self.nodes,
            deployments=self.deployments,
            stateful_sets=self.stateful_sets,
            replica_sets=self.replica_sets,
            pods=self.pods,
            budgets=self.budgets,
            quotas=self.quotas,
        )

    def index(self) -> Index:
        """A rebalancer's index that follows them from now on."""
        index = Index(Configuration())
        for _, store in self.filled_by():
            store.subscribe(index.observe)
        return index


def index_in_memory(size: Size) -> tuple[FilledStores, Index]:
    """A whole cluster without a server, and a index that has heard of it."""
    stores = FilledStores()
    index = stores.index()
    for resource, store in stores.filled_by():
        store.replace(_objects(size, resource))
        index.drain()
    return stores, index


def _objects(size: Size, resource: Resource[Any]) -> Iterator[Any]:
    for body in pages(size, resource.name):
        yield from filter(resource.keeps, resource.shape.page(body).items)
