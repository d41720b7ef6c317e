"""Which members of a gang ended, and why, as the Event about a loss says it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement import names
from placement.model import Needs, Pod, Sign
from rebalancer.gangends import GangEnds
from tests.builders.model import NOW
from tests.placement.test_gang import KEY
from tests.placement.test_gang_life import RUN, gang, seven, started

PREEMPTED = started(7, disrupted=names.PREEMPTED)
PREEMPTOR = replace(started(8), name="urgent", uid="u-8", needs=Needs(priority=100))


def said(new: Pod | None, *signs: Sign, beside: tuple[Pod, ...] = ()) -> list[str]:
    """What is said after member 7 became that."""
    ends = GangEnds({})
    for sign in signs:
        ends.hear(sign)
    ends.see(KEY, started(7), new)
    return list(ends.of(gang(seven()), {"n1": beside}))


ENDS = {
    "deleted": (None, "pod m7: deleted"),
    "being deleted": (started(7, terminating=True), "pod m7: deleted"),
    "failed": (started(7, phase="Failed"), "pod m7: failed"),
    "evicted": (started(7, disrupted=names.EVICTED), "pod m7: evicted (EvictionByEvictionAPI)"),
    "preempted": (PREEMPTED, "pod m7: deleted by the scheduler for a pod of higher priority"),
}


@pytest.mark.parametrize(("new", "text"), ENDS.values(), ids=ENDS.keys())
def test_why_a_member_ended(new: Pod | None, text: str) -> None:
    """By what the pod shows last."""
    assert said(new) == [text]


def test_what_has_succeeded_or_is_ended_by_us_is_not_told() -> None:
    """It was not lost."""
    assert said(started(7, phase="Succeeded")) == []
    marked = {**started(7).annotations, names.GANG_RUN: RUN.ending("restart", NOW).text()}
    assert said(started(7, annotations=marked, terminating=True)) == []


@pytest.mark.parametrize("text", ["Preempted by pod u-8 on node n1", "Preempted by shop/urgent on node n1"])
def test_the_pod_that_got_the_room_is_named(text: str) -> None:
    """The scheduler's Event says its UID, or its name in older versions; it is on the node by then."""
    sign = Sign("shop", "e1", names.SIGN_PREEMPTED, "m7", NOW, message=text, kind="Pod")
    told = said(PREEMPTED, sign, beside=(PREEMPTOR,))
    assert told == ["pod m7: deleted by the scheduler for pod shop/urgent of priority 100"]
    assert said(PREEMPTED, sign) == [f"pod m7: deleted by the scheduler for {text.split()[-4]}"]


def test_an_end_is_told_once() -> None:
    """A pod is marked, then ends, then is gone: three changes, one sentence."""
    ends = GangEnds({})
    ending = replace(PREEMPTED, terminating=True)
    for old, new in ((started(7), PREEMPTED), (PREEMPTED, ending), (ending, None)):
        ends.see(KEY, old, new)
    assert len(ends.of(gang(seven()), {})) == 1
