"""What an informer has seen, for many threads to read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Generic, Protocol, TypeVar

from placement.model import Key


class Keyed(Protocol):
    """Whatever says where it is found."""

    @property
    def key(self) -> Key: ...


T = TypeVar("T", bound=Keyed)
Subscriber = Callable[[T | None, T | None], None]
Reuse = Callable[[T, T], T]  # the former and the new one → the new one, as it is kept
_Objects = dict[str, dict[str, T]]  # by namespace and name, which objects have anyhow: a key for each takes 64 bytes


class Store(Generic[T]):
    """A thread-safe map from key to object.

    One thread writes, any thread reads. Subscribers hear of every difference, `(old, new)`, in the writer's thread
    after the store has changed: `(None, new)` for an addition, `(old, None)` for a removal. An object that is written
    again unchanged is no difference. They must be quick and must not raise.
    """

    def __init__(self, reuse: Reuse[T] = lambda _old, new: new) -> None:
        self._reuse = reuse
        self._lock = threading.Lock()
        self._objects: _Objects[T] = {}
        self._subscribers: tuple[Subscriber[T], ...] = ()

    def __len__(self) -> int:
        with self._lock:
            return sum(map(len, self._objects.values()))

    def get(self, key: Key) -> T | None:
        return _found(self._objects, key)

    def values(self) -> tuple[T, ...]:
        with self._lock:
            return tuple(_all_of(self._objects))

    def within(self, namespace: str) -> tuple[T, ...]:
        """Those of one namespace."""
        with self._lock:
            return tuple(self._objects.get(namespace, {}).values())

    def subscribe(self, subscriber: Subscriber[T]) -> None:
        """Call it for every difference from now on. What is there already is not repeated."""
        with self._lock:
            self._subscribers = (*self._subscribers, subscriber)

    def put(self, new: T) -> None:
        key = new.key
        with self._lock:
            old = _found(self._objects, key)
            if old == new:
                return
            if old is not None:
                new = self._reuse(old, new)
            self._objects.setdefault(key.namespace, {})[key.name] = new
        self._tell(old, new)

    def remove(self, key: Key) -> None:
        with self._lock:
            old = _found(self._objects, key)
            if old is None:
                return
            del self._objects[key.namespace][key.name]
            if not self._objects[key.namespace]:
                del self._objects[key.namespace]
        self._tell(old, None)

    def replace(self, objects: Iterable[T]) -> None:
        """Make these the whole content, and report the differences: removed objects first, then the rest.

        `objects` may be a generator that still reads from the network: if it raises, nothing has changed. Objects that
        are equal to what is held are dropped for that, so a relist needs little memory.
        """
        held = self._objects
        fresh: _Objects[T] = {}
        for new in objects:
            key = new.key
            old = _found(held, key)
            if old is not None:
                new = old if old == new else self._reuse(old, new)
            fresh.setdefault(key.namespace, {})[key.name] = new
        with self._lock:
            self._objects = fresh
        self._tell_all(held, fresh)

    def _tell_all(self, held: _Objects[T], fresh: _Objects[T]) -> None:
        for old in _all_of(held):
            if _found(fresh, old.key) is None:
                self._tell(old, None)
        for new in _all_of(fresh):
            before = _found(held, new.key) if held else None
            if before is not new:
                self._tell(before, new)

    def _tell(self, old: T | None, new: T | None) -> None:
        for subscriber in self._subscribers:
            subscriber(old, new)


def _found(objects: _Objects[T], key: Key) -> T | None:
    there = objects.get(key.namespace)
    return None if there is None else there.get(key.name)


def _all_of(objects: _Objects[T]) -> Iterator[T]:
    return chain.from_iterable(each.values() for each in objects.values())
