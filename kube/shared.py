"""One object for many equal ones: what keeps a cache of 150,000 pods small."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec import Raw

V = TypeVar("V")

SHARED = 8192  # distinct values kept per table and generation; lists come sorted, so siblings are neighbours


class Shared(Generic[V]):
    """One value for equal JSON, so that siblings share it and it is decoded once.

    Two generations bound it: when the young one is full it becomes the old one, and what is still asked for moves
    back. Values must not be changed by whoever gets them.
    """

    def __init__(self, build: Callable[[bytes], V], limit: int = SHARED) -> None:
        self._build = build
        self._limit = limit
        self._young: dict[bytes, V] = {}
        self._old: dict[bytes, V] = {}

    def __call__(self, raw: Raw) -> V:
        key = bytes(raw)
        young = self._young
        if key in young:
            return young[key]
        old = self._old
        value = old[key] if key in old else self._build(key)
        if len(young) >= self._limit:
            self._old, self._young = young, {}
        self._young[key] = value
        return value

    def __len__(self) -> int:
        return len(self._young) + len(self._old)
