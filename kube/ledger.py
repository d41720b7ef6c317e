"""The ledger: which slots of a revision are taken, by pods that were seen and by decisions that were not seen yet.

A pod that was just admitted is in no cache. Until it is, its decision stands here; it leaves when the pod is seen or,
since admission is not persistence (quota or a later webhook may refuse the pod), after a few seconds.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from threading import Lock

from cachetools import TTLCache

from placement.model import Class, Key, Pod
from placement.slots import Slots, lowest_free, with_unslotted

UNSEEN_SECONDS = 5.0
MOST_OWNERS = 100_000
MOST_UNSEEN = 100_000


class Ledger:
    """Taken slots by the controller's UID. Pods are observed from informer threads, slots taken from any."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._lock = Lock()
        self._slots: defaultdict[str, Counter[int]] = defaultdict(Counter)
        self._unslotted: defaultdict[str, dict[Key, Pod]] = defaultdict(dict)
        self._unseen: TTLCache[str, TTLCache[str, int]] = TTLCache(MOST_OWNERS, UNSEEN_SECONDS, timer)

    def observe(self, old: Pod | None, new: Pod | None) -> None:
        """Follows a pod store: called with what a pod was and what it is (None: absent)."""
        with self._lock:
            if old is not None:
                self._forget(old)
            if new is not None:
                self._remember(new)

    def take(
        self,
        uid: str,
        decision_id: str,
        slots: Slots,
        replicas: int,
        class_of: Callable[[Pod], Class | None],
        *,
        keep: bool = True,
        patient: bool = False,
    ) -> int | None:
        """The lowest free slot, noted as taken unless `keep` is false (dry runs).

        A ReplicaSet never has more pods than replicas, so a slot at or above them means that our caches are behind:
        a patient caller gets None and asks again. If waiting did not help, a create must have failed after we had
        decided on it: its slot, the one below the replicas that is unseen for longest, is given again.
        """
        with self._lock:
            unseen = self._unseen_of(uid)
            if decision_id in unseen:
                return unseen[decision_id]
            slot = lowest_free(self._taken(uid, unseen.values(), slots, class_of))
            if slot >= replicas and patient:
                return None
            if slot >= replicas:
                oldest = next((each for each, held in unseen.items() if held < replicas), None)
                if oldest is not None:
                    slot = unseen.pop(oldest) if keep else unseen[oldest]
            if keep:
                unseen[decision_id] = slot
                self._unseen[uid] = unseen  # set again, so that it lives as long as its youngest entry
            return slot

    def recent(self, uid: str) -> dict[str, int] | None:
        """The decisions that were not seen yet, by their id; None where none was made for a while."""
        with self._lock:
            return None if uid not in self._unseen else dict(self._unseen_of(uid))

    def take_over(self, uid: str, decisions: Mapping[str, int]) -> None:
        """Notes what another replica has decided and not seen yet."""
        with self._lock:
            unseen = self._unseen_of(uid)
            unseen.update(decisions)
            self._unseen[uid] = unseen

    def __len__(self) -> int:
        """How many decisions have not been seen yet."""
        with self._lock:
            return sum(len(unseen) for unseen in self._unseen.values())

    def _unseen_of(self, uid: str) -> TTLCache[str, int]:
        found = self._unseen.get(uid)
        if found is None:
            return TTLCache(MOST_UNSEEN, UNSEEN_SECONDS, self._timer)
        found.expire()
        return found

    def _taken(
        self, uid: str, unseen: Iterable[int], slots: Slots, class_of: Callable[[Pod], Class | None]
    ) -> set[int]:
        taken = {*self._slots.get(uid, ()), *unseen}
        unslotted = self._unslotted.get(uid)
        return with_unslotted(slots, taken, map(class_of, unslotted.values())) if unslotted else taken

    def _remember(self, pod: Pod) -> None:
        if pod.owner is None:
            return
        unseen = self._unseen.get(pod.owner.uid)
        if unseen is not None and pod.decision_id is not None:
            unseen.pop(pod.decision_id, None)
        if not pod.is_live:
            return
        if pod.slot is None:
            self._unslotted[pod.owner.uid][pod.key] = pod
        else:
            self._slots[pod.owner.uid][pod.slot] += 1

    def _forget(self, pod: Pod) -> None:
        if pod.owner is None or not pod.is_live:
            return
        uid = pod.owner.uid
        if pod.slot is None:
            self._unslotted[uid].pop(pod.key, None)
        else:
            self._slots[uid][pod.slot] -= 1
            if not self._slots[uid][pod.slot]:
                del self._slots[uid][pod.slot]
        if not self._slots.get(uid):
            self._slots.pop(uid, None)
        if not self._unslotted.get(uid):
            self._unslotted.pop(uid, None)
