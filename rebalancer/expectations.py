"""What was done and is not seen yet, what failed a moment ago, and what is remembered of moves between passes.

Stores lag behind our own writes. Until a write is seen, its workload is left alone, five seconds at most, so that no
pass acts twice on an old picture. An eviction takes a serving pod away: it is waited for much longer, and also where
the API server gave no answer, because the pod may have gone all the same. After a restart all of this is empty: pods
carry what a new leader must know.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from placement import names
from placement.backoff import doubled
from placement.gang.claim import claim_of, read_claim
from placement.gang.gang import Gang
from placement.model import FINISHED, Key, Pod
from placement.outcome import Outcome
from placement.plan.actions import DEPARTING, Action, How, Why
from placement.plan.assess import Assessment
from placement.plan.ground import Ground
from placement.plan.group import Group
from placement.plan.marks import Evicted, evicted, former_slot, policy_mark, seat
from placement.plan.scene import HeldBack, Target, target
from rebalancer.executor import Done

MINUTE = 60.0
HOUR = 3600.0
EXPECTED_SECONDS = 5.0
EVICTION_SECONDS = 300.0  # a pod whose eviction was granted does end: an informer that shows it still is late
UNANSWERED_SECONDS = 30.0  # an eviction that got no answer
BLOCKED_SECONDS = 2.0  # until an action that was not possible is tried again; doubled each time
LONGEST_BLOCKED_SECONDS = 60.0
REMEMBERED_SECONDS = 2 * 86_400.0  # longer than any cool-down
ENDS = (How.FINISH, How.UNDO, How.DELETE)  # of releases

K = TypeVar("K")
V = TypeVar("V")
Assessments = Mapping[str, Assessment]  # by the workload's UID


@dataclass(frozen=True, slots=True)
class FailedWrite:
    """A write that did not succeed: how often in a row, when it may be tried again, for which reason, what came of it.

    For another reason it is soon tried again. Example: the eviction of a released pod is blocked until its rollout is
    over. When its ReplicaSet is gone, the pod does not wait for as long as the last tries came to.
    """

    tries: int
    due: float
    due_otherwise: float  # for another reason
    text: str
    outcome: Outcome


class Expectations:
    """The loop's memory. `timer` is monotonic; `now` is the clock's, for what outlasts a process on pods."""

    def __init__(self, timer: Callable[[], float]) -> None:
        self._timer = timer
        self._begun: deque[float] = deque()  # moves, by the timer
        self._expected: dict[str, tuple[Action, float]] = {}  # by UID: what we did, until when we wait to see it
        self._failed: dict[tuple[str, How], FailedWrite] = {}  # by UID and what was tried
        self._released: dict[str, tuple[Why, float]] = {}  # by UID: why, and when
        self._evicted: dict[str, Evicted] = {}  # by seat
        self._preempted: deque[tuple[float, str]] = deque()  # when a pod was evicted for a gang, and its namespace
        self._proofs: dict[Target, float] = {}  # when a move there last succeeded

    # --- for the next plan -------------------------------------------------------------------------------------------

    def settled(self, found: Assessment) -> Assessment:
        """Without wishes while a write of ours to one of its pods was not seen yet: the picture is old."""
        if not self._expected or not any(self._is_expected(pod) for pod in _pods(found)):
            return found
        return replace(found, notes=(), sweeps=(), wishes=(), lost=())

    def foreseen(self, gang: Gang) -> Gang:
        """The gang as it is once our writes are seen; not settled until then. Else its room would be given twice."""
        if not self._expected:
            return gang
        expected = {pod.uid: self._expected[pod.uid][0] for pod in gang.pods if self._is_expected(pod)}
        if not expected:
            return gang
        gated = [_foreseen(pod, expected[pod.uid]) if pod.uid in expected else pod for pod in gang.gated]
        started = tuple(pod for pod in gated if not pod.gates)
        return replace(
            gang,
            gated=tuple(pod for pod in gated if pod.gates),
            starting=(*gang.starting, *started),
            is_settled=False,
        )

    def awaits(self, pod: Pod) -> bool:
        """A write of ours to it is not seen yet."""
        return bool(self._expected) and self._is_expected(pod)

    def marking(self, marked: Mapping[str, Pod]) -> set[Key]:
        """Gangs whose victims we marked, or unmarked, if that is not seen yet; `marked` is what is seen, by UID."""
        found = set()
        for uid, (action, until) in self._expected.items():
            if names.PREEMPTED_BY in action.annotations and self._timer() < until:
                written = action.annotations[names.PREEMPTED_BY]
                claim = claim_of(action.pod) if written is None else read_claim(written)
                if claim is not None and _mark_of(marked.get(uid)) != written:
                    found.add(claim.gang)
        return found

    def preempted(self) -> Counter[str]:
        """Pods that were evicted for gangs within the last hour, by namespace; "": in all."""
        while self._preempted and self._preempted[0][0] < self._timer() - HOUR:
            self._preempted.popleft()
        found = Counter(namespace for _, namespace in self._preempted)
        found[""] = len(self._preempted)
        return found

    def recent(self) -> int:
        """Moves that were begun within the last minute, without those of pods that had to go."""
        while self._begun and self._begun[0] < self._timer() - MINUTE:
            self._begun.popleft()
        return len(self._begun)

    def held(self) -> dict[tuple[str, How], HeldBack]:
        """What failed, and is not due yet: the plan leaves it out, and gives its place to others."""
        timer = self._timer()
        return {
            tried: HeldBack(failed.outcome, None if timer < failed.due_otherwise else failed.text)
            for tried, failed in self._failed.items()
            if timer < failed.due
        }

    def proofs(self) -> dict[Target, float]:
        return dict(self._proofs)

    def evicted(self) -> dict[str, Evicted]:
        return dict(self._evicted)

    def awaiting_successors(self) -> frozenset[str]:
        """UIDs of workloads with a pod that we evicted, whose successor has not helped yet.

        They may be in order otherwise, and are planned for all the same: the successor is to be marked as one, or the
        next pod in its place, after a loss of spot, would be taken for it and wait for a cool-down.
        """
        return frozenset(where.partition("/")[0] for where in self._evicted)

    # --- for the actions of a plan -----------------------------------------------------------------------------------

    def possible(self, actions: Sequence[Action], under_way: Collection[str]) -> Iterator[Action]:
        """Without those that were done and not seen yet, or whose pod's end is under way.

        Such an end counts as a move until it is over, as before. One that the last leader began may still be under way,
        too: it harms no pod that is put back (`evict_replaced`).
        """
        for action in actions:
            if action.pod.uid not in under_way and not self._is_expected(action.pod):
                yield self._reasoned(action)

    def _is_expected(self, pod: Pod) -> bool:
        expected = self._expected.get(pod.uid)
        if expected is None:
            return False
        action, until = expected
        if not _is_seen(action, pod) and self._timer() < until:
            return True
        del self._expected[pod.uid]
        return False

    def _reasoned(self, action: Action) -> Action:
        """The end of a move has the reason of its beginning. After a restart it is not known: pods do not carry it."""
        known = self._released.get(action.pod.uid)
        is_end = action.how in ENDS and action.why is Why.OVER
        return replace(action, why=known[0]) if is_end and known is not None else action

    # --- after they were carried out ---------------------------------------------------------------------------------

    def remember(self, done: Sequence[Done], now: float, assessments: Assessments, ground: Ground) -> None:
        for each in done:
            if each.outcome is Outcome.DONE:
                found = assessments.get(each.action.workload.uid) if each.action.workload is not None else None
                self._expect(each.action, now, None if found is None else found.group, ground)
            elif each.outcome is not None and each.outcome is not Outcome.GONE:
                self._fail(each.action, each.outcome)
                if (each.action.how, each.outcome) == (How.EVICT, Outcome.BUSY):
                    self._expected[each.action.pod.uid] = (each.action, self._timer() + UNANSWERED_SECONDS)
        for where in [where for where, before in self._evicted.items() if _is_over(where, before, assessments)]:
            del self._evicted[where]
        self._tidy(now)

    def _expect(self, action: Action, now: float, group: Group | None, ground: Ground) -> None:
        uid, timer = action.pod.uid, self._timer()
        patience = EVICTION_SECONDS if action.how is How.EVICT else EXPECTED_SECONDS
        self._expected[uid] = (action, timer + patience)
        self._failed.pop((uid, action.how), None)
        if action.how in (How.RELEASE, How.EVICT) and action.why not in DEPARTING:
            self._begun.append(timer)
        if action.how is How.RELEASE:
            self._released[uid] = (action.why, now)
        elif action.how in ENDS:
            self._released.pop(uid, None)
        if action.how is How.PREEMPT:
            self._preempted.append((timer, action.pod.namespace))
        if action.how is How.EVICT and group is not None:
            self._mark(action, now, group)
        if action.how is How.FINISH and group is not None:
            self._prove(action, now, group, ground)

    def _fail(self, action: Action, outcome: Outcome) -> None:
        before = self._failed.get((action.pod.uid, action.how))
        tries = before.tries if before is not None else 0
        wait = doubled(BLOCKED_SECONDS, tries, LONGEST_BLOCKED_SECONDS)
        timer = self._timer()
        self._failed[action.pod.uid, action.how] = FailedWrite(
            tries + 1, timer + wait, timer + BLOCKED_SECONDS, action.text, outcome
        )

    def _prove(self, action: Action, now: float, group: Group, ground: Ground) -> None:
        """A replacement serves where it should: others that prefer the same may follow."""
        aim = target(group, former_slot(action.pod), action.pod, ground)
        if aim[0] is action.to:
            self._proofs[aim] = now

    def _mark(self, action: Action, now: float, group: Group) -> None:
        """It is not evicted again too soon; after each try in a row it waits for longer."""
        policy, where = policy_mark(group.slots), seat(group.workload, action.pod)
        before = self._evicted.get(where) or evicted(action.pod)
        is_again = before is not None and (before.origin, before.policy) == (str(action.origin), policy)
        tries = before.tries + 1 if before is not None and is_again else 0
        self._evicted[where] = Evicted(str(action.origin), policy, now, tries, action.pod.uid)

    def _tidy(self, now: float) -> None:
        """Forgets pods that are no longer looked up."""
        timer = self._timer()
        _forget(self._expected, lambda each: each[1] < timer)
        _forget(self._failed, lambda each: each.due + LONGEST_BLOCKED_SECONDS < timer)
        _forget(self._released, lambda each: each[1] + REMEMBERED_SECONDS < now)
        _forget(self._proofs, lambda at: at + REMEMBERED_SECONDS < now)
        _forget(self._evicted, lambda each: each.at + REMEMBERED_SECONDS < now)


def _is_over(where: str, before: Evicted, assessments: Assessments) -> bool:
    """The successor serves on the other class, and its own annotation keeps it from going back too soon.

    A later pod of the seat is another matter: lost with its spot node, it returns as soon as spot does. So is one that
    comes after a scale-down has removed the seat.
    """
    uid, _, slot = where.partition("/")
    found = assessments.get(uid)
    if found is None:
        return False
    if slot.isdecimal() and int(slot) >= found.group.workload.replicas:
        return True
    return any(
        member.stands
        and str(member.of) != before.origin
        and names.MOVED in member.pod.annotations
        and seat(found.group.workload, member.pod) == where
        for member in found.members
    )


def _forget(known: dict[K, V], is_over: Callable[[V], bool]) -> None:
    for key in [key for key, value in known.items() if is_over(value)]:
        del known[key]


def _pods(found: Assessment) -> Iterator[Pod]:
    for cohort in found.group.cohorts:
        yield from cohort.pods
        yield from cohort.released


def _is_seen(action: Action, pod: Pod) -> bool:
    """Whether a pod as seen shows our write. A difference alone may be another writer's change."""
    if action.how in (How.ANNOTATE, How.RELEASE, How.UNDO):
        written = (*action.annotations.items(), *action.labels.items())
        shown = {**pod.labels, **pod.annotations, names.DECISION: pod.decision, names.GANG_PLAN: pod.gang_plan}
        return all(shown.get(key) == value for key, value in written)
    if action.how is How.RESERVE:
        return (pod.nominated, pod.gang_plan) == (action.nodes[0], action.annotations[names.GANG_PLAN])
    if action.how is How.UNRESERVE:
        return not pod.nominated and not pod.gang_plan
    if action.how in (How.START, How.UNGATE):
        return not pod.is_gated
    return pod.terminating or pod.phase in FINISHED


def _mark_of(pod: Pod | None) -> str | None:
    return None if pod is None else pod.annotations.get(names.PREEMPTED_BY)


def _foreseen(pod: Pod, action: Action) -> Pod:
    """A gated member once a write of ours is seen. Room that is given back counts as kept until then."""
    if action.how is How.RESERVE:
        return replace(pod, nominated=action.nodes[0], gang_plan=action.annotations[names.GANG_PLAN] or "")
    if action.how in (How.START, How.UNGATE):
        return replace(pod, gates=tuple(gate for gate in pod.gates if gate != names.GANG_GATE))
    return pod
