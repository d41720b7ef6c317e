"""Whether somebody leads is seen by the Lease, and by our own clock."""

from __future__ import annotations

import pytest

from kube.client import Client
from kube.informer import Informer
from kube.leadership import Leadership
from kube.lease import lease_object, released_spec
from kube.resources import LEADER, Lease
from kube.store import Store
from placement import names
from placement.model import Key
from tests.builders.api import Raw, event, page
from tests.kube.scripted import Script, WatchLines
from tests.kube.test_informer import eventually
from tests.manualclock import ManualClock

KEY = Key(names.SYSTEM_NAMESPACE, names.LEASE)


def renewed(when: str, holder: str = "a") -> Lease:
    return Lease(names.LEASE, holder, when)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(0.0)


@pytest.fixture
def store() -> Store[Lease]:
    return Store()


def test_who_has_just_begun_to_look_has_missed_nothing(clock: ManualClock, store: Store[Lease]) -> None:
    """A webhook that starts before the first leader counts from its own start."""
    clock.now = 1000.0
    leadership = Leadership(store, clock)
    clock.now += 59
    assert leadership.unled_seconds() == 59


def test_every_renewal_counts_whatever_time_it_tells(clock: ManualClock, store: Store[Lease]) -> None:
    """Clocks differ, and may be put back."""
    leadership = Leadership(store, clock)
    for when in ("2999-01-01", "1999-01-01", ""):
        clock.now += 30
        store.put(renewed(when))
        assert leadership.unled_seconds() == 0


def test_a_hand_over_is_no_gap(clock: ManualClock, store: Store[Lease]) -> None:
    """Given up, and taken by another a moment later: the clock never went back to where it was."""
    leadership = Leadership(store, clock)
    store.put(renewed("1"))
    clock.now += 2
    store.put(renewed("2", holder=""))
    assert leadership.unled_seconds() == 2
    clock.now += 1
    store.put(renewed("3", holder="b"))
    assert leadership.unled_seconds() == 0


NOBODY: dict[str, list[Lease | None]] = {
    "it stands still": [renewed("1"), renewed("1")],
    "it was given up": [renewed("2", holder="")],
    "it is made, given up": [None, renewed("2", holder="")],
    "it is gone": [None],
    "somebody without a name renews": [renewed("2", holder=""), renewed("3", holder="")],
}


@pytest.mark.parametrize("seen", NOBODY.values(), ids=NOBODY.keys())
def test_without_a_holder_that_renews_nobody_leads(
    clock: ManualClock, store: Store[Lease], seen: list[Lease | None]
) -> None:
    """Also where the whole list is read again."""
    leadership = Leadership(store, clock)
    store.put(renewed("1"))
    for lease in seen:
        clock.now += 20
        store.replace([lease] if lease else [])
    assert leadership.unled_seconds() == 20 * len(seen)


def raw_lease(spec: Raw, version: int) -> Raw:
    raw = lease_object(spec)
    return {**raw, "metadata": {**raw["metadata"], "resourceVersion": str(version)}}


def test_the_leaders_lease_is_followed_and_no_other(script: Script, client: Client, clock: ManualClock) -> None:
    """As the rebalancers write it."""
    store = Store[Lease]()
    leadership, informer = Leadership(store, clock), Informer(client, LEADER, store)
    held = {"holderIdentity": "a", "renewTime": "2026-01-01T00:00:02.000000Z"}
    script.answer(page(raw_lease(released_spec(), 1)))
    script.watch(WatchLines([event("MODIFIED", raw_lease(held, 2))]))
    clock.now = 30.0
    informer.start()
    assert eventually(lambda: leadership.unled_seconds() == 0)
    assert script.next_request().query["fieldSelector"] == f"metadata.name={names.LEASE}"
    assert store.get(KEY) == renewed("2026-01-01T00:00:02.000000Z")
    informer.stop()
