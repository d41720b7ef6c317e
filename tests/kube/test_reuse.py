"""What a changed pod has in common with the one that it was is kept once."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import msgspec

from kube.convert import shared_labels
from kube.interning import SHARED
from kube.resources import PODS_IN_FULL
from kube.reuse import reusing
from kube.store import Store
from placement.model import Pod
from tests.builders.api import Raw, raw_pod


def _read_long_after(raw: Raw) -> Pod:
    """When so much else has been read that no sibling is remembered."""
    for number in range(2 * SHARED + 1):
        shared_labels(msgspec.Raw(b'{"app":"%d"}' % number))
    return PODS_IN_FULL.shape.single(msgspec.json.encode(raw))


def test_a_changed_pod_is_equal_to_what_was_read() -> None:
    """Every field of the model is taken over, each from its own place, whether it has changed or not."""
    values: dict[str, Any] = {each.name: f"new {each.name}" for each in fields(Pod)}
    new = Pod(**values)
    for name in values:
        other: Any = {name: f"old {name}"}
        before = replace(new, **other)
        assert reusing(before, new) == new
        assert reusing(new, before) == before


def test_parts_that_have_not_changed_are_those_of_the_former_pod() -> None:
    """Also where they were read anew: labels, owner, needs and the rest are not there twice."""
    old = Pod("shop", "web-1", uid="u" * 36, labels={"app": "web"}, annotations={"slot": "1"}, decision="d" * 40)
    new = Pod("shop", "web-1", uid="u" * 36, labels={"app": "web"}, annotations={"slot": "2"}, decision="d" * 40)
    found = reusing(old, new)
    assert (found.labels is old.labels, found.annotations is new.annotations) == (True, True)


def test_a_store_of_pods_keeps_what_a_pod_had() -> None:
    """After each change that a watch shows, and after a relist, although its siblings were read long ago."""
    store = Store(PODS_IN_FULL.reuse)
    first, second, third = (_read_long_after(raw_pod("web-1", labels={"app": "web"}, node=node)) for node in "abc")
    assert first.labels is not second.labels
    store.put(first)
    store.put(second)
    kept = store.get(first.key)
    assert kept is not None
    assert (kept, kept.labels is first.labels) == (second, True)
    store.replace([third])
    kept = store.get(first.key)
    assert kept is not None
    assert (kept, kept.labels is first.labels) == (third, True)
