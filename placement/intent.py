"""What a workload should have: the one reading of its annotations, namespace, budgets, rates and configuration.

Admission, plan, status, page, metrics and CLI all begin here, so that they cannot disagree. Example: 10 replicas with
`spot-ratio: 70%` and a PodDisruptionBudget `minAvailable: 8` want 7 on spot and 3 on on-demand, and 8 must serve.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from placement.autoratio import settled
from placement.availability import Availability, availability
from placement.configuration import Configuration
from placement.model import Budget, Namespace, Workload
from placement.observation import Rates
from placement.policy import Mistake, Policy, resolve
from placement.slots import Mix, Slots

Reading = tuple[Policy, tuple[Mistake, ...]]  # what was written, and what was written wrong
MOST_READINGS = 10_000


@dataclass(frozen=True, slots=True)
class Intent:
    """A workload with its policy, what `auto` comes to, and how many of its replicas must serve."""

    workload: Workload
    policy: Policy
    availability: Availability
    budgets: tuple[Budget, ...] = ()  # that select its pods
    mistakes: tuple[Mistake, ...] = ()

    @property
    def needed(self) -> int:
        """How many must serve."""
        return self.availability.needed

    @property
    def slots(self) -> Slots:
        return self.policy.slots

    def wanted(self, revisions: Sequence[int]) -> Mix:
        """The formula on spec.replicas; while a rollout is under way, the sum over the revisions that want pods."""
        slots = self.slots
        if len(revisions) < 2:
            return slots.mix(self.workload.replicas)
        return sum((slots.mix(replicas) for replicas in revisions), Mix())


def read_policy(workload: Workload, namespace: Namespace, configuration: Configuration) -> Reading:
    limits = configuration.limits_of(namespace.labels)
    return resolve(workload.annotations, namespace.annotations, configuration.defaults, limits)


class Readings:
    """Remembers readings: many workloads have the same annotations, and reading them costs more than all else."""

    def __init__(self) -> None:
        self._known: dict[object, Reading] = {}

    def read(self, workload: Workload, namespace: Namespace, configuration: Configuration) -> Reading:
        limits = configuration.limits_of(namespace.labels)
        key = (frozenset(workload.annotations.items()), frozenset(namespace.annotations.items()), limits)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= MOST_READINGS:
                self._known.clear()
            found = self._known[key] = read_policy(workload, namespace, configuration)
        return found


def intent_of(
    workload: Workload,
    namespace: Namespace,
    budgets: tuple[Budget, ...],
    rates: Rates,
    configuration: Configuration,
    read: Callable[[Workload, Namespace, Configuration], Reading] = read_policy,
) -> Intent:
    """`budgets` are those that select the workload's pods (`BudgetIndex.of`)."""
    written, mistakes = read(workload, namespace, configuration)
    policy = settled(written, workload, budgets, rates)
    return Intent(workload, policy, availability(policy, workload, budgets), budgets, mistakes)
