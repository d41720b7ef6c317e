"""Exposure: what a workload loses if a node, a pool, a zone or all spot goes.

    headroom = R − m        blast radius of a domain = the most replicas that are lost with one of them
    survives(domain): blast radius ≤ headroom

m replicas must serve, R are ready on nodes that exist and are not leaving. A workload of 10 that must keep 8:

    zone-a  spot m5 on one node: 3     on-demand: 1
    zone-b  spot m5 on two nodes: 2+1  on-demand: 1
    zone-c  spot c5: 1                 on-demand: 1

Its headroom is 2. The fullest node and the fullest pool hold 3, the fullest zone 4, all spot 7: it survives none of
them. With the 3 on the one node spread over two, it survives the loss of any node, and still not of that pool.

A pool is one of spot: the cloud does not take on-demand away. Nodes without a zone's label are one zone.
How often that is expected to happen is worked out in `placement.risk`, from what was observed of the pools.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from placement.availability import Availability
from placement.model import Class
from placement.observation import NOTHING_OBSERVED, Observed
from placement.plan.ground import Site
from placement.risk import NO_RISK, Peril, Risk, risk


class Domain(StrEnum):
    """What goes at once."""

    NODE = "node"
    POOL = "pool"
    ZONE = "zone"
    SPOT = "spot"


def is_in(site: Site, domain: Domain, name: str = "") -> bool:
    """Whether a node goes with this node, pool or zone; all spot has no name."""
    match domain:
        case Domain.NODE:
            return site.name == name
        case Domain.POOL:
            return bool(site.spot_pool) and site.spot_pool == name
        case Domain.ZONE:
            return site.zone == name
    return site.of is Class.SPOT


@dataclass(frozen=True, slots=True)
class Blast:
    """The most replicas that are lost with one domain of a kind, and with which (the first of several by name)."""

    replicas: int = 0
    where: str = ""  # all spot has no name


NO_BLAST = Blast()


@dataclass(frozen=True, slots=True)
class Exposure:
    """What a workload can lose, and what it may lose."""

    ready: int  # R: on nodes that exist and are not leaving
    availability: Availability
    node: Blast = NO_BLAST
    pool: Blast = NO_BLAST
    zone: Blast = NO_BLAST
    spot: Blast = NO_BLAST
    risk: Risk = NO_RISK

    @property
    def headroom(self) -> int:
        """Negative where fewer are ready than must serve; then no loss is survived."""
        return self.ready - self.availability.needed

    @property
    def is_assumed(self) -> bool:
        return self.availability.is_assumed

    def blast(self, domain: Domain) -> Blast:
        blast: Blast = getattr(self, domain)
        return blast

    def survives(self, domain: Domain) -> bool:
        return self.blast(domain).replicas <= self.headroom

    def explain(self, domain: Domain) -> str:
        """`losing pool zone-a/m5 takes 3 replicas and leaves 7, but 8 must serve`."""
        blast = self.blast(domain)
        lost = f"{domain} {blast.where}" if blast.where else "all spot" if domain is Domain.SPOT else f"any {domain}"
        replicas = "1 replica" if blast.replicas == 1 else f"{blast.replicas} replicas"
        left, needed = self.ready - blast.replicas, self.availability.needed
        return f"losing {lost} takes {replicas} and leaves {left}, but {needed} must serve"

    @property
    def raw(self) -> dict[str, Any]:
        """As scripts rely on it (design §9)."""
        return {
            "headroom": self.headroom,
            "assumed": self.is_assumed,
            "blastRadius": {str(domain): self.blast(domain).replicas for domain in Domain},
            "survives": {str(domain): self.survives(domain) for domain in Domain},
            **self.risk.raw,
        }


def exposure(ready: Iterable[Site], availability: Availability, observed: Observed = NOTHING_OBSERVED) -> Exposure:
    """Of a workload whose ready replicas are on these nodes, one for each; those on leaving nodes left out."""
    nodes: dict[str, int] = {}
    pool_of: dict[str, str] = {}
    pools: dict[str, int] = {}
    zones: dict[str, int] = {}
    serving = spot = 0
    for site in ready:
        serving += 1
        name, zone, pool = site.node.name, site.zone, site.spot_pool
        nodes[name] = nodes.get(name, 0) + 1
        pool_of[name] = pool
        zones[zone] = zones.get(zone, 0) + 1
        if pool:
            spot += 1
            pools[pool] = pools.get(pool, 0) + 1
    headroom = serving - availability.needed
    harmless = max(0, headroom)  # most are, and need not be looked at any further
    perils = [
        *(Peril(observed.of(pool).rate, count) for pool, count in pools.items() if count > harmless),
        *(Peril(observed.node_rate(pool_of[node]), count) for node, count in nodes.items() if count > harmless),
    ]
    hours = min((observed.of(pool).hours for pool in pools), default=0.0)
    expected = risk(perils, headroom, hours)
    return Exposure(serving, availability, _fullest(nodes), _fullest(pools), _fullest(zones), Blast(spot), expected)


def bears_any_pool(ready: Iterable[Site], availability: Availability) -> bool:
    """Whether the loss of any one spot pool is survived, which costs a third of the whole exposure."""
    serving, pools = 0, dict[str, int]()
    for site in ready:
        serving += 1
        if site.spot_pool:
            pools[site.spot_pool] = pools.get(site.spot_pool, 0) + 1
    return max(pools.values(), default=0) <= serving - availability.needed


def _fullest(counts: Mapping[str, int]) -> Blast:
    if not counts:
        return NO_BLAST
    most = max(counts.values())
    return Blast(most, min(name for name, count in counts.items() if count == most))
