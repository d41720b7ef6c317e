"""What fits where: resources, taints, node terms, hard spreading, host ports, pod count, the zone of volumes.

Used where a pod is evicted before its replacement exists, so it must never say yes too easily: pods that wait for a
node are given theirs first, and what cannot be judged does not fit.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import islice

from placement import names
from placement.model import NO_AMOUNTS, Class, HardSpread, Needs, NodeRequirement, NodeTerm, Pod, Pool
from placement.plan.group import Ground, Member, Site, own_terms
from placement.plan.neighbours import Crowd, Joins, Neighbours
from placement.plan.reach import Reach, added_taints

MOST_KINDS = 100  # of waiting pods; where more wait, nobody knows who gets what, and nothing is proven
Used = Callable[[str], Mapping[str, int]]  # by a node's name: what its pods ask for, their host ports, their number


def host_port(port: int) -> str:
    """A port of a node is counted beside its resources: there is one of each."""
    return f"host-port/{port}"


class Promises:
    """What will be taken of nodes, and by which pods."""

    def __init__(self) -> None:
        self.amounts: dict[str, Counter[str]] = {}  # by node
        self.crowd = Crowd()
        self.made = 0  # how many

    def add(self, pod: Pod, node: str) -> None:
        ports = {host_port(port): 1 for port in pod.needs.host_ports}
        self.amounts.setdefault(node, Counter()).update({**pod.needs.requests, **ports, "pods": 1})
        self.crowd.add(pod, node)
        self.made += 1

    def copy(self) -> Promises:
        copied = Promises()
        for node, pods in self.crowd.pods.items():
            for pod in pods:
                copied.add(pod, node)
        return copied


class Room:
    """What is free on each node, less what pods that wait will take, less what was promised in this plan.

    Without `neighbours` a pod with required affinity or anti-affinity to other pods fits nowhere.
    """

    def __init__(
        self,
        ground: Ground,
        used: Used,
        waiting: Callable[[], Iterable[Pod]] = tuple,
        neighbours: Neighbours | None = None,
    ) -> None:
        self.ground = ground
        self.neighbours = neighbours
        self._used = used
        self._waiting = waiting
        self._promised = Promises()  # in this plan
        self._expected = Promises()  # the same, and what pods that wait will take
        self._is_known: dict[Class, bool] = {}  # once waiting pods have their seats: whether all of them do
        self._refused: dict[tuple[object, ...], Pod] = {}  # by what it asks for: one that fitted nowhere
        self._fitting: dict[tuple[object, ...], tuple[bool, Pod, Sequence[Member]]] = {}  # the same: whether it fits
        self._domains: dict[tuple[object, ...], dict[str, int]] = {}  # by what spreads: the domains there are, empty

    def targets(self, of: Class) -> Sequence[Site]:
        return self.ground.targets[of]

    def take(
        self,
        pod: Pod,
        of: Class,
        siblings: Sequence[Member] = (),
        pool: Pool | None = None,
        *,
        goes_first: bool = False,
        is_urgent: bool = False,
    ) -> str | None:
        """A node of the class (and pool) for the pod's replacement, promised to it then; None: none is proven.

        The replacement comes up beside the old pod, unless that one goes first. What is urgent takes room also where so
        many others wait that nobody knows what they will take.
        """
        is_known = self._seat(of)
        if not self._can_judge(pod) or not (is_known or is_urgent):
            return None
        needs, joins = pod.needs, self._judge(pod, self._expected, pod.uid if goes_first else "")
        kind = (of, pool, *_alike(pod, joins))
        is_same_for_all = not (needs.hard_spread or needs.has_claims or (goes_first and needs.anti_affinity))
        is_final = is_same_for_all and not needs.affinity  # promises only ever grow, but they may be company
        if is_final and kind in self._refused:
            return None
        site = self._emptiest(pod, of, self._suited(pod, of, siblings, joins, pool), self._expected)
        if site is not None:
            self._promised.add(pod, site.node.name)
            self._expected.add(pod, site.node.name)
            return site.node.name
        if is_final:
            self._refused[kind] = pod
        return None

    def fits(self, pod: Pod, of: Class, siblings: Sequence[Member] = ()) -> bool:
        """Whether a pod that never had a node would find one of the class now, by all that its owner asks of nodes.

        That is without the class that admission requires of it. Nothing is promised. Other pods that wait take no room
        here: many wait for reasons of their own, and must not stand in the way. Which nodes a claim can be used on is
        not judged.
        """
        if not self._can_judge(pod):
            return False
        joins = self._judge(pod, self._promised)
        kind = (of, id(siblings) if pod.needs.hard_spread else 0, pod.node, self._promised.made, *_alike(pod, joins))
        if kind not in self._fitting:  # many siblings may wait, and each asks
            is_suited, promised = self._suited(pod, of, siblings, joins, is_soft=True), self._promised
            fits = any(self._has_room(site, pod.needs, promised) and is_suited(site) for site in self.targets(of))
            self._fitting[kind] = (fits, pod, siblings)
        return self._fitting[kind][0]

    def fits_empty(self, pod: Pod, of: Class) -> bool:
        """Whether it would, were the nodes that are there empty: an autoscaler can bring more of them.

        False for a pod that keeps its distance from others by more than hosts: more nodes need not help it.
        """
        keys = {term.topology_key for term in (*pod.needs.affinity, *pod.needs.anti_affinity)}
        if not keys.union(rule.topology_key for rule in pod.needs.hard_spread) <= {names.HOSTNAME}:
            return False
        is_suited, asked = self._suited(pod, of, (), None), pod.needs.requests.items()
        return any(
            all(site.node.allocatable.get(key, 0) >= amount for key, amount in asked) and is_suited(site)
            for site in self.ground.targets[of]
        )

    def count(self, pod: Pod, of: Class, enough: int) -> int:
        """How many pods like this one would find a place of the class now; no more than enough are looked for."""
        self._seat(of)
        if self._judge(pod, self._expected) is not None:
            return self._count_one_by_one(pod, of, enough)
        classes, found = self.ground.configuration.classes, 0
        reach = Reach(own_terms(pod, classes), pod.needs.tolerations, added_taints(of, classes))
        for site in self.ground.targets[of]:
            if found >= enough:
                break
            if self._has_room(site, pod.needs, self._expected) and reach.admits(site):
                free = self.free(site)
                asked = {**pod.needs.requests, "pods": 1}
                found += min(free.get(key, 1) // amount for key, amount in asked.items() if amount)
        return min(found, enough)

    def _count_one_by_one(self, pod: Pod, of: Class, enough: int) -> int:
        """Each is a neighbour of the next."""
        expected, found = self._expected.copy(), 0
        classes = self.ground.configuration.classes
        reach = Reach(own_terms(pod, classes), pod.needs.tolerations, added_taints(of, classes))
        while found < enough:
            site = self._emptiest(pod, of, _both(reach.admits, self._judge(pod, expected)), expected)
            if site is None:
                break
            expected.add(pod, site.node.name)
            found += 1
        return found

    def free(self, site: Site) -> dict[str, int]:
        self._seat(site.of)
        used, expected = self._taken(site, self._expected)
        return {key: amount - used.get(key, 0) - expected.get(key, 0) for key, amount in site.node.allocatable.items()}

    @property
    def crowd(self) -> Crowd:
        """A copy of the pods that will be on nodes, to add more to."""
        return self._expected.crowd.copy()

    def _taken(self, site: Site, promises: Promises) -> tuple[Mapping[str, int], Mapping[str, int]]:
        return self._used(site.node.name), promises.amounts.get(site.node.name, NO_AMOUNTS)

    def _free_cpu(self, site: Site, promises: Promises) -> int:
        used, promised = self._taken(site, promises)
        return site.node.allocatable.get("cpu", 0) - used.get("cpu", 0) - promised.get("cpu", 0)

    def _has_room(self, site: Site, needs: Needs, promises: Promises) -> bool:
        used, promised = self._taken(site, promises)
        if any(used.get(host_port(port)) or promised.get(host_port(port)) for port in needs.host_ports):
            return False
        there = site.node.allocatable
        return there.get("pods", 1) - used.get("pods", 0) - promised.get("pods", 0) >= 1 and all(
            there.get(key, 0) - used.get(key, 0) - promised.get(key, 0) >= amount
            for key, amount in needs.requests.items()
            if amount
        )

    def _can_judge(self, pod: Pod) -> bool:
        return self.neighbours is not None or not pod.needs.has_pod_affinity

    def _judge(self, pod: Pod, promises: Promises, gone: str = "") -> Joins | None:
        """Which nodes other pods leave open to the pod; None: all."""
        if self.neighbours is None:
            return None
        beside = self.neighbours.without([gone]) if gone and pod.needs.has_pod_affinity else self.neighbours
        return beside.judge(pod, promises.crowd)

    def _emptiest(self, pod: Pod, of: Class, is_suited: Callable[[Site], bool], promises: Promises) -> Site | None:
        """The scheduler prefers it, too. What rules most nodes out is asked first."""
        best, most = None, pod.needs.requests.get("cpu", 0) - 1
        for site in self.ground.targets[of]:
            cpu = self._free_cpu(site, promises)
            if cpu > most and self._has_room(site, pod.needs, promises) and is_suited(site):
                best, most = site, cpu
        return best

    def _suited(
        self,
        pod: Pod,
        of: Class,
        siblings: Sequence[Member],
        joins: Joins | None,
        pool: Pool | None = None,
        *,
        is_soft: bool = False,
    ) -> Callable[[Site], bool]:
        """Whether a node with enough room is one for the pod's replacement; a soft one may use either class."""
        classes, old = self.ground.configuration.classes, self.ground.sites.get(pod.node)
        reach = Reach(own_terms(pod, classes), pod.needs.tolerations, added_taints(of, classes))
        required = None if is_soft else of
        rules = pod.needs.hard_spread
        spread = [(rule.topology_key, self._open(rule, pod, required, reach, siblings)) for rule in rules]
        zone = old.pool.zone if pod.needs.has_claims and old is not None else None

        def is_suited(site: Site) -> bool:
            return (
                pool in (None, site.pool)
                and zone in (None, site.pool.zone)
                and reach.admits(site)
                and all(site.node.labels.get(key, "") in there for key, there in spread)
                and (joins is None or joins(site))
            )

        return is_suited

    def _open(self, rule: HardSpread, pod: Pod, of: Class | None, reach: Reach, siblings: Sequence[Member]) -> set[str]:
        """The domains where one more keeps within the skew.

        As the scheduler counts: domains and pods on nodes that the replacement's own terms and class (None: either)
        leave open, whether or not there is room on them, or they are cordoned.
        """
        key = rule.topology_key

        def is_counted(site: Site) -> bool:
            return key in site.node.labels and (
                rule.counts_all_nodes or (of in (None, site.of) and reach.selects(site))
            )

        alike = (key, rule.counts_all_nodes, of, reach.terms)
        if alike not in self._domains:  # nodes stay as they are for one plan, and most pods ask the same of them
            there = (site.node.labels[key] for site in self.ground.sites.values() if is_counted(site))
            self._domains[alike] = dict.fromkeys(there, 0)
        counts = Counter(self._domains[alike])
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
                    home = pod.namespace if pod.needs.has_pod_affinity else ""
                    kinds.setdefault((id(pod.needs), pod.required_terms, home), []).append(pod)
            self._is_known[of] = len(kinds) <= MOST_KINDS
            for alike in islice(kinds.values(), MOST_KINDS):
                self._seat_alike(alike, of)
        return self._is_known[of]

    def _seat_alike(self, pods: Sequence[Pod], of: Class) -> None:
        """Each on the emptiest node that would take it; spreading aside."""
        needs = pods[0].needs
        reach = Reach(_all_terms(pods[0]), needs.tolerations)
        sites = [
            site
            for site in self.ground.targets[of]
            if self._has_room(site, needs, self._expected) and reach.admits(site)
        ]
        heap = [(-self._free_cpu(site, self._expected), index) for index, site in enumerate(sites)]
        heapify(heap)
        refused: set[tuple[str, int]] = set()  # siblings share their labels: what one of them meets, all meet
        for pod in pods:
            if not heap:
                return
            if (pod.namespace, id(pod.labels)) in refused:
                continue
            index = self._pick(pod, heap, sites)
            if index is None:
                refused.add((pod.namespace, id(pod.labels)))
            else:
                self._expected.add(pod, sites[index].node.name)
                heappush(heap, (-self._free_cpu(sites[index], self._expected), index))

    def _pick(self, pod: Pod, heap: list[tuple[int, int]], sites: Sequence[Site]) -> int | None:
        """Takes the emptiest that is open to the pod off the heap, and those that are full.

        Where siblings are only apart from each other, what is shut to one stays shut to all, and goes as well.
        """
        joins = self._judge(pod, self._expected)
        picked, shut = None, []
        while heap and picked is None:
            entry = heappop(heap)
            site = sites[entry[1]]
            if not self._has_room(site, pod.needs, self._expected):
                continue
            if joins is None or joins(site):
                picked = entry[1]
            else:
                shut.append(entry)
        if pod.needs.affinity or not pod.needs.anti_affinity:
            for entry in shut:
                heappush(heap, entry)
        return picked


def _alike(pod: Pod, joins: Joins | None) -> tuple[object, ...]:
    """What pods have in common that fit in the same places. Where others have a say, they look at labels as well."""
    seen = () if joins is None else (pod.namespace, id(pod.labels))
    return (id(pod.needs), pod.required_terms, *seen)


def _both(admits: Joins, joins: Joins | None) -> Joins:
    return admits if joins is None else lambda site: admits(site) and joins(site)


def _all_terms(pod: Pod) -> tuple[NodeTerm, ...]:
    """What is asked of its node, by whomever."""
    selector = tuple(NodeRequirement(key, "In", (value,)) for key, value in pod.needs.node_selector.items())
    return tuple(selector + term for term in pod.required_terms) or ((selector,) if selector else ())
