"""What fits where: the one fit test, for moves, outages, drills and whoever else asks.

It looks at what the scheduler's filters look at: amounts, number of pods, host ports, taints, node terms, affinity and
anti-affinity between pods, hard spread, volumes and how many of them a node attaches (`placement.plan.search`). Pods
that wait for a node are given theirs first. What cannot be modelled does not fit where a pod is evicted before its
replacement exists (`take`, `place`), and is no obstacle where our own constraint is undone (`fits`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice

from placement import names
from placement.lack import Lack, NoPlace
from placement.model import Class, Pod, Pool
from placement.plan.ground import Ground, Site
from placement.plan.group import all_terms, own_terms
from placement.plan.neighbours import Neighbours
from placement.plan.reach import NO_TAINTS, Reach, added_taints
from placement.plan.search import PASSING, Asked, Search
from placement.plan.spread import SpreadCount, as_class
from placement.plan.stock import Stock, Used, less

MOST_KINDS = 100  # of waiting pods; where more wait, nobody knows who gets what, and nothing is proven
MOST_ROUNDS = 8  # of pods that wait for company: a chain of them must not hold up the plan of all
WAITING = NoPlace(Lack.ROOM, "all pods that wait")
NO_NODES = NoPlace(Lack.NODES)


@dataclass(frozen=True, slots=True)
class Joint:
    """Which of several pods find a place together."""

    places: Mapping[str, str]  # by UID: the node
    refused: tuple[tuple[Pod, NoPlace], ...] = ()


class Room:
    """What is free on each node, less what pods that wait will take, less what was promised in this plan.

    Without `neighbours` a pod with hard spread, or with required affinity or anti-affinity to other pods, fits nowhere.
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
        self._promised = Stock(used, neighbours)  # in this plan
        self._expected = Stock(used, neighbours)  # the same, and what pods that wait will take
        self._is_known: dict[Class, bool] = {}  # once waiting pods have their seats: whether all of them do
        self._searches: dict[tuple[object, ...], Search] = {}  # for what is expected, by what pods have in common
        self._fitting: dict[tuple[object, ...], tuple[bool, Pod]] = {}  # by the same: whether it fits beside promises
        self._open: dict[tuple[object, ...], tuple[Sequence[Site], NoPlace]] = {}
        self._as_class: dict[tuple[object, ...], tuple[Pod, Pod]] = {}  # by what pods have in common: before and after

    def targets(self, of: Class | None) -> Sequence[Site]:
        return self.ground.targets[of] if of is not None else [each for of in Class for each in self.ground.targets[of]]

    # --- questions ---------------------------------------------------------------------------------------------------

    def take(
        self, pod: Pod, of: Class, pool: Pool | None = None, *, goes_first: bool = False, is_urgent: bool = False
    ) -> str | None:
        """As `place`, for those who need no reason."""
        found = self.place(pod, of, pool, goes_first=goes_first, is_urgent=is_urgent)
        return None if isinstance(found, NoPlace) else found

    def place(
        self, pod: Pod, of: Class, pool: Pool | None = None, *, goes_first: bool = False, is_urgent: bool = False
    ) -> str | NoPlace:
        """A node of the class (and pool) for the pod's replacement, promised to it then; or why none is proven.

        The replacement comes up beside the old pod, unless that one goes first. What is urgent takes room also where so
        many others wait that nobody knows what they will take.
        """
        if not self._seat(of) and not is_urgent:
            return WAITING
        pod = self._replacement(pod, of)
        asked = Asked(self._reach(pod, of), of, goes_first)
        found = self._search(pod, asked, of, pool).find(pod)
        if isinstance(found, NoPlace):
            return found
        self._promised.add(pod, found)
        self._expected.add(pod, found)
        return found.node.name

    def fits(self, pod: Pod, of: Class, *, is_proven: bool = False) -> bool:
        """Whether a pod that never had a node would find one of the class now, by all that its owner asks of nodes.

        That is without the class that admission requires of it. Nothing is promised. Other pods that wait take no room
        here: many wait for reasons of their own, and must not stand in the way. Nor must what is not modelled, unless
        a place is to be proven.
        """
        own = pod.key if pod.needs.claims else None  # each claim has nodes of its own
        kind = (of, is_proven, self._promised.made, own, *self._kind(pod, self._promised))
        if kind not in self._fitting:  # many siblings may wait, and each asks
            asked = Asked(self._reach(pod, of), None, lets_unknown_pass=not is_proven)
            self._fitting[kind] = (self._new_search(pod, asked, self._promised, of).finds_any(pod), pod)
        return self._fitting[kind][0]

    def fits_empty(self, pod: Pod, of: Class) -> bool:
        """Whether it would, were the nodes that are there empty: an autoscaler can bring more of them.

        False for a pod that keeps its distance from others by more than hosts: more nodes need not help it.
        """
        keys = {term.topology_key for term in (*pod.needs.affinity, *pod.needs.anti_affinity)}
        if not keys.union(rule.topology_key for rule in pod.needs.hard_spread) <= {names.HOSTNAME}:
            return False
        reach, asked = self._reach(pod, of), pod.needs.requests.items()
        return any(
            all(site.node.allocatable.get(key, 0) >= amount for key, amount in asked) and reach.admits(site)
            for site in self.ground.targets[of]
        )

    def count(self, pod: Pod, of: Class, enough: int) -> int:
        """How many pods like this one would find a place of the class now; no more than enough are looked for."""
        self._seat(of)
        stock, found, pod = self._expected.copy(), 0, self._replacement(pod, of)
        asked = Asked(self._reach(pod, of), of, lets_unknown_pass=True)
        search = self._new_search(pod, asked, stock, of)
        while found < enough:
            site = search.find(pod)
            if isinstance(site, NoPlace):
                break
            stock.add(pod, site)
            found += 1
        return found

    def together(self, pods: Sequence[Pod], of: Class | None = None, *, have_gone: bool = False) -> Joint:
        """Which of the pods find a place together, beside each other; the largest first. Nothing is promised.

        Of a class: their replacements, by what their owners ask for; else the pods as they are, on all nodes. Where
        they have gone, they are not in each other's way where they were. The search is greedy: it may leave out a pod
        that a cleverer packing would place, and never places one that does not fit.
        """
        for each in Class if of is None else (of,):
            self._seat(each)
        pods = pods if of is None else [self._replacement(pod, of) for pod in pods]
        largest_first = sorted(pods, key=size_of, reverse=True)
        if not self.targets(of):  # as when all spot is lost: then there may be very many pods
            return Joint({}, tuple([(pod, NO_NODES) for pod in largest_first]))
        near = self.neighbours
        beside = near.without(pod.uid for pod in pods) if near is not None and have_gone else near
        return joint(largest_first, _Together(self, self._expected.copy(beside), of).find)

    def without(self, gone: Iterable[Pod]) -> Room:
        """The same as if these pods had gone: what they use is free, and they count for nobody beside them.

        Pods that wait keep the seats that they have now: what is freed is for the one who asks.
        """
        for of in Class:
            self._seat(of)
        left = [pod for pod in gone if pod.is_on_node]
        used = less(self._used, left)
        near = None if self.neighbours is None else self.neighbours.without(pod.uid for pod in left)
        cleared = Room(self.ground, used, neighbours=near)
        cleared._promised = self._promised.copy(near, used)
        cleared._expected = self._expected.copy(near, used)
        cleared._is_known = self._is_known
        cleared._open = self._open  # taints and terms: the same for all
        return cleared

    def open_to(self, pod: Pod, of: Class | None = None) -> Sequence[Site]:
        """The nodes that the pod may use by taints and node terms; of a class, as its replacement."""
        return self._open_to(self._reach(pod, of), of, None)[0]

    def tallies(self, pod: Pod) -> list[SpreadCount]:
        """What the hard spread of the pod counts, as it is, once pods that wait have their seats."""
        return [] if self.neighbours is None else self.stock().tallies(pod, self._reach(pod, None), None)

    def stock(self) -> Stock:
        """What is free once pods that wait have their seats: to read."""
        for of in Class:
            self._seat(of)
        return self._expected

    def free(self, site: Site) -> dict[str, int]:
        self._seat(site.of)
        return self._expected.free(site)

    # --- for gangs ---------------------------------------------------------------------------------------------------

    def hold(self, pod: Pod, node: str) -> None:
        """The node is kept free for the pod: nobody else is promised that room. One that is gone keeps nothing."""
        site = self.ground.sites.get(node)
        if site is not None:
            self._promised.add(pod, site)
            self._expected.add(pod, site)

    def beside_promises(self) -> Stock:
        """What is there, and promised: pods that wait do not take what is kept free for others. To add more to."""
        return self._promised.copy()

    def beside_all(self) -> Stock:
        """The same, and what pods that wait will take."""
        for each in Class:
            self._seat(each)
        return self._expected.copy()

    def search_on(self, pod: Pod, stock: Stock, sites: Iterable[Site]) -> Search:
        """For pods as they are, on those of these nodes that suit."""
        reach = self._reach(pod, None)
        there = [site for site in sites if reach.selects(site)]
        found = [site for site in there if reach.tolerates(site)]
        return Search(pod, Asked(reach), stock, found, NoPlace(Lack.TAINTS if there else Lack.TERMS))

    def kind(self, pod: Pod, stock: Stock) -> tuple[object, ...]:
        """Pods of one kind fit in the same places."""
        return (pod.key if pod.needs.claims else None, *self._kind(pod, stock))

    # --- searches ----------------------------------------------------------------------------------------------------

    def _reach(self, pod: Pod, of: Class | None) -> Reach:
        if of is None:
            return Reach(all_terms(pod), pod.needs.tolerations, NO_TAINTS)
        classes = self.ground.configuration.classes
        return Reach(own_terms(pod, classes), pod.needs.tolerations, added_taints(of, classes))

    def _replacement(self, pod: Pod, of: Class) -> Pod:
        """The pod as one of the class. Siblings share needs and labels afterwards as they did before."""
        if not pod.needs.hard_spread or pod.labels.get(names.CLASS) == of:
            return pod
        key = (id(pod.needs), id(pod.labels), of)
        if key not in self._as_class:
            self._as_class[key] = (pod, as_class(pod, of))
        found = self._as_class[key][1]
        return replace(pod, needs=found.needs, labels=found.labels)

    def _search(self, pod: Pod, asked: Asked, of: Class, pool: Pool | None) -> Search:
        """One for all that are alike. A pod that makes room for its own successor is like no other."""
        needs = pod.needs
        is_single = needs.claims or (asked.goes_first and (needs.anti_affinity or needs.affinity or needs.hard_spread))
        if is_single:
            return self._new_search(pod, asked, self._expected, of, pool)
        kind = (of, pool, *self._kind(pod, self._expected))
        if kind not in self._searches:
            self._searches[kind] = self._new_search(pod, asked, self._expected, of, pool)
        return self._searches[kind]

    def _kind(self, pod: Pod, stock: Stock) -> tuple[object, ...]:
        """What pods have in common that fit in the same places. Where others have a say, labels count as well."""
        needs, near = pod.needs, self.neighbours
        is_alone = near is None or not (needs.hard_spread or near.judge(pod, stock.crowd) is not None)
        seen = () if is_alone else (pod.namespace, id(pod.labels))
        return (id(needs), pod.required_terms, *seen)

    def _new_search(self, pod: Pod, asked: Asked, stock: Stock, of: Class | None, pool: Pool | None = None) -> Search:
        return Search(pod, asked, stock, *self._open_to(asked.reach, of, pool))

    def _open_to(self, reach: Reach, of: Class | None, pool: Pool | None) -> tuple[Sequence[Site], NoPlace]:
        """The nodes whose taints and labels suit, and why the others do not. Most pods ask the same of them."""
        key = (of, pool, reach.key)
        if key not in self._open:
            there = [site for site in self.targets(of) if pool in (None, site.pool)]
            selected = [site for site in there if reach.selects(site)]
            found = [site for site in selected if reach.tolerates(site)]
            lack = Lack.TAINTS if selected else Lack.TERMS if there else Lack.NODES
            self._open[key] = (found, NoPlace(lack))
        return self._open[key]

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
                    kinds.setdefault(self._kind(pod, self._promised), []).append(pod)
            self._is_known[of] = len(kinds) <= MOST_KINDS
            for alike in islice(kinds.values(), MOST_KINDS):
                self._seat_alike(alike, of)
        return self._is_known[of]

    def _seat_alike(self, pods: Sequence[Pod], of: Class) -> None:
        """Each on the emptiest node that would take it. What cannot be modelled takes room as well.

        Where its volumes are does not count: there may be thousands, each with nodes of its own, and one tenant must
        not hold up the plan of all.
        """
        if pods[0].needs.claims:
            needs = replace(pods[0].needs, claims=())
            pods = [replace(pod, needs=needs) for pod in pods]
        asked = Asked(self._reach(pods[0], None), None, lets_unknown_pass=True)
        search = self._new_search(pods[0], asked, self._expected, of)
        for pod in pods:
            found = search.find(pod)
            if not isinstance(found, NoPlace):
                self._expected.add(pod, found)


