"""The loop: stores → index → plan → re-check → actions → outcomes.

It wakes when something changes, gathers changes for a moment, and looks at waiting workloads once a second, because
time passes too. Every few minutes it assesses all workloads again, in case an event was missed. A pass is kept short:
the next one follows at once, does what is left, and sees what has happened meanwhile.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import uniform
from threading import Event

from placement.gang.losses import Losses
from placement.gang.retries import Retries
from placement.observation import NOTHING_OBSERVED, Observed
from placement.outage import Outages
from placement.plan.actions import Plan
from placement.plan.gathering import Gathering
from placement.plan.scene import Scene
from placement.plan.select import plan
from rebalancer.executor import Done, Executor
from rebalancer.expectations import Expectations
from rebalancer.index import Index
from rebalancer.pulse import Pulse

log = logging.getLogger(__name__)

BATCH_SECONDS = 0.05
TICK_SECONDS = 1.0
GATHERING_SECONDS = 0.1  # the same while pods of leaving nodes wait for the last of these
SWEEP_SECONDS = 300.0
MOST_NOTES = 100  # annotations per pass, which cannot be interrupted: half a second at 200 per second
BACK_OFF_SECONDS = (1.0, 2.0, 4.0, 8.0, 15.0)


@dataclass(frozen=True, slots=True)
class Watched:
    """What the loop needs from the rest of the program."""

    is_current: Callable[[], bool]  # the stores are synced, and hear from the API server
    is_leading: Callable[[], bool]
    outages: Callable[[], Outages]
    is_paused: Callable[[float], bool]
    observed: Callable[[], Observed] = lambda: NOTHING_OBSERVED
    now: Callable[[], float] = time.time
    timer: Callable[[], float] = time.monotonic


class Loop:
    """One rebalancer's work. `tell` is called after every pass with the plan, its outcomes and both durations.

    Set `wake` to start a pass before the second is over.
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
        self._expectations = Expectations(watched.timer)
        self._gathering = Gathering()
        self._retries = Retries(uniform)
        self._losses = Losses()
        self._swept = float("-inf")

    def run(self) -> None:
        """Runs until `stop`. The program's second boundary: errors are logged, and passes retried with back-off."""
        failures = 0
        while not self._stopping.is_set():
            self._wake.wait(GATHERING_SECONDS if self._gathering.is_waiting else TICK_SECONDS)
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
        """One pass. None if the stores are not current: a failed read is never an empty read."""
        self._index.drain()  # even before all is read: a whole cluster in a queue would keep its memory
        if not self._watched.is_current():
            return None
        now, began = self._watched.now(), self._watched.timer()
        is_leading = self._watched.is_leading()
        self._index.drain()
        is_due = began - self._swept >= SWEEP_SECONDS
        self._index.refresh(now, all_of_them=is_due)
        self._swept = began if is_due else self._swept
        freed = self._index.freed
        made = plan(self.scene(now))
        self._retries.note(made.gangs, freed, began)
        possible = self._expectations.possible(made.actions, self._executor.under_way)
        made = replace(made, actions=tuple(possible))
        planned = self._watched.timer()
        done = self._executor.perform(made if is_leading else Plan())
        self._expectations.remember(done, now, self._index.assessments, self._index.ground)
        if made.left and done:
            self._wake.set()
        self._tell(made, done, planned - began, self._watched.timer() - began)
        return made

    def scene(self, now: float) -> Scene:
        """The input of a plan, now."""
        index, expectations = self._index, self._expectations
        gangs = [expectations.foreseen(gang) for gang in (*index.restless_gangs(), *index.guarded_gangs())]
        marked = index.marked
        return Scene(
            [expectations.settled(each) for each in index.restless(expectations.awaiting_successors())],
            index.ground,
            index.used,
            now,
            self._watched.outages(),
            index.lost,
            index.budgets_of,
            index.is_awaited,
            expectations.proofs(),
            expectations.recent(),
            expectations.evicted(),
            self._watched.is_paused(now),
            index.waiting,
            expectations.held(),
            MOST_NOTES,
            index.sizes,
            index.neighbours,
            index.left_behind(),
            self._gathering.nodes(index.ground, self._watched.timer()),
            index.is_denied,
            gangs,
            self._retries.resting(gangs, index.freed, self._watched.timer()),
            index.nominated,
            [pod for pod in index.strays if not expectations.awaits(pod)],
            index.candidates,
            index.service_of,
            self._watched.observed(),
            list(marked.values()),
            expectations.marking(marked),
            expectations.preempted(),
            self._retries.restarts(),
            self._losses.lasting(gangs, self._watched.timer()),
            index.losses_of,
            index.quotas_in,
        )
