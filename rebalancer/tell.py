"""What a workload's owner is told in Events: what was done to its pods, and what stands in the way of more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from placement import names
from placement.model import Workload
from placement.outcome import Outcome
from placement.plan.actions import Action, Blocked, How, Plan, Skipped, Why
from rebalancer.executor import Done

# What passes by itself is no news.
_PASSING = frozenset(
    {
        Blocked.UNSETTLED,
        Blocked.ROLLOUT,
        Blocked.YOUNG,
        Blocked.PROBING,
        Blocked.WAITING,
        Blocked.PER_WORKLOAD,
        Blocked.PER_NODE,
        Blocked.PER_NAMESPACE,
        Blocked.IN_ALL,
        Blocked.PER_MINUTE,
        Blocked.BUSY,
    }
)
_SENTENCES = {
    How.RELEASE: "Moving a pod{to}: its replacement comes first ({why})",
    How.FINISH: "The replacement serves{to}: evicted the pod that it replaces",
    How.UNDO: "Put a pod back: {text}",
    How.EVICT: "Evicted a pod for which there is a place{to} ({why})",
    How.REPLACE: "Created an unschedulable pod anew ({why})",
    How.BURY: "Deleted a pod whose node is gone, to have it replaced at once",
}


class Tell(Protocol):
    """What is asked of `kube.events.EventWriter`."""

    def __call__(self, workload: Workload, reason: str, text: str, *, is_warning: bool = ...) -> None: ...


class Teller:
    """Tells each action, and each standing blocker when it first stands."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._standing: frozenset[tuple[str, str]] = frozenset()

    def told(self, made: Plan, done: Sequence[Done]) -> None:
        for each in done:
            if each.outcome is Outcome.DONE and each.action.workload is not None and each.action.how in _SENTENCES:
                self._tell(each.action.workload, names.EVENT_MOVED, sentence(each.action), is_warning=False)
        blockers = (*made.skipped, *_refused(done))
        standing = {_key(each): each for each in blockers if not _passes(each)}
        for key, skipped in standing.items():
            if key not in self._standing:
                self._tell(skipped.workload, names.EVENT_BLOCKED, f"Not moved ({skipped.why}): {skipped.blocked}")
        self._standing = frozenset(standing)


def _passes(skipped: Skipped) -> bool:
    """It will be over soon. So will a budget that forbids the end of a move: it counts replacements a moment late."""
    return skipped.blocked in _PASSING or (skipped.why, skipped.blocked) == (Why.OVER, Blocked.BUDGET)


def _refused(done: Sequence[Done]) -> Iterator[Skipped]:
    """What was refused in this very pass stands as before, though it was tried again."""
    for each in done:
        if each.outcome is Outcome.IMPOSSIBLE and each.action.workload is not None:
            yield Skipped(each.action.workload, each.action.why, Blocked.REFUSED)


def sentence(action: Action) -> str:
    """Without names of pods, so that many of them make one Event with a count."""
    to = "" if action.to is None else f" to {action.to}" if action.how is not How.FINISH else f" on {action.to}"
    return _SENTENCES[action.how].format(to=to, why=action.why, text=action.text)


def _key(skipped: Skipped) -> tuple[str, str]:
    return skipped.workload.uid, f"{skipped.why}/{skipped.blocked}"
