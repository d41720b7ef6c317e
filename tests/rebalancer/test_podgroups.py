"""The status of PodGroups is written when it changes, whatever version of the CRD there is."""

from __future__ import annotations

from dataclasses import replace

from kube.errors import ServerError
from placement.gang.podgroup import GroupStatus, NoPodGroup, PodGroup
from placement.model import Key
from rebalancer.podgroups import MOST_AT_ONCE, REPEAT_SECONDS, RETRY_SECONDS, GroupStatuses, PodGroups
from tests.manualclock import ManualClock

GROUP = PodGroup("shop", "train", "u", 3)
RUNNING = GroupStatus("Running", 3, 3)


class ScriptedGroups:
    """Remembers what was written; fails as often as it is told."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.written: list[GroupStatus] = []
        self.failures = 0
        self.statuses = GroupStatuses(self._write, self.clock)

    def _write(self, _group: PodGroup, status: GroupStatus) -> None:
        if self.failures:
            self.failures -= 1
            raise ServerError("PATCH /x", 500, "", "")
        self.written.append(status)

    def look(self, group: PodGroup, status: GroupStatus) -> int:
        self.statuses.look([(group, status)])
        return len(self.written)


def test_each_change_is_written_once() -> None:
    """Not again while its echo is on the way, nor once it is there; a later change is."""
    groups = ScriptedGroups()
    assert [groups.look(GROUP, RUNNING) for _ in range(3)] == [1, 1, 1]
    assert groups.look(replace(GROUP, status=RUNNING), RUNNING) == 1
    assert groups.look(replace(GROUP, status=RUNNING), replace(RUNNING, running=2, failed=1)) == 2


def test_a_field_that_the_crd_does_not_keep_is_not_written_for_ever() -> None:
    """`scheduled` is dropped by the API server: that it is 0 there is no reason to write it again."""
    groups = ScriptedGroups()
    groups.look(GROUP, RUNNING)
    pruned = replace(GROUP, status=replace(RUNNING, scheduled=0))
    for _ in range(5):
        groups.clock.now += REPEAT_SECONDS
        assert groups.look(pruned, RUNNING) == 1


def test_somebody_who_writes_something_else_is_not_fought_over() -> None:
    """The same is written once a minute at most."""
    groups = ScriptedGroups()
    groups.look(GROUP, RUNNING)
    theirs = replace(GROUP, status=GroupStatus("Pending"))
    assert groups.look(theirs, RUNNING) == 1
    groups.clock.now += REPEAT_SECONDS
    assert groups.look(theirs, RUNNING) == 2


def test_a_failed_write_is_tried_again() -> None:
    """A few seconds later, and not before."""
    groups = ScriptedGroups()
    groups.failures = 1
    assert [groups.look(GROUP, RUNNING) for _ in range(3)] == [0, 0, 0]
    groups.clock.now += RETRY_SECONDS
    assert groups.look(GROUP, RUNNING) == 1


def test_a_backlog_does_not_hold_up_a_pass() -> None:
    groups = ScriptedGroups()
    many = [(replace(GROUP, name=f"g{n}", uid=f"u{n}"), RUNNING) for n in range(MOST_AT_ONCE + 5)]
    groups.statuses.look(many)
    assert len(groups.written) == MOST_AT_ONCE
    groups.statuses.look(many)
    assert len(groups.written) == MOST_AT_ONCE + 5


def test_what_is_known_of_them() -> None:
    """Nothing is said to be missing before it is known that there are such objects."""
    groups, key = PodGroups(), Key("shop", "train")
    groups.take(None, GROUP)
    found = {}
    for served in (None, False, True):
        groups.are_served = served
        found[served] = groups.find(key)
    assert found == {None: NoPodGroup.UNREAD, False: NoPodGroup.UNSERVED, True: GROUP}
    assert groups.take(GROUP, None) == key
    assert groups.find(key) is NoPodGroup.MISSING
