"""Answers of the API, lists and watches: bytes → `placement.model`, reading only what is used.

A field of the wrong type affects only the object that has it: the object is left out and logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from sys import intern
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from kube.wire import AnyObject, ListMeta, Meta, Wire
from placement.model import Key

log = logging.getLogger(__name__)

T = TypeVar("T")
O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741 - an object as it is on the wire


class PageObject(Wire, Generic[O]):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[O] | None = None


class RawPage(Wire):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[Raw] | None = None


class EventObject(Wire, Generic[O]):
    """A line of a watch."""

    type: str
    object: O


class RawEvent(Wire):
    type: str
    object: Raw


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """A line of a watch, read. `item` is None for bookmarks and errors, and for what does not decode (`mistake`)."""

    type: str
    version: str = ""
    key: Key | None = None
    item: T | None = None
    status: bytes = b""  # of an ERROR: the Status object
    mistake: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list. `rejected` counts the objects that did not decode."""

    items: tuple[T, ...]
    version: str
    continue_token: str
    rejected: int = 0


_decode_raw_event = msgspec.json.Decoder(RawEvent).decode
_decode_identity = msgspec.json.Decoder(AnyObject).decode
_decode_raw_page = msgspec.json.Decoder(RawPage).decode


class Decoder(Generic[T]):
    """How one resource looks on the wire and what it becomes."""

    def __init__(self, wire: type[O], build: Callable[[O], T]) -> None:
        self._build: Callable[[Any], T] = build
        self._decode_object: Callable[[Raw | bytes], Any] = msgspec.json.Decoder(wire).decode
        self._decode_page: Callable[[bytes], Any] = msgspec.json.Decoder(PageObject[wire]).decode  # type: ignore[valid-type]
        self._decode_event: Callable[[bytes], Any] = msgspec.json.Decoder(EventObject[wire]).decode  # type: ignore[valid-type]

    def single(self, body: bytes) -> T:
        """One object, as a GET answers it."""
        return self._build(self._decode_object(body))

    def event(self, line: bytes) -> WatchEvent[T]:
        """A line of a watch. `msgspec.DecodeError` if it is no event at all."""
        try:
            wire = self._decode_event(line)
            if wire.type == "ERROR":
                return _error_event(_decode_raw_event(line))
            return _event(wire.type, wire.object.metadata, self._item(wire))
        except msgspec.ValidationError as mistake:
            return _odd_event(_decode_raw_event(line), str(mistake))

    def _item(self, wire: Any) -> T | None:
        return None if wire.type == "BOOKMARK" else self._build(wire.object)

    def page(self, body: bytes) -> Page[T]:
        """A page of a list. If one object is bad the page is read again object by object, to lose no other."""
        try:
            wire = self._decode_page(body)
            return _page(wire.metadata, tuple(map(self._build, wire.items or ())))
        except msgspec.ValidationError:
            raw = _decode_raw_page(body)
        items = [self._item_or_none(item) for item in raw.items or ()]
        kept = tuple(item for item in items if item is not None)
        return _page(raw.metadata, kept, len(items) - len(kept))

    def _item_or_none(self, raw: Raw) -> T | None:
        try:
            return self._build(self._decode_object(raw))
        except msgspec.ValidationError as error:
            log.warning("skipped an object that cannot be decoded: %s: %.200s", error, bytes(raw))
            return None


def _page(meta: ListMeta, items: tuple[T, ...], rejected: int = 0) -> Page[T]:
    return Page(items, meta.resource_version or "", meta.continue_ or "", rejected)


def _event(kind: str, meta: Meta, item: T | None, mistake: str = "") -> WatchEvent[T]:
    key = Key(intern(meta.namespace or ""), meta.name or "")
    return WatchEvent(kind, meta.resource_version or "", key, item, mistake=mistake)


def _error_event(raw: RawEvent) -> WatchEvent[Any]:
    return WatchEvent(raw.type, status=bytes(raw.object))


def _odd_event(raw: RawEvent, mistake: str) -> WatchEvent[Any]:
    """An error, whose object is a Status; or an object that does not decode, of which at least the name is of use."""
    if raw.type == "ERROR":
        return _error_event(raw)
    try:
        return _event(raw.type, _decode_identity(raw.object).metadata, None, mistake)
    except msgspec.ValidationError:
        return WatchEvent(raw.type, mistake=mistake)
