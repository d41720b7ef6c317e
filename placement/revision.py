"""A revision: the ReplicaSet or StatefulSet that creates pods, with the workload and the policy behind it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement.availability import BudgetIndex, availability
from placement.model import Kind, Template, Workload
from placement.policy import Policy


@dataclass(frozen=True, slots=True)
class Revision:
    """The owner that a pod was created by, and what a decision needs to know of it."""

    uid: str
    workload: Workload
    policy: Policy
    replicas: int
    selector: Mapping[str, Any]
    template: Template

    @property
    def is_stateful(self) -> bool:
        """The pods have ordinals, which are their slots."""
        return self.workload.kind is Kind.STATEFUL_SET

    @property
    def leaves_by_cost(self) -> bool:
        """The highest slot leaves first. StatefulSets leave by ordinal anyway; users' own costs are theirs."""
        return not self.is_stateful and not self.template.has_deletion_cost

    def selects(self, label: str) -> bool:
        """Whether its selector says anything of this label."""
        expressions = self.selector.get("matchExpressions") or ()
        return label in (self.selector.get("matchLabels") or ()) or any(each["key"] == label for each in expressions)

    def needed(self, budgets: BudgetIndex) -> int:
        """How many of the workload's replicas must serve."""
        return availability(self.policy, self.workload, budgets.of(self.workload)).needed
