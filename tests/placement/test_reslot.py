"""Which pod gets which slot."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st

from placement.model import Class
from placement.plan.group import Member
from placement.plan.reslot import adopted, leaned, reslotted
from placement.slots import Slots
from tests.builders.model import ON_DEMAND, SPOT
from tests.builders.plan import member
from tests.placement.invariants import any_slots, many

SEVENTY, THIRTY = Slots(Fraction(7, 10), 1), Slots(Fraction(3, 10), 1)
TEN = [
    member(f"p{slot}", slot, SEVENTY.class_of(slot), pool)
    for slot, pool in enumerate(["a", "a", "b", "a", "c", "a", "a", "b", "c", "a"])
]


def rewritten(members: list[Member], slots: dict[str, int]) -> list[Member]:
    return [Member(each.pod, slots[each.pod.uid], each.of, each.site, slots[each.pod.uid]) for each in members]


def misfits(members: list[Member], slots: dict[str, int], by: Slots) -> list[Member]:
    return [each for each in members if each.of is not None and by.class_of(slots[each.pod.uid]) is not each.of]


def test_the_worked_example_of_a_changed_ratio() -> None:
    """Ten pods at 70 %, seven spot in pools a 3, b 2, c 2; at 30 % four are moved, from the fullest pools."""
    slots = reslotted(TEN, THIRTY, 10)
    moved = misfits(TEN, slots, THIRTY)
    assert sorted(slots.values()) == list(range(10))
    assert [each.of for each in moved] == [SPOT] * 4
    assert Counter(each.pool.zone for each in moved if each.pool) == {"a": 2, "b": 1, "c": 1}


def test_slots_that_are_right_are_kept() -> None:
    assert reslotted(TEN, SEVENTY, 10) == {f"p{slot}": slot for slot in range(10)}


def test_of_two_pods_with_one_slot_the_older_keeps_it() -> None:
    """The other takes the lowest free slot of its class."""
    twins = [member("young", 1, SPOT, created=2.0), member("old", 1, SPOT, created=1.0), member("o", 0, ON_DEMAND)]
    assert reslotted(twins, SEVENTY, 3) == {"old": 1, "young": 2, "o": 0}


def test_pods_that_admission_missed_take_slots_of_the_class_that_they_run_on() -> None:
    """Three on on-demand of 70 %: one fits, two are to be moved."""
    missed = [member(name, None, ON_DEMAND) for name in "abc"]
    slots = reslotted(missed, SEVENTY, 3)
    assert sorted(slots.values()) == [0, 1, 2]
    assert len(misfits(missed, slots, SEVENTY)) == 2


def test_slots_beyond_the_replicas_come_down() -> None:
    """A scale-down took pending pods first and left a hole."""
    assert reslotted([member("a", 0, ON_DEMAND), member("b", 7, SPOT)], SEVENTY, 2) == {"a": 0, "b": 1}


def test_the_highest_slots_lean_to_the_fullest_pool() -> None:
    """Spot slots 1, 2, 4, 5 in pools a, a, a, b: two of a leave first, then one of each is left."""
    members = [member(f"p{slot}", slot, SPOT, pool) for slot, pool in zip((1, 2, 4, 5), "aaab", strict=True)]
    given_slots = {each.pod.uid: each.slot or 0 for each in members}
    assert leaned(members, given_slots, SEVENTY) == {"p4": 5, "p2": 4, "p5": 2, "p1": 1}


def test_who_leans_already_keeps_its_slot() -> None:
    """Slots 1, 2, 4, 5, 7, 8 in pools a, a, b, a, c, c: of the six pods, three get another slot; five would do too."""
    members = [member(f"p{slot}", slot, SPOT, pool) for slot, pool in zip((1, 2, 4, 5, 7, 8), "aabacc", strict=True)]
    given_slots = {each.pod.uid: each.slot or 0 for each in members}
    found = leaned(members, given_slots, SEVENTY)
    assert found == {"p5": 8, "p7": 7, "p2": 5, "p4": 4, "p8": 2, "p1": 1}


members_of_any_kind = st.lists(
    st.tuples(
        st.one_of(st.none(), st.integers(0, 14)),
        st.sampled_from([SPOT, ON_DEMAND]),
        st.sampled_from(["a", "b", "c", ""]),
        st.booleans(),
    ),
    max_size=12,
).map(
    lambda drawn: [
        member(f"p{index}", slot, of, pool, ready=ready, created=float(index))
        for index, (slot, of, pool, ready) in enumerate(drawn)
    ]
)


@many
@given(members=members_of_any_kind, slots=any_slots, more=st.integers(0, 3))
def test_every_slot_once_fewest_misfits_and_stable(members: list[Member], slots: Slots, more: int) -> None:
    """Only pods that are more than their class has slots are of the wrong class; asked again, the same ones are."""
    replicas = len(members) + more
    found = reslotted(members, slots, replicas)
    assert len(set(found.values())) == len(members)
    assert all(0 <= slot < max(1, replicas) for slot in found.values())
    own = Counter(each.of for each in members)
    too_many = sum(max(0, own[of] - sum(slots.class_of(k) is of for k in range(replicas))) for of in Class)
    assert len(misfits(members, found, slots)) == too_many
    again = rewritten(members, found)
    assert reslotted(again, slots, replicas) == found


@many
@given(members=members_of_any_kind, slots=any_slots)
def test_after_some_were_moved_the_others_are_still_to_be(members: list[Member], slots: Slots) -> None:
    """A move under way takes one misfit out; it must not make another pod a misfit."""
    found = reslotted(members, slots, len(members))
    wrong = misfits(members, found, slots)
    if not wrong:
        return
    gone = next((each for each in wrong if each.site is not None), None)
    if gone is None:
        return
    rest = [each for each in rewritten(members, found) if each.pod.uid != gone.pod.uid]
    later = reslotted(rest, slots, len(members))
    assert {each.pod.uid for each in misfits(rest, later, slots)} == {each.pod.uid for each in wrong} - {gone.pod.uid}


@many
@given(members=members_of_any_kind, slots=any_slots)
def test_leaning_is_stable_and_keeps_classes(members: list[Member], slots: Slots) -> None:
    first = reslotted(members, slots, len(members))
    found = leaned(members, first, slots)
    assert sorted(found.values()) == sorted(first.values())
    assert all(slots.class_of(found[uid]) is slots.class_of(slot) for uid, slot in first.items())
    assert leaned(members, found, slots) == found


def test_a_typo_in_the_replicas_costs_no_memory() -> None:
    """Two billion, of which a quota lets ten be: they keep their slots, and newcomers find one of their class."""
    most = 2**31 - 1
    assert reslotted(TEN, SEVENTY, most) == {f"p{slot}": slot for slot in range(10)}
    newcomer = member("new", None, ON_DEMAND)
    assert reslotted([*TEN, newcomer], SEVENTY, most)["new"] == 10
    assert adopted([*TEN, newcomer], SEVENTY, most) == {"new": 10}


def test_soft_pods_return_and_those_that_belong_there_stay() -> None:
    """All ten run on on-demand, seven of them soft, in another pool. Each keeps its slot, and nothing is rewritten."""
    pools = {SPOT: "a", ON_DEMAND: "b"}
    ten = [member(f"p{slot}", slot, ON_DEMAND, pools[SEVENTY.class_of(slot)]) for slot in range(10)]
    assert reslotted(ten, SEVENTY, 10) == {f"p{slot}": slot for slot in range(10)}
