"""The workloads whose mix may differ from the policy, each with the reason that must then stand.

docs/exceptions.md says the same to users.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from placement.plan.actions import Blocked
from placement.slots import Mix
from tests.corpus.applications import CorpusWorkload

SPOT_HOSTS = 6
ON_DEMAND_HOSTS = 6


@dataclass(frozen=True)
class Named:
    """An exception: what `explain` says while it holds, or how many pods can be on spot at most."""

    reasons: tuple[str, ...] = ()
    most_spot: int | None = None  # one pod fewer on spot is one more on on-demand

    def excuses(self, wanted: Mix, seen: Mix, explained: str) -> bool:
        if self.most_spot is not None:
            spot = min(wanted.spot, self.most_spot)
            return seen == Mix(spot, wanted.spot + wanted.on_demand - spot)
        return any(reason in explained for reason in self.reasons)


ONE_PER_HOST = Named(most_spot=SPOT_HOSTS)
ON_DEMAND_ALONE = Named(most_spot=0)
LAST = Named((Blocked.LAST,))
KEPT = Named((Blocked.KEPT,))
BUDGET = Named((Blocked.BUDGET, Blocked.MINIMUM))
# Spot is only preferred, and the scheduler weighs a wish of the pods themselves as high.
ORDERED = Named((Blocked.COOL_DOWN, Blocked.PROBING))

# By required anti-affinity or by a host port.
PER_HOST = {
    "argocd/repo-server",
    "argocd/redis-ha",
    "argocd/redis-proxy",
    "prometheus/adapter",
    "ingress/controller",
    "ingress/internal",
    "zookeeper/zookeeper",
    "zookeeper/kafka",
}
NAMED = {
    "jenkins/agents": KEPT,  # cluster-autoscaler.kubernetes.io/safe-to-evict: "false"
    "jenkins/mirror": ON_DEMAND_ALONE,
    "cassandra/cassandra": BUDGET,  # maxUnavailable: 0 for a StatefulSet
    "zookeeper/zookeeper": ORDERED,  # kafka's preferred affinity draws it to kafka's hosts
}


def exceptions_of(workload: CorpusWorkload, size: int) -> Iterator[Named]:
    name = workload.full_name
    if name in PER_HOST and size > SPOT_HOSTS:
        yield ONE_PER_HOST
    if name == "argocd/application-controller" and size > SPOT_HOSTS:
        yield ORDERED  # its preferred anti-affinity draws the seventh from spot hosts that have one already
    if size == 1 and not workload.runs_beside_itself:
        yield LAST
    if name in NAMED:
        yield NAMED[name]
