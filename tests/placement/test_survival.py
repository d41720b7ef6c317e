"""The chance that a gang keeps its nodes."""

from __future__ import annotations

from datetime import timedelta

import pytest

from placement.configuration import Configuration
from placement.gang.survival import survival
from placement.model import Class
from placement.observation import NOTHING_OBSERVED, Observed, PoolRecord
from placement.plan.ground import Site, ground_of
from tests.builders.model import node

HALF_A_DAY = timedelta(hours=12)


def sites(spot: dict[str, int], on_demand: int = 0) -> list[Site]:
    """So many spot nodes in each zone."""
    nodes = [node(f"{zone}{number}", Class.SPOT, zone) for zone, count in spot.items() for number in range(count)]
    nodes += [node(f"od{number}") for number in range(on_demand)]
    return list(ground_of(nodes, Configuration()).sites.values())


@pytest.mark.parametrize(
    ("there", "expected"),
    [(sites({"a": 4}), 0.9769), (sites({"a": 2, "b": 2}), 0.9608), (sites({}, 4), 0.9993)],
    ids=["one pool", "two pools", "on-demand"],
)
def test_each_pool_and_each_node_counts(there: list[Site], expected: float) -> None:
    """A gang dies with its first member: one pool is better than two, and on-demand is better than spot."""
    assert survival(there, NOTHING_OBSERVED, HALF_A_DAY).chance == pytest.approx(expected, abs=1e-4)


def test_a_node_counts_once_however_many_members_are_on_it() -> None:
    """They go together."""
    there = sites({"a": 4})
    assert survival(there * 2, NOTHING_OBSERVED, HALF_A_DAY) == survival(there, NOTHING_OBSERVED, HALF_A_DAY)


def test_what_was_observed_of_a_pool_counts() -> None:
    """A pool that was lost often is worse than one that was never lost."""
    calm = Observed(pools={"a/m": PoolRecord(hours=720.0, node_hours=2880.0)})
    rough = Observed(pools={"a/m": PoolRecord(hours=720.0, node_hours=2880.0, losses=6.0)})
    chances = [survival(sites({"a": 4}), each, HALF_A_DAY).chance or 0.0 for each in (calm, NOTHING_OBSERVED, rough)]
    assert chances == sorted(chances, reverse=True)
    assert len(set(chances)) == 3


def test_without_an_expected_runtime_there_is_no_chance() -> None:
    """Nothing says for how long it is exposed; the losses are known all the same."""
    found = survival(sites({"a": 4}), NOTHING_OBSERVED, None)
    assert (found.chance, round(found.losses, 9), found.pools) == (None, 1.4, ("a/m",))
