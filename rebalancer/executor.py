"""Carries plans out. Before each write it looks once more: a plan may be seconds old by then, and the stores go on."""

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

log = logging.getLogger(__name__)

# Evictions under one budget go at ten a second, however many are asked for at once: the API server sleeps for half a
# second where two writes to the budget meet. Nobody else is to wait for that.
PATIENCE_SECONDS = 0.2
MOST_ENDS = 16
RESTS_ON_NOTES = (How.BURY, How.RELEASE, How.REPLACE)  # their replacements are placed by what is noted


class Writer(Protocol):
    """What is asked of `kube.podwriter.PodWriter`."""

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


class Notebook(Protocol):
    """What is asked of the shared state: outages, which webhooks read before they place pods anew."""

    def note(self, outages: Sequence[Outage]) -> None: ...
    def end(self, outages: Sequence[Outage]) -> None: ...


@dataclass(frozen=True, slots=True)
class Done:
    """An action and what came of it; None: it was not tried, because the last look showed something else."""

    action: Action
    outcome: Outcome | None


@dataclass(frozen=True, slots=True)
class LastLook:
    """What is asked right before a write, of the stores themselves."""

    is_leading: Callable[[], bool]
    is_paused: Callable[[], bool]
    pod: Callable[[Key], Pod | None]
    node: Callable[[Key], Node | None]
    namespace: Callable[[Key], Namespace | None]
    is_leaving: Callable[[Node], bool] = lambda node: node.is_leaving(())

    def allows(self, action: Action) -> bool:
        """We lead, nobody has paused or opted out, the pod is what the plan was made for, and what it rests on serves.

        What was released is put back, or deleted where nothing wants it, also where the label is gone.
        """
        return (
            self.is_leading()
            and (action.in_every_mode or not self.is_paused())
            and (action.how in (How.UNDO, How.DELETE) or self._is_opted_in(action.pod.namespace))
            and self.pod(action.pod.key) == action.pod
            and all(map(self._still_serves, action.rests_on))
        )

    def _is_opted_in(self, name: str) -> bool:
        namespace = self.namespace(Key("", name))
        return namespace is not None and namespace.is_opted_in

    def _still_serves(self, planned: Pod) -> bool:
        """The very pod, where it was, ready since when it was, on a node that stays.

        Annotations may have changed: we write some ourselves.
        """
        pod, node = self.pod(planned.key), self.node(Key("", planned.node))
        if pod is None or node is None:
            return False
        if (pod.uid, pod.node, pod.changed) != (planned.uid, planned.node, planned.changed):
            return False
        return pod.ready and pod.is_live and node.ready and not self.is_leaving(node)


class Executor:
    """Does what a plan says. Actions of one kind go out together, kinds one after the other.

    `ends` carries out the ends of moves, which may outlast the pass that began them: `most_ends` at once, and none of
    them waits for a turn, since what it rests on may change meanwhile. `on_progress` hears of every write that the pass
    has waited for.
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
    ) -> None:
        self._writer = writer
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
        """UIDs of pods to which a write has begun whose outcome `perform` has not told yet."""
        return self._under_way

    def perform(self, plan: Plan) -> list[Done]:
        """Also tells what came of what was under way. Whoever plans leaves alone what still is.

        Raises ApiError where an outage could not be noted, when all that does not rest on it is done.
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

    def _end(self, actions: Iterable[Action]) -> None:
        """Begins as many ends of moves as may be under way, and waits for a moment. The rest is planned anew."""
        free = self._most_ends - sum(not future.done() for _, future in self._under_way.values())
        begun = {action.pod.uid: (action, self._ends.submit(self._one, action)) for action in islice(actions, free)}
        self._under_way |= begun
        wait([future for _, future in begun.values()], self._patience_seconds)

    def _over(self) -> list[Done]:
        """What has come to its end."""
        over = [(action, future) for action, future in self._under_way.values() if future.done()]
        for action, _ in over:
            del self._under_way[action.pod.uid]
        return [_done(action, future) for action, future in over]

    def _one(self, action: Action) -> Done:
        """The last look, then the write."""
        if not self._sight.allows(action):
            return Done(action, None)
        outcome = self._write(action)
        workload = f"{action.workload.kind} {action.workload.key}" if action.workload is not None else "-"
        log.info("%s %s of %s (%s): %s: %s", action.how, action.pod.key, workload, action.why, action.text, outcome)
        return Done(action, outcome)

    def _write(self, action: Action) -> Outcome:
        key, uid = action.pod.key, action.pod.uid
        match action.how:
            case How.RELEASE | How.UNDO:
                assert action.owner is not None
                return self._writer.hand_over(action.pod, action.owner, dict(action.annotations), dict(action.labels))
            case How.ANNOTATE:
                return self._writer.annotate(key, uid, dict(action.annotations), dict(action.labels))
            case How.DELETE:
                return self._writer.delete(key, uid)
            case How.FINISH:
                return self._writer.evict_replaced(key, uid)
            case How.EVICT:
                return self._writer.evict(key, uid)
            case How.REPLACE:
                return self._writer.evict_waiting(key, uid)
            case How.BURY:
                return self._writer.fail_lost(key, uid, action.text)


def _done(action: Action, future: Future[Done]) -> Done:
    """What fails in a way that nobody thought of is tried again later, by itself, and loses no other's outcome."""
    error = future.exception()
    if error is None:
        return future.result()
    log.error("%s %s", action.how, action.pod.key, exc_info=error)
    return Done(action, Outcome.BUSY)


def _phase(action: Action) -> tuple[How, str]:
    return action.how, "" if action.how is How.FINISH else str(action.why)
