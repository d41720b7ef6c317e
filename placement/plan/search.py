"""The search for places: one fit test for every pod that asks, on what is taken so far.

Pods that are alike share a search. It keeps the nodes that they may use in the order of free CPU, emptiest first, as
the scheduler prefers them. A node that refuses one of them is not asked again, unless what it lacked may come: the
company of other pods, or a domain that evens out. So 1,000 pods on 5,000 nodes take about as many looks as there are
pods.

A node is asked in this order: amounts and host ports, volumes, other pods, spread. Taints and node terms were asked
when the search began.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from placement.lack import Lack, NoPlace, furthest
from placement.model import Class, Pod
from placement.plan.ground import Site
from placement.plan.neighbours import Neighbours, Newcomer
from placement.plan.reach import Reach
from placement.plan.spread import SpreadCount
from placement.plan.stock import Stock
from placement.plan.storage import VolumeFit, judged

FEW_DOMAINS = 64  # with so many at most, the nodes of each domain are kept apart
PASSING = (Lack.COMPANY, Lack.SPREAD)  # what may come as more pods are placed; all else only gets worse
Heap = list[tuple[int, int]]  # free CPU, negative, so that most comes first; and the site's number
Heaps = dict[tuple[str | None, ...], Heap]  # by domains


class Asked(NamedTuple):
    """What is asked for a kind of pods."""

    reach: Reach
    required: Class | None = None  # a class that its node must be of; None: either
    goes_first: bool = False  # the pod itself leaves before its replacement comes
    lets_unknown_pass: bool = False


class Search:
    """Places for pods that are alike, on one stock."""

    def __init__(self, like: Pod, asked: Asked, stock: Stock, sites: Sequence[Site], refused: NoPlace) -> None:
        """`refused` says why other nodes than `sites` are none for it."""
        self.like = like
        self._asked = asked
        self._stock = stock
        self._sites = sites
        self._refused = refused
        self._heaps: Heaps | None = None  # once a node is looked for
        self._parked: list[int] = []  # sites that lack what may come
        self._parked_at: object = None

    @cached_property
    def _tallies(self) -> list[SpreadCount]:
        """What its hard rules count: once a node is asked. Where all nodes are gone, nothing is counted."""
        if not self.like.needs.hard_spread or self._stock.neighbours is None:
            return []
        return self._stock.tallies(self.like, self._asked.reach, self._asked.required)

    @cached_property
    def _domains(self) -> list[SpreadCount]:
        return [each for each in self._tallies if len(each.counts) <= FEW_DOMAINS]

    def _sorted_in(self, numbers: Sequence[int]) -> Heaps:
        found: Heaps = {}
        keys, free_cpu = [each.rule.topology_key for each in self._domains], self._stock.free_cpu
        for number in numbers:
            site = self._sites[number]
            where = tuple([site.node.labels.get(key) for key in keys]) if keys else ()
            found.setdefault(where, []).append((-free_cpu(site), number))
        for heap in found.values():
            heapify(heap)
        return found

    def finds_any(self, pod: Pod) -> bool:
        """Whether a node takes the pod, whichever: the first will do."""
        fit = self._fit(pod) if self._sites else self._refused
        return not isinstance(fit, NoPlace) and any(fit.refusal(site) is None for site in self._sites)

    def find(self, pod: Pod) -> Site | NoPlace:
        """The emptiest node that takes the pod; nothing is promised."""
        fit = self._fit(pod) if self._sites else self._refused
        if isinstance(fit, NoPlace):
            return fit
        if self._heaps is None:
            self._heaps = self._sorted_in(range(len(self._sites)))
        found = self._emptiest(pod, fit, self._heaps)
        if found is None and self._parked and self._parked_at != self._moment(fit):
            for where, heap in self._sorted_in(self._parked).items():
                self._heaps[where] = sorted(self._heaps.get(where, []) + heap)
            self._parked = []
            found = self._emptiest(pod, fit, self._heaps)
        return self._refused if found is None else self._sites[found]

    def _emptiest(self, pod: Pod, fit: Fit, heaps: Heaps) -> int | None:
        """Full and forbidden nodes are dropped on the way."""
        asked = pod.needs.requests.get("cpu", 0)
        while True:
            heap = self._best_heap(fit, asked, heaps)
            if heap is None:
                return None
            number = heap[0][1]
            refusal = fit.refusal(self._sites[number])
            if refusal is None:
                return number
            heappop(heap)
            self._note(refusal)
            if refusal.lack in PASSING:
                self._parked.append(number)
                self._parked_at = self._moment(fit)

    def _moment(self, fit: Fit) -> object:
        """Until this is another, what was parked need not be asked again."""
        return self._stock.made, fit.left

    def _best_heap(self, fit: Fit, asked_cpu: int, heaps: Heaps) -> Heap | None:
        """Of the domains that are open, the one with the emptiest node, if that has enough CPU."""
        best: Heap | None = None
        for where, heap in heaps.items():
            if not self._is_fresh(heap):
                continue
            if asked_cpu and -heap[0][0] < asked_cpu:
                self._note(NoPlace(Lack.ROOM, "cpu"))
            elif self._domains and not fit.is_open(self._domains, where):
                self._note(NoPlace(Lack.SPREAD))
            elif best is None or heap[0] < best[0]:
                best = heap
        return best

    def _is_fresh(self, heap: Heap) -> bool:
        """Others may have been put there since: then it is not the emptiest any more. False: no node is left."""
        while heap:
            key, number = heap[0]
            now = -self._stock.free_cpu(self._sites[number])
            if key == now:
                return True
            heapreplace(heap, (now, number))
        return False

    def _note(self, refusal: NoPlace) -> None:
        self._refused = furthest(self._refused, refusal) or refusal

    def _fit(self, pod: Pod) -> Fit | NoPlace:
        """What no node can change is told at once."""
        stock, asked, needs = self._stock, self._asked, pod.needs
        if needs.unmodelled is not None and not asked.lets_unknown_pass:
            return NoPlace(needs.unmodelled)
        near = stock.neighbours
        if near is None:
            return _blind_fit(pod, stock, asked)
        gone = (pod.uid,) if asked.goes_first else ()
        volumes = judged(near.storage, pod, stock.within, _without(stock, gone), gone)
        if isinstance(volumes, NoPlace):
            if not (volumes.lack.is_unknown and asked.lets_unknown_pass):
                return volumes
            volumes = None
        beside = near.without(gone) if gone and needs.has_pod_affinity else near
        left = _left(pod, near, self._tallies, asked)
        return Fit(pod, stock, volumes, beside.judge(pod, stock.crowd), self._tallies, left)


def _blind_fit(pod: Pod, stock: Stock, asked: Asked) -> Fit | NoPlace:
    """Nobody knows who is where."""
    needs = pod.needs
    if needs.claims and not asked.lets_unknown_pass:
        return NoPlace(Lack.UNKNOWN_VOLUMES, needs.claims[0])
    if (needs.has_pod_affinity or needs.hard_spread) and not asked.lets_unknown_pass:
        return NoPlace(Lack.UNKNOWN_PODS)
    return Fit(pod, stock, None, None, [], {})


def _without(stock: Stock, gone: Sequence[str]) -> Callable[[str], list[Pod]]:
    return lambda node: [pod for pod in stock.beside(node) if pod.uid not in gone]


def _left(pod: Pod, near: Neighbours, tallies: Sequence[SpreadCount], asked: Asked) -> dict[int, str | None]:
    """By tally: the domain that counts one less once the pod itself goes."""
    if not tallies or not pod.node or not near.knows(pod):
        return {}
    return {id(each): each.left_by(pod, goes_first=asked.goes_first) for each in tallies}


class Fit:
    """One pod, asked of one node after the other."""

    def __init__(
        self,
        pod: Pod,
        stock: Stock,
        volumes: VolumeFit | None,
        newcomer: Newcomer | None,
        tallies: Sequence[SpreadCount],
        left: dict[int, str | None],
    ) -> None:
        self._pod = pod
        self._stock = stock
        self._volumes = volumes
        self._newcomer = newcomer
        self._tallies = tallies
        self.left = left

    def refusal(self, site: Site) -> NoPlace | None:
        """Why this node does not take it; None: it does."""
        short = self._stock.refusal(site, self._pod.needs)
        if short is not None:
            return short
        if self._volumes is not None:
            refused = self._volumes.refusal(site)
            if refused is not None:
                return refused
        lack = None if self._newcomer is None else self._newcomer.lack(site)
        if lack is not None:
            return NoPlace(lack)
        domains = [site.node.labels.get(each.rule.topology_key) for each in self._tallies]
        return None if self.is_open(self._tallies, domains) else NoPlace(Lack.SPREAD)

    def is_open(self, tallies: Sequence[SpreadCount], domains: Sequence[str | None]) -> bool:
        """Whether one more keeps within the skew of these rules, in these domains."""
        return all(
            tally.is_open(domain, self._pod, self.left.get(id(tally)))
            for tally, domain in zip(tallies, domains, strict=True)
        )
