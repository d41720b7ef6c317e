"""Which evictions by others wait, until when, and why the others do not."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from placement import names
from placement.availability import Availability, Basis
from placement.eviction import (
    FORGOTTEN_SECONDS,
    RELEASE_SECONDS,
    Company,
    EvictionAsked,
    EvictionCase,
    EvictionHold,
    LetGo,
    asked,
    company,
    is_asked,
    is_forgotten,
    judged,
    sentence,
    stays,
)
from placement.model import HostPort, Kind, Needs, NodeTaint, Pod, Rollout
from placement.plan.marks import Moved, Released, moment
from placement.policy import Policy
from tests.builders.model import DEPLOYMENT, node, pod, workload

NOW = 1_750_000_000.0
HOLD = 90.0
SERVING = pod("web-1", 1, "s", decision="rs/1")
ASSUMED, DECLARED = Availability(8, Basis.ASSUMED), Availability(8, Basis.DECLARED)


def asked_at(at: float) -> dict[str, str]:
    return {names.EVICTION_ASKED: EvictionAsked(at, "alice").text()}


def released(at: float) -> Pod:
    """EvictionAsked for then, and released since."""
    note = {names.RELEASED: Released(NOW + 300, "h").text(), names.SLOT: "1"}
    labels = {"app": "web", names.POD_TEMPLATE_HASH: "released-h"}
    return replace(SERVING, owner=DEPLOYMENT, labels=labels, annotations={**note, **asked_at(at)})


def case(of: Pod = SERVING, **fields: Any) -> EvictionCase:
    fixed = {"pod": of, "workload": workload(), "policy": Policy(), "availability": ASSUMED, "now": NOW}
    return EvictionCase(**{**fixed, **fields})


def test_the_first_question_is_held_for_as_long_as_the_policy_says() -> None:
    assert judged(case()) == EvictionHold(NOW + HOLD, None, needs_note=True)


def test_later_questions_count_from_the_first() -> None:
    """And need the release to be there after a few seconds."""
    first = NOW - 2
    assert judged(case(replace(SERVING, annotations=asked_at(first)))) == EvictionHold(
        first + HOLD, EvictionAsked(first, "alice")
    )
    first = NOW - RELEASE_SECONDS
    assert judged(case(replace(SERVING, annotations=asked_at(first)), company=Company(9))) is LetGo.BUDGET
    assert judged(case(released(first))) == EvictionHold(first + HOLD, EvictionAsked(first, "alice"))
    assert judged(case(released(NOW - HOLD))) is LetGo.TIME_UP


@pytest.mark.parametrize("text", ["", "soon/alice", EvictionAsked(NOW + 3600, "alice").text()])
def test_a_note_of_a_tenants_own_holds_nothing(text: str) -> None:
    """Unreadable, or of the future: no deadline could be counted from it."""
    forged = replace(SERVING, annotations={names.EVICTION_ASKED: text})
    assert judged(case(forged)) is LetGo.GARBLED
    assert not is_asked(forged, Policy(), NOW)


NOT_HELD = {
    "its owner switched it off": (case(policy=Policy(eviction_hold=timedelta())), LetGo.OFF),
    "plan-only": (case(policy=Policy(rebalance="plan-only")), LetGo.MODE),
    "rebalancing is off": (case(policy=Policy(rebalance="off")), LetGo.MODE),
    "moves are paused": (case(is_paused=True), LetGo.PAUSED),
    "nobody would release it": (case(is_led=False), LetGo.UNLED),
    "it does not serve": (case(replace(SERVING, ready=False)), LetGo.NOT_SERVING),
    "it ends already": (case(replace(SERVING, terminating=True)), LetGo.NOT_SERVING),
    "admission missed it": (case(replace(SERVING, decision="")), LetGo.NOT_OURS),
    "its replacement serves": (case(released(NOW), company=Company(10, 3)), LetGo.REPLACED),
    "another replica counts": (case(workload=workload(kind=Kind.STATEFUL_SET), counts_here=False), LetGo.UNCOUNTED),
}


@pytest.mark.parametrize(("asked_for", "why"), NOT_HELD.values(), ids=NOT_HELD.keys())
def test_what_is_not_held(asked_for: EvictionCase, why: LetGo) -> None:
    assert judged(asked_for) is why


@pytest.mark.parametrize(("notice", "grace", "seconds"), [(120, 30, 90), (120, 60, 60), (30, 10, 20)])
def test_a_node_that_ends_leaves_the_pod_its_grace_period(notice: int, grace: int, seconds: int) -> None:
    graceful = replace(SERVING, needs=Needs(grace_seconds=grace))
    assert judged(case(graceful, node_ends=NOW + notice)) == EvictionHold(NOW + seconds, None, needs_note=True)


def test_a_node_that_ends_too_soon_is_not_waited_for() -> None:
    assert judged(case(node_ends=NOW + 30)) is LetGo.NODE_ENDS


def test_a_hold_counts_from_when_the_node_began_to_leave_if_it_was_not_asked_for_before() -> None:
    """A released pod there carries no note, and its hold ends like all others."""
    gone = replace(released(NOW), annotations={names.RELEASED: Released(NOW + 300, "h").text()})
    assert judged(case(gone, leaving_since=NOW - 10)) == EvictionHold(NOW - 10 + HOLD, None)
    assert judged(case(gone, leaving_since=NOW - HOLD)) is LetGo.TIME_UP
    assert judged(case(gone, leaving_since=None)) == EvictionHold(NOW + HOLD, None, needs_note=True)
    assert judged(case(leaving_since=NOW - HOLD)) == EvictionHold(NOW + HOLD, None, needs_note=True)


def test_a_question_is_forgotten_long_after_its_hold() -> None:
    there = replace(SERVING, annotations=asked_at(NOW))
    assert not is_forgotten(there, Policy(), NOW + HOLD + FORGOTTEN_SECONDS - 1)
    assert is_forgotten(there, Policy(), NOW + HOLD + FORGOTTEN_SECONDS)
    assert not is_forgotten(replace(SERVING, annotations={names.EVICTION_ASKED: "soon"}), Policy(), NOW)


def test_what_was_just_moved_stays_where_its_node_does() -> None:
    """The descheduler and we would move it to and fro. A drain takes it all the same; a forged time holds nothing."""
    just = replace(SERVING, annotations={names.MOVED: Moved("on-demand", "7of10min1", NOW - 60).text()})
    cooling = {"cool_down_seconds": 600.0, "node_stays": True}
    held = judged(case(just, **cooling))
    assert held == EvictionHold(NOW + 540, None)
    assert "until it may be moved again" in sentence(EvictionHold(NOW + 540, None), case(just, **cooling))
    drained = EvictionHold(NOW + HOLD, None, needs_note=True)
    assert judged(case(just, cool_down_seconds=600.0)) == drained
    assert judged(replace(case(just, **cooling), now=NOW + 540)) == replace(drained, until=NOW + 540 + HOLD)
    forged = replace(SERVING, annotations={names.MOVED: Moved("on-demand", "7of10min1", NOW + 3600).text()})
    assert judged(case(forged, **cooling)) == drained
    assert judged(case(just, workload=workload(kind=Kind.STATEFUL_SET), company=Company(9), **cooling)) is LetGo.BUDGET


def test_the_question_is_written_and_read() -> None:
    """The name of a user may hold anything, slashes too."""
    question = EvictionAsked(NOW, "system:serviceaccount:kube-system:a/b")
    assert asked(replace(SERVING, annotations={names.EVICTION_ASKED: question.text()})) == question
    assert EvictionAsked(NOW, "eve\x1b[2J\n" + 200 * "x").text().endswith("/eve?[2J?" + 92 * "x")
    for garbled in ("", "now", "2020-13-01T00:00:00Z/alice"):
        assert asked(replace(SERVING, annotations={names.EVICTION_ASKED: garbled})) is None


def test_a_question_stands_for_as_long_as_it_may_be_held() -> None:
    there = replace(SERVING, annotations=asked_at(NOW))
    assert is_asked(there, Policy(), NOW + HOLD - 1)
    assert not is_asked(there, Policy(), NOW + HOLD)
    assert not is_asked(there, Policy(eviction_hold=timedelta()), NOW)
    assert not is_asked(SERVING, Policy(), NOW)


def test_a_drainer_reads_who_holds_why_and_until_when() -> None:
    text = sentence(EvictionHold(NOW + HOLD, None), case())
    assert text == (
        "Spotweave holds the eviction of pod web-1 until a replacement is started and serves, at the latest until"
        f" {moment(NOW + HOLD)} (spotweave.dev/eviction-hold)"
    )


ALONE = {
    "a StatefulSet's": case(workload=workload(kind=Kind.STATEFUL_SET)),
    "two must not run at once": case(workload=workload(rollout=Rollout(recreate=True))),
    "no surge": case(workload=workload(rollout=Rollout(max_surge=0))),
    "its disk has one writer": case(replace(SERVING, needs=Needs(claims=("data",)))),
    "its host port is taken": case(replace(SERVING, needs=Needs(host_ports=(HostPort(80),)))),
    "its ReplicaSet would not give it up": case(replace(SERVING, labels={})),
    "it was not released in time": case(replace(SERVING, annotations=asked_at(NOW - RELEASE_SECONDS))),
    "the same, with a number that somebody wrote": case(
        replace(SERVING, annotations=asked_at(NOW - RELEASE_SECONDS)), availability=DECLARED
    ),
}


@pytest.mark.parametrize("alone", ALONE.values(), ids=ALONE.keys())
def test_where_two_cannot_run_the_number_that_must_serve_is_a_budget(alone: EvictionCase) -> None:
    """Eight of ten must serve: with eight others it may go, with seven it waits."""
    assert judged(replace(alone, company=Company(7, 1))) is LetGo.BUDGET
    waits = replace(alone, company=Company(7))
    first = asked(alone.pod)
    assert judged(waits) == EvictionHold((first.at if first else NOW) + HOLD, first, needs_note=first is None)


def test_a_budget_that_allows_nothing_is_good_for_one() -> None:
    """Waiting would not help: a lone replica of a StatefulSet goes at once, and of three one at a time."""
    lone = case(workload=workload(replicas=1, kind=Kind.STATEFUL_SET), availability=Availability(1, Basis.DECLARED))
    assert judged(lone) is LetGo.BUDGET
    three = case(workload=workload(replicas=3, kind=Kind.STATEFUL_SET), availability=Availability(3, Basis.BUDGET))
    assert judged(replace(three, company=Company(2))) is LetGo.BUDGET
    assert isinstance(judged(replace(three, company=Company(1))), EvictionHold)


def test_the_budget_waits_no_longer_than_the_policy_says() -> None:
    first = NOW - HOLD
    stateful = workload(kind=Kind.STATEFUL_SET)
    assert judged(case(replace(SERVING, annotations=asked_at(first)), workload=stateful)) is LetGo.TIME_UP


def test_the_others_are_those_that_serve() -> None:
    """Ready for long enough, on a node, not on their way out, and not let go a moment ago."""
    others = [
        pod("serves", 0, "s", changed=NOW - 60),
        pod("gone", 2, "s", changed=NOW - 60),
        pod("new", 3, "s", changed=NOW - 5),
        pod("pending", 4),
        pod("ends", 5, "s", terminating=True),
        replace(released(NOW), name="released", uid="released", changed=NOW - 60),
    ]
    assert company([SERVING, *others], SERVING, {"gone"}, 10, NOW) == Company(1, 1)
    assert company([SERVING, *others], SERVING, (), 0, NOW) == Company(3, 1)


def test_a_drainer_reads_what_a_budget_waits_for() -> None:
    text = sentence(EvictionHold(NOW + HOLD, None), case(workload=workload(kind=Kind.STATEFUL_SET), company=Company(7)))
    assert "until 8 other replicas serve (now 7), at the latest until" in text


def test_a_node_that_nobody_has_marked_stays() -> None:
    """Whoever drains or scales down marks the node first. Nothing is said of one that is not known."""
    there = node("n1")
    taints = ("example.com/leaving",)
    assert stays(there, taints)
    for marked in (
        replace(there, unschedulable=True),
        replace(there, deleting=True),
        replace(there, taints=(NodeTaint("example.com/leaving", "", "NoSchedule"),)),
        None,
    ):
        assert not stays(marked, taints)
