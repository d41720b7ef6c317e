"""Dictionaries by key, and of dictionaries, sets and tuples by two keys, that keep nothing empty."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Protocol, TypeVar


class Identified(Protocol):
    """Whatever has a UID."""

    @property
    def uid(self) -> str: ...


T = TypeVar("T", bound=Identified)
K = TypeVar("K", bound=Hashable)


def put(into: dict[K, Any], key: K, value: Any) -> None:
    if value is None:
        into.pop(key, None)
    else:
        into[key] = value


def file(into: dict[str, dict[str, Any]], outer: str, inner: str, value: Any) -> None:
    if value is not None:
        into.setdefault(outer, {})[inner] = value
    elif outer in into:
        into[outer].pop(inner, None)
        if not into[outer]:
            del into[outer]


def discard(into: dict[str, set[str]], key: str, value: str) -> None:
    if key in into:
        into[key].discard(value)
        if not into[key]:
            del into[key]


# Large collections are kept in tuples: fifteen pods take 160 bytes, a dictionary of them 650. Callers may keep a tuple,
# since it is replaced and never changed.


def include(into: dict[str, tuple[T, ...]], key: str, each: T) -> None:
    into[key] = (*into.get(key, ()), each)


def exchange(into: dict[str, tuple[T, ...]], key: str, new: T) -> None:
    """In the place of the one with the same UID, if there is one."""
    uid, there = new.uid, into.get(key, ())
    at = next((number for number, each in enumerate(there) if each.uid == uid), len(there))
    into[key] = (*there[:at], new, *there[at + 1 :])


def exclude(into: dict[str, tuple[T, ...]], key: str, uid: str) -> None:
    put(into, key, tuple([each for each in into.get(key, ()) if each.uid != uid]) or None)
