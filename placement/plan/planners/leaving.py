"""Pods on nodes that will go are released, as fast as there is room for their replacements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from placement.decide import falls_back
from placement.model import Class
from placement.plan.actions import Action, Blocked, Why
from placement.plan.assess import Wish
from placement.plan.begin import begun
from placement.plan.draft import Draft

MOST_LEAVING = 200  # releases from leaving nodes in one plan: what is written in a second


def plan(draft: Draft) -> Iterator[Action]:
    """The rest is left to the next pass, which sees the outage that this one may note."""
    wishes = (wish for wish in draft.wishes if wish.why is Why.LEAVING)
    yield from islice(begun(draft, wishes, lambda wish: _no_room(draft, wish)), MOST_LEAVING)
    draft.left += sum(1 for _ in wishes)


def _no_room(draft: Draft, wish: Wish) -> Blocked | None:
    """A pod of spot may also go to on-demand: then spot is out.

    Where an autoscaler brings nodes, missing room is no outage, and some may wait for it.
    """
    room, pod, siblings = draft.room, wish.member.pod, draft.siblings(wish)
    if room.take(pod, wish.to, siblings, is_urgent=True) is not None:
        return None
    is_scaled = draft.scene.ground.configuration.classes.is_scaled
    policy, workload = wish.group.policy, wish.group.workload
    may_fall = not is_scaled and wish.to is Class.SPOT and falls_back(wish.to, policy, workload)
    if may_fall and room.take(pod, wish.to.other, siblings, is_urgent=True) is not None:
        draft.short.append((wish.to, pod, workload))
        return None
    may_wait = draft.limits.may_wait_for_room(workload.namespace) and is_scaled
    return None if may_wait else Blocked.NO_PLACE
