"""What is kept of observed pools, and the rates that are settled from it."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.observation import (
    EPISODE_SECONDS,
    LONGEST_HOURS,
    MOST_POOLS,
    NOTHING_OBSERVED,
    Interruption,
    Observed,
    PoolRecord,
    Rates,
    Watch,
    extended,
    observed_text,
    parse_observed,
    step,
)
from tests.placement.invariants import many

NOW = 1_750_000_000.0
DAY = 86_400.0
MINUTE = 60.0
LOSSES: dict[str, tuple[int, list[float], tuple[float, float]]] = {
    "one of four nodes is a node's loss": (4, [0], (0, 1)),
    "the second of four within minutes makes it the pool's": (4, [0, 3], (1, 0)),
    "the third adds nothing": (4, [0, 3, 5], (1, 0)),
    "two of twelve are two nodes' losses": (12, [0, 3], (0, 2)),
    "the third of twelve is a quarter": (12, [0, 3, 4], (1, 0)),
    "an hour later it is another loss": (4, [0, 60], (0, 2)),
    "a pool of one node goes with it": (1, [0], (1, 0)),
    "and comes back, and goes again": (1, [0, 60], (2, 0)),
    "one of two nodes is half of them, but one": (2, [0], (0, 1)),
    "a pool that nobody had counted": (0, [0], (1, 0)),
}


@pytest.mark.parametrize(("had", "minutes", "expected"), LOSSES.values(), ids=LOSSES.keys())
def test_an_episode_counts_once(had: int, minutes: list[float], expected: tuple[float, float]) -> None:
    """As the loss of the pool, where it took much of it; else node by node."""
    interruptions = [Interruption("a/m5", had, NOW + MINUTE * at) for at in minutes]
    record = extended(NOTHING_OBSERVED, {}, interruptions, NOW + DAY).of("a/m5")
    assert (record.losses, record.node_losses) == expected


@many
@given(st.lists(st.tuples(st.integers(0, 20), st.floats(0, 5000)), max_size=20))
def test_losses_are_at_most_as_many_as_nodes_lost(lost: list[tuple[int, float]]) -> None:
    """However they come; and the order of two writes does not matter for what is kept."""
    moments = sorted(at for _, at in lost)
    each = [Interruption("a/m5", had, NOW + at) for (had, _), at in zip(lost, moments, strict=True)]
    at_once = extended(NOTHING_OBSERVED, {}, each, NOW).of("a/m5")
    assert at_once.losses + at_once.node_losses <= len(lost)
    assert bool(lost) == bool(at_once.losses or at_once.node_losses)
    half = len(each) // 2
    assert extended(extended(NOTHING_OBSERVED, {}, each[:half], NOW), {}, each[half:], NOW).of("a/m5") == at_once


def test_what_was_watched_adds_up_and_fades() -> None:
    """After 90 days the past weighs less; the rate follows what happens now."""
    record = PoolRecord().watched(3600, 4 * 3600, NOW)
    assert (record.hours, record.node_hours, record.seen) == (1.0, 4.0, NOW)
    old = PoolRecord(hours=LONGEST_HOURS, losses=9.0)
    later = old.watched(90 * DAY, 90 * DAY, NOW)
    assert (later.hours, later.losses) == (LONGEST_HOURS, 4.5)


def watched(days: float, **pools: int) -> dict[str, Watch]:
    return {f"{zone}/m5": Watch(days * DAY, days * DAY * nodes) for zone, nodes in pools.items()}


def test_rates_are_settled_once_a_day() -> None:
    """Of pools that were watched for a day. One that is gone since yesterday is left out; if all are, none is."""
    young = extended(NOTHING_OBSERVED, watched(0.5, a=2), [], NOW)
    assert young.rates == Rates()
    day = extended(young, watched(0.5, a=2, b=1), [], NOW + DAY / 2)
    assert day.rates == Rates(1, {"a/m5": 1.0})
    lost = [Interruption("a/m5", 1, NOW + DAY)] * 1
    soon = extended(day, watched(0.4, a=2, b=1), lost, NOW + DAY)
    assert soon.rates == day.rates
    next_day = extended(soon, watched(0.6, a=2, b=1), [], NOW + 1.5 * DAY)
    assert next_day.rates == Rates(2, {"a/m5": 4.0, "b/m5": 1.0})
    only_b = extended(next_day, watched(1.1, b=1), [], NOW + 2.6 * DAY)
    assert only_b.rates == Rates(3, {"b/m5": 1.0})
    assert extended(only_b, {}, [], NOW + 10 * DAY).rates == only_b.rates
    assert extended(only_b, watched(1.0, b=1), [], NOW + 3.7 * DAY).rates is only_b.rates


STEPS: dict[str, tuple[float, float | None, float]] = {
    "rounded up": (0.9, None, 1.0),
    "on the step": (1.0, None, 1.0),
    "kept within": (0.55, 1.0, 1.0),
    "kept a little below the next lower step": (0.45, 1.0, 1.0),
    "lower once it is clearly lower": (0.4, 1.0, 0.5),
    "higher at once": (1.01, 1.0, 2.0),
    "far higher": (9.0, 1.0, 16.0),
}


@pytest.mark.parametrize(("rate", "before", "expected"), STEPS.values(), ids=STEPS.keys())
def test_a_settled_rate_changes_rarely(rate: float, before: float | None, expected: float) -> None:
    """Steps of powers of two, to the careful side."""
    assert step(rate, before) == expected


def test_it_is_bounded() -> None:
    """So many pools, those seen last; and none for longer than 90 days without a node."""
    many_pools = {f"{number:04}/m5": PoolRecord(1, seen=NOW - number) for number in range(MOST_POOLS + 50)}
    kept = extended(Observed(pools=many_pools), {}, [], NOW).pools
    assert list(kept) == [f"{number:04}/m5" for number in range(MOST_POOLS)]
    assert extended(Observed(pools=many_pools), {}, [], NOW + 91 * DAY).pools == {}
    assert len(observed_text(Observed(pools=kept))) < 100_000


amounts = st.integers(0, 10**6).map(lambda number: number / 1000)
moments = st.integers(0, 2 * 10**9).map(float)
records = st.builds(
    PoolRecord, amounts, amounts, amounts, amounts, moments, moments, st.integers(0, 99), st.integers(0, 99)
)
tables = st.builds(Rates, st.integers(0, 99), st.dictionaries(st.text(max_size=9), amounts, max_size=4))


@many
@given(st.builds(Observed, tables, moments, st.dictionaries(st.text(max_size=9), records, max_size=4)))
def test_what_is_written_is_read(observed: Observed) -> None:
    """To the digits that are kept."""
    assert parse_observed(observed_text(observed)) == observed


GARBLED = {
    "no JSON": "{",
    "a list": "[]",
    "nothing": "null",
    "a part": '{"version": 1}',
    "before 1970": '{"version": 1, "at": -1, "rates": {}, "pools": {}}',
    "no number": '{"version": 1, "at": 0, "rates": {"a": true}, "pools": {}}',
    "not a number": '{"version": 1, "at": NaN, "rates": {}, "pools": {}}',
    "an empty record": '{"version": 1, "at": 0, "rates": {}, "pools": {"a": {}}}',
    "very deep": "[" * 100_000,
}


@pytest.mark.parametrize("text", GARBLED.values(), ids=GARBLED.keys())
def test_what_is_garbled_is_told(text: str) -> None:
    """By one kind of error, whatever is wrong."""
    with pytest.raises(ValueError, match=r".+"):
        parse_observed(text)


def test_an_episode_goes_on_with_another_leader() -> None:
    """It is written down, so that whoever comes next does not count it anew."""
    first = extended(NOTHING_OBSERVED, {}, [Interruption("a/m5", 4, NOW)], NOW)
    again = parse_observed(observed_text(first))
    both = extended(again, {}, [Interruption("a/m5", 3, NOW + EPISODE_SECONDS / 2)], NOW)
    assert (both.of("a/m5").losses, both.of("a/m5").node_losses) == (1, 0)
    assert replace(both, pools={}, bursts=first.bursts) == replace(first, pools={})
