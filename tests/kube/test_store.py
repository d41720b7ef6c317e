"""The store: differences, and relists that fail half-way."""

from collections.abc import Iterator

import pytest

from kube.store import Store
from placement.model import Key, Pod
from tests.builders.model import pod

Change = tuple[Pod | None, Pod | None]


@pytest.fixture
def store() -> Store[Pod]:
    return Store()


@pytest.fixture
def changes(store: Store[Pod]) -> list[Change]:
    seen: list[Change] = []
    store.subscribe(lambda old, new: seen.append((old, new)))
    return seen


def test_objects_are_found_by_key(store: Store[Pod]) -> None:
    """Each of them, until it is removed."""
    a, b, c = pod("a", where="n1"), pod("b", where="n2"), pod("c")
    store.replace([a, b, c])
    assert (store.get(Key("shop", "b")), len(store), store.values()) == (b, 3, (a, b, c))
    store.remove(Key("shop", "b"))
    assert (store.get(Key("shop", "b")), len(store), store.values()) == (None, 2, (a, c))


def test_subscribers_hear_each_difference_once(store: Store[Pod], changes: list[Change]) -> None:
    """Addition, update and removal are told with both sides; writing the same again, or removing nothing, is silent."""
    store.put(pod("a"))
    store.put(pod("a"))
    store.put(pod("a", where="n1"))
    store.remove(Key("shop", "a"))
    store.remove(Key("shop", "a"))
    assert changes == [(None, pod("a")), (pod("a"), pod("a", where="n1")), (pod("a", where="n1"), None)]


def test_a_relist_tells_what_it_shows_to_have_changed(store: Store[Pod], changes: list[Change]) -> None:
    """What happened while the watch was down is told as if it had been seen; what vanished comes first."""
    store.replace([pod("gone"), pod("same"), pod("moved")])
    changes.clear()
    store.replace([pod("same"), pod("moved", where="n1"), pod("new")])
    assert changes == [(pod("gone"), None), (pod("moved"), pod("moved", where="n1")), (None, pod("new"))]


def test_a_relist_keeps_the_object_that_is_held_already(store: Store[Pod]) -> None:
    """Equal objects are not held twice while a list runs."""
    first = pod("a")
    store.replace([first])
    store.replace([pod("a")])
    assert store.get(Key("shop", "a")) is first


def test_a_list_that_fails_half_way_changes_nothing(store: Store[Pod], changes: list[Change]) -> None:
    """A failed read is never an empty read, nor half of one."""

    def pages() -> Iterator[Pod]:
        yield pod("b")
        raise ConnectionError

    store.put(pod("a", where="n1"))
    changes.clear()
    with pytest.raises(ConnectionError):
        store.replace(pages())
    assert (store.values(), changes) == ((pod("a", where="n1"),), [])


def test_a_subscriber_sees_the_store_as_it_is_after_the_change(store: Store[Pod]) -> None:
    """It may read the store, which is not locked then."""
    seen: list[int] = []
    store.subscribe(lambda old, new: seen.append(len(store)))
    store.replace([pod("a", where="n1"), pod("b", where="n1")])
    store.remove(Key("shop", "a"))
    assert seen == [2, 2, 1]
