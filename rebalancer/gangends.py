"""Which members of gangs ended, and why: for people. What is done about it follows from the pods that are left."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence

from placement import names
from placement.gang.gang import Gang
from placement.gang.run import run_of
from placement.model import FINISHED, Key, Pod, Sign

MOST_GANGS = 1000
MOST_REMEMBERED = 8  # of one gang
_PREEMPTOR = re.compile(r"Preempted by (?:pod )?(\S+)")


class GangEnds:
    """The last that ended of each gang."""

    def __init__(self, nominated: Mapping[str, Pod]) -> None:
        self._nominated = nominated  # by UID
        self._ends: dict[Key, deque[tuple[Pod, str]]] = {}
        self._signs: dict[tuple[str, str], str] = {}  # by namespace and name of a pod: what the scheduler said

    def see(self, key: Key, old: Pod, new: Pod | None) -> None:
        """A member changed or went."""
        before = run_of(old)
        if before is None or not old.node or old.phase in FINISHED or old.terminating or old.disrupted:
            return
        why = _why(old, new)
        if not why or before.mark or (new is not None and (found := run_of(new)) is not None and found.mark):
            return
        if key not in self._ends and len(self._ends) >= MOST_GANGS:
            del self._ends[next(iter(self._ends))]
        self._ends.setdefault(key, deque(maxlen=MOST_REMEMBERED)).append((new or old, why))

    def hear(self, sign: Sign) -> None:
        """The scheduler names the pod for which it has deleted another."""
        if len(self._signs) >= MOST_GANGS:
            del self._signs[next(iter(self._signs))]
        self._signs[sign.namespace, sign.about] = sign.message

    def of(self, gang: Gang, beside: Mapping[str, tuple[Pod, ...]]) -> Sequence[str]:
        """What is said of those of its run; `beside` are pods by node, among them those that took the room."""
        known, run = self._ends.get(gang.key, ()), gang.life.run
        own = (each for each in known if run is None or _run_name(each[0]) == run.name)
        return [f"pod {pod.name}: {self._told(pod, why, beside)}" for pod, why in own]

    def _told(self, pod: Pod, why: str, beside: Mapping[str, tuple[Pod, ...]]) -> str:
        if pod.disrupted != names.PREEMPTED:
            return why
        said = _PREEMPTOR.search(self._signs.get((pod.namespace, pod.name), ""))
        others = [*beside.get(pod.node, ()), *self._nominated.values()]
        named = next((each for each in others if said is not None and said[1] in (each.uid, str(each.key))), None)
        if named is not None:
            return f"{why} for pod {named.key} of priority {named.needs.priority}"
        return f"{why} for {said[1]}" if said is not None else f"{why} for a pod of higher priority"


def _run_name(pod: Pod) -> str:
    found = run_of(pod)
    return "" if found is None else found.name


def _why(old: Pod, new: Pod | None) -> str:
    """ "": it goes on, or has succeeded."""
    if new is not None and new.phase == "Succeeded":
        return ""
    if new is not None and new.disrupted == names.PREEMPTED:
        return "deleted by the scheduler"
    if new is not None and new.disrupted:
        return f"evicted ({new.disrupted})"
    if new is not None and new.phase == "Failed":
        return "failed"
    return "deleted" if new is None or new.terminating else ""
