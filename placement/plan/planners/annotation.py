"""Slots, and what admission missed, are written on pods."""

from __future__ import annotations

from collections.abc import Iterator

from placement.plan.actions import Action
from placement.plan.draft import Draft


def plan(draft: Draft) -> Iterator[Action]:
    """Only so many at once (`most_notes`): 3,000 would take a minute, and a node may be lost meanwhile."""
    most = draft.scene.most_notes
    notes = list(draft.unheld(action for each in draft.scene.assessments for action in each.notes))
    draft.left += len(notes[most:]) if most is not None else 0
    yield from notes[:most]
