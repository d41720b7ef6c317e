"""What all workloads stand on: the nodes, their classes and pools, and which of them leave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from placement.configuration import Configuration
from placement.model import Class, Node, Pool
from placement.pools import pool_order

NO_NODES: frozenset[str] = frozenset()
UNLABELLED = "unlabelled"


@dataclass(frozen=True, slots=True)
class Site:
    """A node, and where it stands: its class, what it goes with, and whether it leaves."""

    node: Node
    of: Class
    pool: Pool
    is_leaving: bool = False
    is_only_cordoned: bool = False  # it leaves because the configuration says so, and for no other reason
    zone: str = field(init=False, compare=False)  # for people, as `spot_pool`
    spot_pool: str = field(init=False, compare=False)  # `zone/instance type`; "": on-demand, which no cloud takes away

    def __post_init__(self) -> None:
        object.__setattr__(self, "zone", self.pool.zone or UNLABELLED)
        object.__setattr__(self, "spot_pool", pool_name(self.pool) if self.of is Class.SPOT else "")

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def is_target(self) -> bool:
        return self.node.ready and not self.node.unschedulable and not self.is_leaving


Sites = Mapping[str, Site]  # by the node's name


@dataclass(frozen=True, slots=True)
class Ground:
    """What all workloads stand on: the nodes, the live spot pools in `pool_order`, the configuration.

    What every plan asks of all nodes is worked out once, when the nodes change.
    """

    sites: Sites
    spot_pools: tuple[Pool, ...] = ()
    configuration: Configuration = field(default_factory=Configuration)
    targets: Mapping[Class, tuple[Site, ...]] = field(init=False, compare=False, repr=False)
    zones: Mapping[Class, frozenset[str]] = field(init=False, compare=False, repr=False)  # those of targets
    _domains: dict[str, dict[str, frozenset[str]]] = field(default_factory=dict, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        there = [site for site in self.sites.values() if site.is_target]
        targets = {of: tuple(site for site in there if site.of is of) for of in Class}
        zones = {of: frozenset(site.pool.zone for site in targets[of]) for of in Class}
        object.__setattr__(self, "targets", targets)
        object.__setattr__(self, "zones", zones)

    def domain(self, key: str, value: str) -> frozenset[str]:
        """The nodes whose label has this value. Those of all values are found out when the first is asked for."""
        if key not in self._domains:
            found: dict[str, set[str]] = {}
            for name, site in self.sites.items():
                if key in site.node.labels:
                    found.setdefault(site.node.labels[key], set()).add(name)
            self._domains[key] = {each: frozenset(nodes) for each, nodes in found.items()}
        return self._domains[key].get(value, NO_NODES)


def ground_of(nodes: Iterable[Node], configuration: Configuration) -> Ground:
    sites = sites_of(nodes, configuration)
    spot = {site.pool for site in sites.values() if site.is_target and site.of is Class.SPOT}
    return Ground(sites, pool_order(spot), configuration)


def site_of(node: Node, configuration: Configuration) -> Site:
    of = configuration.classes.of_node(node.labels) or Class.ON_DEMAND
    is_leaving = node.is_leaving(configuration.taints_at_once)
    is_only_cordoned = not is_leaving and configuration.empties(node)
    return Site(node, of, node.pool, is_leaving or is_only_cordoned, is_only_cordoned)


def sites_of(nodes: Iterable[Node], configuration: Configuration) -> dict[str, Site]:
    return {node.name: site_of(node, configuration) for node in nodes}


def pool_name(pool: Pool) -> str:
    return f"{pool.zone or UNLABELLED}/{pool.instance_type or UNLABELLED}"
