"""One workload: which moves are finished, which undone, which slots are written."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from placement import names
from placement.model import Class, Kind, Owner, Pod, Rollout
from placement.plan.actions import Action, Blocked, How, Why
from placement.plan.annotate import ADOPTED, LEAVES_FIRST
from placement.plan.assess import Assessment
from placement.plan.ends import asks_to_be_kept
from placement.plan.ground import Ground
from placement.plan.group import Cohort, Group
from placement.plan.marks import Moved, Released, released, undone
from placement.plan.release import MISSED_SECONDS
from placement.refusal import HOLD_SECONDS, UNPATCHED, Hold
from tests.builders.model import NEEDS, NOW, ON_DEMAND, SPOT, node, owned_by_deployment, pod
from tests.builders.plan import assessed, ground, group

HERE = ground(
    node("o"),
    node("s", SPOT),
    node("t", SPOT, "b"),
    node("going", SPOT, "b", unschedulable=True, drained=True),
    node("p", zone="b"),
)


def let_go(name: str, slot: int, where: str, until: float = NOW + 60, replicas: int = 3, **fields: Any) -> Pod:
    """A pod that was released, and that its Deployment owns."""
    made = pod(name, slot, where, annotations={names.RELEASED: Released(until, "h", replicas).text()}, **fields)
    return owned_by_deployment(made)


def swept(*pods: Pod, replicas: int = 3, on: Ground = HERE, **workload: Any) -> list[str]:
    """At 70 %, of three: slots 0 1 2 are O S S."""
    found = assessed(group(pods, replicas, **workload), on)
    return [f"{action.how} {action.pod.name}" for action in found.sweeps]


KEEPING = replace(HERE, configuration=replace(HERE.configuration, keeps_local_storage=True))
ZERO, ONE = pod("zero", 0, "o"), pod("one", 1, "s")
DOWN = pod("down", 1, "s", ready=False)
OLD = let_go("old", 2, "o")
MARKED = {names.MOVED: Moved("on-demand", "7of10min1", NOW).text()}


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ((ZERO, ONE, OLD, pod("new", 2, "t")), ["annotate new"]),
        ((ZERO, ONE, OLD, pod("new", 2, "t", annotations=MARKED)), ["finish old"]),
        ((ZERO, ONE, OLD, pod("new", 2, "t", ready=False)), []),
        ((ZERO, ONE, OLD, pod("new", 2)), []),
        ((ZERO, ONE, OLD), []),
        ((ZERO, ONE, OLD, pod("new", 2, "o")), ["annotate new", "undo old"]),
        ((ZERO, ONE, OLD, pod("new", 2, "p")), ["annotate new", "undo old"]),
        ((ZERO, ONE, let_go("old", 2, "s"), pod("new", 2, "t", annotations=MARKED)), ["finish old"]),
        ((ZERO, ONE, let_go("old", 2, "going"), pod("new", 2, "p")), ["annotate new", "finish old"]),
        ((ZERO, ONE, let_go("old", 2, "o", NOW - 1), pod("new", 2)), ["annotate new", "undo old"]),
        ((ZERO, ONE, let_go("old", 2, "o", NOW - 1)), ["undo old"]),
        ((ZERO, ONE, let_go("old", 2, "going", NOW - 1), pod("new", 2)), []),
        ((ZERO, ONE, let_go("old", 2, "going"), pod("new", 2, "t")), ["annotate new", "finish old"]),
        ((ZERO, ONE, let_go("old", 2, "going", NOW - 9000), pod("new", 2, "t")), ["annotate new", "finish old"]),
        ((ZERO, ONE, let_go("old", 2, "o", NOW - 61), pod("new", 2, "t")), ["annotate new", "undo old"]),
        ((ZERO, DOWN, let_go("old", 2, "o", NOW - 1), pod("new", 2, "t", annotations=MARKED)), []),
        ((ZERO, DOWN, let_go("old", 2, "o", NOW - 61), pod("new", 2, "t")), ["annotate new", "undo old"]),
        ((ZERO, ONE, OLD, pod("new", 3, "t")), ["finish old"]),
        ((ZERO, ONE, replace(OLD, terminating=True), pod("new", 2, "t")), []),
    ],
    ids=[
        "the replacement serves",
        "it serves, and is marked",
        "it does not yet",
        "it has no node yet",
        "it is not there yet",
        "it serves where the old one was",
        "it serves in another pool of the class that it was to leave",
        "it serves in another pool of its class",
        "it serves on another class than its slot's, and the old node goes",
        "its time is over",
        "its time is over, and nobody came",
        "its time is over, but its node goes anyway",
        "its node goes, and the replacement serves",
        "its node goes, and the replacement serves at last",
        "it is long over, and its budget still forbids the end",
        "its time is over, the replacement serves, but another replica does not",
        "the same, and it is long over",
        "the replacement came with another slot",
        "it is on its way out",
    ],
)
def test_a_release_is_finished_or_undone(pods: tuple[Pod, ...], expected: list[str]) -> None:
    assert swept(*pods) == expected


def test_the_end_of_a_pod_that_is_one_too_many_rests_on_all_that_serve() -> None:
    """After a scale-down. Should one of them fail meanwhile, it is not too many any more."""
    (end,) = assessed(group([ZERO, ONE, OLD], 2), HERE).sweeps
    assert (end.how, end.pod.name, end.rests_on) == (How.FINISH, "old", (ZERO, ONE))
    assert end.in_every_mode


@pytest.mark.parametrize(
    "kept",
    [
        {"needs": replace(NEEDS, has_local_storage=True)},
        {"written": {names.DO_NOT_DISRUPT: "true"}},
        {"written": {names.SAFE_TO_EVICT: "false"}},
    ],
    ids=["local storage", "do-not-disrupt", "safe-to-evict"],
)
def test_the_end_of_a_pod_that_asks_to_be_kept_is_left_to_the_drainer(kept: dict[str, Any]) -> None:
    """From a cordoned node it is released; its replacement serves; nobody evicts it but who drains the node.

    If the node stays after all, it goes back.
    """
    written = kept.pop("written", {})
    leaving = pod("old", 2, "going", annotations=written, **kept)
    (wish,) = assessed(group((ZERO, ONE, leaving)), KEEPING).wishes
    assert (wish.why, wish.blocked) == (Why.LEAVING, None)
    for where, expected in (("going", []), ("s", ["annotate new", "undo old"])):
        old = let_go("old", 2, where, **kept)
        old = replace(old, annotations={**old.annotations, **written})
        assert swept(ZERO, ONE, old, pod("new", 2, "t"), on=KEEPING) == expected


def test_local_storage_keeps_no_pod_unless_the_configuration_says_so() -> None:
    """As in Karpenter. An owner that wants the pod to stay says so on the pod."""
    stores: dict[str, Any] = {"needs": replace(NEEDS, has_local_storage=True)}
    old, new = let_go("old", 2, "going", **stores), pod("new", 2, "t")
    assert swept(ZERO, ONE, old, new) == ["annotate new", "finish old"]
    assert swept(ZERO, ONE, old, new, on=KEEPING) == []
    misplaced = pod("c", 2, "o", **stores)
    for on, blocked in ((HERE, None), (KEEPING, Blocked.LOCAL_STORAGE)):
        (wish,) = assessed(group((ZERO, ONE, misplaced)), on).wishes
        assert wish.blocked == blocked
    safe = replace(misplaced, annotations={**misplaced.annotations, names.SAFE_TO_EVICT: "true"})
    (wish,) = assessed(group((ZERO, ONE, safe)), KEEPING).wishes
    assert wish.blocked is None


def test_after_a_scale_down_it_is_one_too_many() -> None:
    """Two are wanted and two serve; the slot of the third is nobody's.

    Of none at all a budget expects none, and allows no eviction: it is deleted, as its ReplicaSet does with all others.
    """
    assert swept(ZERO, ONE, OLD, replicas=2) == ["finish old"]
    assert swept(OLD, replicas=0) == ["delete old"]


FORMER = let_go("old", 2, "o", until=NOW + 9000)
NEW = pod("new", 2, "t", annotations=MARKED)
TWO = replace(ONE, name="two", uid="two", annotations={names.SLOT: "2"})


@pytest.mark.parametrize(
    ("pods", "replicas", "expected"),
    [
        ((ZERO, ONE, FORMER, pod("new", 2, ready=False)), 3, []),
        ((ZERO, ONE, FORMER), 2, ["finish old"]),
        ((ZERO, NEW, FORMER), 2, ["finish old"]),
        ((ZERO, replace(ONE, ready=False), FORMER), 2, []),
        ((ZERO, let_go("old", 1, "o"), let_go("older", 2, "o"), pod("new", 1), pod("newer", 2)), 3, []),
        ((ZERO, let_go("old", 1, "o"), let_go("older", 2, "o"), pod("new", 1)), 2, ["finish older"]),
        ((ZERO, ONE, replace(FORMER, ready=False)), 2, ["finish old"]),
        ((ZERO, ONE, let_go("old", 2, "going")), 2, ["finish old"]),
    ],
    ids=[
        "as many are wanted as before",
        "one less is wanted, and all serve",
        "one less is wanted, and the newcomer stays",
        "one less is wanted, and one of them does not serve",
        "two are released, and all wanted",
        "two are released, and one is wanted",
        "one less is wanted, and it does not serve itself",
        "one less is wanted, and its node goes",
    ],
)
def test_a_release_ends_when_fewer_are_wanted(pods: tuple[Pod, ...], replicas: int, expected: list[str]) -> None:
    """As soon as so many serve without it; in every mode."""
    found = assessed(group(pods, replicas), HERE)
    assert [f"{action.how} {action.pod.name}" for action in found.sweeps] == expected
    assert all(action.in_every_mode for action in found.sweeps)


def rolling(old: int, new: int, *pods: Pod) -> Group:
    """The revision of these pods is to have `old`, the next one has and wants `new`."""
    found = group(pods, 3)
    others = tuple(pod(f"n{slot}", slot, "t", owner="rs2") for slot in range(new))
    revision = Cohort("rs2", new, True, found.cohorts[0].template, others)
    return replace(found, cohorts=(replace(found.cohorts[0], replicas=old), revision))


@pytest.mark.parametrize(
    ("old", "new", "pods", "expected"),
    [
        (3, 1, (ZERO, ONE, FORMER, pod("new", 2)), []),
        (3, 1, (ZERO, ONE, FORMER, pod("new", 2, "t")), ["annotate new", "finish old"]),
        (2, 1, (ZERO, ONE, FORMER), ["finish old"]),
        (0, 3, (FORMER,), ["finish old"]),
        (0, 2, (replace(FORMER, owner=None),), ["finish old"]),
    ],
    ids=["it has just begun", "its replacement serves", "one less of the old", "none of the old", "an older release"],
)
def test_a_release_ends_with_a_rollout(old: int, new: int, pods: tuple[Pod, ...], expected: list[str]) -> None:
    """At the pace of the Deployment itself: when its old revision has as many as it is to have."""
    found = assessed(rolling(old, new, *pods), HERE)
    assert [f"{action.how} {action.pod.name}" for action in found.sweeps] == expected
    assert all(action.in_every_mode for action in found.sweeps)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ((ZERO, ONE, FORMER, pod("new", 2)), ["annotate new", "undo old"]),
        ((ZERO, ONE, FORMER), ["undo old"]),
        ((ZERO, ONE, FORMER, NEW), ["finish old"]),
        ((ZERO, ONE, pod("more", 3, "s"), FORMER, pod("new", 2)), []),
        ((ZERO, ONE, let_go("old", 2, "going"), pod("new", 2)), []),
    ],
    ids=[
        "its replacement does not serve",
        "nobody came",
        "its replacement serves",
        "its ReplicaSet has too many already",
        "its node goes",
    ],
)
def test_a_release_ends_when_its_deployment_is_paused(pods: tuple[Pod, ...], expected: list[str]) -> None:
    """Put back, unless it is over. From a node that goes it is moved on: its ReplicaSet replaces pods as ever."""
    found = assessed(group(pods, 3, rollout=Rollout(paused=True)), HERE)
    assert [f"{action.how} {action.pod.name}" for action in found.sweeps] == expected
    assert all(action.in_every_mode for action in found.sweeps)
    assert all(names.UNDONE not in action.annotations for action in found.sweeps)


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        ((ZERO, ONE, FORMER, pod("new", 2)), ["annotate new", "undo old"]),
        ((ZERO, ONE, FORMER, NEW), ["annotate new", "undo old"]),
        ((ZERO, ONE, let_go("old", 2, "going"), pod("new", 2)), ["annotate new", "undo old"]),
        ((ZERO, ONE, let_go("old", 2, "going"), NEW), ["finish old"]),
        ((ZERO, ONE, TWO, FORMER, pod("new", 3)), []),
    ],
    ids=[
        "its replacement does not serve",
        "its replacement serves",
        "its node goes",
        "its node goes, and its replacement serves",
        "its ReplicaSet has too many already",
    ],
)
def test_a_release_without_a_controller_ends_at_once(pods: tuple[Pod, ...], expected: list[str]) -> None:
    """The version before left pods like that, and `--cascade=orphan` does: nothing drains or collects them."""
    orphaned = [replace(each, owner=None) if each.is_released else each for each in pods]
    found = assessed(group(orphaned, 3), HERE)
    assert [f"{action.how} {action.pod.name}" for action in found.sweeps] == expected
    assert all(action.in_every_mode for action in found.sweeps)


def test_nothing_is_put_back_where_its_replica_set_would_delete_it() -> None:
    """It wants three and has four: it is about to delete one, and would delete one more. The next pass sees."""
    over = let_go("old", 2, "o", NOW - 1)
    assert swept(ZERO, ONE, over, pod("new", 2), pod("more", 3)) == []
    assert swept(ZERO, ONE, over, pod("new", 2)) == ["annotate new", "undo old"]


def test_a_doubled_slot_does_not_pass_for_a_replacement() -> None:
    """Two are released, two replacements start, and a pod that was there before holds the slot of one: nobody goes."""
    olds = let_go("old-1", 1, "o"), let_go("old-2", 2, "o")
    starting = pod("n1", 3, "s", ready=False), pod("n2", 4, "s", ready=False)
    assert swept(ZERO, pod("double", 2, "s"), *olds, *starting, replicas=4) == []


def test_the_last_on_on_demand_stays_until_another_serves_there() -> None:
    """Slot 0 is down: the old pod of slot 2 is all that serves on on-demand."""
    down = replace(ZERO, ready=False)
    assert swept(down, ONE, OLD, pod("new", 2, "t"), pod("more", 3, "s"), replicas=3) == []


def undone_actions() -> tuple[Action, ...]:
    pods = (ZERO, ONE, let_go("old", 2, "o", NOW - 1), pod("new", 2))
    return assessed(group(pods, 3), HERE).sweeps


def test_an_undone_release_is_put_back_and_the_newcomer_leaves_first() -> None:
    newcomer, old = undone_actions()
    assert newcomer.annotations == {names.DELETION_COST: LEAVES_FIRST}
    assert old.labels == {names.POD_TEMPLATE_HASH: "h"}
    assert old.annotations[names.RELEASED] is None
    assert names.SAFE_TO_EVICT not in old.annotations
    assert old.owner == Owner("ReplicaSet", "web-h", "rs")
    assert not old.in_every_mode
    tried = undone(replace(old.pod, annotations={names.UNDONE: old.annotations[names.UNDONE] or ""}))
    assert tried is not None
    assert (tried.tries, tried.until) == (1, NOW + 300)


def test_a_newcomer_is_marked_once() -> None:
    marked = pod("new", 2, annotations={names.DELETION_COST: LEAVES_FIRST})
    assert swept(ZERO, ONE, let_go("old", 2, "o", NOW - 1), marked) == ["undo old"]


def test_a_move_whose_replacement_admission_missed_is_tried_again_soon() -> None:
    """It says nothing about the class that the webhook was away."""
    missed = pod("new", 2, "o", decision=f"rs/{ADOPTED}new")
    *_, old = assessed(group((ZERO, ONE, OLD, missed), 3), HERE).sweeps
    assert old.text == "admission missed the replacement"
    tried = undone(replace(old.pod, annotations={names.UNDONE: old.annotations[names.UNDONE] or ""}))
    assert tried is not None
    assert (tried.tries, tried.until) == (1, NOW + MISSED_SECONDS)


@pytest.mark.parametrize("kind", Kind)
def test_nothing_is_moved_while_a_scale_down_is_under_way(kind: Kind) -> None:
    """Three serve and one is wanted: the other two leave, and must not stand in for the one that stays."""
    leaving = [pod("web-1", 1, "s"), pod("web-2", 2, "s")]
    found = assessed(group([pod("web-0", 0, "s"), *leaving], 1, kind=kind), HERE)
    assert {wish.blocked for wish in found.wishes} == {Blocked.UNSETTLED}
    assert {wish.blocked for wish in assessed(group([pod("web-0", 0, "s")], 1, kind=kind), HERE).wishes} == {None}


def noted(found: Assessment) -> dict[str, str | None]:
    return {action.pod.name: action.annotations.get(names.SLOT) for action in found.notes}


def test_doubled_slots_are_rewritten_and_nothing_is_moved_before() -> None:
    """Three pods that share slot 1, one of them on on-demand: the slots first."""
    found = assessed(group([pod("a", 1, "s"), pod("b", 1, "s"), pod("c", 1, "o")]), HERE)
    assert sorted(filter(None, noted(found).values())) == ["0", "2"]
    wrong = assessed(group([pod("a", 0, "s"), pod("b", 1, "s"), pod("c", 1, "s")]), HERE)
    assert {wish.blocked for wish in wrong.wishes} == {Blocked.UNSLOTTED}


def test_slots_are_not_rewritten_while_a_pod_is_released() -> None:
    """But a replacement that admission missed is adopted, into a slot that nobody holds."""
    assert noted(assessed(group([ZERO, pod("a", 1, "s"), pod("b", 1, "s"), OLD], 3), HERE)) == {}
    assert noted(assessed(group([ZERO, ONE, pod("missed", None, "t"), OLD], 3), HERE)) == {"missed": "2"}


def test_a_newcomer_that_stayed_after_all_does_not_leave_first_for_ever() -> None:
    marked = pod("new", 2, "t", annotations={names.DELETION_COST: LEAVES_FIRST})
    (note,) = assessed(group([ZERO, ONE, marked]), HERE).notes
    assert note.annotations[names.DELETION_COST] == "-2"


@pytest.mark.parametrize(
    ("slot", "cost", "expected"),
    [
        (None, None, "-2"),
        (None, "1000", None),
        (1, "-1", "-2"),
        (1, None, "-2"),
        (1, LEAVES_FIRST, "-2"),
        (1, "1000", None),
    ],
    ids=["adopted", "adopted, with its own", "ours", "none", "to leave first", "its own"],
)
def test_a_users_own_deletion_cost_is_kept(slot: int | None, cost: str | None, expected: str | None) -> None:
    """On the pod itself; its slot becomes 2."""
    late = pod("late", slot, "t", annotations={names.DELETION_COST: cost} if cost else {}, created=NOW - 60)
    notes = assessed(group([ZERO, ONE, late]), HERE).notes
    (note,) = [action for action in notes if action.pod.name == "late"]
    assert note.annotations[names.SLOT] == "2"
    assert note.annotations.get(names.DELETION_COST) == expected


SOFT = pod("c", 2, "o", annotations={names.SOFT: "true"})


@pytest.mark.parametrize(
    ("pods", "why", "to"),
    [
        ((pod("a", 0, "s"), pod("b", 1, "s"), pod("c", 2, "t")), Why.FLOOR, ON_DEMAND),
        ((ZERO, ONE, pod("c", 2, "o")), Why.RATIO, SPOT),
        ((ZERO, ONE, pod("c", 2, "o", annotations={names.SOFT: "true"})), Why.RETURN, SPOT),
        ((ZERO, ONE, replace(SOFT, labels={**SOFT.labels, names.CLASS: "spot"})), Why.RETURN, SPOT),
        ((ZERO, ONE, replace(SOFT, labels={**SOFT.labels, names.CLASS: "on-demand"})), Why.RATIO, SPOT),
        ((ZERO, ONE, pod("c", 2, "going")), Why.LEAVING, SPOT),
    ],
    ids=[
        "nobody on on-demand",
        "wrong class",
        "soft",
        "soft, and came out on the other class",
        "soft, and came out where it was to be: the ratio has changed",
        "its node goes",
    ],
)
def test_why_a_pod_should_be_elsewhere(pods: tuple[Pod, ...], why: Why, to: Class) -> None:
    (wish,) = assessed(group(pods), HERE).wishes
    assert (wish.why, wish.to, wish.how) == (why, to, How.RELEASE)


def test_the_time_of_a_release_is_read_back() -> None:
    """With what was so before; the version before wrote less."""
    assert released(OLD) == Released(NOW + 60, "h", 3)
    for state in (
        Released(NOW, "h"),
        Released(NOW, "h", 0),
        Released(NOW, "h", 3, True),
        Released(NOW, "h", None, True),
        Released(NOW, "h", 3, True, True),
        Released(NOW, "h", None, False, True),
    ):
        assert released(replace(OLD, annotations={names.RELEASED: state.text()})) == state
    assert Released(NOW, "h").text() == "2025-06-15T15:06:40Z/h"
    assert Released(NOW, "h", 3, True).text() == "2025-06-15T15:06:40Z/h/3/safe-to-evict"
    assert Released(NOW, "h", 3, False, True).text() == "2025-06-15T15:06:40Z/h/3//do-not-disrupt"
    assert released(replace(OLD, annotations={names.RELEASED: "2025-06-15T15:06:40Z/h/many"})) == Released(NOW, "h")


@pytest.mark.parametrize(
    ("word", "marks_safe", "kept", "removed"),
    [
        ("true", True, Blocked.LOCAL_STORAGE, True),
        ("true", False, None, False),
        ("false", True, Blocked.KEPT, False),
        (None, True, Blocked.LOCAL_STORAGE, False),
    ],
    ids=["ours", "its owner's", "changed since", "removed since"],
)
def test_what_a_release_wrote_about_eviction_is_not_the_pods_own_word(
    word: str | None, marks_safe: bool, kept: Blocked | None, removed: bool
) -> None:
    """A pod with local storage asks to be kept, released or not; its undo removes what the release wrote, no more."""
    note = {names.RELEASED: Released(NOW - 1, "h", 3, marks_safe).text()}
    written = {**OLD.annotations, **note, **({names.SAFE_TO_EVICT: word} if word else {})}
    old = replace(OLD, annotations=written, needs=replace(NEEDS, has_local_storage=True))
    assert asks_to_be_kept(old, KEEPING.configuration) is kept
    *_, back = assessed(group((ZERO, ONE, old, pod("new", 2)), 3), KEEPING).sweeps
    assert back.how is How.UNDO
    assert (names.SAFE_TO_EVICT in back.annotations) is removed


def test_ordinals_may_be_anywhere() -> None:
    """`spec.ordinals.start` was two billion, and is 0 now: pods of both are there."""
    pods = [pod(f"db-{2 * 10**9 + index}", index, "o") for index in range(3)]
    found = assessed(group(pods, kind=Kind.STATEFUL_SET), HERE)
    assert [member.slot for member in found.members] == [2 * 10**9, 2 * 10**9 + 1, 2 * 10**9 + 2]


def refused(*pods: Pod, at: float = NOW - 30) -> Group:
    return replace(group(pods), refused=Hold(at))


def test_a_workload_whose_replacements_would_be_refused_is_not_moved_for_a_while() -> None:
    """Somebody refuses pods with our patch: another try comes when the hold is over. A leaving node does not wait."""
    pods = (ZERO, ONE, pod("c", 2, "o"))
    (wish,) = assessed(refused(*pods), HERE).wishes
    assert (wish.why, wish.blocked) == (Why.RATIO, Blocked.UNPATCHED)
    (later,) = assessed(refused(*pods, at=NOW - HOLD_SECONDS), HERE).wishes
    assert later.blocked is None
    found = assessed(refused(ZERO, ONE, pod("c", 2, "going")), HERE).wishes
    assert [(each.why, each.blocked) for each in found] == [(Why.LEAVING, None)]


def test_a_pod_that_was_admitted_unpatched_says_why() -> None:
    """When it is adopted; or a moment later, where the webhook's Event came after that; and with every new slot."""
    young = pod("new", None, "o", created=NOW - 40)
    (note,) = assessed(refused(ZERO, ONE, young), HERE).notes
    assert UNPATCHED in (note.annotations[names.REASON] or "")
    adopted = replace(
        young, decision=f"rs/{ADOPTED}new", annotations={names.SLOT: "2", names.REASON: "adopted: slot 2"}
    )
    (note,) = assessed(refused(ZERO, ONE, adopted), HERE).notes
    assert set(note.annotations) == {names.REASON}
    marked = replace(adopted, annotations={**adopted.annotations, names.REASON: note.annotations[names.REASON] or ""})
    assert assessed(refused(ZERO, ONE, marked), HERE).notes == ()
    beyond = replace(marked, annotations={**marked.annotations, names.SLOT: "5"})
    (note,) = assessed(group((ZERO, ONE, beyond)), HERE).notes
    assert note.annotations[names.SLOT] == "2"
    assert UNPATCHED in (note.annotations[names.REASON] or "")


def test_a_pod_that_admission_missed_long_before_does_not_say_so() -> None:
    """It is older than the refusal."""
    (note,) = assessed(refused(ZERO, ONE, pod("old", None, "o", created=NOW - 3600)), HERE).notes
    assert UNPATCHED not in (note.annotations[names.REASON] or "")
