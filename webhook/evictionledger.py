"""Evictions that were let through and not seen yet, by workload.

Ten drainers may ask within the time that a watch takes. Each pod that may go counts as gone at once; it is forgotten
when it must have been seen, or when the eviction has not come about: a PodDisruptionBudget may still refuse it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from cachetools import TTLCache

UNSEEN_SECONDS = 5.0
MOST_WORKLOADS = 10_000
OWNED = "evictions/"  # before the UID of a workload, where replicas agree on which of them counts


class EvictionLedger:
    """Lives on the event loop."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._workloads: TTLCache[str, dict[str, float]] = TTLCache(MOST_WORKLOADS, UNSEEN_SECONDS, timer)

    def note(self, workload: str, pod: str) -> None:
        """By their UIDs."""
        self._workloads[workload] = {**self._standing(workload), pod: self._timer()}

    def of(self, workload: str) -> frozenset[str]:
        """The UIDs of its pods that were let go."""
        return frozenset(self._standing(workload))

    def recent(self, workload: str) -> dict[str, int] | None:
        """For a replica that takes over; None where there is nothing."""
        return dict.fromkeys(self._standing(workload), 0) or None

    def take_over(self, workload: str, pods: Mapping[str, int]) -> None:
        for pod in pods:
            self.note(workload, pod)

    def _standing(self, workload: str) -> dict[str, float]:
        oldest = self._timer() - UNSEEN_SECONDS
        return {pod: at for pod, at in self._workloads.get(workload, {}).items() if at > oldest}
