"""What is reported of gangs: Events on what owns their members, state changes only; and figures for metrics.

A gang is no object of the API, so its Events are written on the Job, Deployment or StatefulSet of its members, on each
where there are several, and on a pod where none owns it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from placement import names
from placement.gang.gang import Gang, GangStatus, State
from placement.gang.terms import sentence
from placement.lack import Lack
from placement.model import Key, Pod, Subject
from placement.outcome import Outcome
from placement.plan.actions import How, Plan
from rebalancer.executor import Done

ASSEMBLING_SECONDS = 60.0  # members may come slowly; a gang that lacks some for so long is reported
MOST_SUBJECTS = 3
MOST_TOLD = 100  # texts of a gang that are remembered


class TellSubject(Protocol):
    """The interface of `kube.events.EventWriter`."""

    def __call__(self, about: Subject, /, reason: str, text: str, *, is_warning: bool = ...) -> None: ...


class Figures(Protocol):
    """The interface of `rebalancer.metrics.RebalancerMetrics`."""

    def count_gangs(self, states: Mapping[State, int], late: int = ...) -> None: ...
    def attempted(self, outcome: str, lack: Lack | None = ...) -> None: ...
    def started(self, seconds: float) -> None: ...
    def rolled_back(self) -> None: ...
    def preempting(self, outcome: str) -> None: ...
    def preempted(self, pods: int) -> None: ...


@dataclass(frozen=True, slots=True)
class _GangMemory:
    """A gang as it was last seen, and what was reported of it."""

    state: State
    since: float  # of this state
    complete: float | None = None  # since when all members were there, none of them started
    told: frozenset[str] = frozenset()
    needed: int = 0


class GangNews:
    """Told after each pass of the leader. A new leader knows nothing, and reports what still is so."""

    def __init__(
        self,
        tell: TellSubject,
        figures: Figures,
        subject_of: Callable[[Pod], Subject],
        members: Callable[[Key], Collection[Pod]] = lambda _key: (),
    ) -> None:
        """`members` are those of a gang that are there, also those that have ended."""
        self._tell = tell
        self._figures = figures
        self._subject_of = subject_of
        self._members = members
        self._memory: dict[Key, _GangMemory] = {}

    def watch(self, made: Plan, gangs: Mapping[Key, Gang], now: float) -> None:
        """`made.gangs` are those that wait or start; the others run."""
        for status in made.gangs:
            self._see(status, now)
        restless = {status.gang.key for status in made.gangs}
        for key in [key for key in self._memory if key not in restless]:
            self._settle(key, gangs.get(key), now)
        states = Counter(status.state for status in made.gangs)
        states[State.RUNNING] += len(gangs.keys() - restless)
        self._figures.count_gangs(states, sum(status.is_late for status in made.gangs))

    def tell_victims(self, done: Sequence[Done]) -> None:
        """Each owner of pods that went for a gang is told once per pass."""
        gone = [each.action for each in done if each.action.how is How.PREEMPT and each.outcome is Outcome.DONE]
        self._figures.preempted(len(gone))
        told = dict.fromkeys((self._subject_of(action.pod), f"Evicted a pod: {action.text}") for action in gone)
        for subject, text in told:
            self._tell(subject, names.EVENT_GANG_PREEMPTED, text, is_warning=True)

    def _see(self, status: GangStatus, now: float) -> None:
        gang = status.gang
        before = self._memory.get(gang.key)
        if status.state is State.RUNNING and before is not None and before.state is not State.RUNNING:
            self._tell_started(gang, before, now)
        is_same = before is not None and before.state is status.state
        known = before if before is not None and is_same else _GangMemory(status.state, now)
        if before is not None and not is_same:
            known = replace(known, complete=before.complete, told=before.told)
        self._count(status, is_same=is_same)
        waits = status.state in (State.WAITING, State.EVICTING, State.RESERVED) and not gang.started
        known = replace(known, complete=(known.complete or now) if waits or gang.started else None)
        is_new = before is None and bool(gang.started)  # it began under another leader
        if is_new or status.state in (State.RUNNING, State.RESTARTING, State.FAILING):
            known = replace(known, complete=None)
        told = known.told if len(known.told) < MOST_TOLD else frozenset()
        known = replace(known, told=told, needed=gang.needed or len(gang.pods))
        for reason, text in _news(status, now - known.since):
            if text not in known.told:
                known = replace(known, told=known.told | {text})
                self._say(gang.pods, reason, text)
        self._memory[gang.key] = known

    def _count(self, status: GangStatus, *, is_same: bool) -> None:
        """For metrics. `is_same`: it was in this state before."""
        if status.was_tried:
            self._figures.attempted("no-room", status.lack)
        if is_same:
            return
        if status.state is State.ROLLING_BACK:
            self._figures.rolled_back()
        if status.was_given_up:
            self._figures.preempting("given-up")
        if status.state is State.EVICTING:
            self._figures.preempting("begun")
            self._figures.attempted("preempting")
        if status.state is State.RESERVED and not status.gang.reservations:
            self._figures.attempted("reserved")

    def _settle(self, key: Key, gang: Gang | None, now: float) -> None:
        """All of its members are on nodes, or it is gone."""
        before = self._memory.pop(key)
        if gang is not None and before.state is not State.RUNNING:
            self._tell_started(gang, before, now)
        elif before.complete is not None and before.state is not State.RUNNING:
            self._tell_ended(key, before, now)

    def _tell_started(self, gang: Gang, before: _GangMemory, now: float) -> None:
        if len(gang.running) + gang.done < gang.needed or gang.gated:
            return
        if before.complete is not None:
            self._figures.started(now - before.complete)
        text = f"Gang {gang.key.name}: all {len(gang.running) + gang.done} members have a node"
        self._say(gang.pods, names.EVENT_GANG_STARTED, text, is_warning=False)

    def _tell_ended(self, key: Key, before: _GangMemory, now: float) -> None:
        """It has started, and has succeeded before that was seen: its members ran for less than a moment."""
        done = [pod for pod in self._members(key) if pod.phase == "Succeeded" and pod.created <= before.since]
        if len(done) >= before.needed > 0:
            assert before.complete is not None
            self._figures.started(now - before.complete)
            text = f"Gang {key.name}: all {len(done)} members have had a node, and have succeeded"
            self._say(done, names.EVENT_GANG_STARTED, text, is_warning=False)

    def _say(self, pods: Sequence[Pod], reason: str, text: str, *, is_warning: bool = True) -> None:
        subjects = dict.fromkeys(self._subject_of(pod) for pod in pods[:1000])
        of_owners = [each for each in subjects if each.kind != "Pod"] or list(subjects)[:1]
        for subject in of_owners[:MOST_SUBJECTS]:
            self._tell(subject, reason, text, is_warning=is_warning)


def _is_waiting(status: GangStatus, seconds: float) -> bool:
    if status.gang.is_guarded:
        return False  # the scheduler says so on the pod itself
    is_slow = status.state is State.ASSEMBLING and seconds >= ASSEMBLING_SECONDS
    return is_slow or (status.state is State.WAITING and status.was_tried)


def _news(status: GangStatus, seconds: float) -> Iterator[tuple[str, str]]:
    """What is to be reported in this state, each once; `seconds` is for how long it has lasted."""
    name = f"Gang {status.gang.key.name}"
    for mistake in status.gang.declared.mistakes:
        yield names.EVENT_GANG_MISTAKE, f"{name}: {sentence(mistake)}"
    for reason, text in status.news:
        yield reason, f"{name}: {text}"
    if status.state is State.BLOCKED:
        yield names.EVENT_GANG_BLOCKED, f"{name} does not start: {status.reason}"
    elif status.was_given_up or (status.state is State.EVICTING and not seconds):
        yield names.EVENT_GANG_PREEMPTING, f"{name}: {status.reason}"
    elif _is_waiting(status, seconds):
        yield names.EVENT_GANG_WAITING, f"{name} waits: {status.reason}"
    elif status.state is State.ROLLING_BACK:
        yield names.EVENT_GANG_UNDONE, f"{name} is rolled back: {status.reason}"
    if status.is_late:
        yield names.EVENT_GANG_LATE, f"{name} waits for longer than its {names.POD_GROUP_WAIT_TIMEOUT}"
