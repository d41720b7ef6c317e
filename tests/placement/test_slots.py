"""Slots: the formula, and the laws that make scaling need no move."""

from collections import Counter
from fractions import Fraction
from math import ceil, floor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.model import Class
from placement.slots import Mix, Slots, lowest_free, with_unslotted
from tests.placement.invariants import any_slots, many

O, S = Class.ON_DEMAND, Class.SPOT  # noqa: E741 - as in the design's example
SEVENTY = Slots(Fraction(7, 10), 1)
counts = st.one_of(st.integers(0, 300), st.integers(10**15, 10**18))


def test_the_worked_example() -> None:
    """With 70 % and a floor of 1, slots 0…9 are O S S O S S O S S S."""
    assert [SEVENTY.class_of(slot) for slot in range(10)] == [O, S, S, O, S, S, O, S, S, S]
    assert (SEVENTY.spot(10), SEVENTY.spot(3), SEVENTY.spot(1)) == (7, 2, 0)
    assert SEVENTY.spot_index(4) == 2


MIXES = {
    "no replicas, no pods": (SEVENTY, 0, Mix(0, 0)),
    "a single replica is on-demand": (SEVENTY, 1, Mix(0, 1)),
    "a single replica is on-demand even at 100 %": (Slots(Fraction(1), 1), 1, Mix(0, 1)),
    "an explicit floor of 0 allows even a single replica on spot": (Slots(Fraction(1), 0), 1, Mix(1, 0)),
    "a floor of 0 rounds on-demand up all the same": (Slots(Fraction(7, 10), 0), 1, Mix(0, 1)),
    "ten at 70 %": (SEVENTY, 10, Mix(7, 3)),
    "on-demand is rounded up": (Slots(Fraction(1, 2), 1), 5, Mix(2, 3)),
    "two hundred at 70 %: exact where floats are not": (SEVENTY, 200, Mix(140, 60)),
    "29 % of 100 is 29 (0.29 * 100 is 28.999… in floats)": (Slots(Fraction(29, 100), 1), 100, Mix(29, 71)),
    "a floor above the replicas takes them all": (Slots(Fraction(1), 5), 3, Mix(0, 3)),
    "a floor is on top of no ratio": (Slots(Fraction(9, 10), 4), 10, Mix(6, 4)),
    "nothing on spot": (Slots(Fraction(0), 0), 10, Mix(0, 10)),
}


@pytest.mark.parametrize(("slots", "replicas", "expected"), MIXES.values(), ids=MIXES.keys())
def test_the_mix_follows_the_formula(slots: Slots, replicas: int, expected: Mix) -> None:
    """`mix` is the formula of the design on exact numbers."""
    assert slots.mix(replicas) == expected


@many
@given(any_slots, counts)
def test_each_replica_adds_no_or_one_spot(slots: Slots, replicas: int) -> None:
    """The prefix property: `spot` grows by 0 or 1, so that every slot has a class of its own."""
    assert slots.spot(replicas + 1) - slots.spot(replicas) in (0, 1)


@many
@given(any_slots, counts)
def test_on_demand_is_the_share_rounded_up_or_the_floor(slots: Slots, replicas: int) -> None:
    """Exactly max(ceil((1 − ρ)·n), min(b, n)) pods are on-demand, also where floats have long lost count."""
    assert slots.mix(replicas).on_demand == max(ceil((1 - slots.ratio) * replicas), min(slots.floor, replicas))
    assert slots.spot(replicas) <= floor(slots.ratio * replicas)
    assert slots.spot(replicas) + slots.mix(replicas).on_demand == replicas


@many
@given(any_slots, st.integers(0, 200))
def test_the_first_slots_are_the_mix(slots: Slots, replicas: int) -> None:
    """Any prefix is a correct mix."""
    assert Mix.of(slots.class_of(slot) for slot in range(replicas)) == slots.mix(replicas)


@many
@given(any_slots, st.integers(0, 200))
def test_spot_slots_are_numbered_without_gaps(slots: Slots, replicas: int) -> None:
    """The j-th spot slot has index j, which the pools are dealt out by."""
    spot = [slot for slot in range(replicas) if slots.class_of(slot) is S]
    assert [slots.spot_index(slot) for slot in spot] == list(range(len(spot)))


@many
@given(any_slots, st.lists(st.integers(-40, 40), max_size=12))
def test_scaling_by_lowest_and_highest_keeps_the_mix(slots: Slots, steps: list[int]) -> None:
    """Pods that take the lowest free slot and leave from the highest are exact at every rest point."""
    taken: set[int] = set()
    for step in steps:
        for _ in range(step):
            taken.add(lowest_free(taken))
        for _ in range(min(-step, len(taken))):
            taken.remove(max(taken))
        assert Mix.of(map(slots.class_of, taken)) == slots.mix(len(taken))


