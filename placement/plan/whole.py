"""Room for a whole gang: all of its members on one snapshot, by the one fit test, or none.

Example: 8 members, `pod-group-class: spot,on-demand`. Spot pools hold 5, 8 and 3 of them: they go to the second pool,
because a gang dies with its first member, and one pool is lost less often than two. Had the pools held 5, 4 and 3, they
would go to the first two. Had spot held 7 in all, they would go to on-demand.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from placement.lack import NoPlace
from placement.model import Class, Pod, Pool
from placement.plan.ground import Site
from placement.plan.room import NO_NODES, Joint, Room, joint, size_of
from placement.plan.search import PASSING, Search
from placement.plan.stock import Stock

MOST_POOLS = 40  # where there are more, none is preferred: each asks for a search of its own
Where = tuple[Class, Pool]


class Seating:
    """Seats for the members of one gang, on a stock of its own. Members that are alike share a search."""

    def __init__(self, room: Room, stock: Stock, sites: Sequence[Site]) -> None:
        self._room = room
        self._stock = stock
        self._sites = sites
        self._searches: dict[tuple[object, ...], Search] = {}
        self._refused: dict[tuple[object, ...], NoPlace] = {}

    def find(self, pod: Pod) -> str | NoPlace:
        """A node, taken then. Where one was refused for good, its siblings are not asked."""
        kind = self._room.kind(pod, self._stock)
        if kind in self._refused:
            return self._refused[kind]
        if kind not in self._searches:
            self._searches[kind] = self._room.search_on(pod, self._stock, self._sites)
        found = self._searches[kind].find(pod)
        if isinstance(found, NoPlace):
            if found.lack not in PASSING:
                self._refused[kind] = found
            return found
        self._stock.add(pod, found)
        return found.node.name


def places(room: Room, pods: Sequence[Pod], least: int, classes: Sequence[Class]) -> Joint | NoPlace:
    """Places for as many of the pods as there is room for, `least` of them at least; or what is missing."""
    hardest_first = sorted(pods, key=lambda pod: (size_of(pod), pod.name), reverse=True)
    stock = room.beside_all()
    refusal: NoPlace | None = None
    for sites in _tiers(room, classes):
        found = joint(hardest_first, Seating(room, stock.copy(), sites).find)
        if len(found.places) >= least:
            return _gathered(room, stock, sites, hardest_first, found)
        refusal = found.refused[0][1]
    return refusal or NO_NODES


def _tiers(room: Room, classes: Sequence[Class]) -> Iterator[list[Site]]:
    """The wanted classes one by one, then together; all nodes where the pods' own affinity decides."""
    if not classes:
        yield list(room.targets(None))
        return
    for of in classes:
        yield list(room.targets(of))
    if len(classes) > 1:
        yield [site for of in classes for site in room.targets(of)]


def _gathered(room: Room, stock: Stock, sites: Sequence[Site], pods: Sequence[Pod], found: Joint) -> Joint:
    """As many pods in as few pools as can be; as they were found where that takes as many pools."""
    pools: dict[Where, list[Site]] = {}
    for site in sites:
        pools.setdefault((site.of, site.pool), []).append(site)
    where = {site.name: (site.of, site.pool) for site in sites}
    touched = {where[node] for node in found.places.values()}
    if len(touched) == 1 or len(pools) > MOST_POOLS:
        return found
    holds = {each: len(joint(pods, Seating(room, stock.copy(), there).find).places) for each, there in pools.items()}
    chosen: list[Site] = []
    for number, each in enumerate(sorted(pools, key=lambda each: -holds[each]), 1):
        chosen += pools[each]
        if number >= len(touched):
            return found
        if sum(sorted(holds.values(), reverse=True)[:number]) >= len(found.places):
            closer = joint(pods, Seating(room, stock.copy(), chosen).find)
            if len(closer.places) >= len(found.places):
                return closer
    return found


def holds(room: Room, pods: Iterable[Pod], nodes: Mapping[str, str]) -> NoPlace | None:
    """Whether all pods still fit where room is kept for them (by UID), beside each other; None: they do."""
    stock, sites = room.beside_promises(), room.ground.sites

    def find(pod: Pod) -> str | NoPlace:
        site = sites.get(nodes[pod.uid])
        if site is None or not site.is_target:
            return NO_NODES
        found = room.search_on(pod, stock, (site,)).find(pod)
        if isinstance(found, NoPlace):
            return found
        stock.add(pod, found)
        return found.node.name

    refused = joint(sorted(pods, key=size_of, reverse=True), find).refused
    return refused[0][1] if refused else None
