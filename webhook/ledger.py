"""The ledger: which slots of a revision are taken, by pods that were seen and by decisions that were not seen yet.

A pod that was just admitted is in no cache. Until it is, its decision stands here; it leaves when the pod is seen or,
since admission is not persistence (quota or a later webhook may refuse the pod), after a few seconds: five, or twice
as long as it lately took to see one, because on a busy API server watches fall behind.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping
from threading import Lock
from typing import NamedTuple

from placement.model import Class, Key, Pod
from placement.slots import Slots, lowest_free, with_unslotted

UNSEEN_SECONDS = 5.0
LONGEST_UNSEEN_SECONDS = 60.0
PATIENCE = 2.0  # so many times as long as it lately took to see a decision's pod, a decision stays
FADING = 0.98  # of that memory, with each pod that is seen
MOST_UNSEEN = 100_000


class _Unseen(NamedTuple):
    """A decision whose pod was not seen yet."""

    uid: str  # the controller's
    decision_id: str
    slot: int
    at: float


class _Page:
    """One controller's slots. A slot that two pods hold is free when both are gone."""

    __slots__ = ("_below", "holders", "unseen", "unslotted")  # there are as many as ReplicaSets with pods

    def __init__(self) -> None:
        self.holders: dict[int, int] = {}  # how many hold a slot, seen or not; absent: free
        self.unseen: dict[str, _Unseen] = {}  # by decision, oldest first
        self.unslotted: dict[Key, Pod] = {}
        self._below = 0  # all slots below it are taken, so a burst of n pods does not look n times at n slots

    def __bool__(self) -> bool:
        return bool(self.holders or self.unslotted)

    def hold(self, slot: int) -> None:
        self.holders[slot] = self.holders.get(slot, 0) + 1

    def free(self, slot: int) -> None:
        self.holders[slot] -= 1
        if not self.holders[slot]:
            del self.holders[slot]
            self._below = min(self._below, slot)

    def lowest_free(self, slots: Slots, class_of: Callable[[Pod], Class | None]) -> int:
        if self.unslotted:
            return lowest_free(with_unslotted(slots, self.holders, map(class_of, self.unslotted.values())))
        while self._below in self.holders:
            self._below += 1
        return self._below


class Ledger:
    """Taken slots by the controller's UID. Pods are observed from informer threads, slots taken from any."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._lock = Lock()
        self._pages: dict[str, _Page] = {}
        self._delay = 0.0  # seconds that it lately took to see the pod of a decision; the caches may be far behind
        self._unseen: deque[_Unseen] = deque()  # of all pages, oldest first; some were seen since

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
            self._expire()
            page = self._pages.get(uid) or _Page()
            known = page.unseen.get(decision_id)
            if known is not None:
                return known.slot
            slot = page.lowest_free(slots, class_of)
            if slot >= replicas and patient:
                return None
            if slot >= replicas:
                oldest = next((each for each in page.unseen.values() if each.slot < replicas), None)
                if oldest is not None:
                    slot = oldest.slot
                    if keep:
                        self._settle(page, oldest)
            if keep:
                self._note(page, _Unseen(uid, decision_id, slot, self._timer()))
            return slot

    def recent(self, uid: str) -> dict[str, int] | None:
        """The decisions that were not seen yet, by their id; None where none was made for a while."""
        with self._lock:
            self._expire()
            if not any(each.uid == uid for each in self._unseen):
                return None
            page = self._pages.get(uid) or _Page()
            return {each.decision_id: each.slot for each in page.unseen.values()}

    def take_over(self, uid: str, decisions: Mapping[str, int]) -> None:
        """Notes what another replica has decided and not seen yet."""
        with self._lock:
            page = self._pages.get(uid) or _Page()
            now = self._timer()
            for decision_id, slot in decisions.items():
                if decision_id not in page.unseen:
                    self._note(page, _Unseen(uid, decision_id, slot, now))

    def give_back(self, uid: str, decision_id: str) -> None:
        """The decision is not carried out: its slot is free at once."""
        with self._lock:
            page = self._pages.get(uid)
            unseen = page.unseen.get(decision_id) if page is not None else None
            if page is not None and unseen is not None:
                self._settle(page, unseen)
                self._drop_if_empty(uid, page)

    def __len__(self) -> int:
        """How many decisions have not been seen yet."""
        with self._lock:
            self._expire()
            return sum(len(page.unseen) for page in self._pages.values())

    def _note(self, page: _Page, unseen: _Unseen) -> None:
        page.hold(unseen.slot)
        page.unseen[unseen.decision_id] = unseen
        self._pages[unseen.uid] = page
        self._unseen.append(unseen)

    def _settle(self, page: _Page, unseen: _Unseen) -> None:
        """A decision is in doubt no longer."""
        del page.unseen[unseen.decision_id]
        page.free(unseen.slot)

    def _expire(self) -> None:
        now = self._timer()
        oldest = now - min(LONGEST_UNSEEN_SECONDS, max(UNSEEN_SECONDS, PATIENCE * self._delay))
        while self._unseen and (self._unseen[0].at <= oldest or len(self._unseen) > MOST_UNSEEN):
            unseen = self._unseen.popleft()
            page = self._pages.get(unseen.uid)
            if page is not None and page.unseen.get(unseen.decision_id) is unseen:
                self._settle(page, unseen)
                self._drop_if_empty(unseen.uid, page)

    def _remember(self, pod: Pod) -> None:
        if pod.owner is None:
            return
        uid = pod.owner.uid
        page = self._pages.setdefault(uid, _Page())
        unseen = page.unseen.get(pod.decision_id or "")
        if unseen is not None:
            self._delay = max(self._timer() - unseen.at, FADING * self._delay)
            self._settle(page, unseen)
        if pod.is_live and pod.slot is None:
            page.unslotted[pod.key] = pod
        elif pod.is_live and pod.slot is not None:
            page.hold(pod.slot)
        self._drop_if_empty(uid, page)

    def _forget(self, pod: Pod) -> None:
        page = self._pages.get(pod.owner.uid) if pod.owner is not None else None
        if page is None or pod.owner is None or not pod.is_live:
            return
        if pod.slot is None:
            page.unslotted.pop(pod.key, None)
        elif pod.slot in page.holders:
            page.free(pod.slot)
        self._drop_if_empty(pod.owner.uid, page)

    def _drop_if_empty(self, uid: str, page: _Page) -> None:
        if not page:
            del self._pages[uid]
