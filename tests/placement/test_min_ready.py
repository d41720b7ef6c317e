"""A pod that has been ready for less than `minReadySeconds` does not stand in for another yet."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from placement import names
from placement.configuration import Configuration, Moves
from placement.model import Kind, Owner, Pod
from placement.plan.actions import Action, Blocked, How
from placement.plan.group import Group
from placement.plan.marks import Moved, Released, released
from placement.plan.scene import Scene
from placement.plan.select import plan
from tests.builders.model import NOW, SPOT, node, owned_by_deployment, pod
from tests.builders.plan import assessed, ground, group

LEAST = 20
HERE = ground(node("o", cpu=64_000), node("s", SPOT, cpu=64_000), node("t", SPOT, "b", cpu=64_000))
MARKED = {names.MOVED: Moved("on-demand", "7of10min1", NOW).text()}
ZERO, ONE = pod("zero", 0, "o"), pod("one", 1, "s")


def moving(ready_for: float, where: str = "t", least: int = LEAST) -> Group:
    """Slot 2 is on its way from on-demand to spot, and its replacement became ready so many seconds ago."""
    written = {names.RELEASED: Released(NOW + 60, "h").text()}
    old = owned_by_deployment(pod("old", 2, "o", annotations=written))
    new = pod("new", 2, where, annotations=MARKED, changed=NOW - ready_for)
    return group([ZERO, ONE, old, new], 3, min_ready_seconds=least)


@pytest.mark.parametrize(
    ("ready_for", "least", "expected"),
    [
        (0.5, LEAST, []),
        (LEAST + 0.9, LEAST, []),
        (LEAST + 1, LEAST, ["finish old"]),
        (0, 0, ["finish old"]),
    ],
    ids=[
        "it is ready",
        "nearly for that long: it may have become ready late in its second",
        "for that long",
        "at once",
    ],
)
def test_a_move_ends_when_its_replacement_was_ready_for_long_enough(
    ready_for: float, least: int, expected: list[str]
) -> None:
    found = assessed(moving(ready_for, least=least), HERE)
    assert [f"{action.how} {action.pod.name}" for action in found.sweeps] == expected


def test_a_replacement_that_came_out_elsewhere_is_not_judged_sooner() -> None:
    """It is on on-demand, where the old pod was: the move is undone when it would have ended."""
    assert assessed(moving(1, where="o"), HERE).sweeps == ()
    hows = [action.how for action in assessed(moving(LEAST + 1, where="o"), HERE).sweeps]
    assert hows == [How.ANNOTATE, How.UNDO]


def test_its_workload_is_looked_at_until_then() -> None:
    """No event says that the time is over, also where nothing is being moved."""
    young = [ZERO, ONE, pod("new", 2, "t", changed=NOW - 1)]
    found = assessed(group(young, min_ready_seconds=LEAST), HERE)
    assert found.is_restless
    assert not assessed(group(young, min_ready_seconds=LEAST), HERE, NOW + LEAST).is_restless
    assert not assessed(group(young), HERE).is_restless


def test_a_release_has_that_much_more_time() -> None:
    """With a `minReadySeconds` of ten minutes every move would be undone after the five that a start may take."""
    misplaced = group([ZERO, ONE, pod("c", 2, "o")], min_ready_seconds=600)
    (action,) = planned(misplaced)
    state = released(replace(action.pod, annotations={names.RELEASED: action.annotations[names.RELEASED] or ""}))
    assert state is not None
    assert state.until == NOW + 300 + 600


def planned(found: Group) -> tuple[Action, ...]:
    configuration = Configuration(moves=Moves(timeout=timedelta(minutes=5)))
    on = replace(HERE, configuration=configuration)
    return plan(Scene([assessed(found, on)], on, lambda _name: {}, NOW)).actions


def stateful(changed: float) -> Group:
    """db-0 … db-3 at 50 %, all on on-demand; db-1 was ready at this moment."""

    def own(index: int) -> Pod:
        made = pod(f"db-{index}", index, "o", owner="d", changed=changed if index == 1 else 0.0)
        return replace(made, owner=Owner("StatefulSet", "web", "d"))

    found = group([own(index) for index in range(4)], kind=Kind.STATEFUL_SET, min_ready_seconds=LEAST)
    return replace(found, cohorts=(replace(found.cohorts[0], uid="d"),))


def test_no_pod_is_evicted_while_a_sibling_was_not_ready_for_long_enough() -> None:
    """A StatefulSet's own rollout waits for it, too."""
    for changed, moves, blocked in ((NOW - 3, 0, {Blocked.UNREADY}), (NOW - LEAST - 1, 1, {Blocked.PER_WORKLOAD})):
        made = plan(Scene([assessed(stateful(changed), HERE)], HERE, lambda _name: {}, NOW))
        assert len(made.actions) == moves
        assert {each.blocked for each in made.skipped} == blocked
