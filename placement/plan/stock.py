"""What is taken of nodes: by pods that are there, and by pods that will be."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain

from placement.lack import Lack, NoPlace
from placement.model import NO_AMOUNTS, Class, HardSpread, HostPort, Needs, NodeTerm, Pod
from placement.plan.ground import Site
from placement.plan.neighbours import Crowd, Neighbours
from placement.plan.reach import Reach
from placement.plan.spread import Domains, SpreadCount

EVERY_ADDRESS = HostPort(0).ip
Used = Callable[[str], Mapping[str, int]]  # by a node's name: what its pods ask for, their host ports, their number


def host_ports(needs: Needs) -> Iterator[str]:
    """Ports of a node are counted beside its resources: by address, and all addresses together."""
    for number, protocol, ip in needs.host_ports:
        yield f"host-port/{number}/{protocol}"
        yield f"host-port/{number}/{protocol}/{ip}"


def taken_by(needs: Needs) -> Iterator[tuple[str, int]]:
    """What one pod takes of its node; a key may come twice."""
    yield from needs.requests.items()
    if needs.host_ports:
        yield from ((key, 1) for key in host_ports(needs))
    yield "pods", 1


def clashing(port: HostPort) -> tuple[str, ...]:
    """What must not be there: for all addresses any, for one address itself and all addresses."""
    every = f"host-port/{port.number}/{port.protocol}"
    return (every,) if port.ip == EVERY_ADDRESS else (f"{every}/{port.ip}", f"{every}/{EVERY_ADDRESS}")


def amounts_of(pods: Iterable[Pod]) -> Counter[str]:
    """What pods take of their node."""
    taken: Counter[str] = Counter()
    for pod in pods:
        taken.update(pod.needs.requests)
        taken.update(host_ports(pod.needs))
        taken["pods"] += 1
    return taken


def less(used: Used, gone: Iterable[Pod]) -> Used:
    """What is used once these pods have gone."""
    freed: dict[str, list[Pod]] = {}
    for pod in gone:
        freed.setdefault(pod.node, []).append(pod)
    changed: dict[str, Mapping[str, int]] = {}
    for node, pods in freed.items():
        left = changed[node] = dict(used(node))
        for pod in pods:
            for key, amount in taken_by(pod.needs):
                left[key] = left.get(key, 0) - amount

    def used_then(node: str) -> Mapping[str, int]:
        return changed[node] if node in changed else used(node)

    return used_then


class Stock:
    """What is free on each node, once all pods that were added are there."""

    def __init__(self, used: Used, neighbours: Neighbours | None) -> None:
        self.neighbours = neighbours
        self.crowd = Crowd()
        self.made = 0  # how many were added
        self._used = used
        self._amounts: dict[str, Counter[str]] = {}  # by node
        self._tallies: dict[tuple[object, ...], SpreadCount] = {}
        self._tallies_in: dict[str, list[SpreadCount]] = {}  # by namespace
        self._domains: dict[tuple[object, ...], Domains] = {}  # by what is asked of nodes

    def add(self, pod: Pod, site: Site) -> None:
        node = site.node.name
        self._amounts.setdefault(node, Counter()).update(amounts_of((pod,)))
        self.crowd.add(pod, node)
        self.made += 1
        for tally in self._tallies_in.get(pod.namespace, ()):
            tally.add(pod, node)

    def copy(self, neighbours: Neighbours | None = None, used: Used | None = None) -> Stock:
        """To add more to; beside others, or on what others use, if they are given."""
        copied = Stock(used or self._used, neighbours or self.neighbours)
        copied._amounts = {node: Counter(taken) for node, taken in self._amounts.items()}
        copied.crowd = self.crowd.copy()
        copied.made = self.made
        copied._domains = self._domains
        return copied

    # --- amounts -----------------------------------------------------------------------------------------------------

    def free_cpu(self, site: Site) -> int:
        name = site.node.name
        there = site.node.allocatable.get("cpu", 0) - self._used(name).get("cpu", 0)
        return there - self._amounts[name]["cpu"] if name in self._amounts else there

    def free(self, site: Site) -> dict[str, int]:
        used, added = self._taken(site)
        return {key: amount - used.get(key, 0) - added.get(key, 0) for key, amount in site.node.allocatable.items()}

    def refusal(self, site: Site, needs: Needs) -> NoPlace | None:
        """What the node has too little of."""
        used, added = self._taken(site)
        there = site.node.allocatable
        if there.get("pods", 0) - used.get("pods", 0) - added.get("pods", 0) < 1:
            return NoPlace(Lack.PODS)
        for key, amount in needs.requests.items():
            if amount and there.get(key, 0) - used.get(key, 0) - added.get(key, 0) < amount:
                return NoPlace(Lack.ROOM, key)
        for port in needs.host_ports:
            if any(used.get(key) or added.get(key) for key in clashing(port)):
                return NoPlace(Lack.PORTS, str(port.number))
        return None

    def left(self, site: Site, keys: Iterable[str]) -> list[int]:
        """What is free of each; of a host port, less than nothing where it is taken."""
        used, added = self._taken(site)
        there = site.node.allocatable
        return [there.get(key, 0) - used.get(key, 0) - added.get(key, 0) for key in keys]

    def _taken(self, site: Site) -> tuple[Mapping[str, int], Mapping[str, int]]:
        return self._used(site.node.name), self._amounts.get(site.node.name, NO_AMOUNTS)

    # --- other pods --------------------------------------------------------------------------------------------------

    def beside(self, node: str) -> Iterator[Pod]:
        """The pods that are there, and those that will be."""
        assert self.neighbours is not None
        return chain(self.neighbours.on(node), self.crowd.pods.get(node, ()))

    def within(self, namespace: str) -> Iterator[Pod]:
        """The same of all nodes, in one namespace."""
        assert self.neighbours is not None
        yield from (pod for pod in self.neighbours.within(namespace) if pod.is_on_node)
        yield from (pod for pods in self.crowd.pods.values() for pod in pods if pod.namespace == namespace)

    def tallies(self, pod: Pod, reach: Reach, required: Class | None) -> list[SpreadCount]:
        """What the pod's hard rules count, where a class is required of its node or none is."""
        return [self._tally(rule, pod, reach, required) for rule in pod.needs.hard_spread]

    def _tally(self, rule: HardSpread, pod: Pod, reach: Reach, required: Class | None) -> SpreadCount:
        selector = rule.selector_of(pod.labels) or ()
        keys = frozenset(each.topology_key for each in pod.needs.hard_spread)
        alike = (pod.namespace, rule, selector, keys, required, reach.key)
        if alike not in self._tallies:
            domains = self._domains_for(rule, keys, reach, required)
            tally = self._tallies[alike] = self._made_tally(rule, selector, domains, pod.namespace)
            self._tallies_in.setdefault(pod.namespace, []).append(tally)
        return self._tallies[alike]

    def _made_tally(self, rule: HardSpread, selector: NodeTerm, domains: Domains, namespace: str) -> SpreadCount:
        near = self.neighbours
        assert near is not None
        tally = SpreadCount(
            rule, selector, domains, near.census.by_node(namespace, selector) if selector else NO_AMOUNTS
        )
        for node, pods in self.crowd.pods.items():
            for pod in pods:
                if pod.namespace == namespace:
                    tally.add(pod, node)
        return tally

    def _domains_for(self, rule: HardSpread, keys: frozenset[str], reach: Reach, required: Class | None) -> Domains:
        """By node, where it counts. Nodes stay as they are for one plan, and most pods ask the same of them."""
        alike = (rule.topology_key, rule.counts_all_nodes, rule.honors_taints, keys, required, reach.key)
        if alike not in self._domains:
            assert self.neighbours is not None
            by_node = {
                name: site.node.labels[rule.topology_key]
                for name, site in self.neighbours.ground.sites.items()
                if keys <= site.node.labels.keys()
                and (rule.counts_all_nodes or (required in (None, site.of) and reach.selects(site)))
                and (not rule.honors_taints or reach.tolerates(site))
            }
            self._domains[alike] = Domains(by_node, frozenset(by_node.values()))
        return self._domains[alike]
