"""Victims held to brute force: small clusters, and every set of pods that the rules allow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, combinations, product
from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from placement import names
from placement.gang.candidate import Allowance, Candidate, Claimant, WhyNot
from placement.gang.clearing import Clearing
from placement.gang.victims import NoVictims, Victims, choose
from placement.model import Budget, HardSpread, HostPort, Node, NodeRequirement, Pod, PodTerm
from tests.builders.model import NEEDS, NOW, node
from tests.examples import examples
from tests.placement.test_victims import APART, claimant, gang, room, rules

NAMES = ("n", "m", "o")
ON_DEMAND = ("n", "m")
ZONES = dict(zip(NAMES, "aab", strict=True))
SPREAD = HardSpread(names.ZONE, 1, (NodeRequirement("app", "In", ("big",)),))


@dataclass(frozen=True, slots=True)
class Small:
    """A small cluster, the gang that asks, and what is left of each allowance."""

    nodes: tuple[Node, ...]
    gangs: tuple[Candidate, ...]
    asking: Claimant
    allowed: int  # by the PodDisruptionBudget `red`, which is about pods of that colour
    spare: int  # of the workload of all gangs of one
    floor: int  # the same, of its replicas on on-demand nodes
    evictions: int  # in each namespace
    evictions_in_all: int

    @property
    def there(self) -> list[Pod]:
        return list(chain.from_iterable(each.pods for each in self.gangs))

    def budgets(self, of: Pod) -> Sequence[Budget]:
        return [Budget(of.namespace, "red", allowed=self.allowed)] if of.labels.get("colour") == "red" else ()

    def is_service(self, of: Pod) -> bool:
        return "service" in of.labels

    def spared(self, of: Pod) -> Sequence[Allowance]:
        if not self.is_service(of):
            return ()
        replicas = Allowance(WhyNot.SPARE, "shop/web", self.spare)
        floor = Allowance(WhyNot.SPARE, "shop/web on on-demand", self.floor)
        return [replicas, floor] if of.node in ON_DEMAND else [replicas]

    def choose(self) -> Victims | NoVictims:
        trial = Clearing(room(self.nodes, self.there), self.asking.pods)
        return choose(
            self.asking,
            self.gangs,
            trial,
            rules(
                self.nodes,
                evictions=lambda _namespace: self.evictions,
                evictions_in_all=self.evictions_in_all,
                budgets=self.budgets,
                spare=self.spared,
            ),
        )


@st.composite
def gangs(draw: st.DrawFn, number: int, largest: int) -> Candidate:
    size = draw(st.integers(1, largest))
    where = draw(st.lists(st.sampled_from(NAMES), min_size=size, max_size=size))
    colour = draw(st.sampled_from(["red", "blue", "blue"]))
    made = gang(
        f"g{number}",
        where,
        draw(st.integers(1, 3)) * 500,
        namespace=draw(st.sampled_from(["shop", "shop", "bank"])),
        priority=draw(st.sampled_from([0, 0, 1, 1, 2, 10])),
        started=NOW - draw(st.sampled_from([60, 3600, 3600, 7200, 7200])),
        min_member=draw(st.integers(1, size)),
        is_preemptible=draw(st.sampled_from([True] * 5 + [False])),
    )
    labels = {"app": made.key.name, "colour": colour} | ({"service": "web"} if size == 1 else {})
    return replace(made, pods=tuple(replace(each, labels=labels) for each in made.pods))


@st.composite
def clusters(draw: st.DrawFn, sizes: st.SearchStrategy[Sequence[int]], largest: int = 3) -> Small:
    count = draw(st.integers(2, 5))
    found = tuple(draw(gangs(number, largest)) for number in range(count))
    nodes = tuple(
        node(name, zone=ZONES[name], cpu=_taken(found, name) + 500 * draw(st.integers(0, 2))) for name in NAMES
    )
    return Small(
        nodes,
        found,
        claimant(*draw(sizes)),
        allowed=draw(st.sampled_from([0, 1, 2, 3, 9])),
        spare=draw(st.sampled_from([0, 1, 2, 9])),
        floor=draw(st.sampled_from([0, 1, 2, 9])),
        evictions=draw(st.sampled_from([1, 2, 3, 20])),
        evictions_in_all=draw(st.sampled_from([2, 4, 100])),
    )


def _taken(found: Iterable[Candidate], name: str) -> int:
    return _taken_by((each for of in found for each in of.pods), name)


def _taken_by(pods: Iterable[Pod], name: str) -> int:
    return sum(each.needs.requests["cpu"] for each in pods if each.node == name)


# --- brute force -----------------------------------------------------------------------------------------------------

Pods = frozenset[str]


def allowed_of(of: Candidate, small: Small) -> Iterator[Pods]:
    """Every part of a gang that may go: nothing, some of its surplus, all."""
    yield frozenset()
    mine = small.asking
    is_lower = of.spec_priority < mine.spec_priority if of.key.namespace != "shop" else of.priority < mine.priority
    is_tied = any(
        (small.allowed < 1 and each.labels["colour"] == "red")
        or any(allowance.left < 1 for allowance in small.spared(each))
        for each in of.pods
    )
    if not is_lower or not of.is_preemptible or NOW - of.started < 300 or is_tied:
        return
    uids = [each.uid for each in of.pods]
    for count in range(1, len(uids) - of.min_member + 1):
        yield from map(frozenset, combinations(uids, count))
    yield frozenset(uids)


def keeps_allowances(going: Pods, small: Small) -> bool:
    pods = [each for each in small.there if each.uid in going]
    by_namespace = Counter(each.namespace for each in pods)
    red = Counter(each.namespace for each in pods if each.labels["colour"] == "red")
    return (
        all(count <= small.evictions for count in by_namespace.values())
        and len(pods) <= small.evictions_in_all
        and all(count <= small.allowed for count in red.values())
        and sum(small.is_service(each) for each in pods) <= small.spare
        and sum(small.is_service(each) and each.node in ON_DEMAND for each in pods) <= small.floor
    )


def allowed_sets(small: Small) -> set[Pods]:
    parts = product(*(set(allowed_of(each, small)) for each in small.gangs))
    found = {frozenset(chain.from_iterable(each)) for each in parts}
    return {each for each in found if keeps_allowances(each, small)}


def has_places(small: Small, going: Pods) -> bool:
    """For members that are alike: each node takes as many as its free CPUs hold."""
    asked = small.asking.pods[0].needs.requests["cpu"]
    staying = [each for each in small.there if each.uid not in going]
    places = sum((each.allocatable["cpu"] - _taken_by(staying, each.name)) // asked for each in small.nodes)
    return places >= len(small.asking.pods)


def placed(small: Small, going: Pods) -> bool:
    """By the fit test, in a cluster where they never were."""
    staying = [each for each in small.there if each.uid not in going]
    return not room(small.nodes, staying).together(small.asking.pods).refused


def going_of(found: Victims) -> Pods:
    going = frozenset(each.uid for each in found.pods)
    assert len(going) == len(found.pods), "no pod goes twice"
    return going


# What members ask for besides CPUs, so that others have a say about where they go.
ASKS: dict[str, dict[str, Any]] = {
    "plain": {},
    "a port": {"host_ports": (HostPort(80),)},
    "apart": {"anti_affinity": (APART,)},
    "even": {"hard_spread": (SPREAD,)},
    "near": {"affinity": (PodTerm(names.ZONE, (NodeRequirement("app", "In", ("g0",)),)),)},
}
ALIKE = st.tuples(st.integers(1, 4), st.sampled_from([500, 1000, 1500])).map(lambda each: [each[1]] * each[0])
MIXED = st.lists(st.sampled_from([500, 1000, 1500, 2000]), min_size=1, max_size=4)


@examples(150)
@given(clusters(ALIKE))
def test_victims_are_allowed_enough_and_as_few_as_will_do(small: Small) -> None:
    """No rule and no allowance is broken, gangs go whole or by surplus, and no smaller set of the same pods would do.

    Where nothing goes, no allowed set is enough.
    """
    found, sets = small.choose(), allowed_sets(small)
    if isinstance(found, NoVictims):
        event(f"none: {found.why.name}")
        assert not any(has_places(small, each) for each in sets)
        return
    going = going_of(found)
    event(f"{len(going)} go")
    assert going in sets
    assert has_places(small, going)
    assert not any(has_places(small, each) for each in sets if each < going)
    assert len(found.joint.places) == len(small.asking.pods)


@examples(150)
@given(clusters(ALIKE | MIXED), st.sampled_from(sorted(ASKS)))
def test_victims_of_members_that_differ_are_allowed_and_each_is_needed(small: Small, kind: str) -> None:
    """The packing is greedy, and neighbours count: a set may be missed, but none is wrong or has one too many."""
    sizes = [each.needs.requests["cpu"] for each in small.asking.pods]
    small = replace(small, asking=claimant(*sizes, **ASKS[kind]))
    found = small.choose()
    if isinstance(found, NoVictims):
        event(f"{kind}, none: {found.why.name}")
        return
    going = going_of(found)
    event(f"{kind}, {len(going)} go")
    assert going in allowed_sets(small)
    assert placed(small, going)
    parts = [frozenset(each.uid for each in victim.pods) for victim in found.gangs if victim.is_whole]
    parts += [frozenset([each.uid]) for victim in found.gangs if not victim.is_whole for each in victim.pods]
    assert not any(placed(small, going - part) for part in parts)


@examples(150)
@given(clusters(ALIKE | MIXED), st.sampled_from(sorted(ASKS)), st.data())
def test_a_clearing_answers_as_if_the_pods_had_never_been_there(small: Small, kind: str, data: st.DataObject) -> None:
    """Its sums never contradict the fit test, and pods that are back count again."""
    pods = claimant(*[each.needs.requests["cpu"] for each in small.asking.pods], **ASKS[kind]).pods
    averse = replace(NEEDS, requests={"cpu": 500}, anti_affinity=(APART,), host_ports=(HostPort(80),))
    there = [replace(each, needs=averse) if data.draw(st.booleans()) else each for each in small.there]
    trial = Clearing(room(small.nodes, there), pods)
    for _ in range(3):
        going = data.draw(st.sets(st.sampled_from(range(len(there)))))
        trial.clear(there[index] for index in going)
        left = room(small.nodes, [each for index, each in enumerate(there) if index not in going]).together(pods)
        assert trial.fits() is (not left.refused)
        assert trial.joint() == left
        trial.restore(there[index] for index in going)
