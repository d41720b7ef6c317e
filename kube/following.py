"""What a program follows: a store and an informer for each of its rows in the table of resources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, TypeVar

from kube.client import Client
from kube.informer import Informer, InformerSet
from kube.resources import Resource
from kube.store import Keyed, Store, Subscriber

T = TypeVar("T", bound=Keyed)


class Stores:
    """One store for each resource, found by its row."""

    def __init__(self, rows: Iterable[Resource[Any]]) -> None:
        self._by_row: dict[Resource[Any], Store[Any]] = {row: Store(row.reuse) for row in rows}

    def __iter__(self) -> Iterator[tuple[Resource[Any], Store[Any]]]:
        return iter(self._by_row.items())

    def of(self, resource: Resource[T]) -> Store[T]:
        """KeyError where the row is not among those that are followed: that is a mistake in the table."""
        return self._by_row[resource]

    def subscribe(self, subscriber: Subscriber[Any]) -> None:
        """To all facts about the cluster. Our own objects have readers of their own."""
        for resource, store in self:
            if not resource.is_ours:
                store.subscribe(subscriber)


class Followed:
    """The informers that keep the stores equal to the cluster."""

    def __init__(self, client: Client, rows: Iterable[Resource[Any]]) -> None:
        self.stores = Stores(rows)
        self._by_row = {row: Informer(client, row, store) for row, store in self.stores}
        self.awaited = InformerSet(each for row, each in self._by_row.items() if row.is_awaited)
        self._heard = InformerSet(each for row, each in self._by_row.items() if not row.is_awaited)

    def informer(self, resource: Resource[T]) -> Informer[T]:
        return self._by_row[resource]

    def missing(self) -> str | None:
        """What was not read yet and has to be, for people to read."""
        waiting = [informer.resource.name for informer in self.awaited if not informer.synced]
        return f"not synced: {', '.join(waiting)}" if waiting else None

    def start(self) -> None:
        self.awaited.start()
        self._heard.start()

    def stop(self) -> None:
        self._heard.stop()
        self.awaited.stop()
