"""Members are known by their Leases, and judged by our own clock."""

from __future__ import annotations

from kube.membership import DURATION_SECONDS, FORGET_SECONDS, LEFT_SECONDS, Membership
from kube.resources import Lease
from kube.store import Store
from placement.model import Key
from placement.names import SYSTEM_NAMESPACE
from tests.manualclock import ManualClock


def test_a_member_lives_as_long_as_its_lease_changes() -> None:
    """What its renewal time says does not matter, that it changes does: clocks differ."""
    clock, store = ManualClock(0.0), Store[Lease]()
    membership = Membership(store, clock)
    store.put(Lease("a", "10.0.0.1:8443", "1999-01-01"))
    store.put(Lease("b", "10.0.0.2:8443", "2999-01-01"))
    assert membership.members() == {"a": "10.0.0.1:8443", "b": "10.0.0.2:8443"}
    clock.now += DURATION_SECONDS - 1
    store.put(Lease("a", "10.0.0.1:8443", "1999-01-02"))
    clock.now += 2
    assert membership.members() == {"a": "10.0.0.1:8443"}
    clock.now += FORGET_SECONDS - 5
    assert membership.forgotten() == ["b"]


def test_a_member_that_gives_its_lease_up_is_gone_at_once() -> None:
    """Others take over while it still answers."""
    store = Store[Lease]()
    membership = Membership(store, ManualClock(0.0))
    store.put(Lease("a", "x", "1"))
    store.remove(Key(SYSTEM_NAMESPACE, "a"))
    assert membership.members() == {}
    assert membership.forgotten() == []


def test_those_that_left_are_remembered_for_a_moment() -> None:
    """What they have decided may be unseen: both one that gave its Lease up and one that fell silent."""
    clock, store = ManualClock(0.0), Store[Lease]()
    membership = Membership(store, clock)
    store.put(Lease("silent", "y", "1"))
    clock.now += DURATION_SECONDS
    store.put(Lease("a", "x", "1"))
    store.remove(Key(SYSTEM_NAMESPACE, "a"))
    assert membership.left() == {"a": "x", "silent": "y"}
    clock.now += LEFT_SECONDS
    assert membership.left() == {}
