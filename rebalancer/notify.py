"""Events on a workload: what was done to its pods, what blocks moves, and what was lost.

Texts name no pods, so that many of them make one Event with a count. What may be over in a moment is reported only
after it has lasted for a while. If five nodes go one after the other, there is one Event: "Lost 6 replicas with 5
nodes". Only a held eviction names its pod: whoever asked for it looks for that pod.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from placement import names
from placement.model import Class, Workload
from placement.outcome import Outcome
from placement.plan.actions import Action, Blocked, How, Plan, Skipped, Why
from placement.plan.assess import Assessment
from placement.plan.ground import Ground
from rebalancer.executor import Done
from report.exposure import Domain, bears_any_pool, exposure
from report.held import HeldEviction, Holding, noted
from report.sentences import moment

LOSS_SECONDS = 2.0  # losses are reported when no further node has gone for this long
EXPOSED_SECONDS = 60.0  # a rollout or a move may leave fewer for a moment
NOBODY: frozenset[tuple[str, str]] = frozenset()  # one shared empty set: each would take 216 bytes

# Blocks that end by themselves are not reported.
_PASSING = frozenset(
    {
        Blocked.UNSETTLED,
        Blocked.UNSLOTTED,
        Blocked.MISSING,
        Blocked.UNREADY,
        Blocked.ROLLOUT,
        Blocked.ROLLED_OUT,
        Blocked.YOUNG,
        Blocked.PROBING,
        Blocked.GATHERING,
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
    How.RELEASE: "Moving a pod{to}: its replacement starts first ({why})",
    How.FINISH: "Evicted a pod after a move: its replacement serves{to}",
    How.UNDO: "Undid the move of a pod: {text}",
    How.EVICT: "Evicted a pod: there is room for its replacement{to} ({why})",
    How.REPLACE: "Evicted a pod that was never scheduled: {text}",
    How.BURY: "Deleted a pod whose node is gone, so that it is replaced at once",
    How.DELETE: "Deleted a released pod: {text}",
}


class Tell(Protocol):
    """The interface of `kube.events.EventWriter`."""

    def __call__(
        self, workload: Workload, /, reason: str, text: str, *, is_warning: bool = ..., is_once: bool = ...
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class Standing:
    """The state of a workload, as far as Events report it."""

    fallback: Class | None = None  # the class that pods of the other class run on
    lost: frozenset[tuple[str, str]] = NOBODY  # UIDs of pods, and the nodes that they were lost with
    exposed: str = ""  # how it would not survive the loss of a pool, if its minimum is declared


def standing_of(found: Assessment) -> Standing:
    soft = (member for member in found.members if names.SOFT in member.pod.annotations and member.site is not None)
    strayed = {
        member.of for member in soft if member.of is not None and member.pod.labels.get(names.CLASS) != member.of
    }
    lost = frozenset((pod.uid, pod.node) for pod in found.lost) if found.lost else NOBODY
    return Standing(min(strayed, default=None), lost, _exposed(found))


def _exposed(found: Assessment) -> str:
    if found.group.availability.is_assumed:
        return ""
    if bears_any_pool(found.standing, found.group.availability):  # as most do
        return ""
    seen = exposure(found.standing, found.group.availability)
    return seen.explain(Domain.POOL) if seen.pool.replicas and not seen.survives(Domain.POOL) else ""


@dataclass(frozen=True, slots=True)
class _Memory:
    """What was reported about a workload, and what is still to be reported and since when."""

    found: Assessment
    standing: Standing
    fallback: Class | None = None  # as reported
    losing: frozenset[tuple[str, str]] = NOBODY  # all losses since there were none
    losing_since: float = 0.0  # when the last of them was seen
    lost: int = 0  # of these: reported
    exposed: str = ""  # as reported
    exposed_since: float = 0.0  # when the present state began
    held: frozenset[tuple[str, str]] = NOBODY  # as reported: UIDs of pods, and what was said

    @property
    def is_waiting(self) -> bool:
        """Time alone may cause a report."""
        return len(self.losing) != self.lost or self.exposed != self.standing.exposed


class Teller:
    """Reports each action, each lasting blocker when it first appears, and each change of a workload once."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._standing: frozenset[tuple[str, str]] = frozenset()
        self._memory: dict[str, _Memory] = {}  # by the workload's UID
        self._found: Mapping[str, Assessment] | None = None  # the assessments of the last look
        self._waiting: set[str] = set()  # workloads with reports that are due later

    def told(self, made: Plan, done: Sequence[Done]) -> None:
        for each in done:
            if each.outcome is Outcome.DONE and each.action.workload is not None and each.action.how in _SENTENCES:
                self._tell(each.action.workload, names.EVENT_MOVED, sentence(each.action), is_warning=False)
        for workload, outage in made.witnesses:
            self._tell(workload, names.EVENT_OUTAGE, outage.sentence)
        blockers = (*made.skipped, *_refused(done))
        standing = {_key(each): each for each in blockers if not _passes(each)}
        for key, skipped in standing.items():
            if key not in self._standing:
                self._tell(skipped.workload, names.EVENT_BLOCKED, f"Not moved ({skipped.why}): {skipped.blocked}")
        self._standing = frozenset(standing)

    def watch(self, found: Mapping[str, Assessment], ground: Ground, now: float, *, is_paused: bool = False) -> None:
        """Fallback and its end, lost replicas, pools whose loss is not survived, held evictions. Looks at changes only.

        If the assessments are those of the last look, only time may have changed something.
        """
        looked: Iterable[str] = self._waiting
        if found is not self._found:
            self._found = looked = found
            for uid in [uid for uid in self._memory if uid not in found]:
                del self._memory[uid]
        self._waiting = set()
        holding = Holding.on(ground, now, is_paused=is_paused)
        for uid in looked:
            before, each = self._memory.get(uid), found[uid]
            if before is not None and before.found is each and not before.is_waiting:
                continue
            is_same = before is not None and before.found is each
            standing = before.standing if before and is_same else standing_of(each)
            known = before or _Memory(each, standing, exposed_since=now)
            after = self._watched(each.group.workload, known, each, standing, now)
            after = self._memory[uid] = after if is_same else self._held(after, each, holding)
            if after.is_waiting:
                self._waiting.add(uid)

    def _watched(
        self, workload: Workload, before: _Memory, found: Assessment, standing: Standing, now: float
    ) -> _Memory:
        changed = standing.exposed != before.standing.exposed
        after = replace(before, found=found, standing=standing, exposed_since=now if changed else before.exposed_since)
        after = self._fallen_back(workload, after)
        after = self._lost(workload, after, now)
        return self._endangered(workload, after, now)

    def _fallen_back(self, workload: Workload, memory: _Memory) -> _Memory:
        where = memory.standing.fallback
        if where and not memory.fallback:
            text = f"Pods that belong on {where.other} run on {where} until {where.other} has room"
            self._tell(workload, names.EVENT_FALLBACK, text)
        if memory.fallback and not where:
            self._tell(workload, names.EVENT_FALLBACK_OVER, "All pods run on their own class again", is_warning=False)
        return memory if where is memory.fallback else replace(memory, fallback=where)

    def _lost(self, workload: Workload, memory: _Memory, now: float) -> _Memory:
        if not memory.standing.lost and not memory.losing:
            return memory
        losing = memory.losing | memory.standing.lost
        since = now if losing != memory.losing else memory.losing_since
        is_over = not memory.standing.lost
        told = memory.lost
        if len(losing) > told and (is_over or now - since >= LOSS_SECONDS):
            nodes = len({node for _, node in losing})
            self._tell(
                workload, names.EVENT_LOST, f"Lost {_count(len(losing), 'replica')} with {_count(nodes, 'node')}"
            )
            told = len(losing)
        return replace(memory, losing=NOBODY if is_over else losing, losing_since=since, lost=0 if is_over else told)

    def _endangered(self, workload: Workload, memory: _Memory, now: float) -> _Memory:
        exposed = memory.standing.exposed
        if exposed == memory.exposed or now - memory.exposed_since < EXPOSED_SECONDS:
            return memory
        if exposed:
            self._tell(workload, names.EVENT_EXPOSED, f"Would not survive the loss of a spot pool: {exposed}")
        else:
            self._tell(workload, names.EVENT_SAFE, "Would survive the loss of any spot pool again", is_warning=False)
        return replace(memory, exposed=exposed)

    def _held(self, memory: _Memory, found: Assessment, holding: Holding) -> _Memory:
        pods = tuple(pod for cohort in found.group.cohorts for pod in (*cohort.pods, *cohort.released))
        asked = tuple(noted(pods))
        if not asked:
            return replace(memory, held=NOBODY) if memory.held else memory
        held = {(each.uid, held_text(each)) for each in holding.of(found.group, pods)}
        for _, text in sorted(held - memory.held):
            self._tell(found.group.workload, names.EVENT_HELD, text, is_warning=False, is_once=True)
        there = {pod.uid for pod in asked}
        return replace(memory, held=frozenset(held | {each for each in memory.held if each[0] in there}))


