"""How many members of a gang all nodes take, added up node by node: no placement, and so quick to keep up to date.

A node takes as many members of a kind as its amounts, number of pods and host ports allow, whatever is on other nodes.
Members that keep each other off their hosts are one to a node. Under a hard spread rule of skew k, no domain gets more
than k above the one that takes fewest.

All of that only limits: other pods, volumes and members of other kinds can leave less room. For members that are
alike, and where nothing else has a say (`is_exact`), the sum is what the fit test places.

Example: zones a, b and c take 5, 2 and 9 members. With a skew of 1 they take 3 + 2 + 3, without a rule 16.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from placement import names
from placement.model import Class, Needs, Pod
from placement.plan.neighbours import Crowd
from placement.plan.room import Room
from placement.plan.spread import SpreadCount
from placement.plan.stock import clashing, taken_by

MOST_KINDS = 8  # of members: of the others, the sums say nothing
ONE_DOMAIN: Mapping[str, str] = {}
Part = tuple[int, int]  # of the keys that are counted: its number, and an amount


class Sums:
    """What the nodes take of each kind of members, while pods come and go."""

    def __init__(self, room: Room, pods: Sequence[Pod], of: Class | None) -> None:
        all_kinds = sorted(_kinds(pods), key=len, reverse=True)
        kinds, is_all = all_kinds[:MOST_KINDS], len(all_kinds) <= MOST_KINDS
        keys = dict.fromkeys(key for alike in kinds for key in _keys(alike[0].needs))
        self._numbers = {key: number for number, key in enumerate(keys)}
        self._kinds = [_Kind(room, alike, self._numbers, of, is_only=len(all_kinds) == 1) for alike in kinds]
        sites = {site.name: site for alike in kinds for site in room.open_to(alike[0], of)}
        stock = room.stock()
        self._left = {name: stock.left(site, keys) for name, site in sites.items()}
        self._parts: dict[int, tuple[Needs, list[Part]]] = {}  # by what a pod takes: what of that is counted
        self._changed: set[str] = set(self._left)
        self._is_alone = is_all and not any(each.looks_around for each in self._kinds)
        self._is_exact = len(self._kinds) == 1 and self._kinds[0].is_exact
        self._pair = _pair(self._kinds) if is_all else None
        self.recount()
        for each in self._kinds:
            each.before = dict(each.takes)

    def change(self, pod: Pod, sign: int) -> None:
        """It frees what it takes (1), or takes it again (-1)."""
        left = self._left.get(pod.node)
        if left is None:
            return
        needs = pod.needs
        known = self._parts.get(id(needs))
        if known is None:
            numbers = self._numbers
            parts = [(numbers[key], amount) for key, amount in taken_by(needs) if key in numbers]
            known = self._parts[id(needs)] = (needs, parts)
        for number, amount in known[1]:
            left[number] += sign * amount
        self._changed.add(pod.node)

    def recount(self) -> None:
        for each in self._kinds:
            each.recount(self._changed, self._left)
        if self._pair is not None:
            self._pair.recount(self._changed, self._left)
        self._changed = set()

    def fit(self) -> bool | None:
        """Whether all members find a place; None: only the fit test can tell."""
        self.recount()
        if not all(each.is_enough for each in self._kinds):
            return False
        if self._is_exact:
            return True
        return None if self._pair is None else self._pair.fit()

    def missing(self) -> int:
        """How many places are missing, at least."""
        self.recount()
        return max(each.wanted - each.total for each in self._kinds)

    def helped(self) -> frozenset[str] | None:
        """The nodes that now take more; None: what else goes can help, too. For kinds that differ, all they may use."""
        self.recount()
        if self._is_exact:
            only = self._kinds[0]
            return frozenset(name for name, takes in only.takes.items() if takes > only.before[name])
        return self.reach()

    def reach(self) -> frozenset[str] | None:
        return frozenset(self._left) if self._is_exact or self._is_alone else None


class _Kind:
    """Members that ask the same of nodes."""

    def __init__(
        self, room: Room, alike: Sequence[Pod], numbers: Mapping[str, int], of: Class | None, *, is_only: bool
    ) -> None:
        needs = alike[0].needs
        asked = (("pods", 1), *needs.requests.items())
        self.wanted = len(alike)
        self.requests = dict(asked)
        self.asked = [(numbers[key], amount) for key, amount in asked if amount]
        self._ports = [numbers[key] for port in needs.host_ports for key in clashing(port)]
        self._is_one_to_a_host = _are_apart(room, alike)
        self._rule = _rule(room, alike) if of is None and is_only else None  # others could even out what these may not
        self._domain_of = ONE_DOMAIN if self._rule is None else self._rule.domain_of
        self._totals = dict.fromkeys([""] if self._rule is None else self._rule.counts, 0)
        self.takes = {site.name: 0 for site in room.open_to(alike[0], of)}
        self.before = self.takes
        self.looks_around = _looks_around(room, alike)
        self.is_exact = self._is_all_there_is(room, alike, of)

    def recount(self, nodes: Iterable[str], left: Mapping[str, Sequence[int]]) -> None:
        takes, domain_of, totals = self.takes, self._domain_of, self._totals
        for name in nodes:
            if name in takes:
                now = self._takes_of(left[name])
                if now != takes[name]:
                    domain = "" if self._rule is None else domain_of.get(name)
                    if domain is not None:
                        totals[domain] += now - takes[name]
                    takes[name] = now

    def _takes_of(self, left: Sequence[int]) -> int:
        takes = min([left[number] // amount for number, amount in self.asked])
        if takes < 1 or any(left[number] < 0 for number in self._ports):
            return 0
        return 1 if self._ports or self._is_one_to_a_host else takes

    @property
    def is_plain(self) -> bool:
        """It asks for amounts alone."""
        return self.is_exact and not (self._ports or self.looks_around)

    @property
    def total(self) -> int:
        return sum(self._totals.values())

    @property
    def is_enough(self) -> bool:
        totals = self._totals.values()
        if self._rule is None:
            return sum(totals) >= self.wanted
        has_all = len(totals) >= self._rule.rule.min_domains
        most = (min(totals, default=0) if has_all else 0) + self._rule.rule.max_skew
        return sum(min(each, most) for each in totals) >= self.wanted

    def _is_all_there_is(self, room: Room, alike: Sequence[Pod], of: Class | None) -> bool:
        """Nothing else decides where these go."""
        if not self.looks_around:
            return True
        needs, near = alike[0].needs, room.neighbours
        if near is None or of is not None or needs.affinity or needs.claims or needs.unmodelled is not None:
            return False
        if len(needs.hard_spread) > (self._rule is not None):
            return False
        facing = replace(needs, anti_affinity=())
        if any(near.judge(replace(pod, needs=facing), room.stock().crowd) is not None for pod in _seen(alike)):
            return False
        if not needs.anti_affinity:
            return True
        home, apart = alike[0].namespace, needs.anti_affinity
        is_only_ours = all(
            term.topology_key == names.HOSTNAME and not near.has_any_at_all((term,), home) for term in apart
        )
        sites = room.open_to(alike[0])
        hosts = {site.node.labels.get(names.HOSTNAME) for site in sites}
        return self._is_one_to_a_host and is_only_ours and None not in hosts and len(hosts) == len(sites)


class _Pair:
    """Large members and small ones, such as workers and a launcher, where a small one fits wherever a large one does.

    The large ones go first, wherever: `beside` is what small ones find on nodes that are full of large ones, and each
    place that no large one takes holds one more, at least.
    """

    def __init__(self, large: _Kind, small: _Kind) -> None:
        self._large = large
        self._small = small
        self._beside = dict.fromkeys(small.takes, 0)  # by node
        self._total = 0

    def recount(self, nodes: Iterable[str], left: Mapping[str, Sequence[int]]) -> None:
        for name in nodes:
            if name in self._beside:
                free, full = left[name], self._large.takes.get(name, 0)
                taken = {number: amount * full for number, amount in self._large.asked}
                there = min((free[number] - taken.get(number, 0)) // amount for number, amount in self._small.asked)
                self._total += max(0, there) - self._beside[name]
                self._beside[name] = max(0, there)

    def fit(self) -> bool | None:
        """If the large ones fit: whether the small ones do beside them."""
        to_spare = self._large.total - self._large.wanted
        if self._total + to_spare >= self._small.wanted:
            return True
        return None if to_spare else False


def _pair(kinds: Sequence[_Kind]) -> _Pair | None:
    if len(kinds) != 2 or not all(each.is_plain for each in kinds):
        return None
    for large, small in (kinds, kinds[::-1]):
        is_smaller = all(large.requests.get(key, 0) >= amount for key, amount in small.requests.items())
        if is_smaller and large.requests != small.requests and large.takes.keys() <= small.takes.keys():
            return _Pair(large, small)
    return None


def _looks_around(room: Room, alike: Sequence[Pod]) -> bool:
    """Other pods have a say about where these go, or volumes, or what cannot be modelled."""
    needs, near = alike[0].needs, room.neighbours
    if needs.has_pod_affinity or needs.hard_spread or needs.claims or needs.unmodelled is not None:
        return True
    crowd = Crowd() if near is None else room.stock().crowd
    return near is not None and any(near.judge(pod, crowd) is not None for pod in _seen(alike))


def _are_apart(room: Room, alike: Sequence[Pod]) -> bool:
    """Each keeps its siblings off its host."""
    near, apart = room.neighbours, alike[0].needs.anti_affinity
    home, seen = alike[0].namespace, _seen(alike)
    if not all(names.HOSTNAME in site.node.labels for site in room.open_to(alike[0])):
        return False
    return near is not None and any(
        term.topology_key == names.HOSTNAME and all(near.selects((term,), home, pod) for pod in seen) for term in apart
    )


def _rule(room: Room, alike: Sequence[Pod]) -> SpreadCount | None:
    """The rule that spreads these, if it counts them alone: then what goes changes nothing about it."""
    rules = alike[0].needs.hard_spread
    if room.neighbours is None or len(rules) != 1 or len(_seen(alike)) != 1:
        return None
    (tally,) = room.tallies(alike[0])
    is_theirs = tally.selects(alike[0]) and not any(tally.counts.values())
    return tally if is_theirs else None


def _seen(alike: Iterable[Pod]) -> Sequence[Pod]:
    """One for each way in which others see them."""
    return list({(pod.namespace, id(pod.labels)): pod for pod in alike}.values())


def _keys(needs: Needs) -> Iterable[str]:
    yield from ("pods", *needs.requests)
    yield from (key for port in needs.host_ports for key in clashing(port))


def _kinds(pods: Iterable[Pod]) -> list[list[Pod]]:
    """Pods that ask the same of nodes: siblings share their needs."""
    found: dict[tuple[object, ...], list[Pod]] = {}
    for pod in pods:
        found.setdefault((id(pod.needs), pod.required_terms), []).append(pod)
    return list(found.values())
