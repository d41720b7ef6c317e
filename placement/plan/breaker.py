"""Stops moves that do not help: in one namespace, or everywhere.

In a namespace when five of its workloads, and at least a tenth of them, had to undo one. Everywhere when that happened
in three namespaces, and at least a quarter of them. (`assess` stops the moves of one workload in the same way.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from placement import names
from placement.model import Pod
from placement.plan.assess import Assessment
from placement.plan.marks import undone
from placement.plan.release import LONGEST_UNDONE_SECONDS

BREAKER_WORKLOADS = 5
BREAKER_NAMESPACES = 3


class Breaker:
    """Counts workloads whose moves were undone not long ago."""

    def __init__(self, assessments: Iterable[Assessment], sizes: Mapping[str, int], now: float) -> None:
        self._sizes = sizes  # by namespace: how many workloads we look after
        self._failing = Counter(
            each.group.workload.namespace
            for each in assessments
            if any(_is_undone(member.pod, now) for member in each.members if names.UNDONE in member.pod.annotations)
        )

    def is_open(self, namespace: str) -> bool:
        """Moves do not help there, or in a large part of the cluster."""
        if self._fails(namespace):
            return True
        return sum(map(self._fails, self._failing)) >= max(BREAKER_NAMESPACES, len(self._sizes) // 4)

    def _fails(self, namespace: str) -> bool:
        return self._failing[namespace] >= max(BREAKER_WORKLOADS, self._sizes.get(namespace, 0) // 10)


def _is_undone(pod: Pod, now: float) -> bool:
    """A time further ahead than we ever wait was not written by us."""
    tried = undone(pod)
    return tried is not None and now < tried.until <= now + LONGEST_UNDONE_SECONDS
