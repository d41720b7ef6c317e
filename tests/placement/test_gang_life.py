"""What has become of a gang that has started, by its pods, their owners and the nodes; and what is done about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from placement import names
from placement.gang.gang import Gang, gang_of
from placement.gang.life import OwnerFacts
from placement.gang.run import FAIL, RESTART, Run, pause_before, run_of
from placement.model import Owner, Pod
from placement.plan.planners.life import remedy_of
from tests.builders.model import NOW
from tests.placement.test_gang import EIGHT, GROUP, JOB, KEY, member

RUN = Run("p1", NOW - 100, 8)
NOTED = {**EIGHT, names.GANG_RUN: RUN.text()}
OLD, NEW = (Owner("ReplicaSet", f"train-{each}", each) for each in ("old", "new"))
LAUNCHER = Owner("Job", "launcher", "launcher", "batch")


def started(number: int, where: str = "n1", annotations: Mapping[str, str] = NOTED, **fields: Any) -> Pod:
    return member(number, where, annotations=annotations, **fields)


def seven(*more: Pod, **fields: Any) -> list[Pod]:
    return [*(started(number, **fields) for number in range(7)), *more]


def gang(pods: list[Pod], sizes: Mapping[str, int] | None = None, fate: str = "", **facts: OwnerFacts) -> Gang:
    """Owners have so many pods by their UID; those that are not named are not known. Pods of node n2 share its fate."""
    known = {JOB.uid: 8} if sizes is None else sizes
    found = gang_of(
        KEY,
        pods,
        lambda owner: known.get(owner.uid),
        facts_of=lambda owner: facts.get(owner.uid, OwnerFacts()),
        fate_of=lambda node: fate if node == "n2" else "",
    )
    assert found is not None
    return found


# --- the note --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run", [RUN, replace(RUN, restarts=3), RUN.ending(RESTART, NOW), RUN.ending(FAIL, NOW)])
def test_a_run_is_read_as_it_was_written(run: Run) -> None:
    """With its mark, if it ends."""
    assert run_of(started(0, annotations={names.GANG_RUN: run.text()})) == run


@pytest.mark.parametrize(
    "text",
    ["", "p", "p/1/8", "/1/8/0", "p/x/8/0", "p/1/eight/0", "p/1/8/0/stop/2", "p/1/8/0/fail", "p/nan/8/0", "p/1/٣/0"],
)
def test_what_others_wrote_is_no_run(text: str) -> None:
    """It is as good as not there."""
    assert run_of(started(0, annotations={names.GANG_RUN: text})) is None


def test_a_row_of_restarts_waits_for_longer_each_time() -> None:
    """At once, then 5 s, 10 s, up to 5 minutes. A run of more than ten minutes begins a new row."""
    assert [pause_before(count) for count in (0, 1, 2, 3, 4, 50)] == [0, 0, 5, 10, 20, 300]
    assert [replace(RUN, at=NOW - age, restarts=4).restarts_after(NOW) for age in (60, 599, 601)] == [5, 5, 1]


# --- what was lost ---------------------------------------------------------------------------------------------------

OF_OLD = {**GROUP, names.GANG_RUN: RUN.text()}
OF_NEW = {**GROUP, names.GANG_RUN: Run("p2", NOW - 5, 1).text()}
LOSSES: dict[str, tuple[Gang, int]] = {
    "all are there": (gang([*seven(), started(7)]), 0),
    "one is gone": (gang(seven()), 1),
    "its replacement waits": (gang(seven(member(7))), 1),
    "one ends": (gang(seven(started(7, terminating=True))), 1),
    "one has failed": (gang(seven(started(7, phase="Failed"))), 1),
    "one has succeeded": (gang(seven(started(7, phase="Succeeded"))), 0),
    "one of an earlier run has succeeded": (gang(seven(started(7, phase="Succeeded", annotations=OF_NEW))), 1),
    "the Job wants seven": (gang(seven(), {JOB.uid: 7}), 0),
    "the Job is gone, or not known yet": (gang(seven(), {}), 0),
    "the Job is suspended": (gang(seven(), {JOB.uid: 0}), 0),
    "one of a JobSet, whose Jobs are one of several": (gang(seven(), {JOB.uid: -1}, job=OwnerFacts(pods=8)), 1),
    "its Job is suspended": (gang(seven(), {JOB.uid: -1}, job=OwnerFacts(pods=0)), 0),
    "an owner without a number": (gang(seven(owner=Owner("Ray", "r", "r"))), 1),
    "bare pods": (gang(seven(owner=None)), 1),
    "one is on a node that goes": (gang(seven(started(7, "n2")), fate="its node n2 will go"), 1),
    "one is on a node that stays": (gang(seven(started(7, "n2"))), 0),
    "one above the minimum is gone": (
        gang(
            [
                started(number, annotations={**NOTED, names.GANG_RUN: replace(RUN, number=4).text()})
                for number in range(5)
            ]
        ),
        0,
    ),
    "none has a note": (gang([started(number, annotations=EIGHT) for number in range(7)]), 0),
    "the launcher of eight workers is gone, and its new pod waits": (
        gang(
            [started(n, annotations={**NOTED, names.GANG_RUN: replace(RUN, number=9).text()}) for n in range(8)]
            + [member(9, owner=LAUNCHER)],
            {JOB.uid: 8, LAUNCHER.uid: 1},
        ),
        1,
    ),
    "a rollout has taken two of eight": (
        gang(
            [started(n, annotations=OF_OLD, owner=OLD) for n in range(6)] + [member(n, owner=NEW) for n in (7, 8)],
            {"old": 6, "new": 4},
            old=OwnerFacts(root="train"),
            new=OwnerFacts(root="train"),
        ),
        0,
    ),
    "one of the old revision was lost beside a rollout": (
        gang(
            [started(n, annotations=OF_OLD, owner=OLD) for n in range(5)] + [member(n, owner=NEW) for n in (7, 8)],
            {"old": 6, "new": 4},
            old=OwnerFacts(root="train"),
            new=OwnerFacts(root="train"),
        ),
        1,
    ),
    "a rollout whose first new pod runs": (
        gang(
            [started(n, annotations=OF_OLD, owner=OLD) for n in range(5)] + [started(9, annotations=OF_NEW, owner=NEW)],
            {"old": 5, "new": 4},
            old=OwnerFacts(root="train"),
            new=OwnerFacts(root="train"),
        ),
        0,
    ),
}


@pytest.mark.parametrize(("found", "lost"), LOSSES.values(), ids=LOSSES.keys())
def test_what_was_lost(found: Gang, lost: int) -> None:
    """Fewer than the run had, and than its owners want, without those that succeeded."""
    assert found.life.lost == lost


def test_a_gang_that_was_scaled_gets_another_number() -> None:
    """When it is whole with it, not before."""
    ten = [started(number, annotations={**GROUP, names.GANG_RUN: RUN.text()}) for number in range(10)]
    assert gang(ten, {JOB.uid: 10}).life.is_adrift
    assert not gang(ten[:9], {JOB.uid: 10}).life.is_adrift
    assert gang(ten[:6], {JOB.uid: 6}).life.is_adrift
    assert not gang(ten[:8]).life.is_adrift


# --- time ------------------------------------------------------------------------------------------------------------

TWO, FOUR, ONE = ({**NOTED, names.TIME_LIMIT: text} for text in ("2h", "4h", "1h"))
LIMITS: dict[str, tuple[Sequence[Mapping[str, str]], Mapping[str, str], int | None]] = {
    "nobody says one": ([NOTED] * 8, {}, None),
    "all say the same": ([TWO] * 8, {}, 2),
    "one says more": ([TWO] * 7 + [FOUR], {}, 4),
    "one says less": ([TWO] * 7 + [ONE], {}, 1),
    "two say another thing each": ([TWO] * 6 + [ONE, FOUR], {}, 4),
    "two of two differ": ([TWO, FOUR], {}, 4),
    "the owner says less": ([TWO] * 7 + [FOUR], {names.TIME_LIMIT: "1h"}, 1),
    "what the owner says cannot be read": ([TWO] * 8, {names.TIME_LIMIT: "soon"}, 2),
}


@pytest.mark.parametrize(("said", "of_owner", "hours"), LIMITS.values(), ids=LIMITS.keys())
def test_what_limits_its_time(
    said: Sequence[Mapping[str, str]], of_owner: Mapping[str, str], hours: int | None
) -> None:
    """The owner's word first, then what a member says in another way than most. It counts from the run."""
    pods = [started(number, annotations=each) for number, each in enumerate(said)]
    life = gang(pods, job=OwnerFacts(of_owner)).life
    assert life.time_limit == (None if hours is None else timedelta(hours=hours))
    assert life.ends_at == (None if hours is None else RUN.at + hours * 3600)


