"""What a workload's owner is told in Events: what was done to its pods, what stands in the way of more, what was lost.

Texts name no pods, so that many of them make one Event with a count. What may be over in a moment is told when it has
stood for a while: of five nodes that go one after the other the owner reads once, "lost 6 replicas with 5 nodes".
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
from placement.plan.group import Ground
from rebalancer.executor import Done
from report.exposure import Domain, Place, exposure, places

LOSS_SECONDS = 2.0  # no more nodes went with the others for so long: what was lost is told
EXPOSED_SECONDS = 60.0  # a rollout or a move may leave fewer for a moment
NOBODY: frozenset[tuple[str, str]] = frozenset()  # the one empty set: each of its own takes 216 bytes

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
    How.RELEASE: "Moving a pod{to}: its replacement starts first ({why})",
    How.FINISH: "Evicted a pod after a move: its replacement serves{to}",
    How.UNDO: "Undid the move of a pod: {text}",
    How.EVICT: "Evicted a pod: there is room for its replacement{to} ({why})",
    How.REPLACE: "Evicted a pod that was never scheduled: {text}",
    How.BURY: "Deleted a pod whose node is gone, so that it is replaced at once",
    How.DELETE: "Deleted a released pod: {text}",
}


class Tell(Protocol):
    """What is asked of `kube.events.EventWriter`."""

    def __call__(self, workload: Workload, reason: str, text: str, *, is_warning: bool = ...) -> None: ...


@dataclass(frozen=True, slots=True)
class Standing:
    """How a workload stands, as far as its owner is told."""

    fallback: Class | None = None  # that pods run on which belong on the other one
    lost: frozenset[tuple[str, str]] = NOBODY  # UIDs of pods, and the nodes that they went with
    exposed: str = ""  # how it would not survive the loss of a pool, where somebody declared how many must serve


def standing_of(found: Assessment, where: Mapping[str, Place]) -> Standing:
    soft = (member for member in found.members if names.SOFT in member.pod.annotations and member.site is not None)
    strayed = {
        member.of for member in soft if member.of is not None and member.pod.labels.get(names.CLASS) != member.of
    }
    lost = frozenset((pod.uid, pod.node) for pod in found.lost) if found.lost else NOBODY
    return Standing(min(strayed, default=None), lost, _exposed(found, where))


def _exposed(found: Assessment, where: Mapping[str, Place]) -> str:
    if found.group.availability.is_assumed:
        return ""
    seen = exposure(
        (where[member.pod.node] for member in found.members if member.serves and member.pod.node in where),
        found.group.availability,
    )
    return seen.explain(Domain.POOL) if seen.pool.replicas and not seen.survives(Domain.POOL) else ""


@dataclass(frozen=True, slots=True)
class _Memory:
    """What a workload's owner was told, and what is yet to be told and since when."""

    found: Assessment
    standing: Standing
    fallback: Class | None = None  # told
    losing: frozenset[tuple[str, str]] = NOBODY  # since there were none
    losing_since: float = 0.0  # when the last of them was seen
    lost: int = 0  # of these: told
    exposed: str = ""  # told
    exposed_since: float = 0.0  # since when it stands as it does

    @property
    def is_waiting(self) -> bool:
        """Time alone may change what is told."""
        return len(self.losing) != self.lost or self.exposed != self.standing.exposed


class Teller:
    """Tells each action, and each standing blocker when it first stands; and what befalls a workload, once."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._standing: frozenset[tuple[str, str]] = frozenset()
        self._memory: dict[str, _Memory] = {}  # by the workload's UID
        self._found: Mapping[str, Assessment] | None = None  # the picture that was last looked at
        self._waiting: set[str] = set()  # of whom there will be more to tell, by and by
        self._ground: Ground | None = None
        self._where: Mapping[str, Place] = {}

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

    def watch(self, found: Mapping[str, Assessment], ground: Ground, now: float) -> None:
        """Fallback and its end, replicas that went with nodes, and pools that must not go. Looks only at changes.

        Where the picture is the one that was last looked at, time alone may have changed something.
        """
        looked: Iterable[str] = self._waiting
        if found is not self._found:
            self._found = looked = found
            for uid in [uid for uid in self._memory if uid not in found]:
                del self._memory[uid]
        self._waiting = set()
        for uid in looked:
            before, each = self._memory.get(uid), found[uid]
            if before is not None and before.found is each and not before.is_waiting:
                continue
            is_same = before is not None and before.found is each
            standing = before.standing if before and is_same else standing_of(each, self._places(ground))
            known = before or _Memory(each, standing, exposed_since=now)
            after = self._memory[uid] = self._watched(each.group.workload, known, each, standing, now)
            if after.is_waiting:
                self._waiting.add(uid)

    def _places(self, ground: Ground) -> Mapping[str, Place]:
        """Of all nodes; made anew when a node is another one."""
        if self._ground is not ground:
            nodes = {name: site.node for name, site in ground.sites.items()}
            self._ground, self._where = ground, places(nodes, ground.configuration)
        return self._where

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
        return replace(memory, fallback=where)

    def _lost(self, workload: Workload, memory: _Memory, now: float) -> _Memory:
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


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


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
    if action.how is How.FINISH and action.to is None:
        return f"Evicted a released pod: {action.text}"
    to = "" if action.to is None else f" to {action.to}" if action.how is How.RELEASE else f" on {action.to}"
    return _SENTENCES[action.how].format(to=to, why=action.why, text=action.text)


def _key(skipped: Skipped) -> tuple[str, str]:
    return skipped.workload.uid, f"{skipped.why}/{skipped.blocked}"
