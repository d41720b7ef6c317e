"""What is kept of the workloads on `auto`."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.autostate import (
    FEWEST,
    LIMITS,
    MOST_BYTES,
    MOST_WORKLOADS,
    RANGES,
    AutoState,
    Chosen,
    Histogram,
    WorkloadRecord,
    autostate_text,
    key_of,
    parse_autostate,
    parse_chosen,
    parse_histogram,
)
from placement.incident import LONGEST_SECONDS, SHORT_SECONDS, Incident
from placement.promise import LARGEST, AutoStanding, SpotLimit
from placement.risk import RECOVERY_SECONDS
from tests.placement.invariants import many

NOW = 1_750_000_000.0


def test_a_histogram_is_rounded_up() -> None:
    """Nine of ten losses took at most so long: the upper end of their range."""
    fast = Histogram()
    for seconds in (20, 20, 40, 40, 50, 50, 50, 50, 50, 700):
        fast = fast.with_one(seconds)
    assert fast.text == "00270001"
    assert fast.longest() == 60
    assert fast.with_one(700).longest() == 960


@many
@given(st.lists(st.floats(0, 2000), max_size=200))
def test_a_histogram_stays_small(losses: list[float]) -> None:
    """One digit for each range, however many losses there were."""
    found = Histogram()
    for each in losses:
        found = found.with_one(each)
    assert len(found.text) <= len(RANGES)
    assert parse_histogram(found.text) == found
    assert not losses or found.longest() in RANGES


def test_ten_minutes_are_missed_until_three_losses_were_seen() -> None:
    """Then what was seen counts."""
    record = WorkloadRecord(AutoStanding(NOW, NOW))
    for number in range(FEWEST):
        assert record.missed_seconds == RECOVERY_SECONDS, number
        record = Incident(NOW, 10, frozenset("n"), gone=NOW, served=NOW + 50).noted_in(record, NOW + 60)
    assert record.missed_seconds == 60
    assert (record.recoveries.text, record.notices.text) == ("0003", "3")


@many
@given(
    st.dictionaries(
        st.text("0123456789abcdef", min_size=12, max_size=12),
        st.tuples(
            st.none() | st.integers(0, LARGEST), st.sampled_from(LIMITS), st.integers(0, 10**6), st.integers(0, 10**6)
        ),
        max_size=5,
    )
)
def test_what_is_written_is_read(known: dict[str, tuple[int | None, SpotLimit, int, int]]) -> None:
    """And written again as it was."""
    records = {
        key: WorkloadRecord(
            AutoStanding(NOW, NOW + fell, spent / 2, step, NOW + fell if fell else -math.inf, 1.5), limit
        )
        for key, (step, limit, spent, fell) in known.items()
    }
    state = AutoState(3, records)
    assert parse_autostate(autostate_text(state)) == state
    chosen = {key: Chosen(step, limit) for key, (step, limit, *_) in known.items() if step is not None}
    assert parse_chosen(autostate_text(state)) == chosen


def test_as_many_as_are_kept_fit_into_a_configmap() -> None:
    """With all that can be known of each, and room left for the rest of it."""
    full = Histogram((9,) * 8)
    record = WorkloadRecord(AutoStanding(NOW, NOW, 12345.6, 19, NOW, 1234.56), SpotLimit.RISK, full, full, full)
    state = AutoState(1, {key_of(f"uid-{number}"): record for number in range(MOST_WORKLOADS)})
    assert len(state.workloads) == MOST_WORKLOADS
    assert len(autostate_text(state)) <= MOST_BYTES < 1024**2 * 2 / 3


BROKEN = {
    "no JSON": "{",
    "no object": "[]",
    "no workloads": '{"version": 1}',
    "no version": '{"version": "x", "workloads": {}}',
}
BROKEN_ENTRIES = {
    "no list": '{"version": 1, "workloads": {"a": 7}}',
    "too short": '{"version": 1, "workloads": {"a": [1]}}',
    "no step": '{"version": 1, "workloads": {"a": [99, 0, 0, 0, 0, 0, 0, "", "", ""]}}',
    "no reason": '{"version": 1, "workloads": {"a": [9, 77, 0, 0, 0, 0, 0, "", "", ""]}}',
    "no time": '{"version": 1, "workloads": {"a": [9, 0, 0, Infinity, 0, 0, 0, "", "", ""]}}',
    "no histogram": '{"version": 1, "workloads": {"a": [9, 0, 0, 0, 0, 0, 0, "x", "", ""]}}',
}


@pytest.mark.parametrize("text", BROKEN.values(), ids=BROKEN.keys())
def test_garbage_is_refused(text: str) -> None:
    """The reader keeps what it had."""
    with pytest.raises(ValueError, match=r"unreadable|Expecting|invalid literal"):
        parse_autostate(text)


@pytest.mark.parametrize("text", BROKEN_ENTRIES.values(), ids=BROKEN_ENTRIES.keys())
def test_an_entry_that_is_garbled_costs_no_other(text: str) -> None:
    """It is left out, and named."""
    good = WorkloadRecord(AutoStanding(NOW, NOW, step=9))
    raw = json.loads(text)
    raw["workloads"] |= json.loads(autostate_text(AutoState(1, {"b": good})))["workloads"]
    found = parse_autostate(json.dumps(raw))
    assert found.workloads == {"b": good}
    assert [each.partition(":")[0] for each in found.unreadable] == ["a"]


@pytest.mark.parametrize("name", ["no JSON", "no object", "no workloads", "no list", "no step", "no reason"])
def test_garbage_is_no_choice(name: str) -> None:
    """Programs that read the choices alone keep what they had, too."""
    with pytest.raises(ValueError, match=r"unreadable|no step|no reason|Expecting"):
        parse_chosen({**BROKEN, **BROKEN_ENTRIES}[name])


def test_a_loss_lasts_while_too_few_serve() -> None:
    """An hour at most: then something else is wrong."""
    incident = Incident(NOW, 10, frozenset("n"), gone=NOW)
    assert not incident.is_over(NOW + LONGEST_SECONDS, is_short=True)
    assert incident.is_over(NOW + LONGEST_SECONDS)
    assert incident.is_over(NOW + SHORT_SECONDS, is_short=True)


INCIDENTS: dict[str, tuple[list[tuple[float, int, bool]], tuple[float, float, float]]] = {
    "no notice": ([(1, 8, True), (196, 10, True)], (196, 1, 195)),
    "replaced before it is gone": ([(50, 10, False), (60, 10, True)], (50, 60, 0)),
    "replaced after it is gone": ([(60, 8, True), (75, 10, True)], (75, 60, 15)),
    "never replaced": ([(60, 8, True), (LONGEST_SECONDS, 8, True)], (900, 60, 840)),
    "never gone": ([(50, 10, False), (LONGEST_SECONDS, 10, False)], (50, 900, 0)),
}


@pytest.mark.parametrize(("seen", "expected"), INCIDENTS.values(), ids=INCIDENTS.keys())
def test_what_a_loss_came_to(seen: list[tuple[float, int, bool]], expected: tuple[float, float, float]) -> None:
    """Seconds until as many served as before, until the node was gone, and for how long replicas were missed."""
    incident, now = Incident(NOW, 10, frozenset("n")), NOW
    for seconds, elsewhere, is_gone in seen:
        assert not incident.is_over(now)
        now = NOW + seconds
        incident = incident.seen(now, elsewhere=elsewhere, is_gone=is_gone)
    assert incident.is_over(now)
    found = incident.noted_in(WorkloadRecord(AutoStanding(NOW, NOW)), now)
    assert (found.recoveries, found.notices, found.missed) == tuple(map(Histogram().with_one, expected))
