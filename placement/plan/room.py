"""What fits where: resources, taints, node terms, hard spreading, host ports, pod count, the zone of volumes.

Used where a pod is evicted before its replacement exists, so it must never say yes too easily: pods that wait for a
node are given theirs first, and what cannot be judged (affinity to other pods) does not fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heapreplace
from itertools import islice

from placement import names
from placement.classes import Classes
from placement.model import NO_AMOUNTS, Class, HardSpread, Needs, NodeRequirement, NodeTerm, Pod, Pool, Toleration
from placement.plan.group import Ground, Member, Site, own_terms

REPELLING = ("NoSchedule", "NoExecute")
MOST_KINDS = 100  # of waiting pods; where more wait, nobody knows who gets what, and nothing is proven
Used = Callable[[str], Mapping[str, int]]  # by a node's name: what its pods ask for, their host ports, their number


def host_port(port: int) -> str:
    """A port of a node is counted beside its resources: there is one of each."""
    return f"host-port/{port}"


class Room:
    """What is free on each node, less what pods that wait will take, less what was promised in this plan."""

    def __init__(self, ground: Ground, used: Used, waiting: Callable[[], Iterable[Pod]] = tuple) -> None:
        self.ground = ground
        self._used = used
        self._waiting = waiting
        self._promised: dict[str, Counter[str]] = {}
        self._is_known: dict[Class, bool] = {}  # once waiting pods have their seats: whether all of them do
        self._refused: dict[tuple[object, ...], Pod] = {}  # by what it asks for: one that fitted nowhere

    def targets(self, of: Class) -> Sequence[Site]:
        return self.ground.targets[of]

    def take(self, pod: Pod, of: Class, siblings: Sequence[Member] = (), pool: Pool | None = None) -> str | None:
        """A node of the class (and pool) for the pod's replacement, promised to it then; None: none is proven."""
        if pod.needs.has_pod_affinity or not self._seat(of):
            return None
        kind = (of, pool, id(pod.needs), pod.required_terms)
        is_plain = not (pod.needs.hard_spread or pod.needs.has_claims)
        if is_plain and kind in self._refused:
            return None  # promises only ever grow
        site = self._emptiest(pod, of, self._suited(pod, of, siblings, pool))
        if site is not None:
            self._promise(site, pod.needs)
            return site.node.name
        if is_plain:
            self._refused[kind] = pod
        return None

    def fits(self, pod: Pod, of: Class) -> bool:
        """Whether a pod that never had a node would find one of the class now, without what we require of it."""
        if pod.needs.has_pod_affinity or not self._seat(of):
            return False
        is_suited = self._suited(pod, of, (), None)
        return any(self._has_room(site, pod.needs) and is_suited(site) for site in self.ground.targets[of])

    def fits_empty(self, pod: Pod, of: Class) -> bool:
        """Whether it would, were the nodes that are there empty: an autoscaler can bring more of them."""
        is_suited, asked = self._suited(pod, of, (), None), pod.needs.requests.items()
        return any(
            all(site.node.allocatable.get(key, 0) >= amount for key, amount in asked) and is_suited(site)
            for site in self.ground.targets[of]
        )

    def count(self, pod: Pod, of: Class, enough: int) -> int:
        """How many pods like this one would find a place of the class now; no more than enough are looked for."""
        classes, found = self.ground.configuration.classes, 0
        reach = Reach(own_terms(pod, classes), pod.needs.tolerations, _added(of, classes))
        for site in self.ground.targets[of]:
            if found >= enough:
                break
            if self._has_room(site, pod.needs) and reach.admits(site):
                free = self.free(site)
                asked = {**pod.needs.requests, "pods": 1}
                found += min(free.get(key, 1) // amount for key, amount in asked.items() if amount)
        return min(found, enough)

    def free(self, site: Site) -> dict[str, int]:
        self._seat(site.of)
        used, promised = self._taken(site)
        return {key: amount - used.get(key, 0) - promised.get(key, 0) for key, amount in site.node.allocatable.items()}

    def _taken(self, site: Site) -> tuple[Mapping[str, int], Mapping[str, int]]:
        return self._used(site.node.name), self._promised.get(site.node.name, NO_AMOUNTS)

    def _free_cpu(self, site: Site) -> int:
        used, promised = self._taken(site)
        return site.node.allocatable.get("cpu", 0) - used.get("cpu", 0) - promised.get("cpu", 0)

    def _has_room(self, site: Site, needs: Needs) -> bool:
        used, promised = self._taken(site)
        if any(used.get(host_port(port)) or promised.get(host_port(port)) for port in needs.host_ports):
            return False
        there = site.node.allocatable
        return there.get("pods", 1) - used.get("pods", 0) - promised.get("pods", 0) >= 1 and all(
            there.get(key, 0) - used.get(key, 0) - promised.get(key, 0) >= amount
            for key, amount in needs.requests.items()
            if amount
        )

    def _promise(self, site: Site, needs: Needs) -> None:
        ports = {host_port(port): 1 for port in needs.host_ports}
        self._promised.setdefault(site.node.name, Counter()).update({**needs.requests, **ports, "pods": 1})

    def _emptiest(self, pod: Pod, of: Class, is_suited: Callable[[Site], bool]) -> Site | None:
        """The scheduler prefers it, too. What rules most nodes out is asked first."""
        best, most = None, pod.needs.requests.get("cpu", 0) - 1
        for site in self.ground.targets[of]:
            cpu = self._free_cpu(site)
            if cpu > most and self._has_room(site, pod.needs) and is_suited(site):
                best, most = site, cpu
        return best

    def _suited(self, pod: Pod, of: Class, siblings: Sequence[Member], pool: Pool | None) -> Callable[[Site], bool]:
        """Whether a node with enough room is one for the pod's replacement."""
        classes, old = self.ground.configuration.classes, self.ground.sites.get(pod.node)
        reach = Reach(own_terms(pod, classes), pod.needs.tolerations, _added(of, classes))
        spread = [(rule.topology_key, self._open(rule, pod, of, reach, siblings)) for rule in pod.needs.hard_spread]
        zone = old.pool.zone if pod.needs.has_claims and old is not None else None

        def is_suited(site: Site) -> bool:
            return (
                pool in (None, site.pool)
                and zone in (None, site.pool.zone)
                and reach.admits(site)
                and all(site.node.labels.get(key, "") in there for key, there in spread)
            )

        return is_suited

    def _open(self, rule: HardSpread, pod: Pod, of: Class, reach: Reach, siblings: Sequence[Member]) -> set[str]:
        """The domains where one more keeps within the skew.

        As the scheduler counts: domains and pods on nodes that the replacement's own terms and class leave open,
        whether or not there is room on them, or they are cordoned.
        """
        key = rule.topology_key

        def is_counted(site: Site) -> bool:
            return key in site.node.labels and (rule.counts_all_nodes or (site.of is of and reach.selects(site)))

        counts = Counter({site.node.labels[key]: 0 for site in self.ground.sites.values() if is_counted(site)})
        for member in siblings:
            if member.site is not None and member.pod.uid != pod.uid and is_counted(member.site):
                counts[member.site.node.labels[key]] += 1
        least = min(counts.values(), default=0) if len(counts) >= rule.min_domains else 0
        return {domain for domain, count in counts.items() if count + 1 - least <= rule.max_skew}

    # --- pods that wait for a node -----------------------------------------------------------------------------------

    def _seat(self, of: Class) -> bool:
        """Gives waiting pods their places, once, when somebody asks for one; whether what is left is known.

        Those that may go to either class take a place on both.
        """
        if of not in self._is_known:
            self._is_known[of] = True
            kinds: dict[tuple[object, ...], list[Pod]] = {}
            for pod in self._waiting():
                if self.ground.configuration.classes.of_pod(pod, None) in (of, None):
                    kinds.setdefault((id(pod.needs), pod.required_terms), []).append(pod)
            self._is_known[of] = len(kinds) <= MOST_KINDS
            for alike in islice(kinds.values(), MOST_KINDS):
                self._seat_alike(alike, of)
        return self._is_known[of]

    def _seat_alike(self, pods: Sequence[Pod], of: Class) -> None:
        """Each on the emptiest node that would take it; affinity to other pods and spreading aside."""
        needs = pods[0].needs
        reach = Reach(_all_terms(pods[0]), needs.tolerations)
        sites = [site for site in self.ground.targets[of] if self._has_room(site, needs) and reach.admits(site)]
        heap = [(-self._free_cpu(site), index) for index, site in enumerate(sites)]
        heapify(heap)
        for _ in pods:
            while heap and not self._has_room(sites[heap[0][1]], needs):
                heappop(heap)
            if not heap:
                return
            site = sites[heap[0][1]]
            self._promise(site, needs)
            heapreplace(heap, (-self._free_cpu(site), heap[0][1]))


class Reach:
    """The nodes that a pod may use, whatever room they have."""

    def __init__(
        self,
        terms: tuple[NodeTerm, ...],
        tolerations: tuple[Toleration, ...],
        added: Collection[tuple[str, str | None]] = (),
    ) -> None:
        self._terms = terms
        self._tolerations = tolerations
        self._added = added

    def admits(self, site: Site) -> bool:
        """Taints are tolerated (those of spot by what admission adds), and one of the terms is satisfied."""
        return self._tolerates(site) and self.selects(site)

    def selects(self, site: Site) -> bool:
        return not self._terms or any(all(_holds(site, each) for each in term) for term in self._terms)

    def _tolerates(self, site: Site) -> bool:
        return all(
            taint.effect not in REPELLING
            or (taint.key, taint.value) in self._added
            or (taint.key, None) in self._added
            or any(each.tolerates(taint) for each in self._tolerations)
            for taint in site.node.taints
        )


def _added(of: Class, classes: Classes) -> frozenset[tuple[str, str | None]]:
    """The taints that admission makes a pod of the class tolerate."""
    return frozenset((each["key"], each.get("value")) for each in classes.tolerations if of is Class.SPOT)


def _all_terms(pod: Pod) -> tuple[NodeTerm, ...]:
    """What is asked of its node, by whomever."""
    selector = tuple(NodeRequirement(key, "In", (value,)) for key, value in pod.needs.node_selector.items())
    return tuple(selector + term for term in pod.required_terms) or ((selector,) if selector else ())


def _holds(site: Site, asked: NodeRequirement) -> bool:
    return asked.allows(site.node.name if asked.key == names.NODE_NAME else site.node.labels.get(asked.key))


# --- what was lost ---------------------------------------------------------------------------------------------------


def shortage(lost: Sequence[Pod], room: Room, of: Class) -> Pod | None:
    """The smallest pod that does not fit when all that were lost are put; None: all fit."""
    *_, smallest = None, *left_out(lost, room, of)
    return smallest


def left_out(lost: Iterable[Pod], room: Room, of: Class) -> Iterator[Pod]:
    """Those that do not fit when all are put, the largest first, each where most is free of what it may use.

    It takes the emptiest node each time, so it may find a shortage where a cleverer packing would not. That costs
    little: soft pods prefer their class all the same.
    """
    classes, sites = room.ground.configuration.classes, room.targets(of)
    free = [room.free(site) for site in sites]
    heaps: dict[object, list[tuple[int, int]]] = {}  # by what tells where a pod may go

    def heap_for(terms: tuple[NodeTerm, ...], tolerations: tuple[Toleration, ...]) -> list[tuple[int, int]]:
        reach = Reach(terms, tolerations, _added(of, classes))
        heap = [(-free[index].get("cpu", 0), index) for index, site in enumerate(sites) if reach.admits(site)]
        heapify(heap)
        return heap

    for pod in sorted(lost, key=_size, reverse=True):
        alike = (id(pod.required_terms), id(pod.needs))
        if alike not in heaps:
            kind = (own_terms(pod, classes), pod.needs.tolerations)
            heaps[alike] = heaps.setdefault(kind, heaps.get(kind) or heap_for(*kind))
        if not _put(pod, heaps[alike], free):
            yield pod


def _put(pod: Pod, heap: list[tuple[int, int]], free: Sequence[dict[str, int]]) -> bool:
    """On the emptiest. Others may have put pods there since the heap was made: then it is not the emptiest any more."""
    while heap and -heap[0][0] != free[heap[0][1]].get("cpu", 0):
        heapreplace(heap, (-free[heap[0][1]].get("cpu", 0), heap[0][1]))
    if not heap or not _fits(free[heap[0][1]], pod.needs.requests):
        return False
    index = heap[0][1]
    for key, amount in {**pod.needs.requests, "pods": 1}.items():
        free[index][key] = free[index].get(key, 0) - amount
    heapreplace(heap, (-free[index].get("cpu", 0), index))
    return True


def _fits(free: Mapping[str, int], requests: Mapping[str, int]) -> bool:
    return free.get("pods", 1) >= 1 and all(free.get(key, 0) >= amount for key, amount in requests.items() if amount)


def _size(pod: Pod) -> tuple[int, int]:
    return (pod.needs.requests.get("cpu", 0), pod.needs.requests.get("memory", 0))
