"""Room for whole gangs: all members or none, in the wanted classes, in few pools; and who goes first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from placement import names
from placement.gang.gang import Gang, State, gang_of
from placement.gang.reservation import Reservation
from placement.lack import Lack, NoPlace
from placement.model import NO_AMOUNTS, Class, Key, Needs, Node, NodeRequirement, Pod, PodTerm, Toleration
from placement.plan.actions import How, Plan
from placement.plan.neighbours import Neighbours, tenants_in
from placement.plan.planners.gangs import in_turn
from placement.plan.room import Room
from placement.plan.scene import Scene
from placement.plan.select import plan
from placement.plan.whole import holds, places
from tests.builders.model import NOW, ON_DEMAND, SPOT, namespace, node
from tests.builders.plan import ground
from tests.placement.test_gang import EIGHT, member

CPU = {"cpu": 1000}
TOLERANT = Needs(requests=CPU, tolerations=(Toleration(names.CAPACITY, "Exists"),))
SPOT_FIRST = (Class.SPOT, Class.ON_DEMAND)


def pods(count: int = 8, needs: Needs = TOLERANT, **fields: Any) -> list[Pod]:
    return [member(number, needs=needs, **fields) for number in range(count)]


def room(*nodes: Node, used: Mapping[str, Mapping[str, int]] = NO_AMOUNTS) -> Room:  # type: ignore[assignment]
    on = ground(*nodes)
    near = Neighbours(on, tenants_in({}, {"shop": namespace()}))
    return Room(on, lambda name: used.get(name, NO_AMOUNTS), neighbours=near)


def pool(zone: str, holds: int, of: Class = SPOT) -> Node:
    """One node that takes so many members."""
    return node(f"{of}-{zone}", of, zone, cpu=holds * 1000)


def touched(found: object) -> set[str]:
    return set(getattr(found, "places", {}).values())


POOLS: dict[str, tuple[tuple[int, ...], set[str]]] = {
    "one pool holds it": ((5, 8, 3), {"spot-b"}),
    "two pools hold it": ((5, 4, 3), {"spot-a", "spot-b"}),
    "all are needed": ((3, 3, 2), {"spot-a", "spot-b", "spot-c"}),
    "spot holds too few": ((3, 2, 2), {"on-demand-d"}),
}


@pytest.mark.parametrize(("sizes", "expected"), POOLS.values(), ids=POOLS.keys())
def test_the_wanted_class_and_as_few_pools_as_possible(sizes: tuple[int, ...], expected: set[str]) -> None:
    """Eight members, spot before on-demand."""
    spot = [pool(zone, size) for zone, size in zip("abc", sizes, strict=True)]
    found = places(room(*spot, pool("d", 8, ON_DEMAND)), pods(), 8, SPOT_FIRST)
    assert touched(found) == expected


def test_both_classes_together_where_neither_holds_it() -> None:
    """Five places on spot and five on on-demand: nobody waits for a class that is too small."""
    found = places(room(pool("a", 5), pool("d", 5, ON_DEMAND)), pods(), 8, SPOT_FIRST)
    assert touched(found) == {"spot-a", "on-demand-d"}


def test_without_an_order_the_pods_own_affinity_decides() -> None:
    """Members that do not tolerate spot get on-demand, and what is missing is told."""
    plain = pods(needs=Needs(requests=CPU))
    assert touched(places(room(pool("a", 8), pool("d", 8, ON_DEMAND)), plain, 8, ())) == {"on-demand-d"}
    assert places(room(pool("a", 8), pool("d", 7, ON_DEMAND)), plain, 8, ()) == NoPlace(Lack.ROOM, "cpu")
    assert places(room(pool("a", 8)), plain, 8, (Class.SPOT,)) == NoPlace(Lack.TAINTS)


def test_more_than_needed_start_where_there_is_room_for_more() -> None:
    """Four must start; room for six of eight: six do."""
    found = places(room(pool("a", 6)), pods(), 4, ())
    assert len(getattr(found, "places", {})) == 6


def test_members_that_keep_apart_are_planned_apart() -> None:
    """With all members placed: one per host, so that three hosts hold no four."""
    apart = PodTerm(names.HOSTNAME, (NodeRequirement("app", "In", ("x",)),))
    needs = replace(TOLERANT, anti_affinity=(apart,))
    four = pods(4, needs, labels={"app": "x"})
    hosts = [pool(zone, 8) for zone in "abcd"]
    assert len(touched(places(room(*hosts), four, 4, ()))) == 4
    assert places(room(*hosts[:3]), four, 4, ()) == NoPlace(Lack.APART)


def test_a_chain_of_members_that_want_each_others_company_is_not_followed_for_ever() -> None:
    """Each of 60 requires the next one beside it, and the last is asked last. Nobody else's plan waits for that."""

    def beside(number: int) -> tuple[PodTerm, ...]:
        return (PodTerm(names.HOSTNAME, (NodeRequirement("link", "In", (str(number),)),)),) if number < 60 else ()

    chain = [
        member(60 - number, needs=replace(TOLERANT, affinity=beside(number + 1)), labels={"link": str(number)})
        for number in range(1, 61)
    ]
    chain = [replace(pod, name=f"m{number:02}") for number, pod in zip(range(60, 0, -1), chain, strict=True)]
    assert places(room(pool("a", 60)), chain, 60, ()) == NoPlace(Lack.COMPANY)
    assert len(touched(places(room(pool("a", 60)), chain[-2:], 2, ()))) == 1


