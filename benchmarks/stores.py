"""The stores that a rebalancer holds, filled from memory without a server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.feed import pages
from benchmarks.synthetic import Size
from kube.following import Stores
from kube.resources import REBALANCER, Resource, rows_of
from placement.configuration import Configuration
from rebalancer.index import Index


def index_in_memory(size: Size, configuration: Configuration | None = None) -> tuple[Stores, Index]:
    """A whole cluster, and an index that has read it and follows its changes."""
    chosen = configuration or Configuration()
    stores, index = Stores(rows_of(REBALANCER)), Index(chosen)
    stores.subscribe(index.observe)
    for resource, store in stores:
        store.replace(_objects(size, resource))
        index.drain()
    return stores, index


def _objects(size: Size, resource: Resource[Any]) -> Iterator[Any]:
    for body in pages(size, resource.name):
        yield from filter(resource.keeps, resource.shape.page(body).items)
