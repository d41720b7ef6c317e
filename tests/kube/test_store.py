"""The store: indexes, differences, and relists that fail half-way."""

from collections.abc import Iterator

import pytest

from kube.resources import node_name, owner_uid
from kube.store import Store
from placement.model import Key, Owner, Pod

Change = tuple[Pod | None, Pod | None]


def pod(name: str, node: str = "", owner: str = "") -> Pod:
    return Pod("shop", name, node=node, owner=Owner("ReplicaSet", owner, owner) if owner else None)


@pytest.fixture
def store() -> Store[Pod]:
    return Store({"node": node_name, "owner": owner_uid})


@pytest.fixture
def changes(store: Store[Pod]) -> list[Change]:
    seen: list[Change] = []
    store.subscribe(lambda old, new: seen.append((old, new)))
    return seen


def test_objects_are_found_by_key_and_by_index(store: Store[Pod]) -> None:
    """Every index finds the objects for which it gives the value, and only those."""
    a, b, c = pod("a", "n1", "rs"), pod("b", "n2", "rs"), pod("c")
    store.replace([a, b, c])
    assert (store.get(Key("shop", "b")), len(store), store.values()) == (b, 3, (a, b, c))
    assert store.by("owner", "rs") == (a, b)
    assert store.by("node", "n2") == (b,)
    assert store.by("node", "") == ()


def test_an_update_moves_an_object_between_the_values_of_an_index(store: Store[Pod]) -> None:
    """A pod that is placed is found by its node from then on, and one that is gone by nothing."""
    store.put(pod("a", "n1"))
    store.put(pod("a", "n2"))
    assert (store.by("node", "n1"), store.by("node", "n2")) == ((), (pod("a", "n2"),))
    store.remove(Key("shop", "a"))
    assert (store.by("node", "n2"), store.values(), store.get(Key("shop", "a"))) == ((), (), None)


def test_values_of_an_index_that_nothing_has_any_more_take_no_memory(store: Store[Pod]) -> None:
    """Owners come and go for months; an empty bucket each would be a leak."""
    store.put(pod("a", "n1", "rs"))
    store.remove(Key("shop", "a"))
    assert store._buckets == {"node": {}, "owner": {}}


def test_an_unknown_index_is_a_mistake_of_the_caller(store: Store[Pod]) -> None:
    """A misspelt index must not look like "nothing found"."""
    with pytest.raises(KeyError):
        store.by("nodes", "n1")


def test_subscribers_hear_each_difference_once(store: Store[Pod], changes: list[Change]) -> None:
    """Addition, update and removal are told with both sides; writing the same again, or removing nothing, is silent."""
    store.put(pod("a"))
    store.put(pod("a"))
    store.put(pod("a", "n1"))
    store.remove(Key("shop", "a"))
    store.remove(Key("shop", "a"))
    assert changes == [(None, pod("a")), (pod("a"), pod("a", "n1")), (pod("a", "n1"), None)]


def test_a_relist_tells_what_it_shows_to_have_changed(store: Store[Pod], changes: list[Change]) -> None:
    """What happened while the watch was down is told as if it had been seen; what vanished comes first."""
    store.replace([pod("gone"), pod("same"), pod("moved")])
    changes.clear()
    store.replace([pod("same"), pod("moved", "n1"), pod("new")])
    assert changes == [(pod("gone"), None), (pod("moved"), pod("moved", "n1")), (None, pod("new"))]


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

    store.put(pod("a", "n1"))
    changes.clear()
    with pytest.raises(ConnectionError):
        store.replace(pages())
    assert (store.values(), store.by("node", "n1"), changes) == ((pod("a", "n1"),), (pod("a", "n1"),), [])


def test_a_subscriber_sees_the_store_as_it_is_after_the_change(store: Store[Pod]) -> None:
    """It may read the store, which is not locked then."""
    seen: list[int] = []
    store.subscribe(lambda old, new: seen.append(len(store.by("node", "n1"))))
    store.replace([pod("a", "n1"), pod("b", "n1")])
    store.remove(Key("shop", "a"))
    assert seen == [2, 2, 1]
