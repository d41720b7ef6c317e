"""Members of gangs, by gang, kept up to date by differences.

Members are those that say so, in opted-in namespaces, while gangs are switched on. The gate alone makes none: a pod
that has it, and belongs to no gang, would wait for ever, so it is a stray.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from placement import names
from placement.gang.belonging import gang_key
from placement.gang.evictable import is_solo
from placement.gang.gang import Gang, GroupOf, gang_of
from placement.gang.life import FactsOf, FateOf, SizeOf
from placement.model import Key, Pod
from rebalancer.gangends import GangEnds


class GangMembers:
    """Pods by gang. `touched` are gangs to be looked at again; `freed` goes up when room may have become free."""

    def __init__(self, *, is_on: bool) -> None:
        self._is_on = is_on
        self._members: dict[Key, dict[str, Pod]] = {}  # by UID
        self._of_owner: dict[str, set[Key]] = {}  # by the owner's UID: gangs that may have members of it
        self._gated: dict[str, Pod] = {}  # by UID: everything that has our gate
        self.marked: dict[str, Pod] = {}  # by UID: pods that are to make room for a gang
        self.nominated: dict[str, Pod] = {}  # by UID: pods without a node for which one is kept free
        self.solo: dict[str, dict[str, Pod]] = {}  # by namespace and UID: pods that may make room one by one
        self.touched: set[Key] = set()
        self.ends = GangEnds(self.nominated)
        self.freed = 0
        self._changes = 0
        self._strays: tuple[int, list[Pod]] = (-1, [])  # after so many changes

    def change(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, changed or went."""
        self._changes += 1
        if old is not None and _takes_room(old) and not (new is not None and _takes_room(new)):
            self.freed += 1
        if old is not None and old.gates:
            self._gated.pop(old.uid, None)
        if old is not None and old.nominated:
            self.nominated.pop(old.uid, None)
        if old is not None:
            self.marked.pop(old.uid, None)
            self._forget_solo(old)
        if new is not None and self._is_on and is_solo(new):
            self.solo.setdefault(new.namespace, {})[new.uid] = new
        if new is not None and names.PREEMPTED_BY in new.annotations:
            self.marked[new.uid] = new
        if new is not None and new.is_gated and not new.terminating:
            self._gated[new.uid] = new
        if new is not None and new.nominated and not new.node and not new.terminating:
            self.nominated[new.uid] = new
        if self._is_on:
            self._file(old, new)

    def _file(self, old: Pod | None, new: Pod | None) -> None:
        if old is not None and (key := gang_key(old)) is not None:
            members = self._members.get(key, {})
            members.pop(old.uid, None)
            if not members:
                self._members.pop(key, None)
                self._forget_owner(old, key)
            self.touched.add(key)
            self.ends.see(key, old, new)
        if new is not None and (key := gang_key(new)) is not None:
            self._members.setdefault(key, {})[new.uid] = new
            if new.owner is not None:
                self._of_owner.setdefault(new.owner.uid, set()).add(key)
            self.touched.add(key)

    def _forget_solo(self, pod: Pod) -> None:
        there = self.solo.get(pod.namespace)
        if there is not None and there.pop(pod.uid, None) is not None and not there:
            del self.solo[pod.namespace]

    def _forget_owner(self, pod: Pod, key: Key) -> None:
        if pod.owner is not None and pod.owner.uid in self._of_owner:
            self._of_owner[pod.owner.uid].discard(key)
            if not self._of_owner[pod.owner.uid]:
                del self._of_owner[pod.owner.uid]

    def touch_namespace(self, name: str) -> None:
        self._changes += 1
        self.touched.update(key for key in self._members if key.namespace == name)

    def touch_owner(self, uid: str) -> None:
        """It may have another number of pods."""
        self.touched.update(self._of_owner.get(uid, ()))

    def touch_members(self, pods: Iterable[Pod]) -> None:
        """Something has happened to their node."""
        self.touched.update(key for pod in pods if (key := gang_key(pod)) is not None and key in self._members)

    def touch_all(self) -> None:
        self.touched.update(self._members)

    @property
    def gated(self) -> int:
        """How many pods have our gate, members or not."""
        return len(self._gated)

    def members(self, key: Key) -> Collection[Pod]:
        """All that are there, those that have ended among them."""
        return self._members.get(key, {}).values()

    def gang(self, key: Key, size_of: SizeOf, group_of: GroupOf, facts_of: FactsOf, fate_of: FateOf) -> Gang | None:
        return gang_of(key, self.members(key), size_of, group_of, facts_of=facts_of, fate_of=fate_of)

    def strays(self, gangs: Collection[Key]) -> list[Pod]:
        """Pods with our gate that belong to no gang that is looked after."""
        if self._strays[0] != self._changes:
            self._strays = self._changes, [pod for pod in self._gated.values() if gang_key(pod) not in gangs]
        return self._strays[1]

    def nominated_beside(self, gangs: Collection[Key]) -> list[Pod]:
        """Pods for which a node is kept free, of others than these gangs."""
        return [pod for pod in self.nominated.values() if gang_key(pod) not in gangs]


def _takes_room(pod: Pod) -> bool:
    """On its node, or somewhere: it waits, and nothing keeps the scheduler from placing it."""
    return pod.is_on_node or ((bool(pod.nominated) or not pod.gates) and not pod.node)
