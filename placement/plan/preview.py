"""What would become of a gang, before anything happens: where it would run, who would be evicted for it, or why not.

The same planners are asked as in a pass of the rebalancer, up to this gang: what starts service again, moves, and gangs
whose turn is before it take their room first. Nothing is written, and no limit is charged.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from placement.gang.gang import Gang, GangStatus, State
from placement.gang.victims import Victims
from placement.lack import NoPlace
from placement.model import Key
from placement.plan.draft import Draft
from placement.plan.planners import gangs, preemption
from placement.plan.scene import Scene
from placement.plan.select import PLANNERS
from placement.plan.whole import places

BEFORE_GANGS = PLANNERS[: PLANNERS.index(gangs.plan)]


@dataclass(frozen=True, slots=True)
class GangPreview:
    """What a plan would do for a gang now. Without places it does not start, and `why` says why."""

    status: GangStatus
    nodes: Mapping[str, str] = field(default_factory=dict)  # by the member's UID
    victims: Victims | None = None  # who has to go first
    why: str = ""
    ahead: tuple[Key, ...] = ()  # gangs that wait, too, and whose turn is before it

    @property
    def gang(self) -> Gang:
        return self.status.gang

    @property
    def fits(self) -> bool:
        return bool(self.nodes)


def preview(scene: Scene, key: Key) -> GangPreview | None:
    """Of a gang that waits or starts; None: there is no such gang among these."""
    draft = Draft(scene)
    for planner in BEFORE_GANGS:
        list(planner(draft))
    status = draft.gangs.get(key)
    if status is None:
        return None
    turns = gangs.turns(draft)
    if status.gang not in turns:
        return _under_way(status)
    before = turns[: turns.index(status.gang)]
    list(gangs.planned(draft, before))
    ahead = tuple(each.key for each in before if draft.gangs[each.key].state is State.WAITING)
    return _planned(draft, status, ahead)


def _under_way(status: GangStatus) -> GangPreview:
    """It starts already, or cannot start whatever room there is."""
    gang = status.gang
    kept = {pod.uid: found.node for pod, found in gang.reservations}
    there = {pod.uid: pod.node for pod in gang.running}
    if status.state in (State.BLOCKED, State.ASSEMBLING):
        return GangPreview(status, why=status.reason)
    return GangPreview(status, {**there, **kept})


def _planned(draft: Draft, status: GangStatus, ahead: tuple[Key, ...]) -> GangPreview:
    gang, least = status.gang, status.gang.least(draft.scene.now)
    assert least is not None  # it waits
    classes, odds = gang.terms.classes, draft.odds(gang)
    found = places(draft.room, gang.gated, least, classes, odds)
    if not isinstance(found, NoPlace):
        return GangPreview(status, found.places, ahead=ahead)
    short = str(found)
    if draft.scene.candidates is None:
        return GangPreview(status, why=short, ahead=ahead)
    victims = preemption.victims_for(draft, gang, least)
    if isinstance(victims, str):
        text = f"{short}; nothing is evicted for it: {victims}" if victims else short
        return GangPreview(status, why=text, ahead=ahead)
    then = places(draft.room.without(victims.pods), gang.gated, least, classes, odds)
    nodes = victims.joint.places if isinstance(then, NoPlace) else then.places
    return GangPreview(status, nodes, victims, ahead=ahead)
