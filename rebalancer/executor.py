"""Carries plans out. Whether we lead is asked before each write; what came of it is told to everybody who cares."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor as Pool
from dataclasses import dataclass
from itertools import groupby
from typing import Protocol

from placement.model import Key, Pod
from placement.outage import Outage
from placement.outcome import Outcome
from placement.plan.actions import Action, How, Plan

log = logging.getLogger(__name__)


class Writer(Protocol):
    """What is asked of `kube.evict.PodWriter`."""

    def annotate(
        self, key: Key, uid: str, annotations: dict[str, str | None], labels: dict[str, str | None] = ...
    ) -> Outcome: ...
    def evict(self, key: Key, uid: str) -> Outcome: ...
    def delete(self, key: Key, uid: str, grace_seconds: int | None = None) -> Outcome: ...
    def fail_lost(self, key: Key, uid: str, why: str) -> Outcome: ...


class Notebook(Protocol):
    """What is asked of the shared state: outages, which webhooks read before they place pods anew."""

    def note(self, outages: Sequence[Outage]) -> None: ...
    def end(self, outages: Sequence[Outage]) -> None: ...


@dataclass(frozen=True, slots=True)
class Done:
    """An action and what came of it; None: it was not tried, because we do not lead or the pod has changed."""

    action: Action
    outcome: Outcome | None


class Executor:
    """Does what a plan says. Actions of one kind go out together, kinds one after the other."""

    def __init__(
        self,
        writer: Writer,
        notebook: Notebook,
        pool: Pool,
        *,
        is_leading: Callable[[], bool],
        current: Callable[[Key], Pod | None],
    ) -> None:
        self._writer = writer
        self._notebook = notebook
        self._pool = pool
        self._is_leading = is_leading
        self._current = current

    def perform(self, plan: Plan) -> list[Done]:
        """Raises ApiError where an outage could not be noted: what follows rests on it."""
        if (plan.outages or plan.ended) and not self._is_leading():
            return []
        if plan.outages:
            self._notebook.note(plan.outages)
        if plan.ended:
            self._notebook.end(plan.ended)
        return [done for _, actions in groupby(plan.actions, _phase) for done in self._together(actions)]

    def _together(self, actions: Iterable[Action]) -> Iterable[Done]:
        return self._pool.map(self._one, list(actions))

    def _one(self, action: Action) -> Done:
        """The last look before the write: do we lead, and is the pod still what the plan was made for?"""
        if not self._is_leading() or self._current(action.pod.key) != action.pod:
            return Done(action, None)
        outcome = self._write(action)
        workload = f"{action.workload.kind} {action.workload.key}" if action.workload is not None else "-"
        log.info("%s %s of %s (%s): %s: %s", action.how, action.pod.key, workload, action.why, action.text, outcome)
        return Done(action, outcome)

    def _write(self, action: Action) -> Outcome:
        key, uid = action.pod.key, action.pod.uid
        match action.how:
            case How.ANNOTATE | How.RELEASE | How.UNDO:
                return self._writer.annotate(key, uid, dict(action.annotations), dict(action.labels))
            case How.FINISH if action.workload is None:  # deleted with its workload, had it not been released
                return self._writer.delete(key, uid)
            case How.FINISH | How.EVICT | How.REPLACE:
                return self._writer.evict(key, uid)
            case How.BURY:
                return self._writer.fail_lost(key, uid, action.text)


def _phase(action: Action) -> tuple[How, str]:
    return action.how, str(action.why)
