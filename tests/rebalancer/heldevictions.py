"""Evictions by others in a simulated cluster, answered as a webhook answers them: held, or let through."""

from __future__ import annotations

from dataclasses import replace

from placement import names
from placement.availability import BudgetIndex
from placement.eviction import EvictionAsked, EvictionCase, EvictionHold, LetGo, company, judged
from placement.intent import intent_of
from placement.model import Key, Pod, Workload
from tests.rebalancer.simulation import SimulatedCluster
from webhook.nodeends import NodeEnds


class HeldEvictions:
    """Somebody evicts pods of a workload, and a webhook judges. What it lets through, goes."""

    def __init__(self, cluster: SimulatedCluster, workload: Workload) -> None:
        self._cluster = cluster
        self._workload = workload
        self._ends = NodeEnds(cluster.configuration, lambda: cluster.now)

    def evict(self, key: Key, uid: str) -> EvictionHold | LetGo | None:
        """The verdict; None if the pod is gone or on its way."""
        cluster, pod = self._cluster, self._cluster.pod(key, uid)
        if pod is None or pod.terminating:
            return None
        self._ends.see(None, cluster.nodes[pod.node])
        verdict = judged(self._case(pod))
        if isinstance(verdict, LetGo):
            cluster.evict(pod)
        elif verdict.needs_note:
            note = {names.EVICTION_ASKED: EvictionAsked(cluster.now, "alice").text()}
            cluster.put(replace(pod, annotations={**pod.annotations, **note}))
        return verdict

    def _case(self, pod: Pod) -> EvictionCase:
        cluster, workload = self._cluster, self._cluster.again(self._workload)
        namespace = cluster.objects["namespaces"][Key("", workload.namespace)]
        budgets = BudgetIndex(cluster.objects["budgets"].values()).of(workload)
        intent = intent_of(workload, namespace, budgets, cluster.rates, cluster.configuration)
        owners = {workload.uid, *(each.uid for each in cluster.sets_of(workload))}
        pods = [each for each in cluster.pods if each.owner is not None and each.owner.uid in owners]
        return EvictionCase(
            pod,
            workload,
            intent.policy,
            intent.availability,
            cluster.now,
            company(pods, pod, (), workload.min_ready_seconds, cluster.now),
            leaving_since=self._ends.leaving_since(pod.node),
            node_ends=self._ends.end_of(pod.node),
        )

    def drain(self, pod: Pod, longest_seconds: float, pause_seconds: float = 5.0) -> tuple[float, object]:
        """Asks every few seconds until the pod goes. How long that took, and why it went (None: it was replaced)."""
        began = self._cluster.now
        while self._cluster.now < began + longest_seconds:
            verdict = self.evict(pod.key, pod.uid)
            if not isinstance(verdict, EvictionHold):
                return self._cluster.now - began, verdict
            self._cluster.run(pause_seconds)
        return self._cluster.now - began, "held"