def test_what_is_reserved_is_verified_where_it_is_reserved() -> None:
    """Members fit on their own nodes, beside each other and what is there; a node that is gone holds nothing."""
    two = pods(2)
    nodes = {two[0].uid: "spot-a", two[1].uid: "spot-a"}
    assert holds(room(pool("a", 2)), two, nodes) is None
    assert holds(room(pool("a", 1)), two, nodes) == NoPlace(Lack.ROOM, "cpu")
    assert holds(room(pool("b", 8)), two, nodes) == NoPlace(Lack.NODES)
    taken = {"spot-a": {"cpu": 1000, "pods": 1}}
    assert holds(room(pool("a", 2), used=taken), two, nodes) == NoPlace(Lack.ROOM, "cpu")


# --- one plan --------------------------------------------------------------------------------------------------------


def gang(name: str = "train", count: int = 8, priority: int = 0, **fields: Any) -> Gang:
    own = {"annotations": {**EIGHT, names.POD_GROUP: name, **fields.pop("annotations", {})}}
    needs = Needs(requests=CPU, priority=priority)
    found = gang_of(
        Key(fields.pop("namespace", "shop"), name),
        [replace(each, uid=f"{name}-{each.name}") for each in pods(count, needs, **own, **fields)],
        lambda _owner: None,
    )
    assert found is not None
    return found


def planned(*gangs: Gang, size: int = 8, **scene: Any) -> Plan:
    on = ground(node("on-demand-d", ON_DEMAND, "d", allocatable={"cpu": size * 1000, "pods": 10_000}))
    near = Neighbours(on, tenants_in({}, {"shop": namespace()}))
    return plan(Scene((), on, lambda _name: {}, NOW, gangs=gangs, neighbours=near, **scene))


def hows(made: Plan) -> dict[How, int]:
    return {how: sum(each.how is how for each in made.actions) for how in {each.how for each in made.actions}}


def test_one_of_two_gangs_gets_the_room() -> None:
    """The other is told what is missing, and nothing is written to it."""
    made = planned(gang("a"), gang("b"))
    assert hows(made) == {How.RESERVE: 8}
    assert {each.gang.key.name: each.state for each in made.gangs} == {"a": State.RESERVED, "b": State.WAITING}
    reason = next(each.reason for each in made.gangs if each.state is State.WAITING)
    assert reason == "8 members wait to start together: no node has room for cpu"


def test_a_write_that_is_not_seen_yet_keeps_its_room() -> None:
    """A gang whose reservations are on their way is left alone, and its room is not given to another."""
    text = Reservation("p", NOW, "on-demand-d").text()
    first = gang("a")
    seen = replace(
        first,
        gated=tuple(replace(pod, nominated="on-demand-d", gang_plan=text) for pod in first.gated),
        is_settled=False,
    )
    assert planned(seen, gang("b")).actions == ()


def test_what_was_tried_a_moment_ago_is_not_tried_again() -> None:
    """It waits for the reason that was found then."""
    made = planned(gang("a"), resting={Key("shop", "a"): "no room"})
    assert (made.actions, [each.reason for each in made.gangs]) == ((), ["no room"])


def test_room_that_is_kept_for_others_is_taken() -> None:
    """A pod of somebody else that is nominated to the node leaves room for seven."""
    other = member(99, needs=Needs(requests=CPU), nominated="on-demand-d", gates=())
    assert planned(gang("a"), nominated=[other]).actions == ()


def test_a_fresh_plan_starts_and_an_older_one_is_written_again_first() -> None:
    """Up to 1.36 a restarted scheduler has forgotten the nominations of gated pods; it reads changed ones again.

    Once only: where writes are slow, a plan would never be fresh, and the gang never start.
    """

    def reserved(age: float, by: str = "p") -> Gang:
        text = Reservation(by, NOW - age, "on-demand-d").text()
        found = gang("a")
        return replace(found, gated=tuple(replace(pod, nominated="on-demand-d", gang_plan=text) for pod in found.gated))

    assert hows(planned(reserved(1))) == {How.START: 8}
    assert hows(planned(reserved(5))) == {How.RESERVE: 8}
    assert hows(planned(reserved(5, "p+"))) == {How.START: 8}
    assert hows(planned(reserved(35, "p+"))) == {How.RESERVE: 8}
    assert hows(planned(reserved(1), size=7)) == {How.UNRESERVE: 8}
    assert {each.nodes for each in planned(reserved(1)).actions} == {("on-demand-d",)}


def turns(*gangs: Gang) -> list[str]:
    return [each.key.name for each in in_turn(gangs)]


def test_the_order_of_gangs() -> None:
    """By priority; namespaces take turns; the annotation orders within a namespace alone."""
    assert turns(gang("low"), gang("high", priority=10)) == ["high", "low"]
    assert turns(gang("a1"), gang("a2"), gang("b1", namespace="other")) == ["a1", "b1", "a2"]
    wish = {names.PRIORITY: "100"}
    assert turns(gang("a", priority=10), gang("b", annotations=wish)) == ["b", "a"]
    assert turns(gang("a", priority=10), gang("b", annotations=wish, namespace="other")) == ["a", "b"]
    assert turns(gang("young", created=NOW - 1), gang("old", created=NOW - 9)) == ["old", "young"]


def test_a_plan_reserves_no_more_than_is_written_in_a_moment() -> None:
    """Sixty gangs of eight, room for all: 25 in this plan, and the next one follows at once."""
    made = planned(*(gang(f"g{number:02}") for number in range(60)), size=1000)
    assert (hows(made), made.left) == ({How.RESERVE: 200}, 1)


def test_gates_that_nobody_wants_do_not_hold_up_a_plan() -> None:
    """A thousand pods of somebody have our gate, and no gang: 100 lose it in this plan, and the next one follows."""
    strays = [member(number, created=NOW - 60) for number in range(1000)]
    made = planned(strays=strays, most_notes=100)
    assert (hows(made), made.left) == ({How.UNGATE: 100}, 900)
