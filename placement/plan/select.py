"""All workloads together: what is done now, in which order, within all limits; and what is left, and why."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from placement.model import Workload
from placement.outage import Outage
from placement.plan.actions import Action, Plan
from placement.plan.draft import Draft
from placement.plan.planners import (
    annotation,
    gangs,
    leaving,
    life,
    losses,
    moves,
    remains,
    reservations,
    successors,
    sweeps,
    way_out,
)
from placement.plan.scene import Scene

Planner = Callable[[Draft], Iterable[Action]]


def by_reason(*planners: Planner) -> Planner:
    """Planners whose actions are mixed, in the order of their reasons (`Why.rank`)."""

    def plan_all(draft: Draft) -> Iterable[Action]:
        found = [action for planner in planners for action in planner(draft)]
        return sorted(found, key=lambda action: action.why.rank)

    return plan_all


# First what restores service, then what improves it. A planner takes its room and charges the limits before the next
# one is asked, so the order is also the order of precedence.
PLANNERS: tuple[Planner, ...] = (
    reservations.plan,
    life.plan,
    losses.plan,
    leaving.plan,
    sweeps.plan,
    way_out.plan,
    successors.plan,
    by_reason(annotation.plan, moves.plan),
    remains.plan,
    gangs.plan,
)


def plan(scene: Scene, planners: Sequence[Planner] = PLANNERS) -> Plan:
    """What to do now.

    While moves are paused only what is done in every mode: the way out of our own constraint, what was lost, the end of
    releases that their Deployment has overtaken.
    """
    about_gangs = scene.gangs or scene.strays or scene.marked
    if not (scene.assessments or scene.left_behind or about_gangs or scene.outages.standing(scene.now)):
        return Plan()
    draft = Draft(scene)
    planned = [action for planner in planners for action in planner(draft)]
    possible = draft.unheld(planned)
    actions = tuple(action for action in possible if action.in_every_mode or not scene.is_paused)
    outages = draft.outages()
    noted = tuple(_distinct(outages))
    return Plan(
        noted,
        tuple(draft.way_out.ended(outages)),
        actions,
        tuple(draft.skipped()),
        draft.left,
        tuple(_witnesses(noted, draft.workloads.values())),
        tuple(draft.gangs.values()),
    )


def _witnesses(outages: Iterable[Outage], workloads: Iterable[Workload]) -> Iterator[tuple[Workload, Outage]]:
    shown = {each.evidence.workload: each for each in outages if each.evidence is not None}
    for workload in workloads if shown else ():
        outage = shown.get(f"{workload.kind} {workload.key}")
        if outage is not None:
            yield workload, outage


def _distinct(outages: Iterable[Outage]) -> Iterator[Outage]:
    """One for each class, zones, namespace and terms, with a shape that covers all of theirs."""
    smallest: dict[tuple[object, ...], Outage] = {}
    for outage in outages:
        key = (outage.of, outage.zones, outage.namespace, outage.terms)
        known = smallest.get(key, outage)
        smallest[key] = replace(outage, shape=known.shape.least(outage.shape))
    yield from smallest.values()
