"""Gangs with nodes of their own: only empty nodes are reserved, and nothing starts there before others are kept out.

Between a plan and the taint, and until the scheduler has heard of it, others may get in. So after all taints are seen
the reservation is written again; members start a second later, if they still are alone.
"""

from __future__ import annotations

from placement.gang.exclusive import is_alone, taint_of
from placement.gang.gang import Gang, GangStatus, State
from placement.gang.reservation import AGAIN, Reservation
from placement.plan.actions import Action
from placement.plan.draft import Draft
from placement.plan.ground import Site
from placement.plan.planners.writing import Held, reserve, unreserved
from placement.plan.stock import Stock
from placement.plan.whole import Suits

SETTLE_SECONDS = 1.0  # from when all taints are seen: a pod that the scheduler had placed by then is seen, too
KEPT_SECONDS = 30.0  # for the taints to be written


def suiting(draft: Draft, gang: Gang) -> Suits | None:
    """For a new plan: nodes where nobody runs but the gang, nor will."""
    return _alone_on(gang, draft.room.beside_all()) if gang.terms.exclusive else None


def _alone_on(gang: Gang, stock: Stock) -> Suits:
    members = frozenset(pod.uid for pod in gang.pods)

    def suits(site: Site) -> bool:
        return stock.neighbours is not None and is_alone(stock.beside(site.name), members)

    return suits


def unready(draft: Draft, gang: Gang, held: Held) -> list[Action] | None:
    """What is done before members may start on nodes of their own; None: they may."""
    if not gang.terms.exclusive:
        return None
    now, made = draft.scene.now, max(found.at for _, found in held)
    sites = {found.node: draft.scene.ground.sites.get(found.node) for _, found in held}
    suits = _alone_on(gang, draft.room.beside_promises())
    taken = next((node for node, site in sites.items() if site is not None and not suits(site)), None)
    bare = untainted(draft, gang, held)
    if bare is not None and now - made > KEPT_SECONDS:
        return _given_up(draft, gang, held, f"node {bare} could not be tainted")
    if taken is not None:
        return _given_up(draft, gang, held, f"somebody else's pod runs on node {taken}")
    if bare is None and not held[0][1].is_renewed:
        return [
            reserve(draft, pod, Reservation(one.plan.removesuffix(AGAIN) + AGAIN, now, one.node)) for pod, one in held
        ]
    if bare is None and now - made >= SETTLE_SECONDS:
        return None
    draft.gangs[gang.key] = GangStatus(gang, State.RESERVED, "others are kept away from its nodes first")
    return kept(draft, held)


def untainted(draft: Draft, gang: Gang, held: Held) -> str | None:
    """A node of the plan that others may still use; None: there is none, or the gang shares its nodes."""
    sites, taint = draft.scene.ground.sites, taint_of(gang.key)
    nodes = {found.node for _, found in held} if gang.terms.exclusive else ()
    return next((node for node in sorted(nodes) if node in sites and taint not in sites[node].node.taints), None)


def kept(draft: Draft, held: Held) -> list[Action]:
    """Nothing is done: the room stays theirs."""
    for pod, found in held:
        draft.room.hold(pod, found.node)
    return []


def _given_up(draft: Draft, gang: Gang, held: Held, why: str) -> list[Action]:
    draft.gangs[gang.key] = GangStatus(gang, State.WAITING, why, was_given_up=True)
    return [unreserved(pod, why) for pod, _ in held]
