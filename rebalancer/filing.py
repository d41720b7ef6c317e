"""Dictionaries by key, and of dictionaries and sets by two keys, that keep nothing empty."""

from __future__ import annotations

from typing import Any


def put(into: dict[str, Any], key: str, value: Any) -> None:
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


def add(into: dict[str, set[str]], key: str, value: str) -> None:
    into.setdefault(key, set()).add(value)


def discard(into: dict[str, set[str]], key: str, value: str) -> None:
    if key in into:
        into[key].discard(value)
        if not into[key]:
            del into[key]
