"""What the loop remembers between passes: what was done and not seen, what failed, how many moves were begun."""

from __future__ import annotations

from dataclasses import replace

from placement import names
from placement.outcome import Outcome
from placement.plan.actions import Action, How, Why
from placement.plan.group import Ground
from rebalancer.executor import Done
from rebalancer.expectations import BLOCKED_SECONDS, EXPECTED_SECONDS, MINUTE, Expectations
from tests.placement.plans import NOW, ON_DEMAND, assessed, ground, group, node, pod

HERE = ground(node("o", ON_DEMAND))
POD = pod("web-0", 0, "o")
MARK = {names.MOVED: "spot/7of10min1/2030-01-01T00:00:00Z"}
WRITE = Action(How.ANNOTATE, Why.SLOT, None, POD, annotations=MARK)
RELEASE = Action(How.RELEASE, Why.RATIO, None, POD, annotations={names.RELEASED: "x"})
END = Action(How.FINISH, Why.OVER, None, POD)
NOWHERE = Ground({})


class Timer:
    """A clock that goes when it is told to."""

    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def done(action: Action, outcome: Outcome = Outcome.DONE) -> list[Done]:
    return [Done(action, outcome)]


def test_what_was_done_is_not_done_again_until_it_is_seen_or_five_seconds_have_passed() -> None:
    timer = Timer()
    expectations = Expectations(timer)
    expectations.remember(done(WRITE), NOW, {}, NOWHERE)
    assert list(expectations.possible([WRITE], ())) == []
    timer.at += EXPECTED_SECONDS
    assert list(expectations.possible([WRITE], ())) == [WRITE]


def test_what_is_seen_is_expected_no_more() -> None:
    expectations = Expectations(Timer())
    expectations.remember(done(WRITE), NOW, {}, NOWHERE)
    seen = replace(WRITE, pod=replace(POD, annotations={**POD.annotations, **MARK}))
    assert list(expectations.possible([seen], ())) == [seen]


def test_a_workload_with_a_write_that_is_not_seen_yet_has_no_wishes() -> None:
    """Two pods without a slot are to be adopted; one of them was a moment ago."""
    expectations = Expectations(Timer())
    found = assessed(group([pod("a", None, "o"), pod("b", None, "o")]), HERE)
    assert found.notes
    assert expectations.settled(found) is found
    expectations.remember(done(found.notes[0]), NOW, {}, NOWHERE)
    assert expectations.settled(found).notes == ()


def test_what_failed_waits_for_twice_as_long_each_time() -> None:
    timer = Timer()
    expectations = Expectations(timer)
    for wait in (BLOCKED_SECONDS, 2 * BLOCKED_SECONDS):
        expectations.remember(done(END, Outcome.BLOCKED), NOW, {}, NOWHERE)
        timer.at += wait - 0.1
        assert expectations.held() == {(POD.uid, How.FINISH): Outcome.BLOCKED}
        timer.at += 0.2
        assert expectations.held() == {}


def test_moves_of_the_last_minute_are_counted_and_their_ends_have_their_reason() -> None:
    timer = Timer()
    expectations = Expectations(timer)
    expectations.remember(done(RELEASE), NOW, {}, NOWHERE)
    assert expectations.recent() == 1
    timer.at += MINUTE + 1
    assert expectations.recent() == 0
    assert [each.why for each in expectations.possible([END], ())] == [Why.RATIO]


def test_a_pod_whose_end_is_under_way_is_left_alone() -> None:
    assert list(Expectations(Timer()).possible([END], {POD.uid})) == []
