"""What might go for a gang, and how it is marked."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement import names
from placement.gang.claim import RoomClaim, claim_of, claims_of, is_complete
from placement.gang.evictable import of_gangs, of_solo
from placement.gang.reservation import Reservation
from placement.model import Key, Owner, Pod
from tests.builders.model import NOW, pod
from tests.placement.test_gang import gang, kept, member

MARK = RoomClaim(Key("shop", "team/train.1"), "19a2f", 2)


def marked(number: int) -> Pod:
    return replace(pod(f"v{number}", None, "n1"), annotations={names.PREEMPTED_BY: MARK.text()})


def test_a_mark_is_read_as_it_was_written() -> None:
    """Also where the name of the gang has slashes."""
    assert claim_of(marked(0)) == MARK
    for text in ("", "shop/train/19a2f", "shop/train/19a2f/many", "shop/train/19a2f/²"):
        assert claim_of(replace(marked(0), annotations={names.PREEMPTED_BY: text})) is None


def test_marks_are_complete_when_all_are_there_and_none_ends() -> None:
    """A leader that died in the middle has marked too few."""
    pair = claims_of([marked(0), marked(1), pod("other", None, "n1")])[MARK.key]
    assert is_complete(pair)
    assert not is_complete(pair[:1])
    assert not is_complete([pair[0], replace(pair[1], terminating=True)])


@pytest.mark.parametrize(
    ("owner", "fields", "is_found"),
    [
        (None, {}, True),
        (Owner("Job", "j", "u", "batch"), {}, True),
        (Owner("ReplicaSet", "web", "u"), {}, False),
        (Owner("StatefulSet", "db", "u"), {}, False),
        (Owner("DaemonSet", "ds", "u"), {}, False),
        (Owner("Node", "n1", "u"), {}, False),
        (None, {"node": ""}, False),
        (None, {"terminating": True}, False),
        (None, {"labels": {names.PLACEMENT: names.DISABLED}}, False),
        (None, {"annotations": {names.POD_GROUP: "train"}}, False),
    ],
)
def test_single_pods_may_go_but_no_services(owner: Owner | None, fields: dict[str, object], is_found: bool) -> None:
    """Bare pods and those of Jobs, where they run; members of gangs go with their gang."""
    made = replace(pod("p", None, "n1"), owner=owner)
    assert bool(list(of_solo([replace(made, **fields)]))) is is_found  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "written", [{names.PREEMPTIBLE: "false"}, {names.SAFE_TO_EVICT: "false"}, {names.DO_NOT_DISRUPT: "true"}]
)
def test_pods_can_say_that_they_stay(written: dict[str, str]) -> None:
    """By our annotation, or by those of autoscalers."""
    made = replace(pod("p", None, "n1"), owner=None, annotations=written)
    assert [each.is_preemptible for each in of_solo([made])] == [False]


def test_a_gang_runs_since_its_plan_and_goes_whole_or_by_its_surplus() -> None:
    """Its members were created long before: they waited. One that still starts is part of a plan."""
    plan = Reservation("p1", NOW - 5, "n1").text()
    running = [member(number, "n1", is_gated=False, gang_plan=plan, created=NOW - 900) for number in range(8)]
    (found,) = of_gangs([gang(running)])
    assert (len(found.pods), found.min_member, found.started, found.plan) == (8, 8, NOW - 5, "")
    (moving,) = of_gangs([gang([*running[:7], kept(7)])])
    assert moving.plan
