"""What an informer has seen, for many threads to read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Generic, Protocol, TypeVar

from placement.model import Key


class Keyed(Protocol):
    """Whatever says where it is found."""

    @property
    def key(self) -> Key: ...


T = TypeVar("T", bound=Keyed)
Index = Callable[[T], Hashable | None]
Subscriber = Callable[[T | None, T | None], None]
_Buckets = dict[str, dict[Hashable, dict[Key, T]]]


class Store(Generic[T]):
    """A thread-safe map from key to object, with named indexes.

    One thread writes, any thread reads. An index maps an object to a value, or to None if it is not to be found by
    it. Subscribers hear of every difference, `(old, new)`, in the writer's thread after the store has changed: `(None,
    new)` for an addition, `(old, None)` for a removal. An object that is written again unchanged is no difference.
    They must be quick and must not raise.
    """

    def __init__(self, indexes: Mapping[str, Index[T]] | None = None) -> None:
        self._indexes = dict(indexes or {})
        self._lock = threading.Lock()
        self._objects: dict[Key, T] = {}
        self._buckets: _Buckets[T] = {name: {} for name in self._indexes}
        self._subscribers: tuple[Subscriber[T], ...] = ()

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, key: Key) -> T | None:
        return self._objects.get(key)

    def values(self) -> tuple[T, ...]:
        with self._lock:
            return tuple(self._objects.values())

    def by(self, index: str, value: Hashable) -> tuple[T, ...]:
        """All objects for which the index gives this value."""
        with self._lock:
            bucket = self._buckets[index].get(value)
            return tuple(bucket.values()) if bucket is not None else ()

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Call it for every difference from now on. What is there already is not repeated."""
        with self._lock:
            self._subscribers = (*self._subscribers, subscriber)

    def put(self, new: T) -> None:
        key = new.key
        with self._lock:
            old = self._objects.get(key)
            if old == new:
                return
            self._objects[key] = new
            self._unfile(key, old)
            _file(self._indexes, self._buckets, key, new)
        self._tell(old, new)

    def remove(self, key: Key) -> None:
        with self._lock:
            old = self._objects.pop(key, None)
            self._unfile(key, old)
        if old is not None:
            self._tell(old, None)

    def replace(self, objects: Iterable[T]) -> None:
        """Make these the whole content, and tell the differences: what vanished first, then the rest.

        `objects` may be a generator that still reads from the network: if it raises, nothing has changed. Objects that
        are equal to what is held are dropped for that, so a relist needs little memory.
        """
        held = self._objects
        fresh: dict[Key, T] = {}
        for new in objects:
            key = new.key
            old = held.get(key)
            fresh[key] = old if old is not None and old == new else new
        buckets: _Buckets[T] = {name: {} for name in self._indexes}
        for key, new in fresh.items():
            _file(self._indexes, buckets, key, new)
        with self._lock:
            self._objects, self._buckets = fresh, buckets
        self._tell_all(held, fresh)

    def _tell_all(self, held: dict[Key, T], fresh: dict[Key, T]) -> None:
        for key, old in held.items():
            if key not in fresh:
                self._tell(old, None)
        for key, new in fresh.items():
            before = held.get(key)
            if before is not new:
                self._tell(before, new)

    def _tell(self, old: T | None, new: T | None) -> None:
        for subscriber in self._subscribers:
            subscriber(old, new)

    def _unfile(self, key: Key, old: T | None) -> None:
        if old is None:
            return
        for name, index in self._indexes.items():
            value = index(old)
            bucket = self._buckets[name].get(value)
            if bucket is None:
                continue
            bucket.pop(key, None)
            if not bucket:
                del self._buckets[name][value]


def _file(indexes: Mapping[str, Index[T]], buckets: _Buckets[T], key: Key, new: T) -> None:
    for name, index in indexes.items():
        value = index(new)
        if value is not None:
            buckets[name].setdefault(value, {})[key] = new
