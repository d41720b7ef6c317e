"""PodGroup objects: those that there are, and their status, written by the leader.

The CRD may be missing, or come later. Members that name a PodGroup wait until it is known whether there are any.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from kube.errors import ApiError
from placement.gang.podgroup import GroupStatus, NoPodGroup, PodGroup
from placement.model import Key
from rebalancer.multimap import put

log = logging.getLogger(__name__)

REPEAT_SECONDS = 60.0  # until the same is written again, where somebody else writes something else
RETRY_SECONDS = 5.0  # after a failure
MOST_AT_ONCE = 20  # in one pass


class PodGroups:
    """By key. `are_served`: whether the API server has the CRD; None: that is not known yet."""

    def __init__(self) -> None:
        self.are_served: bool | None = False
        self._groups: dict[Key, PodGroup] = {}

    def __iter__(self) -> Iterator[PodGroup]:
        return iter(self._groups.values())

    def take(self, old: PodGroup | None, new: PodGroup | None) -> Key:
        """A PodGroup came, changed or went: whose gang is to be looked at again."""
        known = new or old
        assert known is not None
        put(self._groups, known.key, new)
        return known.key

    def find(self, key: Key) -> PodGroup | NoPodGroup:
        if self.are_served is None:
            return NoPodGroup.UNREAD
        if not self.are_served:
            return NoPodGroup.UNSERVED
        return self._groups.get(key, NoPodGroup.MISSING)


class GroupStatuses:
    """Writes what PodGroups say of their members, each change once. Called by the leader after every pass."""

    def __init__(self, write: Callable[[PodGroup, GroupStatus], None], timer: Callable[[], float]) -> None:
        self._write = write
        self._timer = timer
        self._written: dict[str, tuple[GroupStatus, float]] = {}  # by UID, and when
        self._rests_until = float("-inf")  # after a failure

    def look(self, wanted: Iterable[tuple[PodGroup, GroupStatus]]) -> None:
        now, due = self._timer(), []
        if now < self._rests_until:
            return
        known = dict[str, tuple[GroupStatus, float]]()
        for group, status in wanted:
            if group.uid in self._written:
                known[group.uid] = self._written[group.uid]
            if self._is_due(group, status, now):
                due.append((group, status))
        self._written = known
        for group, status in due[:MOST_AT_ONCE]:
            try:
                self._write(group, status)
            except ApiError as error:
                log.warning("status of PodGroup %s: %s", group.key, error)
                self._rests_until = now + RETRY_SECONDS
                return
            self._written[group.uid] = status, now

    def _is_due(self, group: PodGroup, status: GroupStatus, now: float) -> bool:
        """Not every version of the CRD keeps `scheduled`: it is compared with what we wrote last."""
        last = self._written.get(group.uid)
        if last is not None and last[0] == status and now - last[1] < REPEAT_SECONDS:
            return False
        if replace(group.status, scheduled=status.scheduled) != status:
            return True
        return group.status.scheduled != status.scheduled and (last is None or last[0] != status)
