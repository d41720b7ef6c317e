"""What fits where: resources, taints, node terms, hard spreading, ports, pod count, the zone of volumes.

Used where a pod is evicted before its replacement exists, so it must never say yes too easily: what it cannot judge
(affinity to other pods) does not fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from heapq import heapify, heapreplace

from placement import names
from placement.classes import Classes
from placement.model import NO_AMOUNTS, Class, NodeTerm, Pod, Pool
from placement.plan.group import Ground, Member, Site, own_terms

REPELLING = ("NoSchedule", "NoExecute")
Used = Callable[[str], Mapping[str, int]]  # by a node's name: what its pods ask for, and how many "pods" they are


class Room:
    """What is free on each node, less what was promised in this plan."""

    def __init__(self, ground: Ground, used: Used) -> None:
        self._ground = ground
        self._used = used
        self._promised: dict[str, Counter[str]] = {}
        self._targets = {
            of: [site for site in ground.sites.values() if site.is_target and site.of is of] for of in Class
        }

    def targets(self, of: Class) -> Sequence[Site]:
        return self._targets[of]

    def take(self, pod: Pod, of: Class, siblings: Sequence[Member] = (), pool: Pool | None = None) -> str | None:
        """A node of the class (and pool) for the pod's replacement, promised to it then; None: none is proven."""
        needs = pod.needs
        if needs.has_pod_affinity:
            return None
        terms = own_terms(pod, self._ground.configuration.classes)
        old = self._ground.sites.get(pod.node)
        best, most = None, -1
        for site in self._targets[of]:
            if pool is not None and site.pool != pool:
                continue
            if needs.has_claims and old is not None and site.pool.zone != old.pool.zone:
                continue
            free = self.free(site)
            if free.get("cpu", 0) <= most or not _has_room(free, needs.requests):
                continue
            if _admits(site, pod, of, terms, self._ground.configuration.classes) and self._spreads(site, pod, siblings):
                best, most = site, free.get("cpu", 0)
        if best is None:
            return None
        self._promised.setdefault(best.node.name, Counter()).update({**needs.requests, "pods": 1})
        return best.node.name

    def free(self, site: Site) -> dict[str, int]:
        used = self._used(site.node.name)
        promised: Mapping[str, int] = self._promised.get(site.node.name, NO_AMOUNTS)
        return {key: amount - used.get(key, 0) - promised.get(key, 0) for key, amount in site.node.allocatable.items()}

    def _spreads(self, site: Site, pod: Pod, siblings: Sequence[Member]) -> bool:
        """Whether one more there keeps within the skew of all its hard constraints."""
        for rule in pod.needs.hard_spread:
            key = rule.topology_key
            counts = Counter({each.node.labels.get(key, ""): 0 for each in self._targets[site.of]})
            for member in siblings:
                if member.site is not None and member.pod.uid != pod.uid:
                    counts[member.site.node.labels.get(key, "")] += 1
            there = site.node.labels.get(key, "")
            if not there or counts[there] + 1 - min(counts.values()) > rule.max_skew:
                return False
        return True


def _has_room(free: Mapping[str, int], requests: Mapping[str, int]) -> bool:
    return free.get("pods", 1) >= 1 and all(free.get(key, 0) >= amount for key, amount in requests.items() if amount)


def _admits(site: Site, pod: Pod, of: Class, terms: tuple[NodeTerm, ...], classes: Classes) -> bool:
    """Taints are tolerated (those of spot by what admission adds), and one of the terms is satisfied."""
    return _is_tolerated(site, pod, of, classes) and (
        not terms or any(all(_holds(site, each.key, each.allows) for each in term) for term in terms)
    )


def _is_tolerated(site: Site, pod: Pod, of: Class, classes: Classes) -> bool:
    added = {(each["key"], each.get("value")) for each in classes.tolerations} if of is Class.SPOT else set()
    for taint in site.node.taints:
        if taint.effect not in REPELLING or (taint.key, taint.value) in added or (taint.key, None) in added:
            continue
        if not any(each.tolerates(taint) for each in pod.needs.tolerations):
            return False
    return True


def _holds(site: Site, key: str, allows: Callable[[str | None], bool]) -> bool:
    return allows(site.node.name if key == names.NODE_NAME else site.node.labels.get(key))


def shortage(lost: Sequence[Pod], room: Room, of: Class) -> Pod | None:
    """The smallest pod that does not fit when all that were lost are put, each where most is free; None: all fit.

    It takes the emptiest node each time, so it may find a shortage where a cleverer packing would not. That costs
    little: soft pods prefer their class all the same.
    """
    sites = room.targets(of)
    heap = [(-free.get("cpu", 0), index, free) for index, free in enumerate(map(room.free, sites))]
    heapify(heap)
    left_out = None
    for pod in sorted(lost, key=_size, reverse=True):
        if heap and _has_room(heap[0][2], pod.needs.requests):
            _, index, free = heap[0]
            for key, amount in {**pod.needs.requests, "pods": 1}.items():
                free[key] = free.get(key, 0) - amount
            heapreplace(heap, (-free.get("cpu", 0), index, free))
        else:
            left_out = pod
    return left_out


def _size(pod: Pod) -> tuple[int, int]:
    return (pod.needs.requests.get("cpu", 0), pod.needs.requests.get("memory", 0))
