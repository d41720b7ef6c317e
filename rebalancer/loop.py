"""The loop: stores → index → plan → re-check → actions → outcomes.

It wakes when something has changed, gathers changes for a moment, and looks at the rest once a second, because time
passes too. Every few minutes it looks at everything anew, as a net for what no event told. A pass is kept short: what
it leaves is done in the next one, which follows at once, and sees what has happened meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Event

from placement import names
from placement.backoff import doubled
from placement.model import Pod
from placement.outage import Outages
from placement.outcome import Outcome
from placement.plan.actions import Action, How, Plan, Why
from placement.plan.assess import Assessment
from placement.plan.group import Evicted, evicted, former_slot, policy_mark, seat
from placement.plan.scene import Scene, Target, target
from placement.plan.select import plan
from rebalancer.executor import Done, Executor
from rebalancer.index import Index
from rebalancer.pulse import Pulse

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.05
TICK_SECONDS = 1.0
SWEEP_SECONDS = 300.0
MINUTE = 60.0
MOST_NOTES = 100  # annotations in a pass, which cannot be interrupted: half a second at 200 a second
EXPECTED_SECONDS = 5.0
BACK_OFF_SECONDS = (1.0, 2.0, 4.0, 8.0, 15.0)
BLOCKED_SECONDS = 2.0  # until an action that was not possible is tried again; doubled each time
LONGEST_BLOCKED_SECONDS = 60.0
REMEMBERED_SECONDS = 2 * 86_400.0  # longer than any cool-down
ENDS = (How.FINISH, How.UNDO, How.DELETE)  # of releases


@dataclass(frozen=True, slots=True)
class Watched:
    """What the loop asks of the world around it."""

    is_current: Callable[[], bool]  # the stores are synced, and hear from the API server
    is_leading: Callable[[], bool]
    outages: Callable[[], Outages]
    is_paused: Callable[[float], bool]
    now: Callable[[], float] = time.time
    timer: Callable[[], float] = time.monotonic


@dataclass(frozen=True, slots=True)
class FailedWrite:
    """A write that did not succeed: how often in a row, when it may be tried again, what came of it."""

    tries: int
    due: float
    outcome: Outcome


class Loop:
    """One rebalancer's work. `tell` hears of every pass: the plan, what came of it, and how long both took.

    Whoever sets `wake` wants to be heard before the second is over.
    """

    def __init__(
        self,
        index: Index,
        executor: Executor,
        watched: Watched,
        tell: Callable[[Plan, Sequence[Done], float, float], None],
        wake: Event | None = None,
        pulse: Pulse | None = None,
    ) -> None:
        self._index = index
        self._executor = executor
        self._watched = watched
        self._tell = tell
        self._wake = wake or Event()
        self._pulse = pulse or Pulse()
        self._stopping = Event()
        self._begun: deque[float] = deque()
        self._proofs: dict[Target, float] = {}
        self._expected: dict[str, tuple[Action, float]] = {}  # by UID: what we did, until when we wait to see it
        self._failed: dict[tuple[str, How], FailedWrite] = {}  # by UID and what was tried
        self._evicted: dict[str, Evicted] = {}  # by seat
        self._released: dict[str, tuple[Why, float]] = {}  # by UID: why, and when
        self._swept = float("-inf")

    def run(self) -> None:
        """Goes on until `stop`. The program's second boundary: what fails is told, and tried again, later each time."""
        failures = 0
        while not self._stopping.is_set():
            self._wake.wait(TICK_SECONDS)
            self._wake.clear()
            self._stopping.wait(BATCH_SECONDS)
            try:
                self.once()
                self._pulse.work()
                failures = 0
            except Exception:  # the boundary
                self._pulse.fail()
                log.exception("a pass failed")
                self._stopping.wait(BACK_OFF_SECONDS[min(failures, len(BACK_OFF_SECONDS) - 1)])
                failures += 1

    def stop(self) -> None:
        self._stopping.set()
        self._wake.set()

    def once(self) -> Plan | None:
        """One pass. None where nothing may be concluded: a failed read is never an empty read."""
        self._index.drain()  # also before all is read: a whole cluster that waits in a queue takes room for ever
        if not self._watched.is_current():
            return None
        now, began = self._watched.now(), self._watched.timer()
        is_leading = self._watched.is_leading()
        self._index.drain()
        is_due = began - self._swept >= SWEEP_SECONDS
        self._index.refresh(now, all_of_them=is_due)
        self._swept = began if is_due else self._swept
        made = plan(self.scene(now))
        made = replace(made, actions=tuple(map(self._reasoned, self._possible(made.actions))))
        planned = self._watched.timer()
        done = self._executor.perform(made if is_leading else Plan())
        self._remember(done, now)
        if made.left and done:
            self._wake.set()
        self._tell(made, done, planned - began, self._watched.timer() - began)
        return made

    def scene(self, now: float) -> Scene:
        """What a plan is made from now."""
        index = self._index
        while self._begun and self._begun[0] < self._watched.timer() - MINUTE:
            self._begun.popleft()
        return Scene(
            [self._settled(each) for each in index.restless],
            index.ground,
            index.used,
            now,
            self._watched.outages(),
            index.lost,
            index.budgets_of,
            index.is_awaited,
            dict(self._proofs),
            len(self._begun),
            dict(self._evicted),
            self._watched.is_paused(now),
            index.waiting,
            self._held(),
            MOST_NOTES,
            index.sizes,
            index.neighbours,
            index.left_behind(),
        )

    # --- what we did, and have not seen yet --------------------------------------------------------------------------

    def _settled(self, found: Assessment) -> Assessment:
        """Without wishes while a write of ours to one of its pods was not seen yet: the picture is old."""
        if not self._expected or not any(self._is_expected(pod) for pod in _pods(found)):
            return found
        return replace(found, notes=(), sweeps=(), wishes=(), lost=())

    def _is_expected(self, pod: Pod) -> bool:
        expected = self._expected.get(pod.uid)
        if expected is None:
            return False
        action, until = expected
        if not _is_seen(action, pod) and self._watched.timer() < until:
            return True
        del self._expected[pod.uid]
        return False

    def _held(self) -> dict[tuple[str, How], Outcome]:
        """What failed, and is not due yet: the plan leaves it out, and gives its place to others."""
        timer = self._watched.timer()
        return {tried: failed.outcome for tried, failed in self._failed.items() if timer < failed.due}

    def _possible(self, actions: Sequence[Action]) -> Iterator[Action]:
        """Without those that were done and not seen yet, or (what workloads left over) failed a moment ago.

        Pods whose end is under way are left alone as well. It counts as a move until it is over, as before. An end that
        the last leader began may still be under way, too: it harms no pod that is put back (`evict_replaced`).
        """
        held, under_way = self._held(), self._executor.under_way
        for action in actions:
            is_held = (action.pod.uid, action.how) in held
            if not is_held and action.pod.uid not in under_way and not self._is_expected(action.pod):
                yield action

    def _reasoned(self, action: Action) -> Action:
        """The end of a move has the reason of its beginning. After a restart nobody knows it: pods do not carry it."""
        known = self._released.get(action.pod.uid)
        is_end = action.how in ENDS and action.why is Why.OVER
        return replace(action, why=known[0]) if is_end and known is not None else action

    def _remember(self, done: Sequence[Done], now: float) -> None:
        timer = self._watched.timer()
        for each in done:
            uid = each.action.pod.uid
            if each.outcome is Outcome.DONE:
                self._expected[uid] = (each.action, timer + EXPECTED_SECONDS)
                self._failed.pop((uid, each.action.how), None)
                if each.action.how in (How.RELEASE, How.EVICT):
                    self._begun.append(timer)
                if each.action.how is How.RELEASE:
                    self._released[uid] = (each.action.why, now)
                elif each.action.how in ENDS:
                    self._released.pop(uid, None)
                if each.action.how is How.EVICT and each.action.workload is not None:
                    self._evicted[seat(each.action.workload, each.action.pod)] = self._mark(each.action, now)
                if each.action.how is How.FINISH:
                    self._prove(each.action, now)
            elif each.outcome is not None and each.outcome is not Outcome.GONE:
                before = self._failed.get((uid, each.action.how))
                tries = before.tries if before is not None else 0
                wait = doubled(BLOCKED_SECONDS, tries, LONGEST_BLOCKED_SECONDS)
                self._failed[uid, each.action.how] = FailedWrite(tries + 1, timer + wait, each.outcome)
        self._tidy(timer, now)

    def _prove(self, action: Action, now: float) -> None:
        """A replacement serves where it should: others that prefer the same may follow."""
        found = self._index.assessments.get(action.workload.uid) if action.workload is not None else None
        if found is not None and action.to is not None:
            aim = target(found.group, former_slot(action.pod), action.pod, self._index.ground)
            if aim[0] is action.to:
                self._proofs[aim] = now

    def _mark(self, action: Action, now: float) -> Evicted:
        assert action.workload is not None
        policy = policy_mark(self._index.assessments[action.workload.uid].group.policy.slots)
        before = self._evicted.get(seat(action.workload, action.pod)) or evicted(action.pod)
        is_again = before is not None and (before.origin, before.policy) == (str(action.origin), policy)
        tries = before.tries + 1 if before is not None and is_again else 0
        return Evicted(str(action.origin), policy, now, tries, action.pod.uid)

    def _tidy(self, timer: float, now: float) -> None:
        """Forgets pods that nobody asks about any more."""
        for uid in [uid for uid, (_, until) in self._expected.items() if until < timer]:
            del self._expected[uid]
        for tried in [tried for tried, each in self._failed.items() if each.due + LONGEST_BLOCKED_SECONDS < timer]:
            del self._failed[tried]
        for uid in [uid for uid, (_, at) in self._released.items() if at + REMEMBERED_SECONDS < now]:
            del self._released[uid]
        for aim in [aim for aim, at in self._proofs.items() if at + REMEMBERED_SECONDS < now]:
            del self._proofs[aim]
        for where in [where for where, before in self._evicted.items() if before.at + REMEMBERED_SECONDS < now]:
            del self._evicted[where]


def _pods(found: Assessment) -> Iterator[Pod]:
    for cohort in found.group.cohorts:
        yield from cohort.pods
        yield from cohort.released


def _is_seen(action: Action, pod: Pod) -> bool:
    """Whether the picture of a pod shows what was done to it; that it differs may be somebody else's doing."""
    if action.how in (How.ANNOTATE, How.RELEASE, How.UNDO):
        written = (*action.annotations.items(), *action.labels.items())
        shown = {**pod.labels, **pod.annotations, names.DECISION: pod.decision}
        return all(shown.get(key) == value for key, value in written)
    return pod.terminating or pod.phase in ("Failed", "Succeeded")
