"""The chance that a gang survives its run time, and which pools and classes are chosen for it."""

from __future__ import annotations

import math
from datetime import timedelta
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import names
from placement.gang.odds import NO_ODDS, Odds, odds_of, share
from placement.gang.terms import terms_of
from placement.lack import Lack, NoPlace
from placement.model import Class
from placement.observation import Observed, PoolRecord
from placement.plan.whole import places
from tests.builders.model import ON_DEMAND, SPOT
from tests.builders.plan import site
from tests.examples import examples
from tests.placement.test_whole import SPOT_FIRST, pods, pool, room, touched

DAYS = timedelta(days=2)
HOURS = 1000 * 24.0  # watched for so long that the prior hardly counts


def watched(**losses: float) -> Observed:
    """Pools `a/m`, `b/m` … that were lost so many times in 30 days."""
    months = HOURS / (30 * 24)
    return Observed(
        pools={f"{zone}/m": PoolRecord(HOURS, HOURS, losses=lost * months) for zone, lost in losses.items()}
    )


def test_every_pool_and_every_node_counts() -> None:
    """The three examples of the module."""
    one = [site(f"n{number}", Class.SPOT, "a") for number in range(4)]
    two = [site(f"n{number}", Class.SPOT, "ab"[number % 2]) for number in range(4)]
    safe = [site(f"n{number}", Class.ON_DEMAND, "a") for number in range(4)]
    chances = [Odds(runtime=DAYS).chance(each) for each in (one, two, safe)]
    assert chances == pytest.approx([math.exp(-1.4 / 15), math.exp(-2.4 / 15), math.exp(-0.04 / 15)])
    assert [share(each or 0.0) for each in chances] == ["91 %", "85.2 %", "99.7 %"]


def test_members_on_one_node_count_it_once_and_without_a_run_time_nothing_is_said() -> None:
    where = site("n", Class.SPOT, "a")
    assert Odds(runtime=DAYS).chance([where, where]) == Odds(runtime=DAYS).chance([where])
    assert NO_ODDS.chance([where]) is None


SAFEST = {
    "the safest of those that hold it": ({"a": 4, "b": 1, "c": 2}, (8, 8, 8), {"spot-b"}),
    "fewer pools before safer ones": ({"a": 4, "b": 1, "c": 1}, (8, 4, 4), {"spot-a"}),
    "the safest pair": ({"a": 1, "b": 4, "c": 1}, (5, 5, 3), {"spot-a", "spot-c"}),
}


@pytest.mark.parametrize(("losses", "sizes", "expected"), SAFEST.values(), ids=SAFEST.keys())
def test_few_pools_and_of_those_the_ones_that_are_lost_least(
    losses: dict[str, float], sizes: tuple[int, ...], expected: set[str]
) -> None:
    """Eight members, and pools that were lost so many times a month."""
    there = room(*(pool(zone, size) for zone, size in zip("abc", sizes, strict=True)))
    assert touched(places(there, pods(), 8, (SPOT,), Odds(watched(**losses)))) == expected


@examples(60)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(1, 8)), min_size=1, max_size=5), st.integers(1, 10))
def test_no_fewer_pools_hold_it_and_of_as_many_none_are_safer(pools: list[tuple[int, int]], members: int) -> None:
    """Held to brute force over all sets of pools."""
    named = dict(zip("abcde", pools, strict=False))
    odds = Odds(watched(**{zone: float(lost) for zone, (_, lost) in named.items()}))
    there = room(*(pool(zone, size) for zone, (size, _) in named.items() if size))
    found = touched(places(there, pods(members), members, (SPOT,), odds)) if any(s for s, _ in pools) else set()
    enough = [
        each
        for number in range(1, len(named) + 1)
        for each in combinations(named, number)
        if sum(named[zone][0] for zone in each) >= members
    ]
    if not enough:
        assert found == set()
        return
    fewest = min(map(len, enough))
    least = min(sum(named[zone][1] for zone in each) for each in enough if len(each) == fewest)
    zones = [name.removeprefix("spot-") for name in found]
    assert (len(zones), sum(named[zone][1] for zone in zones)) == (fewest, least)


def test_spot_is_passed_over_where_the_chance_is_too_small() -> None:
    """For two days 90 % is asked for: eight members on one node of a pool have 92.9 %, on two pools less."""
    both = room(pool("a", 8), pool("d", 8, ON_DEMAND))
    spread = room(pool("a", 4), pool("b", 4), pool("d", 8, ON_DEMAND))
    odds = Odds(runtime=DAYS, target=0.9)
    assert touched(places(both, pods(), 8, SPOT_FIRST, odds)) == {"spot-a"}
    assert touched(places(spread, pods(), 8, SPOT_FIRST, odds)) == {"on-demand-d"}
    assert touched(places(spread, pods(), 8, SPOT_FIRST, Odds(runtime=DAYS))) == {"spot-a", "spot-b"}


def test_without_room_on_the_next_class_it_waits_and_the_reason_names_the_chance() -> None:
    """Where spot alone is wanted, it starts there all the same."""
    spread = room(pool("a", 4), pool("b", 4), pool("d", 3, ON_DEMAND))
    odds = Odds(runtime=DAYS, target=0.9)
    found = places(spread, pods(), 8, SPOT_FIRST, odds)
    assert isinstance(found, NoPlace)
    assert (found.lack, found.what) == (Lack.ODDS, "86.3 %, below 90 %")
    assert touched(places(spread, pods(), 8, (SPOT,), odds)) == {"spot-a", "spot-b"}


def test_what_a_gang_declares() -> None:
    terms, mistakes = terms_of({names.POD_GROUP: "g", names.EXPECTED_RUNTIME: "2h", names.AVAILABILITY_TARGET: "99%"})
    assert mistakes == ()
    assert odds_of(terms, Observed()) == Odds(Observed(), timedelta(hours=2), 0.99)
    assert [each.annotation for each in terms_of({names.POD_GROUP: "g", names.AVAILABILITY_TARGET: "99"})[1]] == [
        names.AVAILABILITY_TARGET
    ]
