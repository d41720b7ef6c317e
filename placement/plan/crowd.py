"""Spot pods of one workload that are too many in one pool."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from placement import names
from placement.model import Class, Pool
from placement.plan.ground import Ground
from placement.plan.group import Group, Member
from placement.plan.reslot import MOST_SLOTS, crowds_of
from placement.pools import preferred_pool
from placement.slots import Mix


def crowded(group: Group, members: Sequence[Member], lasting: Mix, ground: Ground) -> list[Member]:
    """Spot pods above the headroom in one pool, where another pool has two fewer: as many as even the two out.

    Where there are too few pools to keep each within the headroom, half above the even share is let be: nothing makes
    such a workload survive the loss of a pool, and only what is far from even is worth a move. A replacement prefers
    the pool of its slot, so those go whose slot prefers another pool; no other move would help. Those go first that
    have not been moved before. While moves are under way or pods wait for a node, nobody knows yet how full the pools
    will be.
    """
    headroom = max(1, lasting.spot + lasting.on_demand - group.needed)
    if lasting.spot <= headroom or max(crowds_of(members).values(), default=0) <= headroom:
        return []  # every pool is within it, as most are: nothing else need be looked at
    if any(cohort.released for cohort in group.cohorts) or any(not member.pod.node for member in members):
        return []
    classes = classes_of_slots(group, members)
    crowds = crowds_of([each for each in members if each.of is classes[each.slot or 0]])
    for pool in ground.spot_pools:
        crowds.setdefault(pool, 0)
    if len(crowds) < 2:
        return []
    most, too_many = max(crowds.values()), surplus(crowds.values(), headroom)
    if too_many < 1:
        return []
    pool = max((each for each, count in crowds.items() if count == most), key=str)
    strays = [member for member in members if _is_stray(member, pool, group, ground)]
    return sorted(strays, key=lambda member: names.MOVED in member.pod.annotations)[:too_many]


def surplus(counts: Collection[int], headroom: int) -> int:
    """How many of the fullest pool's replicas are to go to others."""
    if len(counts) < 2:
        return 0
    even, most = -(-sum(counts) // len(counts)), max(counts)
    limit = headroom if even <= headroom else even + max(1, even // 2)
    return max(0, min(most - limit, (most - min(counts)) // 2))


def classes_of_slots(group: Group, members: Sequence[Member]) -> Sequence[Class] | Mapping[int, Class]:
    """The class of every slot that a member may hold."""
    slots, held = group.slots, [member.slot or 0 for member in members]
    highest = max(held, default=0)
    if highest < MOST_SLOTS:
        return slots.classes(highest + 1)
    return {slot: slots.class_of(slot) for slot in held}  # ordinals may begin anywhere


def _is_stray(member: Member, pool: Pool, group: Group, ground: Ground) -> bool:
    """It is in this pool, and its slot prefers another."""
    if not member.stands or member.site is None or member.site.of is not Class.SPOT or member.slot is None:
        return False
    preferred = preferred_pool(member.slot, group.slots, group.workload, ground.spot_pools)
    return member.site.pool == pool and preferred != pool
