"""Carries plans out. It checks again before each write: the plan may be seconds old, and the stores keep changing."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor as Pool
from concurrent.futures import Future, wait
from dataclasses import dataclass
from itertools import groupby, islice
from typing import Protocol

from kube.errors import ApiError
from placement.model import Key, Namespace, Node, Owner, Pod
from placement.outage import Outage
from placement.outcome import Outcome
from placement.plan.actions import Action, How, Plan
from rebalancer.gangbackend import GangBackend, Nominations, PodWrites

log = logging.getLogger(__name__)

# The API server grants ten evictions per second under one budget, however many are requested at once: it sleeps for
# half a second when two writes to the budget collide. Other workloads must not wait for that.
PATIENCE_SECONDS = 0.2
MOST_ENDS = 16
TIDYING = (How.UNDO, How.DELETE, How.UNGATE, How.UNRESERVE)  # also where a namespace has lost its label
RESTS_ON_NOTES = (How.BURY, How.RELEASE, How.REPLACE)  # their replacements are placed according to the noted outages


class Writer(PodWrites, Protocol):
    """The interface of `kube.podwriter.PodWriter`."""

    def annotate(
        self, key: Key, uid: str, annotations: dict[str, str | None], labels: dict[str, str | None] = ...
    ) -> Outcome: ...
    def evict(self, key: Key, uid: str) -> Outcome: ...
    def evict_replaced(self, key: Key, uid: str) -> Outcome: ...
    def evict_waiting(self, key: Key, uid: str) -> Outcome: ...
    def delete(self, key: Key, uid: str, grace_seconds: int | None = None) -> Outcome: ...
    def fail_lost(self, key: Key, uid: str, why: str) -> Outcome: ...
    def hand_over(
        self, pod: Pod, owner: Owner, annotations: dict[str, str | None], labels: dict[str, str | None]
    ) -> Outcome: ...
    def suspend(self, owner: Owner, namespace: str) -> Outcome: ...


class Notebook(Protocol):
    """The interface of the shared state: outages, which webhooks read before they place replacements."""

    def note(self, outages: Sequence[Outage]) -> None: ...
    def end(self, outages: Sequence[Outage]) -> None: ...


@dataclass(frozen=True, slots=True)
class Done:
    """An action and its outcome; None if it was not tried, because the last check failed."""

    action: Action
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class LastLook:
    """The check right before a write, on the stores themselves."""

    is_leading: Callable[[], bool]
    is_paused: Callable[[], bool]
    pod: Callable[[Key], Pod | None]
    node: Callable[[Key], Node | None]
    namespace: Callable[[Key], Namespace | None]
    is_leaving: Callable[[Node], bool] = lambda node: node.is_leaving(())

    def allows(self, action: Action) -> bool:
        """We lead, nothing is paused or opted out, the pod is unchanged, and the pods that the action rests on serve.

        Released pods are put back, or deleted if not wanted, even if the namespace has lost its label. So are gates.
        """
        return (
            self.is_leading()
            and (action.in_every_mode or not self.is_paused())
            and (action.how in TIDYING or self._is_opted_in(action.pod.namespace))
            and self.pod(action.pod.key) == action.pod
            and all(map(self._still_serves, action.rests_on))
        )

    def _is_opted_in(self, name: str) -> bool:
        namespace = self.namespace(Key("", name))
        return namespace is not None and namespace.is_opted_in

    def _still_serves(self, planned: Pod) -> bool:
        """The same pod, on the same node, ready for as long as planned, on a node that stays.

        Annotations may have changed: we write some ourselves.
        """
        pod, node = self.pod(planned.key), self.node(Key("", planned.node))
        if pod is None or node is None:
            return False
        if (pod.uid, pod.node, pod.changed) != (planned.uid, planned.node, planned.changed):
            return False
        return pod.serves and pod.is_live and node.ready and not self.is_leaving(node)


class Executor:
    """Carries out a plan. Actions of one kind run together, kinds one after the other.

    `ends` carries out the ends of moves, which may outlast the pass that began them. At most `most_ends` run at once.
    None is queued, because what it rests on may change meanwhile. `on_progress` is called after every write that the
    pass waited for. `gangs` reserves room for members of gangs and releases them, by nominations if none is given.
    """

    def __init__(
        self,
        writer: Writer,
        notebook: Notebook,
        pool: Pool,
        ends: Pool,
        sight: LastLook,
        most_ends: int = MOST_ENDS,
        patience_seconds: float = PATIENCE_SECONDS,
        on_progress: Callable[[], None] = lambda: None,
        gangs: GangBackend | None = None,
    ) -> None:
        self._writer = writer
        self._gangs = gangs or Nominations(writer)
        self._notebook = notebook
        self._pool = pool
        self._ends = ends
        self._sight = sight
        self._most_ends = most_ends
        self._patience_seconds = patience_seconds
        self._on_progress = on_progress
        self._under_way: dict[str, tuple[Action, Future[Done]]] = {}

    @property
    def under_way(self) -> Collection[str]:
        """UIDs of pods with a write under way, whose outcome `perform` has not returned yet."""
        return self._under_way

    def perform(self, plan: Plan) -> list[Done]:
        """Also returns the outcomes of writes that were under way. Plans leave alone what still is under way.

        Raises ApiError if an outage could not be noted, after all actions that do not depend on it are done.
        """
        if (plan.outages or plan.ended) and not self._sight.is_leading():
            return self._over()
        try:
            if plan.outages:
                self._notebook.note(plan.outages)
            if plan.ended:
                self._notebook.end(plan.ended)
        except ApiError:
            self._carry_out([action for action in plan.actions if action.how not in RESTS_ON_NOTES])
            raise
        return self._carry_out(plan.actions)

    def _carry_out(self, actions: Iterable[Action]) -> list[Done]:
        done: list[Done] = []
        for (how, _), alike in groupby(actions, _phase):
            if how is How.FINISH:
                self._end(alike)
            elif how is How.PREEMPT:
                done += self._one_by_one(alike)
            else:
                done += self._together(alike)
        return [*done, *self._over()]

    def _together(self, actions: Iterable[Action]) -> list[Done]:
        begun = [(action, self._pool.submit(self._one, action)) for action in actions]
        done = []
        for action, future in begun:
            done.append(_done(action, future))
            self._on_progress()
        return done

    def _one_by_one(self, actions: Iterable[Action]) -> list[Done]:
        """Until one is not done: no other victim goes for a gang that does not get its room."""
        done: list[Done] = []
        for action in actions:
            done.append(_done(action, self._pool.submit(self._one, action)))
            self._on_progress()
            if done[-1].outcome not in (Outcome.DONE, Outcome.GONE):
                break
        return done

    def _end(self, actions: Iterable[Action]) -> None:
        """Begins as many ends of moves as may run at once, and waits for a moment. The rest is planned again."""
        free = self._most_ends - sum(not future.done() for _, future in self._under_way.values())
        begun = {action.pod.uid: (action, self._ends.submit(self._one, action)) for action in islice(actions, free)}
        self._under_way |= begun
        wait([future for _, future in begun.values()], self._patience_seconds)

    def _over(self) -> list[Done]:
        """Writes that have ended."""
        over = [(action, future) for action, future in self._under_way.values() if future.done()]
        for action, _ in over:
            del self._under_way[action.pod.uid]
        return [_done(action, future) for action, future in over]

    def _one(self, action: Action) -> Done:
        """The last check, then the write."""
        if not self._sight.allows(action):
            return Done(action, None)
        outcome = self._write(action)
        workload = f"{action.workload.kind} {action.workload.key}" if action.workload is not None else "-"
        log.info("%s %s of %s (%s): %s: %s", action.how, action.pod.key, workload, action.why, action.text, outcome)
        return Done(action, outcome)

    def _write_to_gang(self, action: Action) -> Outcome:
        match action.how:
            case How.RESERVE:
                return self._gangs.reserve(action.pod, action.nodes[0], action.annotations)
            case How.UNRESERVE:
                return self._gangs.unreserve(action.pod, action.annotations)
            case How.START:
                return self._gangs.release(action.pod, action.nodes, action.annotations)
            case How.SUSPEND:
                assert action.owner is not None
                return self._writer.suspend(action.owner, action.pod.namespace)
            case _:
                return self._gangs.ungate(action.pod)

    def _write(self, action: Action) -> Outcome:
        key, uid = action.pod.key, action.pod.uid
        match action.how:
            case How.RELEASE | How.UNDO:
                assert action.owner is not None
                return self._writer.hand_over(action.pod, action.owner, dict(action.annotations), dict(action.labels))
            case How.ANNOTATE:
                return self._writer.annotate(key, uid, dict(action.annotations), dict(action.labels))
            case How.DELETE | How.END:
                return self._writer.delete(key, uid)
            case How.FINISH:
                return self._writer.evict_replaced(key, uid)
            case How.EVICT | How.ROLL_BACK | How.PREEMPT:
                return self._writer.evict(key, uid)
            case How.REPLACE:
                return self._writer.evict_waiting(key, uid)
            case How.BURY:
                return self._writer.fail_lost(key, uid, action.text)
            case _:
                return self._write_to_gang(action)


def _done(action: Action, future: Future[Done]) -> Done:
    """After an unexpected error, this action alone is tried again later. Other outcomes are not lost."""
    error = future.exception()
    if error is None:
        return future.result()
    log.error("%s %s", action.how, action.pod.key, exc_info=error)
    return Done(action, Outcome.BUSY)


def _phase(action: Action) -> tuple[How, str]:
    return action.how, "" if action.how is How.FINISH else str(action.why)
