"""Released pods that no workload of ours answers for are put back or ended."""

from __future__ import annotations

from collections.abc import Iterator

from placement.plan.actions import Action
from placement.plan.draft import Draft
from placement.plan.release import ends_of


def plan(draft: Draft) -> Iterator[Action]:
    """What failed a moment ago is left out without a word: there may be no workload to report it on."""
    for left in draft.scene.left_behind:
        yield from (action for action in ends_of(left) if not draft.held(action.pod, action.how, action.text))
