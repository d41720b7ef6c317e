"""Whether a gang fits in full once some pods have gone.

The answer is that of the one fit test: `Room.together` on the room without those pods. It places every member, and
takes 20 to 100 ms for 1,000 members on 5,000 nodes. A search for victims asks hundreds of times, so sums are asked
first (`placement.gang.sums`): where they are too small the gang does not fit, and for most gangs they are exact. Where
the members go is always the fit test's answer.

Example: members of 2 CPUs, two nodes with 1 and 3 CPUs free: they take 0 + 1. Once a pod of 1 CPU has gone from the
first, they take 1 + 1, so a gang of two fits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from placement.gang.sums import Sums
from placement.model import Class, Pod
from placement.plan.room import Joint, Room


class Clearing:
    """A room from which pods are taken, and put back, while somebody looks for what has to go."""

    def __init__(self, room: Room, pods: Sequence[Pod], of: Class | None = None) -> None:
        """For these members, placed as `Room.together` places them: as they are, or as ones of a class."""
        self._room = room
        self._pods = pods
        self._of = of
        self._gone: dict[str, int] = {}  # by UID: how often it was cleared
        self._there: dict[str, Pod] = {}  # by UID: those that have gone
        self._sums = Sums(room, pods, of)
        self._known: dict[frozenset[str], bool] = {}
        self._nodes = len(room.ground.sites)
        self.effort = 0  # how much was placed: members, on so many nodes

    # --- what has gone -----------------------------------------------------------------------------------------------

    def clear(self, pods: Iterable[Pod]) -> None:
        """These go. One that has gone already has to be restored as often as it was cleared."""
        gone, there, change = self._gone, self._there, self._sums.change
        for pod in pods:
            times = gone[pod.uid] = gone.get(pod.uid, 0) + 1
            if times == 1 and pod.is_on_node:
                there[pod.uid] = pod
                change(pod, 1)

    def restore(self, pods: Iterable[Pod]) -> None:
        """These are back."""
        gone, there, change = self._gone, self._there, self._sums.change
        for pod in pods:
            times = gone[pod.uid] = gone[pod.uid] - 1
            if times == 0 and there.pop(pod.uid, None) is not None:
                change(pod, -1)

    def reset(self) -> None:
        """All are back."""
        for pod in self._there.values():
            self._sums.change(pod, -1)
        self._gone, self._there = {}, {}

    # --- questions ---------------------------------------------------------------------------------------------------

    def fits(self) -> bool:
        """Whether all members find a place now."""
        known = self._sums.fit()
        if known is not None:
            return known
        gone = frozenset(self._there)
        if gone not in self._known:
            self._known[gone] = not self.joint().refused
        return self._known[gone]

    def joint(self) -> Joint:
        """Where the members go, and why some find no place: by the fit test itself."""
        self.effort += len(self._pods) + self._nodes
        room = self._room.without(self._there.values()) if self._there else self._room
        return room.together(self._pods, self._of)

    def reach(self) -> frozenset[str] | None:
        """The nodes that members may use, if nothing else has a say about where they go; else None."""
        return self._sums.reach()

    def missing(self) -> int:
        """How many places are missing now, at least."""
        return self._sums.missing()

    def matters(self) -> frozenset[str] | None:
        """The nodes on which it can help the gang that something has gone from them; None: any.

        Asked when all that may go has gone. A node that takes no more members than before is none of them.
        """
        return self._sums.helped()