class _Together:
    """The searches of one joint question, by what pods have in common."""

    def __init__(self, room: Room, stock: Stock, of: Class | None) -> None:
        self._room = room
        self._stock = stock
        self._of = of
        self._searches: dict[tuple[object, ...], Search] = {}
        self._refused: dict[tuple[object, ...], NoPlace] = {}

    def find(self, pod: Pod) -> str | NoPlace:
        """Where one was refused for good, its siblings are not asked: there may be thousands."""
        needs = pod.needs
        alike = (id(needs), id(pod.required_terms), pod.namespace, id(pod.labels), pod.name if needs.claims else "")
        if alike in self._refused:
            return self._refused[alike]
        found = self._search(pod).find(pod)
        if isinstance(found, NoPlace):
            if found.lack not in PASSING:
                self._refused[alike] = found
            return found
        self._stock.add(pod, found)
        return found.node.name

    def _search(self, pod: Pod) -> Search:
        room, own = self._room, pod.key if pod.needs.claims else None  # a search drops nodes that its volumes rule out
        kind = (own, *room._kind(pod, self._stock))
        if kind not in self._searches:
            asked = Asked(room._reach(pod, self._of), self._of)
            self._searches[kind] = room._new_search(pod, asked, self._stock, self._of)
        return self._searches[kind]


def joint(pods: Sequence[Pod], find: Callable[[Pod], str | NoPlace]) -> Joint:
    """Those that are refused are tried again while others find a place, a few times: they may wait for company."""
    places: dict[str, str] = {}
    left = list(pods)
    refused: list[tuple[Pod, NoPlace]] = []
    for _ in range(MOST_ROUNDS):
        refused = []
        for pod in left:
            found = find(pod)
            if isinstance(found, NoPlace):
                refused.append((pod, found))
            else:
                places[pod.uid] = found
        if len(refused) in (0, len(left)) or not any(each.lack in PASSING for _, each in refused):
            break
        left = [pod for pod, _ in refused]
    return Joint(places, tuple(refused))


def size_of(pod: Pod) -> tuple[int, int]:
    return (pod.needs.requests.get("cpu", 0), pod.needs.requests.get("memory", 0))