def held_text(held: HeldEviction) -> str:
    """The same whenever it is said: it is said once."""
    asked = f"{held.by} asked at {moment(held.since)}"
    return f"Holds the eviction of pod {held.pod} until enough replicas serve without it; {asked}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _passes(skipped: Skipped) -> bool:
    """It will end soon. So will a budget's refusal to end a move: budgets count replacements a moment late."""
    return skipped.blocked in _PASSING or (skipped.why, skipped.blocked) == (Why.OVER, Blocked.BUDGET)


def _refused(done: Sequence[Done]) -> Iterator[Skipped]:
    """What was refused in this pass still counts as blocked, although it was tried again."""
    for each in done:
        if each.outcome is Outcome.IMPOSSIBLE and each.action.workload is not None:
            yield Skipped(each.action.workload, each.action.why, Blocked.REFUSED)


def sentence(action: Action) -> str:
    """Without names of pods, so that many of them make one Event with a count."""
    if action.how is How.FINISH and action.to is None:
        return f"Evicted a released pod: {action.text}"
    to = "" if action.to is None else f" to {action.to}" if action.how is How.RELEASE else f" on {action.to}"
    return _SENTENCES[action.how].format(to=to, why=action.why, text=action.text)


def _key(skipped: Skipped) -> tuple[str, str]:
    return skipped.workload.uid, f"{skipped.why}/{skipped.blocked}"
