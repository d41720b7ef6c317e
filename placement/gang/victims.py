"""Which gangs have to go, so that a gang fits in full: as little as possible, and of the least value first.

If it does not fit once all that may go has gone, nothing goes, and the reason says what is in the way. Else some are
chosen (`placement.gang.choice`): surplus first, then whole gangs by priority, lost work, size and age.

What holds. The result never breaks a rule, the gang fits with it, and it does not fit without any one of the victims.
Where fewer pods on nodes never leave less room, as for members that are alike and that look at amounts alone, no
smaller set of them does either; and where there are few options to make room (`choice.FEW`), some is found whenever any
set is allowed. Topology spread, affinity and the greedy packing of members that differ can turn that round: then a set
may be missed, but none is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from placement.gang.candidate import Allowance, Candidate, Claimant, Obstacle, Option, Rulebook, Rules, WhyNot, is_lower
from placement.gang.choice import EffortError, Picking, Trial
from placement.lack import NoPlace
from placement.model import Pod
from placement.plan.room import Joint

MOST_NAMED = 3  # victims in a sentence


@dataclass(frozen=True, slots=True)
class Victim:
    """A gang that goes: whole, or these surplus members of it."""

    candidate: Candidate
    pods: tuple[Pod, ...]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Cost:
    """What an eviction for a gang costs others."""

    gangs: int
    pods: int
    node_hours: float


@dataclass(frozen=True, slots=True)
class Victims:
    """What has to go, and where the members go then."""

    gangs: tuple[Victim, ...]
    pods: tuple[Pod, ...]
    joint: Joint
    cost: Cost
    sentence: str


@dataclass(frozen=True, slots=True)
class NoVictims:
    """Why nothing goes. `name` is what is in the way: a budget, a gang, a namespace; `lack`: what a member lacks."""

    why: WhyNot
    sentence: str
    name: str = ""
    lack: NoPlace | None = None


def choose(claimant: Claimant, candidates: Iterable[Candidate], trial: Trial, rules: Rules) -> Victims | NoVictims:
    """The victims for a gang, or why there are none."""
    lower = [each for each in candidates if is_lower(each, claimant)]
    if not any(each.running for each in lower) and not trial.fits():
        return NoVictims(WhyNot.NOTHING_LOWER, f"{claimant.key} finds no room: {WhyNot.NOTHING_LOWER.value}")
    nodes = trial.reach()
    if nodes is not None:
        lower = [each for each in lower if any(pod.node in nodes for pod in each.pods)]
    rulebook, found = Rulebook(rules), list[Option]()
    held: list[tuple[Candidate, Obstacle]] = []
    for each in lower:
        possible, obstacle = rulebook.options(each)
        found += possible
        if obstacle is not None:
            held.append((each, obstacle))
    useful = _useful(found, trial)
    if useful is None:
        return _unfit(claimant, lower, found, held, trial)
    search = Picking(trial, useful, claimant)
    try:
        chosen = search.best()
    except EffortError:
        trial.reset()
        return NoVictims(
            WhyNot.TOO_MANY, f"{claimant.key} finds no room: {WhyNot.TOO_MANY.value} to find who has to go"
        )
    if chosen is None and search.excess:
        return _overdrawn(claimant, search.excess)
    joint = _joint(chosen or useful, trial)
    if chosen is None or joint.refused:
        return _no_room(claimant, joint)
    return _victims(claimant, chosen, joint)


def _joint(chosen: Iterable[Option], trial: Trial) -> Joint:
    """Where the members go then: nothing is evicted before each of them has a place."""
    gone = [pod for option in chosen for pod in option.pods]
    trial.clear(gone)
    joint = trial.joint()
    trial.reset()
    return joint


def _useful(found: Sequence[Option], trial: Trial) -> list[Option] | None:
    """Those that can help at all, in order; None: not even all of them make enough room."""
    gone = [pod for option in found for pod in option.pods]
    trial.clear(gone)
    fits, nodes = trial.fits(), trial.matters()
    trial.reset()
    if not fits:
        return None
    helping = found if nodes is None else [option for option in found if any(pod.node in nodes for pod in option.pods)]
    return sorted(helping, key=lambda option: option.order)


def _victims(claimant: Claimant, chosen: Iterable[Option], joint: Joint) -> Victims:
    by_gang: dict[Candidate, list[Option]] = {}
    for option in chosen:
        by_gang.setdefault(option.candidate, []).append(option)
    gangs = tuple(
        Victim(
            candidate, tuple(pod for option in those for pod in option.pods), any(option.is_whole for option in those)
        )
        for candidate, those in by_gang.items()
    )
    pods = tuple(pod for victim in gangs for pod in victim.pods)
    hours = sum(option.node_hours for those in by_gang.values() for option in those)
    cost = Cost(len(gangs), len(pods), hours)
    return Victims(gangs, pods, joint, cost, _sentence(claimant, gangs, cost))


# --- what people are shown -------------------------------------------------------------------------------------------


def _sentence(claimant: Claimant, gangs: Sequence[Victim], cost: Cost) -> str:
    if not gangs:
        return f"{claimant.key} fits without evictions"
    named = [_part(each) for each in gangs[:MOST_NAMED]]
    if len(gangs) > MOST_NAMED:
        named.append(f"{len(gangs) - MOST_NAMED} more")
    evicted = f"{cost.pods} {'pod is' if cost.pods == 1 else 'pods are'} evicted"
    return (
        f"{claimant.key} (priority {claimant.priority}) fits once {evicted}: {', '.join(named)}; "
        f"this loses {cost.node_hours:.1f} node-hours of work"
    )


def _part(victim: Victim) -> str:
    of = victim.candidate
    there = len(of.running)
    number = "all" if victim.is_whole else str(len(victim.pods))
    counted = "" if there == 1 else f", {number} {there} pods" if victim.is_whole else f", {number} of {there} pods"
    return f"{of.key} (priority {of.priority}{counted})"


def _overdrawn(claimant: Claimant, excess: Mapping[Allowance, int]) -> NoVictims:
    """Enough could go by every rule for itself, but not together."""
    each = min(excess, key=lambda each: (each.why is WhyNot.SURPLUS, each.left - excess[each]))
    asks = f"{claimant.key} needs {excess[each]} evictions"
    said = {
        WhyNot.EVICTIONS: f"{asks}{f' in {each.name}' if each.name else ''}, and {each.left} are left this hour",
        WhyNot.BUDGET: f"{asks} under the PodDisruptionBudget {each.name}, which allows {each.left}",
        WhyNot.SPARE: f"{asks} in {each.name}, which has {each.left} replicas to spare",
        WhyNot.SURPLUS: f"{asks} in {each.name}, which has {each.left} members to spare and may not go whole",
    }
    return NoVictims(each.why, said[each.why], each.name)


_WOULD_FIT = {
    WhyNot.EVICTIONS: "the evictions of this hour{} are used up",
    WhyNot.TOO_YOUNG: "{} has not run for the minimum time yet",
    WhyNot.IN_PLAN: "{} is part of another plan",
    WhyNot.BUDGET: "the PodDisruptionBudget {} does not allow enough evictions",
    WhyNot.SPARE: "{} has too few replicas to spare",
    WhyNot.NOT_PREEMPTIBLE: "{} is not preemptible",
}


def _unfit(
    claimant: Claimant,
    lower: Sequence[Candidate],
    found: Iterable[Option],
    held: Sequence[tuple[Candidate, Obstacle]],
    trial: Trial,
) -> NoVictims:
    """Which rule stands in the way; or none does, and there is no room whatever goes."""
    may_go = [pod for option in found for pod in option.pods]
    for why in (*_WOULD_FIT, None):  # None: several rules together
        behind = [(each, obstacle) for each, obstacle in held if why in (None, obstacle.why)]
        if not behind:
            continue
        gone = [*may_go, *(pod for each, _ in behind for pod in each.running)]
        trial.clear(gone)
        fits = trial.fits()
        trial.reset()
        if fits:
            return _in_the_way(claimant, behind[0][1])
    everything = [pod for each in lower for pod in each.running]
    trial.clear(everything)
    joint = trial.joint()
    trial.reset()
    return _no_room(claimant, joint)


def _in_the_way(claimant: Claimant, obstacle: Obstacle) -> NoVictims:
    name = f" in {obstacle.name}" if obstacle.why is WhyNot.EVICTIONS and obstacle.name else obstacle.name
    said = _WOULD_FIT[obstacle.why].format(name)
    return NoVictims(obstacle.why, f"{claimant.key} finds no room: {said}", obstacle.name)


def _no_room(claimant: Claimant, joint: Joint) -> NoVictims:
    lack = joint.refused[0][1] if joint.refused else None
    said = f"{len(joint.places)} of {len(claimant.pods)} members would find a place" + (
        f", then {lack}" if lack else ""
    )
    text = f"{claimant.key} does not fit even if everything of lower priority is evicted: {said}"
    return NoVictims(WhyNot.NO_ROOM, text, lack=lack)
