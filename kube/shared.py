"""One object for many equal ones: what keeps a cache of 150,000 pods small."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from msgspec import Raw

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

SHARED = 8192  # distinct values kept per table and generation; lists come sorted, so siblings are neighbours


class Kept(Generic[K, V]):
    """What was used of late.

    Two generations bound it: when the young one is full it becomes the old one, and what is still asked for moves
    back.
    """

    def __init__(self, limit: int = SHARED) -> None:
        self._limit = limit
        self._young: dict[K, V] = {}
        self._old: dict[K, V] = {}

    def get(self, key: K, build: Callable[[], V]) -> V:
        """What is kept for the key; built if there is nothing."""
        young, old = self._young, self._old
        if key in young:
            return young[key]
        value = old[key] if key in old else build()
        if len(young) >= self._limit:
            self._old, self._young = young, {}
        self._young[key] = value
        return value

    def __len__(self) -> int:
        return len(self._young) + len(self._old)


class Shared(Kept[bytes, V]):
    """One value for equal JSON, so that siblings share it and it is decoded once. Nobody may change it."""

    def __init__(self, build: Callable[[bytes], V], limit: int = SHARED) -> None:
        super().__init__(limit)
        self._build = build

    def __call__(self, raw: Raw) -> V:
        key = bytes(raw)
        young = self._young
        return young[key] if key in young else self.get(key, lambda: self._build(key))
