"""Nodes by zone × instance type and class: how full, how old, which leave. Most passes change nothing here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import msgspec

from placement.model import NO_AMOUNTS
from placement.plan.ground import UNLABELLED, Ground, Site

MOST_MEMBERS = 60  # nodes of one pool that are listed one by one
RESOURCES = ("cpu", "memory", "pods")

Raw = dict[str, Any]
Pool = tuple[str, str, str]  # zone, instance type, class


@dataclass(frozen=True)
class Floor:
    """All nodes, and what pods request of each; computed once for all clients."""

    ground: Ground
    used: Mapping[str, Mapping[str, int]]  # by node

    def is_of(self, ground: Ground, used: Mapping[str, Mapping[str, int]]) -> bool:
        return self.ground is ground and self.used == used

    @cached_property
    def encoded(self) -> msgspec.Raw:
        """`raw` as JSON."""
        return msgspec.Raw(msgspec.json.encode(self.raw))

    @cached_property
    def raw(self) -> Raw:
        there: dict[Pool, list[Site]] = {}
        for site in self.ground.sites.values():
            key = (site.pool.zone or UNLABELLED, site.pool.instance_type or UNLABELLED, str(site.of))
            there.setdefault(key, []).append(site)
        return {
            "zones": sorted({zone for zone, *_ in there}),
            "instanceTypes": sorted({instance_type for _, instance_type, _ in there}),
            "pools": [self._pool(key, there[key]) for key in sorted(there)],
        }

    def _pool(self, key: Pool, sites: list[Site]) -> Raw:
        zone, instance_type, of = key
        told = sorted(sites, key=lambda site: (site.is_target, site.node.name))[:MOST_MEMBERS]
        return {
            "zone": zone,
            "instanceType": instance_type,
            "class": of,
            "count": len(sites),
            "leaving": sum(site.is_leaving for site in sites),
            "notReady": sum(not site.node.ready for site in sites),
            "fill": self._fill(sites),
            "nodes": sorted((self._node(site) for site in told), key=lambda raw: str(raw["name"])),
        }

    def _node(self, site: Site) -> Raw:
        return {
            "name": site.node.name,
            "ready": site.node.ready,
            "leaving": site.is_leaving,
            "created": site.node.created or None,
            "fill": self._fill([site]),
        }

    def _fill(self, sites: Sequence[Site]) -> dict[str, float]:
        """The share of each resource that pods ask for."""
        fill = {}
        for resource in RESOURCES:
            total = sum(site.node.allocatable.get(resource, 0) for site in sites)
            asked = sum(self.used.get(site.node.name, NO_AMOUNTS).get(resource, 0) for site in sites)
            if total:
                fill[resource] = round(asked / total, 3)
        return fill