# --- what is done about a loss ---------------------------------------------------------------------------------------

REMEDIES: dict[str, tuple[str, list[Pod], OwnerFacts, str]] = {
    "by default": ("", seven(), OwnerFacts(), "restart-gang"),
    "as declared": ("continue", seven(), OwnerFacts(), "continue"),
    "with a bare pod": ("", seven(started(7, owner=None)), OwnerFacts(), "repair"),
    "a Job that would fail by it": ("", seven(), OwnerFacts(failures_left=6), "repair"),
    "a Job that survives it": ("", seven(), OwnerFacts(failures_left=8), "restart-gang"),
    "a Job that is to fail": ("fail-gang", seven(), OwnerFacts(failures_left=0), "fail-gang"),
}


@pytest.mark.parametrize(("policy", "pods", "facts", "expected"), REMEDIES.values(), ids=REMEDIES.keys())
def test_what_is_done(policy: str, pods: list[Pod], facts: OwnerFacts, expected: str) -> None:
    """As declared; but nothing is restarted that would not come back, and then the reason is given."""
    said = {names.ON_PARTIAL_FAILURE: policy} if policy else {}
    own = [replace(pod, annotations={**pod.annotations, **said}) for pod in pods]
    found = remedy_of(gang(own, job=facts))
    assert found.policy == expected
    assert bool(found.why) == (expected == "repair")


def test_a_succeeded_member_that_is_gone_was_not_lost() -> None:
    """Its node was removed, and pod GC took it. The Job counts it, and seven restart without it."""
    facts = {JOB.uid: OwnerFacts(done=1, left=7, pods=8)}
    assert gang(seven(), None, "", **facts).life.lost == 0
    assert gang([*seven(), started(7, phase="Succeeded")], None, "", **facts).life.lost == 0
    assert gang(seven()[:6], None, "", **facts).life.lost == 1
    assert gang([member(number) for number in range(7)], None, "", **facts).least(NOW + 1000) == 7
