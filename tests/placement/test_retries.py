"""When a gang that found no room is tried again."""

from __future__ import annotations

import pytest

from placement import names
from placement.gang.gang import Gang, GangStatus, State, gang_of
from placement.gang.retries import AFTER_UNDO_SECONDS, BATCH_SECONDS, FIRST_SECONDS, LONGEST_SECONDS, Retries
from placement.model import Key
from tests.builders.model import pod

KEY = Key("shop", "train")


def gang(*members: str) -> Gang:
    """Of these members, all of them with their gate."""
    said = {names.POD_GROUP: "train", names.POD_GROUP_MIN_MEMBER: str(len(members))}
    pods = [
        pod(each, None, annotations=said, labels={names.GANG_LABEL: names.GANG_MEMBER}, gates=(names.GANG_GATE,))
        for each in members
    ]
    found = gang_of(KEY, pods, lambda _owner: None)
    assert found is not None
    return found


def middle(least: float, most: float) -> float:
    return (least + most) / 2


def tried(of: Gang) -> GangStatus:
    return GangStatus(of, State.WAITING, "no node has 8 GPUs free", was_tried=True)


@pytest.fixture
def retries() -> Retries:
    return Retries(middle)


def test_it_rests_while_nothing_happens_and_longer_each_time(retries: Retries) -> None:
    """After 2 s, then twice as long each time up to a minute, up to a quarter more; and it says why it waits."""
    train, timer, waits = gang("a", "b"), 0.0, []
    for _ in range(7):
        assert retries.resting([train], 0, timer) == {}
        retries.note([tried(train)], 0, timer)
        began = timer
        while retries.resting([train], 0, timer):
            assert retries.resting([train], 0, timer) == {KEY: "no node has 8 GPUs free"}
            timer += 0.5
        waits.append(timer - began)
    least = [FIRST_SECONDS, 4.0, 8.0, 16.0, 32.0, LONGEST_SECONDS, LONGEST_SECONDS]
    assert all(short <= wait <= 1.25 * short for short, wait in zip(least, waits, strict=True))


def test_room_that_becomes_free_ends_the_rest(retries: Retries) -> None:
    """A pod that ends at 0.1 s has it tried again at 0.2 s, not in every pass until then."""
    train = gang("a", "b")
    retries.note([tried(train)], 7, 0.0)
    assert KEY in retries.resting([train], 8, BATCH_SECONDS / 2)
    assert retries.resting([train], 8, BATCH_SECONDS) == {}


def test_another_member_ends_the_rest_at_once(retries: Retries) -> None:
    """What was looked for is not what is wanted now. Members that are the same as before change nothing."""
    retries.note([tried(gang("a", "b"))], 0, 0.0)
    assert KEY in retries.resting([gang("a", "b")], 0, 0.01)
    assert retries.resting([gang("a", "c")], 0, 0.01) == {}


def test_what_was_rolled_back_rests_whatever_becomes_free(retries: Retries) -> None:
    """Its own room becomes free then; it would take it, and be rolled back again."""
    train = gang("a", "b")
    retries.note([GangStatus(train, State.ROLLING_BACK)], 0, 0.0)
    assert "rolled back" in retries.resting([train], 5, AFTER_UNDO_SECONDS - 0.1)[KEY]
    assert retries.resting([train], 5, AFTER_UNDO_SECONDS) == {}


def test_a_gang_that_is_gone_is_forgotten(retries: Retries) -> None:
    """Its name may be used again: the next one is tried at once."""
    train = gang("a", "b")
    retries.note([tried(train)], 0, 0.0)
    retries.resting([], 0, FIRST_SECONDS)
    retries.note([tried(train)], 0, FIRST_SECONDS)
    assert retries.resting([train], 0, 2 * FIRST_SECONDS) == {}


def test_gangs_do_not_come_back_all_at_once() -> None:
    """Each wait is varied by a fifth."""
    for chance, seconds in ((min, 0.8 * FIRST_SECONDS), (max, 1.2 * FIRST_SECONDS)):
        retries, train = Retries(chance), gang("a", "b")
        retries.note([tried(train)], 0, 0.0)
        assert KEY in retries.resting([train], 0, seconds - 0.01)
        assert retries.resting([train], 0, seconds) == {}
