"""Pods on nodes that will go, or that others evict, are released, as fast as there is room for their replacements."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from placement.decide import falls_back
from placement.model import Class
from placement.plan.actions import DEPARTING, Action, Blocked
from placement.plan.assess import Wish
from placement.plan.begin import begun
from placement.plan.draft import Draft

MOST_LEAVING = 200  # releases from leaving nodes in one plan: what is written in a second


def plan(draft: Draft) -> Iterator[Action]:
    """The rest is left to the next pass, which sees the outage that this one may note."""
    wishes = (wish for wish in draft.wishes if wish.why in DEPARTING)
    yield from islice(begun(draft, wishes, lambda wish: _obstacle(draft, wish)), MOST_LEAVING)
    draft.left += sum(1 for _ in wishes)


def _obstacle(draft: Draft, wish: Wish) -> Blocked | None:
    """More nodes may begin to leave, and the replacement could start on one of them; or there is no room for it."""
    is_early = wish.member.pod.node in draft.scene.gathering
    return Blocked.GATHERING if is_early else _no_room(draft, wish)


def _no_room(draft: Draft, wish: Wish) -> Blocked | None:
    """A pod of spot may also go to on-demand: then spot is out.

    Where an autoscaler brings nodes, missing room is no outage, and replacements wait for it, however many: they would
    wait as well if the pods were evicted without a release.
    """
    room, pod = draft.room, wish.member.pod
    if room.take(pod, wish.to, is_urgent=True) is not None:
        return None
    is_scaled = draft.scene.ground.configuration.classes.is_scaled
    policy, workload = wish.group.policy, wish.group.workload
    may_fall = not is_scaled and wish.to is Class.SPOT and falls_back(wish.to, policy, workload)
    if may_fall and room.take(pod, wish.to.other, is_urgent=True) is not None:
        draft.short.append((wish.to, pod, workload))
        return None
    return None if is_scaled else Blocked.NO_PLACE
