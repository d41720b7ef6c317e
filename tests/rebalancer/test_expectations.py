"""What the loop remembers between passes: what was done and not seen, what failed, how many moves were begun."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement import names
from placement.model import Kind, Pod
from placement.outcome import Outcome
from placement.plan.actions import Action, How, Why
from placement.plan.ground import Ground
from placement.plan.scene import HeldBack
from rebalancer.executor import Done
from rebalancer.expectations import (
    BLOCKED_SECONDS,
    EVICTION_SECONDS,
    EXPECTED_SECONDS,
    MINUTE,
    UNANSWERED_SECONDS,
    Expectations,
)
from tests.builders.model import NOW, ON_DEMAND, SPOT, node, pod
from tests.builders.plan import assessed, ground, group
from tests.manualclock import ManualClock

HERE = ground(node("o", ON_DEMAND))
BOTH = ground(node("o", ON_DEMAND), node("s", SPOT))
POD = pod("web-0", 0, "o")
MARK = {names.MOVED: "spot/7of10min1/2030-01-01T00:00:00Z"}
WRITE = Action(How.ANNOTATE, Why.SLOT, None, POD, annotations=MARK)
RELEASE = Action(How.RELEASE, Why.RATIO, None, POD, annotations={names.RELEASED: "x"})
EVICTION = Action(How.EVICT, Why.RETURN, None, POD)
END = Action(How.FINISH, Why.OVER, None, POD)
NOWHERE = Ground({})


def done(action: Action, outcome: Outcome = Outcome.DONE) -> list[Done]:
    return [Done(action, outcome)]


def test_what_was_done_is_not_done_again_until_it_is_seen_or_five_seconds_have_passed() -> None:
    timer = ManualClock()
    expectations = Expectations(timer)
    expectations.remember(done(WRITE), NOW, {}, NOWHERE)
    assert list(expectations.possible([WRITE], ())) == []
    timer.now += EXPECTED_SECONDS
    assert list(expectations.possible([WRITE], ())) == [WRITE]


def test_what_is_seen_is_expected_no_more() -> None:
    expectations = Expectations(ManualClock())
    expectations.remember(done(WRITE), NOW, {}, NOWHERE)
    seen = replace(WRITE, pod=replace(POD, annotations={**POD.annotations, **MARK}))
    assert list(expectations.possible([seen], ())) == [seen]


def test_a_workload_with_a_write_that_is_not_seen_yet_has_no_wishes() -> None:
    """Two pods without a slot are to be adopted; one of them was a moment ago."""
    expectations = Expectations(ManualClock())
    found = assessed(group([pod("a", None, "o"), pod("b", None, "o")]), HERE)
    assert found.notes
    assert expectations.settled(found) is found
    expectations.remember(done(found.notes[0]), NOW, {}, NOWHERE)
    assert expectations.settled(found).notes == ()


@pytest.mark.parametrize(("outcome", "seconds"), [(Outcome.DONE, EVICTION_SECONDS), (Outcome.BUSY, UNANSWERED_SECONDS)])
def test_an_eviction_that_may_have_happened_keeps_its_workload_from_others_until_it_is_seen(
    outcome: Outcome, seconds: float
) -> None:
    """The informer is late, or the API server gave no answer: a sibling must not be evicted as well."""
    timer = ManualClock()
    expectations = Expectations(timer)
    found = assessed(group([POD, pod("web-1", None, "o")]), HERE)
    assert found.notes
    expectations.remember(done(EVICTION, outcome), NOW, {}, NOWHERE)
    timer.now += seconds - 0.1
    assert expectations.settled(found).notes == ()
    timer.now += 0.2
    assert expectations.settled(found) is found


def test_an_eviction_that_is_seen_keeps_nothing_back() -> None:
    expectations = Expectations(ManualClock())
    expectations.remember(done(EVICTION), NOW, {}, NOWHERE)
    found = assessed(group([replace(POD, terminating=True), pod("web-1", None, "o")]), HERE)
    assert expectations.settled(found) is found


def test_what_failed_waits_for_twice_as_long_each_time() -> None:
    timer = ManualClock()
    expectations = Expectations(timer)
    for wait in (BLOCKED_SECONDS, 2 * BLOCKED_SECONDS):
        expectations.remember(done(END, Outcome.BLOCKED), NOW, {}, NOWHERE)
        timer.now += wait - 0.1
        assert expectations.held()[POD.uid, How.FINISH].outcome is Outcome.BLOCKED
        timer.now += 0.2
        assert expectations.held() == {}


def test_what_failed_is_soon_tried_again_for_another_reason() -> None:
    """However long its tries have come to wait. Not at once: a reason that comes and goes must not cause a flood."""
    timer = ManualClock()
    expectations = Expectations(timer)
    for _ in range(3):
        expectations.remember(done(END, Outcome.BLOCKED), NOW, {}, NOWHERE)
    assert expectations.held() == {(POD.uid, How.FINISH): HeldBack(Outcome.BLOCKED)}
    timer.now += BLOCKED_SECONDS
    assert expectations.held() == {(POD.uid, How.FINISH): HeldBack(Outcome.BLOCKED, END.text)}


def test_moves_of_the_last_minute_are_counted_and_their_ends_have_their_reason() -> None:
    timer = ManualClock()
    expectations = Expectations(timer)
    expectations.remember(done(RELEASE), NOW, {}, NOWHERE)
    assert expectations.recent() == 1
    timer.now += MINUTE + 1
    assert expectations.recent() == 0
    assert [each.why for each in expectations.possible([END], ())] == [Why.RATIO]


def test_a_pod_whose_end_is_under_way_is_left_alone() -> None:
    assert list(Expectations(ManualClock()).possible([END], {POD.uid})) == []


def evicted_from(where: str, successor: Pod) -> set[str]:
    """Seats that are remembered after web-0 was evicted from a node and its successor was seen."""
    expectations = Expectations(ManualClock())
    origin = SPOT if where == "s" else ON_DEMAND
    before = assessed(group([pod("web-0", 0, where)], kind=Kind.STATEFUL_SET), BOTH)
    eviction = Action(How.EVICT, Why.RETURN, before.group.workload, before.members[0].pod, origin)
    expectations.remember(done(eviction), NOW, {"d": before}, BOTH)
    assert set(expectations.evicted()) == {"d/0"}
    expectations.remember([], NOW, {"d": assessed(group([successor], kind=Kind.STATEFUL_SET), BOTH)}, BOTH)
    return set(expectations.evicted())


def test_an_eviction_that_has_helped_is_forgotten() -> None:
    """Its successor serves on the other class, and is marked: what comes after it may return with spot, at once."""
    assert evicted_from("o", pod("web-0", 0, "s", uid="new", annotations=MARK)) == set()


@pytest.mark.parametrize(
    "successor",
    [
        pod("web-0", 0, "o", uid="new", annotations=MARK),
        pod("web-0", 0, "s", uid="new"),
        pod("web-0", 0, "s", uid="new", annotations=MARK, ready=False),
    ],
    ids=["it came out on the same class", "it is not marked yet", "it does not serve yet"],
)
def test_an_eviction_is_remembered_until_it_has_helped(successor: Pod) -> None:
    assert evicted_from("o", successor) == {"d/0"}


def test_a_workload_is_planned_for_until_the_successor_of_an_evicted_pod_has_helped() -> None:
    """However orderly it is: its successor is to be marked. A scale-down that removes the seat ends that, too."""
    expectations = Expectations(ManualClock())
    before = assessed(group([pod("web-0", 0, "o"), pod("web-1", 1, "o")], kind=Kind.STATEFUL_SET), BOTH)
    eviction = Action(How.EVICT, Why.RETURN, before.group.workload, before.members[1].pod, ON_DEMAND)
    expectations.remember(done(eviction), NOW, {"d": before}, BOTH)
    assert expectations.awaiting_successors() == {"d"}
    shrunk = group([pod("web-0", 0, "o")], 1, kind=Kind.STATEFUL_SET)
    expectations.remember([], NOW, {"d": assessed(shrunk, BOTH)}, BOTH)
    assert expectations.awaiting_successors() == frozenset()
