"""How many replicas of a workload must serve (`min-available`), and who says so.

The annotation; else the strictest of the PodDisruptionBudgets that select the workload's pods; else what its own
rollout would leave, which is *assumed*. Of 10 replicas:

    minAvailable: 9, or 85%          →  9 (shares are rounded up)
    maxUnavailable: 1, or 15%        →  9, or 8 (15 % of 10 is rounded up to 2, as Kubernetes does)
    both of the last                 →  9 (the strictest)
    no budget, maxUnavailable: 25%   →  8, assumed (a rollout's share is rounded down)
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from placement.model import Budget, Workload
from placement.policy import Policy, needed, part_of
from placement.selector import matches


class Basis(StrEnum):
    """Who says how many must serve."""

    DECLARED = "declared"  # the annotation `min-available`, at whatever level
    BUDGET = "budget"  # a PodDisruptionBudget
    ASSUMED = "assumed"  # undeclared: what a rollout would leave


@dataclass(frozen=True, slots=True)
class Availability:
    """How many replicas must serve."""

    needed: int
    source: Basis

    @property
    def is_assumed(self) -> bool:
        return self.source is Basis.ASSUMED


def availability(policy: Policy, workload: Workload, budgets: Iterable[Budget] = ()) -> Availability:
    """`budgets` are those that select the workload's pods (`BudgetIndex.of`)."""
    budgeted = needed_by(budgets, workload.replicas)
    undeclared = Basis.ASSUMED if budgeted is None else Basis.BUDGET
    basis = undeclared if policy.min_available is None else Basis.DECLARED
    return Availability(needed(policy, workload, budgeted), basis)


def needed_by(budgets: Iterable[Budget], replicas: int) -> int | None:
    """What the strictest of these budgets wants of so many replicas; None where none of them says anything.

    A budget that selects other workloads' pods too is taken as if it were this workload's alone.
    """
    wanted = [each for each in (_needed_by(budget, replicas) for budget in budgets) if each is not None]
    return max(wanted, default=None)


def _needed_by(budget: Budget, replicas: int) -> int | None:
    if budget.min_available is not None:
        return min(replicas, _rounded_up(budget.min_available, replicas))
    if budget.max_unavailable is not None:
        return max(0, replicas - _rounded_up(budget.max_unavailable, replicas))
    return None


def _rounded_up(amount: int | str, replicas: int) -> int:
    part = part_of(amount, replicas)
    return -(-part.numerator // part.denominator)


class BudgetIndex:
    """Finds the budgets that select a workload's pods without trying all of them.

    A budget is kept under one label that it asks for, and only tried for workloads whose pods have that label;
    a budget without such a label is tried for all workloads of its namespace.
    """

    def __init__(self, budgets: Iterable[Budget]) -> None:
        self._by_label: Mapping[tuple[str, str, str], list[Budget]] = defaultdict(list)
        self._others: Mapping[str, list[Budget]] = defaultdict(list)
        for budget in budgets:
            labels: Any = budget.selector.get("matchLabels")
            if labels:
                self._by_label[budget.namespace, *next(iter(labels.items()))].append(budget)
            else:
                self._others[budget.namespace].append(budget)

    def of(self, workload: Workload) -> tuple[Budget, ...]:
        """By the labels of its pod template."""
        return self.selecting(workload.namespace, workload.template.labels)

    def selecting(self, namespace: str, labels: Mapping[str, str]) -> tuple[Budget, ...]:
        """Those that select pods with these labels."""
        return tuple([each for each in self._likely(namespace, labels) if matches(each.selector, labels)])

    def _likely(self, namespace: str, labels: Mapping[str, str]) -> Iterator[Budget]:
        for label in labels.items():
            yield from self._by_label.get((namespace, *label), ())
        yield from self._others.get(namespace, ())


NO_BUDGETS = BudgetIndex(())
