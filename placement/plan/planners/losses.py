"""Pods whose node is gone are deleted early, with proof, so that they are replaced at once."""

from __future__ import annotations

from collections.abc import Iterator

from placement.plan.actions import Action
from placement.plan.draft import Draft
from placement.plan.losses import burials, left_behind


def plan(draft: Draft) -> Iterator[Action]:
    """Where their class has no room for all of them, that is an outage.

    Not where an autoscaler brings nodes: the replacements wait for it, for as long as their policy says.
    """
    buried = burials(draft.scene.assessments, draft.scene.lost)
    if not draft.scene.ground.configuration.classes.is_scaled:
        draft.short += left_behind(buried, draft.room)
    yield from buried
