"""Room for a whole gang: all of its members on one snapshot, by the one fit test, or none.

Example: 8 members, `pod-group-class: spot,on-demand`. Spot pools hold 5, 8 and 3 of them: they go to the second pool,
because a gang dies with its first member, and one pool is lost less often than two. Had the pools held 5, 4 and 3, they
would go to the first two. Had spot held 7 in all, they would go to on-demand. Of pools that hold as many, they go to
those that are lost least; and with `expected-runtime` and `availability-target` they go to spot only if the chance to
survive there is good enough (`placement.gang.odds`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import combinations, islice

from placement.gang.odds import NO_ODDS, Odds, share
from placement.lack import Lack, NoPlace
from placement.model import Class, Pod, Pool
from placement.plan.ground import Site
from placement.plan.room import NO_NODES, Joint, Room, joint, size_of
from placement.plan.search import PASSING, Search
from placement.plan.stock import Stock

MOST_POOLS = 40  # where there are more, none is preferred: each asks for a search of its own
FEW = 400  # pods times pools: so much is placed pool by pool
MOST_SETS = 5_000  # of pools, to choose the safest from
MOST_TRIES = 4  # of these sets: what looks at other pods may not fit as the numbers say
Where = tuple[Class, Pool]
Suits = Callable[[Site], bool]


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


def places(
    room: Room,
    pods: Sequence[Pod],
    least: int,
    classes: Sequence[Class],
    odds: Odds = NO_ODDS,
    suits: Suits | None = None,
) -> Joint | NoPlace:
    """Places for as many of the pods as there is room for, `least` of them at least; or what is missing.

    Spot where the chance to survive is too small is passed over, as long as another class is left to try. `suits`
    leaves out nodes, whatever room they have: for gangs with nodes of their own, which get as few as will do.
    """
    hardest_first = sorted(pods, key=lambda pod: (size_of(pod), pod.name), reverse=True)
    stock = room.beside_all()
    refusal: NoPlace | None = None
    for tier in _tiers(room, classes):
        sites = tier if suits is None else [site for site in tier if suits(site)]
        if tier and not sites:
            refusal = NoPlace(Lack.OCCUPIED)
            continue
        found = joint(hardest_first, Seating(room, stock.copy(), sites).find)
        if len(found.places) < least:
            refusal = found.refused[0][1] if refusal is None or refusal.lack is not Lack.ODDS else refusal
            continue
        found = _gathered(room, stock, sites, hardest_first, found, odds)
        found = found if suits is None else _packed(room, stock, sites, hardest_first, found)
        chance = odds.too_small(_touched(room, found)) if len(classes) > 1 else None
        if chance is None or not any(site.spot_pool for site in _touched(room, found)):
            return found
        refusal = NoPlace(Lack.ODDS, f"{share(chance)}, below {share(odds.target or 0)}")
    return refusal or NO_NODES


def _touched(room: Room, found: Joint) -> list[Site]:
    return [room.ground.sites[node] for node in dict.fromkeys(found.places.values())]


def _tiers(room: Room, classes: Sequence[Class]) -> Iterator[list[Site]]:
    """The wanted classes one by one, then together; all nodes where the pods' own affinity decides."""
    if not classes:
        yield list(room.targets(None))
        return
    for of in classes:
        yield list(room.targets(of))
    if len(classes) > 1:
        yield [site for of in classes for site in room.targets(of)]


def _gathered(room: Room, stock: Stock, sites: Sequence[Site], pods: Sequence[Pod], found: Joint, odds: Odds) -> Joint:
    """As many pods in as few pools as can be, of those the ones that are lost least; else as they were found."""
    pools: dict[Where, list[Site]] = {}
    for site in sites:
        pools.setdefault((site.of, site.pool), []).append(site)
    rates = {each: odds.pool_rate(there[0]) for each, there in pools.items()}
    touched = {(site.of, site.pool) for site in _touched(room, found)}
    is_safest = len(touched) == 1 and rates[next(iter(touched))] <= min(rates.values())
    if is_safest or len(pools) > MOST_POOLS:
        return found
    holds = _holds(room, stock, pools, pods)
    for chosen in islice(_sets(holds, rates, len(found.places), len(touched)), MOST_TRIES):
        there = [site for each in chosen for site in pools[each]]
        closer = joint(pods, Seating(room, stock.copy(), there).find)
        if len(closer.places) >= len(found.places):
            return closer
    return found


def _holds(room: Room, stock: Stock, pools: Mapping[Where, Sequence[Site]], pods: Sequence[Pod]) -> Mapping[Where, int]:
    """How many of the pods each pool holds, beside nothing else: for few pods by the fit test, else by their amounts.

    What is chosen by it is tried by the fit test in any case.
    """
    if len(pods) * len(pools) <= FEW:
        return {each: len(joint(pods, Seating(room, stock.copy(), there).find).places) for each, there in pools.items()}
    asked = Counter({"pods": len(pods)})
    for pod in pods:
        asked.update(pod.needs.requests)
    usual = {key: amount / len(pods) for key, amount in asked.items() if amount}
    reached = {site.name for pod in {id(pod.needs): pod for pod in pods}.values() for site in room.open_to(pod)}

    def holds(site: Site) -> int:
        left = stock.left(site, usual)
        return max(0, int(min(there // amount for there, amount in zip(left, usual.values(), strict=True))))

    return {each: sum(holds(site) for site in there if site.name in reached) for each, there in pools.items()}


def _sets(
    holds: Mapping[Where, int], rates: Mapping[Where, float], enough: int, most: int
) -> Iterator[Sequence[Where]]:
    """Sets of as few pools as hold enough pods, those first that are lost least; no more pools than were found.

    Example: eight pods; pools hold 6, 5, 4 and 3, and are lost 4, 2, 1 and 1 times a month. Two are enough: 5 + 4 (3
    losses), 5 + 3 (3), 6 + 4 (5), 6 + 3 (5), 6 + 5 (6).
    """
    largest = sorted(holds, key=lambda each: (-holds[each], rates[each], each))
    fewest = next((n for n in range(1, most + 1) if sum(holds[each] for each in largest[:n]) >= enough), None)
    if fewest is None:
        return
    if math.comb(len(largest), fewest) > MOST_SETS:  # the largest alone
        yield largest[:fewest]
        return
    sets = [each for each in combinations(largest, fewest) if sum(holds[one] for one in each) >= enough]
    yield from sorted(sets, key=lambda each: (sum(rates[one] for one in each), -sum(holds[one] for one in each)))


def _packed(room: Room, stock: Stock, sites: Sequence[Site], pods: Sequence[Pod], found: Joint) -> Joint:
    """As many pods on as few of these nodes as can be, the largest first. Members spread over all that they are given.

    Example: three members on three nodes, each of which holds two: the first two nodes.
    """
    used = set(found.places.values())
    there = sorted((s for s in sites if s.name in used), key=lambda s: (-s.node.allocatable.get("cpu", 0), s.name))
    fewest, most = 1, len(there)
    while fewest < most:
        middle = (fewest + most) // 2
        closer = joint(pods, Seating(room, stock.copy(), there[:middle]).find)
        if len(closer.places) >= len(found.places):
            found, most = closer, middle
        else:
            fewest = middle + 1
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
