"""Programs of others in a simulated cluster: a drainer, and an autoscaler that brings spot for pods that wait."""

from __future__ import annotations

from placement.model import Class, Sign
from tests.rebalancer.simulation import TERMINATION, SimulatedCluster


class SimulatedDrainer:
    """Evicts what is on nodes with a termination notice, and tries again where a budget forbids it."""

    def __init__(self, cluster: SimulatedCluster, patience_seconds: float = 2.0) -> None:
        self._cluster = cluster
        self._seen: dict[str, float] = {}
        self._patience_seconds = patience_seconds

    def __call__(self) -> None:
        for name, node in self._cluster.nodes.items():
            if TERMINATION not in node.taints:
                continue
            seen = self._seen.setdefault(name, self._cluster.now)
            if self._cluster.now - seen < self._patience_seconds:
                continue
            for pod in self._cluster.pods:
                if pod.node == name and not pod.terminating:
                    self._cluster.evict(pod)


class SimulatedAutoscaler:
    """Brings one spot node after the other while pods wait that could only run there."""

    def __init__(self, cluster: SimulatedCluster, takes_seconds: float = 40.0) -> None:
        self._cluster = cluster
        self._takes_seconds = takes_seconds
        self._due: float | None = None

    def __call__(self) -> None:
        cluster = self._cluster
        classes = cluster.configuration.classes
        waiting = [
            pod for pod in cluster.pods if pod.unschedulable and classes.allowed(pod.required_terms) == {Class.SPOT}
        ]
        if not waiting:
            self._due = None
            return
        if self._due is None:
            self._due = cluster.now + self._takes_seconds
            for pod in waiting:
                cluster.put(Sign("shop", cluster.new_id("event"), "TriggeredScaleUp", pod.name, cluster.now))
        elif cluster.now >= self._due:
            cluster.add_node(Class.SPOT, "abc"[len(cluster.nodes) % 3])
            self._due = None
