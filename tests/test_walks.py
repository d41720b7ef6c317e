"""Walks through the code stay short, and are counted as their definition says."""

from __future__ import annotations

from functools import partial

import pytest

from benchmarks.walks import PathFinder, Walk, event_walk, review_walks, walk_of
from placement import pools
from placement.model import Class, Pool
from placement.policy import Policy
from placement.slots import Mix
from tests.builders.model import workload

MOST_ROOMS, MOST_RETURNS = 10, 2
MOST_ROOMS_OF_AN_EVENT, MOST_RETURNS_OF_AN_EVENT = 18, 4

COUNTED: dict[str, tuple[str, int, int, int]] = {
    "nothing": ("", 0, 0, 0),
    "one after the other": ("abc", 3, 0, 0),
    "twice in a row is once": ("aabbb", 2, 0, 0),
    "there and back": ("aba", 2, 1, 1),
    "a loop": ("ababab", 2, 4, 2),
}


@pytest.mark.parametrize(("entries", "rooms", "returns", "ways_back"), COUNTED.values(), ids=COUNTED.keys())
def test_rooms_and_returns(entries: str, rooms: int, returns: int, ways_back: int) -> None:
    """A room is a module, a return is an entry of one that was left before; a loop is read once."""
    walk = Walk.through(entries)
    assert (len(walk.rooms), walk.returns, walk.ways_back) == (rooms, returns, ways_back)


def test_calls_between_modules_are_entries() -> None:
    """Inside a module, back to a caller, and into what a dataclass generates, nobody enters anything."""
    web, policy, some = workload(), Policy(), [Pool("a", "m")]
    walk = walk_of(partial(pools.preferred_pool, 1, policy.slots, web, some))
    assert walk.entered == ("placement.pools", "placement.slots", "placement.model", "placement.slots")
    assert walk_of(partial(Mix.of, [Class.SPOT])).entered == ("placement.slots",)


@pytest.mark.parametrize("pod", ["deployment-plain", "stateful-plain"])
def test_a_review_is_a_short_walk(pod: str) -> None:
    """From the bytes of the review to those of the answer, once the first pods of its kind are placed."""
    _, walk = review_walks(pod)
    assert len(walk.rooms) <= MOST_ROOMS, walk.entered
    assert walk.returns <= MOST_RETURNS, walk.entered
    assert walk.entered.index("placement.decide") < walk.entered.index("placement.patch")


def test_an_event_leads_to_an_eviction_on_a_short_path() -> None:
    """From the change that is filed to the eviction that ends a release: facts, then the plan, then the write."""
    walk = event_walk(PathFinder())
    assert len(walk.rooms) <= MOST_ROOMS_OF_AN_EVENT, walk.entered
    assert walk.returns <= MOST_RETURNS_OF_AN_EVENT, walk.entered
    order = ["rebalancer.catalogue", "placement.plan.assess", "placement.plan.select", "placement.plan.planners.moves"]
    assert sorted(order, key=walk.entered.index) == order
    assert {"rebalancer.executor", "placement.plan.ends", "placement.plan.planners.sweeps"} <= set(walk.rooms)
