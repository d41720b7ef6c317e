"""Successors of pods that we evicted are marked, so that the next leader does not evict them again too soon."""

from __future__ import annotations

from collections.abc import Iterator

from placement import names
from placement.plan.actions import Action, How, Why
from placement.plan.assess import Assessment
from placement.plan.draft import Draft
from placement.plan.marks import Moved, seat


def plan(draft: Draft) -> Iterator[Action]:
    for each in draft.scene.assessments if draft.scene.evicted else ():
        yield from _marks(draft, each)


def _marks(draft: Draft, each: Assessment) -> Iterator[Action]:
    for member in each.members:
        before = draft.scene.evicted.get(seat(each.group.workload, member.pod))
        if before is None or before.uid == member.pod.uid or names.MOVED in member.pod.annotations:
            continue
        mark = {names.MOVED: Moved(before.origin, before.policy, before.at, before.tries).text()}
        text = f"it replaces a pod that was evicted from {before.origin}"
        yield Action(How.ANNOTATE, Why.OVER, each.group.workload, member.pod, annotations=mark, text=text)
