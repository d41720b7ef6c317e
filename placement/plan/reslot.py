"""Assigns slots to pods: every slot once, with as few pods as possible on another class than their slot's.

Slots of one class are interchangeable, and rewriting one costs an annotation. So a changed ratio costs only the
difference of the two mixes in moves. Example: ten pods at 70 % hold slots 0…9, seven of them spot. At 30 % the slots
0 1 2 3 4 5 6 7 8 9 are O O O S O O S O O S. Three spot pods take 3, 6 and 9. Three on-demand pods keep their slots or
take the lowest free one of their class. Four spot pods are left for on-demand slots, and are moved. They come from the
fullest pools, so that the rest is spread evenly: if pools a, b and c hold 3, 2 and 2, two of a, one of b and one of c.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from placement.model import Class, Pool
from placement.plan.group import Member
from placement.slots import Slots

MOST_SLOTS = 20_000  # beyond these only as many as there are pods


def reslotted(members: Sequence[Member], slots: Slots, replicas: int) -> dict[str, int]:
    """UID → slot. A pod keeps its slot if no other pod has it, and it is of the pod's class and below the replicas."""
    limit = _limit(members, replicas)
    classes = slots.classes(limit)
    kept = _kept(members, classes)
    if len(kept) == len(members):
        return kept
    surplus = _surplus(members, classes)
    fitting = [member for member in members if member.pod.uid not in surplus]
    kept = _kept(fitting, classes)
    taken = set(kept.values())
    free = [slot for slot in range(limit) if slot not in taken]
    misfits = [member for member in members if member.pod.uid in surplus]
    left = [member for member in fitting if member.pod.uid not in kept]
    left.sort(key=lambda member: (member.of is None, not member.pod.ready, member.pod.created, member.pod.name))
    for member in left:
        slot = next((slot for slot in free if classes[slot] is member.of), None)
        if slot is None:
            misfits.append(member)
        else:
            kept[member.pod.uid] = slot
            free.remove(slot)
    return {**kept, **_seated(misfits, free)}


def adopted(members: Sequence[Member], slots: Slots, replicas: int) -> dict[str, int]:
    """Slots for pods without one, while no other slot may be rewritten: free slots, of their class if possible."""
    classes = slots.classes(_limit(members, replicas))
    taken = {member.slot for member in members}
    free = [slot for slot in range(len(classes)) if slot not in taken]
    found: dict[str, int] = {}
    for member in members:
        if member.slot is None and free:
            found[member.pod.uid] = next((slot for slot in free if classes[slot] is member.of), free[0])
            free.remove(found[member.pod.uid])
    return found


def _limit(members: Sequence[Member], replicas: int) -> int:
    """How many slots to assign. Two billion replicas are a typo, and must not use up the memory."""
    return max(len(members), min(replicas, MOST_SLOTS))


def _seated(misfits: Sequence[Member], free: list[int]) -> dict[str, int]:
    """Who holds one of the slots that are left keeps it; the others take the lowest."""
    seats: dict[str, int] = {}
    for member in misfits:
        if member.slot is not None and member.slot in free:
            seats[member.pod.uid] = member.slot
            free.remove(member.slot)
    others = (member for member in misfits if member.pod.uid not in seats)
    return {**seats, **{member.pod.uid: slot for member, slot in zip(others, free, strict=False)}}


def _surplus(members: Sequence[Member], classes: Sequence[Class]) -> set[str]:
    """Pods that are more than the slots of their class: from the fullest pools, those first that hold no slot of it."""
    found: set[str] = set()
    for of in Class:
        own = [member for member in members if member.of is of]
        too_many = len(own) - classes.count(of)
        if too_many > 0:
            found.update(member.pod.uid for member in _from_the_fullest(own, classes)[:too_many])
    return found


def _from_the_fullest(own: Sequence[Member], classes: Sequence[Class]) -> list[Member]:
    """Pods with a slot of the other class come first: they were chosen before, or run here while theirs is out.

    Then, and among them, one pod of the fullest pool each time. Pods without a node come last: they cannot be moved off
    anything. Example: seven soft pods are in pool a, of on-demand, and three that belong there in pool b. All soft ones
    are chosen, although pool b is the fuller one in the end.
    """
    pools: dict[Pool | None, list[Member]] = {}
    for member in sorted(own, key=lambda member: (_holds_its_class(member, classes), -(member.slot or 0))):
        pools.setdefault(member.pool, []).append(member)
    waiting = pools.pop(None, [])
    chosen = []
    while pools:
        fullest = max(pools, key=lambda at: (not _holds_its_class(pools[at][0], classes), len(pools[at]), str(at)))
        chosen.append(pools[fullest].pop(0))
        if not pools[fullest]:
            del pools[fullest]
    return [*chosen, *waiting]


def _holds_its_class(member: Member, classes: Sequence[Class]) -> bool:
    return member.slot is not None and member.slot < len(classes) and classes[member.slot] is member.of


def _kept(members: Sequence[Member], classes: Sequence[Class]) -> dict[str, int]:
    holders: dict[int, Member] = {}
    for member in members:
        slot = member.slot
        if slot is None or slot >= len(classes) or (member.of is not None and classes[slot] is not member.of):
            continue
        other = holders.get(slot)
        if other is None or _goes_first(member, other):
            holders[slot] = member
    return {member.pod.uid: slot for slot, member in holders.items()}


def _goes_first(one: Member, other: Member) -> bool:
    """Of two pods with one slot the ready one keeps it, then the older one."""
    return (not one.pod.ready, one.pod.created, one.pod.name) < (not other.pod.ready, other.pod.created, other.pod.name)


def leaned(members: Sequence[Member], given: dict[str, int], slots: Slots) -> dict[str, int]:
    """The same slots, permuted so that the highest spot slots, which leave first, sit in the fullest pools.

    Example: spot slots 1, 2, 4, 5 are in pools a, b, a, a. Leaving from the top they would go a, a, b, a, which is
    right: each time one of the fullest goes. Were slot 5 in b, it would change places with the highest one in a.
    A pool that has one pod more than another is not worth a write. A pod of one of the fullest pools keeps its slot.
    """
    classes = slots.classes(max(given.values(), default=0) + 1)
    spot = [
        member
        for member in members
        if member.of is Class.SPOT and member.site is not None and classes[given[member.pod.uid]] is Class.SPOT
    ]
    crowds: Counter[Pool | None] = Counter([member.site.pool for member in spot if member.site is not None])
    if not crowds or max(crowds.values()) - min(crowds.values()) < 2:
        return given
    leaned_slots = dict(given)
    spot.sort(key=lambda member: given[member.pod.uid], reverse=True)
    for holder in tuple(spot):
        slot, fullest = given[holder.pod.uid], max(crowds.values())
        is_kept = holder in spot and crowds[holder.pool] == fullest
        leaver = holder if is_kept else next(member for member in spot if crowds[member.pool] == fullest)
        spot.remove(leaver)
        crowds[leaver.pool] -= 1
        leaned_slots[leaver.pod.uid] = slot
    return leaned_slots


def crowds_of(members: Sequence[Member]) -> Counter[Pool]:
    """Serving spot pods by pool."""
    return Counter([each.site.pool for each in members if each.site and each.site.of is Class.SPOT and each.stands])
