"""A drill: what would be lost with these nodes, before it happens.

Example: eight of ten replicas must serve, and three are on spot m5 nodes of zone-a. Without that pool seven are left,
fewer than must serve. Workloads without pods there are not listed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from placement.configuration import Configuration
from placement.model import Snapshot, Workload
from placement.plan.ground import sites_of
from report.exposure import Domain, is_in
from report.status import WorkloadStatus, statuses


@dataclass(frozen=True, slots=True)
class Loss:
    """What one workload would lose. Replicas that are ready on nodes that exist and are not leaving count."""

    workload: Workload
    lost: int
    left: int
    needed: int
    is_assumed: bool  # how many must serve is not declared

    @property
    def falls_below(self) -> bool:
        return self.left < self.needed

    @property
    def raw(self) -> dict[str, Any]:
        return {
            "namespace": self.workload.namespace,
            "kind": str(self.workload.kind),
            "name": self.workload.name,
            "lost": self.lost,
            "left": self.left,
            "needed": self.needed,
            "assumed": self.is_assumed,
            "fallsBelow": self.falls_below,
        }


def drill(snapshot: Snapshot, configuration: Configuration, lost_nodes: Collection[str]) -> tuple[Loss, ...]:
    """What each opted-in workload would lose with these nodes, in the order of namespace, kind and name."""
    return tuple(losses(statuses(snapshot, configuration), lost_nodes))


def losses(found: Iterable[WorkloadStatus], lost_nodes: Collection[str]) -> Iterator[Loss]:
    """The same, for who has the statuses already."""
    gone = frozenset(lost_nodes)
    for status in found:
        lost = sum(each.stands and each.pod.node in gone for each in status.pods)
        if lost:
            exposed = status.exposure
            yield Loss(status.workload, lost, exposed.ready - lost, exposed.availability.needed, exposed.is_assumed)


def nodes_in(snapshot: Snapshot, configuration: Configuration, domain: Domain, name: str = "") -> frozenset[str]:
    """The nodes that go with a domain: `nodes_in(…, Domain.POOL, "zone-a/m5")`, `nodes_in(…, Domain.SPOT)`."""
    every = sites_of(snapshot.nodes.values(), configuration).values()
    return frozenset(site.name for site in every if is_in(site, domain, name))
