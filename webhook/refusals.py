"""Finds decisions that never become pods because somebody refuses what we patch, and lets their siblings in unpatched.

Admission notes what it gives (`given`, a queue, so that no call waits), the pods' cache what it sees. A few times a
second `look` puts both together. Three decisions of one controller and one flavour that nothing was seen of for half a
second are a suspicion, no more: the cache may be slow, or a burst under way. So the API server is asked whether the
controller reports that it could not create its pods, and why. Only then are pods of that flavour admitted unpatched.

The flavour is what patches differ in, for who refuses them. A policy that dislikes tolerations refuses the pods of
spot slots alone, and those of on-demand slots go on as ever.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

from cachetools import LRUCache

from placement import names
from placement.model import Class, Owner, Pod, ReplicaSet, Workload
from placement.refusal import PatchRefusal, begun, in_vain, read_refusal
from webhook.mistakes import WriteEvent, write_nothing

log = logging.getLogger(__name__)

TRIES = 3
UNSEEN_SECONDS = 0.5  # with the answer of the API server to come, this need not be sure
FORGET_SECONDS = 600.0  # tries that far apart have nothing to do with each other
QUIET_SECONDS = 1.0  # between two questions about one controller
MOST_TRIES = 32  # that are remembered of one flavour
MOST_CONTROLLERS = 4096
MOST_QUEUED = 100_000
MOST_ASKED = 4  # controllers in one look: while the API server is slow, the queues must not wait for all of them

T = TypeVar("T")
Ask = Callable[[Owner, str], str]  # kube.failures.creation_failure


class Flavour(NamedTuple):
    """What the patches of one controller's pods differ in, as far as a policy or a quota cares."""

    placed: Class | None
    soft: bool
    priority_class: str


Kept = tuple[str, Flavour]  # the controller's UID, and of its pods those of this flavour


class Given(NamedTuple):
    """A pod was admitted, patched or not."""

    owner: Owner
    flavour: Flavour
    workload: Workload
    decision_id: str
    at: float
    is_patched: bool = True


class _Seen(NamedTuple):
    uid: str  # the controller's
    decision_id: str | None


@dataclass(slots=True)
class _Tries:
    """What was given to one controller's pods of one flavour, and not seen since."""

    owner: Owner
    workload: Workload
    patched: dict[str, float] = field(default_factory=dict)  # by decision: when it was made
    bare: list[float] = field(default_factory=list)  # when pods were admitted unpatched

    def take(self, given: Given) -> None:
        self.workload = given.workload
        if given.is_patched:
            self.patched[given.decision_id] = given.at
            if len(self.patched) > MOST_TRIES:
                del self.patched[next(iter(self.patched))]
        elif len(self.bare) < MOST_TRIES:
            self.bare.append(given.at)

    def see(self, decision_id: str) -> bool:
        """A patched pod is there: what was decided before it and is not seen does not count any more."""
        at = self.patched.get(decision_id)
        if at is not None:
            self.patched = {each: since for each, since in self.patched.items() if since > at}
        return at is not None

    def forget(self, before: float) -> None:
        if self.bare and self.bare[0] < before:
            self.bare = [at for at in self.bare if at >= before]
        if self.patched and next(iter(self.patched.values())) < before:
            self.patched = {each: at for each, at in self.patched.items() if at >= before}


