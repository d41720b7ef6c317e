"""Moves that are under way are finished or undone."""

from __future__ import annotations

from collections.abc import Iterator

from placement.plan.actions import Action, How
from placement.plan.draft import Draft

# What is written on replacements comes before what is done to their predecessors.
ORDER = (How.ANNOTATE, How.DELETE, How.FINISH, How.UNDO)


def plan(draft: Draft) -> Iterator[Action]:
    """Moves whose newcomers find no node are given up as well. Each pod ends once, in each way."""
    swept = (action for each in draft.scene.assessments for action in each.sweeps)
    found = {(each.how, each.pod.uid): each for each in (*draft.freed.given_up, *swept)}
    yield from sorted(found.values(), key=lambda action: ORDER.index(action.how))
