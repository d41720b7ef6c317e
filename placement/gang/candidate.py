"""What may be evicted for a gang, by every rule but one: whether it would help.

A candidate is a running gang, or a single pod as a gang of one. It may go whole, or some of its surplus may: the
members above its min-member. Each of that is an `Option`: pods that go together, and what they draw on: allowances,
such as the disruptions that a PodDisruptionBudget has left. What goes for one gang is held to all of them at once.

Example: a gang of ten with min-member eight has eleven options: each member alone, of which two at most may go,
and all ten together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from placement import names
from placement.model import Budget, Key, Pod
from placement.plan.ground import Sites

MIN_RUN_SECONDS = 300.0


class WhyNot(StrEnum):
    """Why nothing is evicted for a gang. Those in the middle are also why one candidate may not go, the first first."""

    NOTHING_LOWER = "nothing of lower priority runs"
    EVICTIONS = "the evictions of this hour are used up"
    TOO_YOUNG = "it has not run for the minimum time"
    IN_PLAN = "another plan is about it"
    BUDGET = "a PodDisruptionBudget forbids it"
    SPARE = "its workload has no replica to spare"
    NOT_PREEMPTIBLE = "it is not preemptible"
    SURPLUS = "its gang has no more members to spare"
    NO_ROOM = "it does not fit even then"
    TOO_MANY = "too many placements would have to be tried"


@dataclass(frozen=True, slots=True)
class Claimant:
    """The gang that needs room: its members that are to start, and its priorities, each the highest of its members."""

    key: Key
    pods: tuple[Pod, ...]
    priority: int
    spec_priority: int


@dataclass(frozen=True, slots=True, eq=False)
class Candidate:
    """What might go: a running gang of an opted-in namespace, or a single pod as a gang of one.

    Priorities are those that people gave, where admission injected another. Pods that have no node, end or have
    finished make no room: they do not count. `plan` names another plan that this is part of.
    """

    key: Key
    pods: tuple[Pod, ...]
    priority: int
    spec_priority: int
    started: float
    min_member: int = 1
    is_preemptible: bool = True
    plan: str = ""

    @property
    def running(self) -> tuple[Pod, ...]:
        return tuple([pod for pod in self.pods if pod.is_on_node and not pod.terminating])


class Allowance(NamedTuple):
    """How many pods may go of those that share it: under one budget, of one workload, in one namespace."""

    why: WhyNot
    name: str
    left: int


def no_budgets(_pod: Pod) -> Sequence[Budget]:
    return ()


def no_allowances(_pod: Pod) -> Sequence[Allowance]:
    return ()


@dataclass(frozen=True, slots=True)
class Rules:
    """What limits evictions for gangs, as it stands now.

    `spare` says what a pod of a service draws on: `Allowance(WhyNot.SPARE, "shop/web", 2)` for its replicas above
    min-available, and one more for those on on-demand above the floor.
    """

    now: float
    sites: Sites
    evictions: Callable[[str], int]  # by namespace: what is left this hour
    evictions_in_all: int
    min_run_seconds: float = MIN_RUN_SECONDS
    budgets: Callable[[Pod], Sequence[Budget]] = no_budgets
    spare: Callable[[Pod], Sequence[Allowance]] = no_allowances


class Obstacle(NamedTuple):
    """Why a candidate may not go, or not whole; what is behind it."""

    why: WhyNot
    name: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Option:
    """Pods that go together, and what they draw on."""

    candidate: Candidate
    pods: tuple[Pod, ...]
    draws: Mapping[Allowance, int]
    is_whole: bool
    node_hours: float  # of work that is lost

    @property
    def order(self) -> tuple[object, ...]:
        """What goes first: surplus, then the lowest priority, the least work; of the same, the largest, the youngest.

        The largest, because fewer gangs go then.
        """
        of = self.candidate
        return (self.is_whole, of.priority, self.node_hours, -len(self.pods), -of.started, of.key, self.pods[0].name)


def effective_priority(pod: Pod) -> int:
    """By its annotation, if that is a number; else by its spec, which is 0 without a class."""
    written = pod.annotations.get(names.PRIORITY, "").strip()
    digits = written.removeprefix("-").removeprefix("+")
    return int(written) if digits.isascii() and digits.isdigit() and len(digits) < 11 else pod.needs.priority


def is_preemptible(pods: Iterable[Pod]) -> bool:
    """Whether no member says otherwise."""
    return all(pod.annotations.get(names.PREEMPTIBLE, "").strip().lower() != "false" for pod in pods)


def is_lower(one: Candidate, than: Claimant) -> bool:
    """Whether it may go for the other by priority.

    The annotation orders within a namespace alone, or a tenant could write itself above others. It never goes against
    the spec: a nomination holds by that, and the room would go to others.
    """
    if one.key.namespace != than.key.namespace:
        return one.spec_priority < than.spec_priority
    return one.priority < than.priority and one.spec_priority <= than.spec_priority


class Rulebook:
    """How candidates may go by the rules. What pods have in common is looked up once: there may be 100,000."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._evictions: dict[str, tuple[Allowance, ...]] = {}  # by namespace

    def options(self, candidate: Candidate) -> tuple[list[Option], Obstacle | None]:
        """How it may go, and why not whole. If one member may not be evicted, it may not go at all."""
        held = self._held(candidate)
        running = candidate.running
        if held is not None or not running:
            return [], held
        drawn = [self._draws(pod) for pod in running]
        none_left = next((each for draws in drawn for each in draws if each.left < 1), None)
        if none_left is not None:
            return [], Obstacle(none_left.why, none_left.name)
        hours = [self._node_hours(pod, candidate) for pod in running]
        if len(running) == 1:
            return [Option(candidate, running, dict.fromkeys(drawn[0], 1), True, hours[0])], None
        found = list(_singly(candidate, running, drawn, hours))
        in_all = Counter(each for draws in drawn for each in draws)
        over = next((each for each, count in in_all.items() if count > each.left), None)
        if over is not None:
            return found, Obstacle(over.why, over.name)
        return [*found, Option(candidate, running, in_all, True, sum(hours))], None

    def _held(self, candidate: Candidate) -> Obstacle | None:
        if not candidate.is_preemptible:
            return Obstacle(WhyNot.NOT_PREEMPTIBLE, str(candidate.key))
        if candidate.plan:
            return Obstacle(WhyNot.IN_PLAN, str(candidate.key))
        if self._rules.now - candidate.started < self._rules.min_run_seconds:
            return Obstacle(WhyNot.TOO_YOUNG, str(candidate.key))
        return None

    def _draws(self, pod: Pod) -> tuple[Allowance, ...]:
        """What the pod's eviction draws on. The API server refuses to evict a pod under two budgets (500).

        It asks no budget about a pod whose containers have not started (phase Pending).
        """
        known = self._evictions.get(pod.namespace)
        if known is None:
            known = self._evictions[pod.namespace] = self._evictions_of(pod.namespace)
        spare, budgets = self._rules.spare(pod), self._rules.budgets(pod)
        if budgets and pod.phase != "Pending":
            return (*known, *_of_budgets(budgets), *spare)
        return (*known, *spare) if spare else known

    def _evictions_of(self, namespace: str) -> tuple[Allowance, ...]:
        rules = self._rules
        return (
            Allowance(WhyNot.EVICTIONS, namespace, rules.evictions(namespace)),
            Allowance(WhyNot.EVICTIONS, "", rules.evictions_in_all),
        )

    def _node_hours(self, pod: Pod, candidate: Candidate) -> float:
        """Work that is lost with the pod: how long its gang has run, times its largest share of what its node has.

        So memory and devices count as much as CPUs: all 8 GPUs of a node for two hours are two node-hours.
        """
        site = self._rules.sites.get(pod.node)
        if site is None:
            return 0.0
        share, there = 0.0, site.node.allocatable
        for key, amount in pod.needs.requests.items():
            if there.get(key):
                share = max(share, amount / there[key])
        return share * max(0.0, self._rules.now - candidate.started) / 3600


def _of_budgets(budgets: Sequence[Budget]) -> tuple[Allowance, ...]:
    if len(budgets) > 1:
        return (Allowance(WhyNot.BUDGET, " and ".join(sorted(str(each.key) for each in budgets)), 0),)
    return tuple(Allowance(WhyNot.BUDGET, str(each.key), each.allowed if each.settled else 0) for each in budgets)


def _singly(
    candidate: Candidate, running: Sequence[Pod], drawn: Sequence[Sequence[Allowance]], hours: Sequence[float]
) -> Iterator[Option]:
    """Any member may be one of the surplus: which ones help, the search finds out."""
    surplus = len(running) - max(1, candidate.min_member)
    if surplus < 1:
        return
    spare = Allowance(WhyNot.SURPLUS, str(candidate.key), surplus)
    for pod, draws, lost in zip(running, drawn, hours, strict=True):
        yield Option(candidate, (pod,), dict.fromkeys((*draws, spare), 1), False, lost)