class Refusals:
    """Who refuses our patch. `given` is filled and `standing` read by admission; all else is the looker's thread."""

    def __init__(self, ask: Ask, tell: WriteEvent = write_nothing, now: Callable[[], float] = time.time) -> None:
        self._ask = ask
        self._tell = tell
        self._now = now
        self.given: deque[Given] = deque(maxlen=MOST_QUEUED)
        self.standing: dict[Kept, PatchRefusal] = {}
        self._seen: deque[_Seen] = deque(maxlen=MOST_QUEUED)
        self._gone: deque[str] = deque(maxlen=MOST_QUEUED)  # UIDs of controllers that want no pods any more
        self._pages: LRUCache[str, dict[Flavour, _Tries]] = LRUCache(MOST_CONTROLLERS)
        self._asked: LRUCache[str, float] = LRUCache(MOST_CONTROLLERS)  # when, by the controller's UID
        self._suspects: set[str] = set()  # controllers that something was given to and not seen

    def observe(self, old: Pod | None, new: Pod | None) -> None:
        """Follows the pods' store, from the informer's thread."""
        if old is None and new is not None and new.owner is not None:
            self._seen.append(_Seen(new.owner.uid, new.decision_id))

    def observe_owner(self, old: ReplicaSet | Workload | None, new: ReplicaSet | Workload | None) -> None:
        """Follows the stores of controllers, too: one that is gone, or wants no pods, is refused none."""
        if old is not None and (new is None or new.uid != old.uid or not new.replicas):
            self._gone.append(old.uid)

    def look(self) -> None:
        """Takes in what was given and seen, and asks about what is suspicious. Blocks while it asks.

        What was seen is taken first: all of it was given before, and so is in the queue.
        """
        seen = _drained(self._seen)
        for given in _drained(self.given):
            self._page(given).take(given)
            self._suspects.add(given.owner.uid)
        for each in seen:
            self._see(each)
        for uid in _drained(self._gone):
            self._forget(uid)
        now, asked = self._now(), 0
        for uid in sorted(self._suspects, key=lambda uid: self._asked.get(uid, 0.0)):
            asked += self._examine(uid, now)
            if asked >= MOST_ASKED:
                return

    def let_in(self) -> list[PatchRefusal]:
        """Those that pods are admitted unpatched for now, and that proved to be the reason. From any thread."""
        now = self._now()
        return [each for each in tuple(self.standing.values()) if each.is_proven and each.lets_in(now)]

    def _page(self, given: Given) -> _Tries:
        pages = self._pages.setdefault(given.owner.uid, {})
        page = pages.get(given.flavour)
        if page is None:
            page = pages[given.flavour] = _Tries(given.owner, given.workload)
        return page

    # --- what was seen -----------------------------------------------------------------------------------------------

    def _see(self, seen: _Seen) -> None:
        for flavour, page in self._pages.get(seen.uid, {}).items():
            if seen.decision_id is None:
                page.bare.clear()
                self._prove((seen.uid, flavour), page)
            elif page.see(seen.decision_id) and (seen.uid, flavour) in self.standing:
                del self.standing[seen.uid, flavour]
                log.info("%s %s: pods with our patch are created again", page.workload.kind, page.workload.key)

    def _prove(self, kept: Kept, page: _Tries) -> None:
        """Without the patch a pod is created, so the patch was the reason: now it is told."""
        refusal = self.standing.get(kept)
        if refusal is None or not refusal.lets_in(self._now()):
            return
        if not refusal.is_proven:
            self.standing[kept] = replace(refusal, is_proven=True)
            log.warning("%s %s: %s", page.workload.kind, page.workload.key, refusal.sentence)
        self._tell(page.workload, names.EVENT_REFUSED, refusal.sentence)

    # --- what was not ------------------------------------------------------------------------------------------------

    def _forget(self, uid: str) -> None:
        self._suspects.discard(uid)
        for flavour in self._pages.pop(uid, {}):
            self.standing.pop((uid, flavour), None)

    def _examine(self, uid: str, now: float) -> bool:
        """Whether it asked."""
        pages = self._pages.get(uid, {})
        for page in pages.values():
            page.forget(now - FORGET_SECONDS)
        if not any(page.patched or page.bare for page in pages.values()):
            self._suspects.discard(uid)
        suspicious = [flavour for flavour, page in pages.items() if self._is_suspicious((uid, flavour), page, now)]
        if not suspicious or now < self._asked.get(uid, float("-inf")) + QUIET_SECONDS:
            return False
        self._asked[uid] = now
        owner, workload = pages[suspicious[0]].owner, pages[suspicious[0]].workload
        found = read_refusal(self._ask(owner, workload.namespace))
        for flavour in suspicious if found is not None else ():
            assert found is not None
            self._judge((uid, flavour), pages[flavour], found, now)
        return True

    def _is_suspicious(self, kept: Kept, page: _Tries, now: float) -> bool:
        refusal = self.standing.get(kept)
        if refusal is not None and refusal.is_dismissed(now):
            return False
        is_let_in = refusal is not None and refusal.lets_in(now)
        times = page.bare if is_let_in else page.patched.values()
        return sum(at <= now - UNSEEN_SECONDS for at in times) >= TRIES

    def _judge(self, kept: Kept, page: _Tries, found: PatchRefusal, now: float) -> None:
        """The controller reports it, too. Pods go without the patch; or, where that did not help, with it again."""
        before = self.standing.get(kept)
        if before is not None and before.lets_in(now):
            self.standing[kept] = in_vain(before, now)
            log.info("%s %s: pods without our patch are refused, too", page.workload.kind, page.workload.key)
        elif found.concerns(kept[1].priority_class):
            self.standing[kept] = begun(found, before, now)
            log.info("%s %s: admitting pods unpatched, %s", page.workload.kind, page.workload.key, found.who)
        page.patched.clear()
        page.bare.clear()
        if len(self.standing) > MOST_CONTROLLERS:
            del self.standing[next(iter(self.standing))]


def _drained(queue: deque[T]) -> list[T]:
    """All that is in it now; others go on to fill it."""
    return [queue.popleft() for _ in range(len(queue))]