@many
@given(any_slots, st.integers(1, 60), st.data())
def test_a_lost_pod_is_replaced_by_one_of_its_class(slots: Slots, replicas: int, data: st.DataObject) -> None:
    """Whichever pod is lost, the lowest free slot is its own."""
    taken = set(range(replicas))
    lost = data.draw(st.sampled_from(sorted(taken)))
    taken.remove(lost)
    assert lowest_free(taken) == lost


def test_the_next_pod_after_ten_missed_ones_goes_to_spot() -> None:
    """The example of `with_unslotted`: three of the ten count, and the newcomer gets slot 1."""
    assert lowest_free(with_unslotted(SEVENTY, (), [O] * 10)) == 1


def test_mixes_add_up() -> None:
    """During a rollout the mixes of the revisions are added, class by class."""
    assert Mix(7, 3) + Mix(1, 2) == Mix(8, 5)
    assert str(Mix(7, 3)) == "7 spot + 3 on-demand"


UNSLOTTED = {
    "ten missed on on-demand take 0, 3 and 6": ((), [O] * 10, {0, 3, 6}),
    "with slot 1 taken beside them there are eleven, and slot 10 is on-demand too": ({1}, [O] * 10, {0, 1, 3, 6, 10}),
    "missed spot pods take spot slots": ((), [S, S], {1}),
    "one of unknown class takes the lowest": ((), [None], {0}),
    "unknown ones fill what the known ones leave": ((), [None, O, S], {0, 1, 2}),
    "known ones go first, whatever the order": ((), [None, O], {0, 1}),
    "taken slots stay taken": ({0, 5}, [O], {0, 5}),
    "taken slots stay taken, and there is room": ({0, 1, 5}, [O], {0, 1, 3, 5}),
    "nobody missed": ({2, 4}, [], {2, 4}),
}


@pytest.mark.parametrize(("taken", "strangers", "expected"), UNSLOTTED.values(), ids=UNSLOTTED.keys())
def test_pods_without_a_slot_are_counted_by_their_class(
    taken: set[int], strangers: list[Class | None], expected: set[int]
) -> None:
    """Each takes the lowest free slot of its class among as many slots as there are pods."""
    assert with_unslotted(SEVENTY, taken, strangers) == expected


strangers = st.lists(st.sampled_from([O, S, None]), max_size=30)


@many
@given(any_slots, st.sets(st.integers(0, 40), max_size=20), strangers)
def test_counting_strangers_is_fair(slots: Slots, taken: set[int], strangers: list[Class | None]) -> None:
    """Slots stay taken; no class takes more slots than it has pods; a stranger goes without only if none is free."""
    occupied = with_unslotted(slots, taken, iter(strangers))
    limit = len(taken) + len(strangers)
    gained = occupied - taken
    by_class = Counter(slots.class_of(slot) for slot in gained)
    wanted = Counter(strangers)
    assert taken <= occupied
    assert all(slot < limit for slot in gained)
    assert len(gained) <= len(strangers)
    for known in Class:
        free = [slot for slot in range(limit) if slot not in occupied and slots.class_of(slot) is known]
        assert by_class[known] <= wanted[known] + wanted[None]
        assert by_class[known] >= wanted[known] or not free
    assert len(gained) >= min(wanted[None], limit - len(taken))


@many
@given(any_slots, st.lists(st.sampled_from([O, S]), max_size=30), st.integers(0, 60))
def test_newcomers_complete_the_mix(slots: Slots, strangers: list[Class], newcomers: int) -> None:
    """After enough newcomers the mix is exact, unless the strangers of one class alone are more than it has."""
    taken: set[int] = set()
    for _ in range(newcomers):
        taken.add(lowest_free(with_unslotted(slots, taken, strangers)))
    total = newcomers + len(strangers)
    actual = Mix.of([*strangers, *map(slots.class_of, taken)])
    wanted, missed = slots.mix(total), Mix.of(strangers)
    if missed.spot <= wanted.spot and missed.on_demand <= wanted.on_demand:
        assert actual == wanted
    assert len(taken) == newcomers


def test_a_thousand_strangers_are_counted_in_a_moment() -> None:
    """Each admission counts them again, so the work must grow with their number, not with its square."""
    calls: list[int] = []

    class CountingSlots(Slots):
        def class_of(self, slot: int) -> Class:
            calls.append(slot)
            return super().class_of(slot)

    with_unslotted(CountingSlots(Fraction(7, 10), 1), set(), [O] * 1000)
    assert len(calls) <= 2000
