"""The cluster as a decision sees it: pools, classes of nodes, outages, and whether a rebalancer leads."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from placement import names
from placement.availability import NO_BUDGETS, BudgetIndex
from placement.configuration import Configuration
from placement.model import Class, Node, NodeTerm, Pool
from placement.outage import Demand, Outages, reachable
from placement.pools import pool_order

PREFER_NO_SCHEDULE = "PreferNoSchedule"
MOST_SHUNNED = 20  # tolerations that a pod gets for such taints


@dataclass(frozen=True, slots=True)
class ClusterState:
    """What a decision depends on beside the pod and its owner."""

    configuration: Configuration
    spot_pools: tuple[Pool, ...] = ()  # in `pool_order`
    priority_classes: Collection[str] = ()
    out: frozenset[Class] = frozenset()  # for this pod, wherever it could find them
    unled: frozenset[Class] = frozenset()  # if this pod got stuck for want of them, no rebalancer would free it
    shunned: Mapping[Class, Sequence[Mapping[str, str]]] = field(default_factory=dict)  # see `shunned_by_class`
    node_classes: Mapping[str, Class] = field(default_factory=dict)  # by node name
    budgets: BudgetIndex = NO_BUDGETS
    zones: Mapping[Class, frozenset[str]] = field(default_factory=dict)  # that have nodes of the class

    def with_outages(self, outages: Outages, demand: Demand, now: float) -> ClusterState:
        """As a pod sees it that asks for this much: classes that are out for it, and the pools that are left."""
        out = frozenset(each for each in Class if outages.stands(each, self.zones[each], demand, now))
        there = reachable(self.zones[Class.SPOT], demand.own_terms)
        left = outages.zones_left(Class.SPOT, there, demand, now)
        pools = tuple(pool for pool in self.spot_pools if pool.zone in left)
        return replace(self, spot_pools=pools or self.spot_pools, out=out)

    def missing(self, own_terms: tuple[NodeTerm, ...]) -> frozenset[Class]:
        """The classes of which a pod with these terms finds no node."""
        return frozenset(each for each in Class if not reachable(self.zones[each], own_terms))


def cluster_state(
    nodes: Collection[Node], priority_classes: Iterable[str], budgets: BudgetIndex, configuration: Configuration
) -> ClusterState:
    """What there is now, outages apart."""

    def class_of(node: Node) -> Class:
        return configuration.classes.of_node(node.labels) or Class.ON_DEMAND

    targets = [node for node in nodes if _is_target(node, configuration)]
    by_class = {each: [node for node in targets if class_of(node) is each] for each in Class}
    return ClusterState(
        configuration,
        pool_order({node.pool for node in by_class[Class.SPOT]}),
        frozenset(priority_classes),
        shunned=shunned_by_class(by_class, configuration.leaving_taints),
        node_classes={
            name: class_of(node) for node in nodes for name in (node.name, node.labels.get(names.HOSTNAME, ""))
        },
        budgets=budgets,
        zones={each: frozenset(node.pool.zone for node in there) for each, there in by_class.items()},
    )


def _is_target(node: Node, configuration: Configuration) -> bool:
    """A live node that takes pods and is not leaving."""
    return node.ready and not node.unschedulable and not configuration.is_leaving(node)


def shunned_by_class(
    nodes: Mapping[Class, Collection[Node]], leaving_taints: Collection[str]
) -> dict[Class, tuple[dict[str, str], ...]]:
    """What soft pods of a class tolerate, lest they end up on the other class: taints of effect PreferNoSchedule that

    nodes of their class carry and those of the other do not. One that is not tolerated counts for more in the
    scheduler's score than any preference (10 of 10 pods were sent away from spot).
    """
    left_out = {names.DELETION_CANDIDATE, *leaving_taints}
    found = {
        each: {
            (taint.key, taint.value)
            for node in some
            for taint in node.taints
            if taint.effect == PREFER_NO_SCHEDULE and taint.key not in left_out
        }
        for each, some in nodes.items()
    }
    return {each: tuple(islice(_tolerations(mine, found[each.other]), MOST_SHUNNED)) for each, mine in found.items()}


def _tolerations(mine: Collection[tuple[str, str]], others: Collection[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """By key alone where the other class has no such key: values may be as many as nodes."""
    shared = {key for key, _ in others}
    for key in sorted({key for key, _ in mine} - shared):
        yield {"key": key, "operator": "Exists", "effect": PREFER_NO_SCHEDULE}
    for key, value in sorted(set(mine) - set(others)):
        if key in shared:
            said = {"value": value} if value else {}  # the API server leaves out what is empty
            yield {"key": key, "operator": "Equal", **said, "effect": PREFER_NO_SCHEDULE}
