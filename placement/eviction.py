"""Evictions by others (`kubectl drain`, Karpenter, the descheduler): held until the replacement serves. Pure.

The first replica that is asked writes on the pod when that was, and who asked. The rebalancer sees it and releases the
pod, so its replacement comes up while it still serves. When the replacement serves, the rebalancer evicts the pod
itself, and whoever asked finds it gone. All deadlines count from the first question and are never renewed.

Example, `eviction-hold: 90s`, asked at 10:00:00. The answer is "not now" until the release is there, which it must be
by 10:00:04, and then until the replacement serves, at the latest until 10:01:30. On a node that goes in 120 s, a pod
with a grace period of 60 s is held for 60 s. A pod that was released because its node leaves is held without a
question on it, at the latest until 90 s after its node began to leave.

Where a second pod cannot run beside the first (StatefulSets, `Recreate`, claims …), or was not started in time,
`min-available` is a budget: of three replicas, two of which must serve, one may go, and the next one waits until three
serve again. A budget that leaves nothing to take when all serve is good for one pod: waiting would not help.

Who evicts a pod from a node that stays, such as the descheduler, does not need it gone. A pod that was moved a moment
ago is held until its cool-down is over, or both would move it to and fro.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from placement import names
from placement.availability import Availability
from placement.model import Node, Pod, Workload
from placement.plan.group import is_new
from placement.plan.marks import moment, moved, parse_moment
from placement.plan.release import can_be_released
from placement.policy import Policy

RELEASE_SECONDS = 4.0  # until the rebalancer has released the pod: three, and times are written in whole seconds
LONGEST_USER = 100
CLOCKS_DIFFER_SECONDS = 60.0
FORGOTTEN_SECONDS = 600.0  # after its hold a question is forgotten: the next drain is another one


class LetGo(StrEnum):
    """Why an eviction is not held."""

    UNKNOWN = "the pod is not known here"
    NOT_OURS = "Spotweave does not place the pod"
    OFF = "eviction-hold is off"
    MODE = "rebalance is not auto"
    PAUSED = "moves are paused"
    UNLED = "no rebalancer leads"
    NOT_SERVING = "the pod does not serve"
    REPLACED = "as many others serve as there are replicas"
    BUDGET = "enough others serve"
    UNCOUNTED = "the webhook replica that counts did not answer in time"
    GARBLED = "the note on the pod is unreadable, or of the future"
    TIME_UP = "the longest time to hold it is over"
    NODE_ENDS = "its node ends too soon to wait"
    UNMARKED = "the API server did not take our note"
    ERROR = "an error of Spotweave's own"

    @property
    def label(self) -> str:
        """For metrics: `not-ours`."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class EvictionAsked:
    """When a pod's eviction was first asked for, and by whom."""

    at: float
    by: str

    def text(self) -> str:
        return f"{moment(self.at)}/{legible(self.by)}"


def legible(user: str) -> str:
    """The name of a user, for logs and annotations: cut off, and without what would upset a terminal."""
    return "".join(each if each.isprintable() else "?" for each in user[:LONGEST_USER])


@dataclass(frozen=True, slots=True)
class EvictionHold:
    """The eviction waits, at the latest until then. `asked` is None if the question is not on the pod."""

    until: float
    asked: EvictionAsked | None
    needs_note: bool = False  # it counts from now on: that must be written on the pod first


class Company(NamedTuple):
    """The other pods of its workload that serve. Those whose eviction was let through a moment ago do not count."""

    live: int = 0
    released: int = 0


NOBODY = Company()


@dataclass(frozen=True, slots=True)
class EvictionCase:
    """What decides on an eviction, as one webhook replica knows it."""

    pod: Pod
    workload: Workload
    policy: Policy
    availability: Availability
    now: float
    company: Company = NOBODY
    counts_here: bool = True  # this replica knows of every eviction that was let through
    is_led: bool = True
    is_paused: bool = False
    cool_down_seconds: float = 0.0  # after a move
    node_stays: bool = False  # it is neither cordoned nor leaving
    leaving_since: float | None = None  # when its node began to leave
    node_ends: float | None = None  # when its node goes; None: that is not announced


def asked(pod: Pod) -> EvictionAsked | None:
    written = pod.annotations.get(names.EVICTION_ASKED)
    if not written:
        return None  # as most are: that must cost nothing
    at, _, by = written.partition("/")
    when = parse_moment(at)
    return None if when is None else EvictionAsked(when, legible(by))


def is_asked(pod: Pod, policy: Policy, now: float) -> bool:
    """Somebody wants it gone, and its eviction may still be held."""
    question = asked(pod)
    if question is None or question.at > now + CLOCKS_DIFFER_SECONDS:
        return False
    return now < question.at + policy.eviction_hold.total_seconds()


def is_forgotten(pod: Pod, policy: Policy, now: float) -> bool:
    """Its hold is long over, and it is still there: whoever asked has given up."""
    question = asked(pod)
    return question is not None and now >= question.at + policy.eviction_hold.total_seconds() + FORGOTTEN_SECONDS


def stays(node: Node | None, leaving_taints: Collection[str]) -> bool:
    """Whether a pod's node is to stay. Whoever drains a node, or scales it down, cordons or taints it first."""
    if node is None or node.unschedulable or node.deleting:
        return False
    return not any(taint.key in leaving_taints for taint in node.taints)


def company(pods: Iterable[Pod], pod: Pod, gone: Container[str], min_ready_seconds: int, now: float) -> Company:
    """Of all pods of its workload. `gone` are the UIDs of those whose eviction was let through."""
    others = [each for each in pods if each.uid != pod.uid and each.uid not in gone and each.serves]
    if min_ready_seconds:
        others = [each for each in others if not is_new(each, min_ready_seconds, now)]
    going = sum(each.is_released for each in others)
    return Company(len(others) - going, going)


def judged(case: EvictionCase) -> EvictionHold | LetGo:
    """Whether the eviction waits. In doubt it does not."""
    reason = not_held(case)
    if reason is not None:
        return reason
    question = asked(case.pod)
    if question is None and names.EVICTION_ASKED in case.pod.annotations:
        return LetGo.GARBLED  # tenants write on their pods what they like, and must not hold up a drain
    cools_until = _cools_until(case)
    if question is None and case.now < cools_until:
        return EvictionHold(cools_until, None)
    since = question.at if question is not None else _leaving_since(case)
    if since is not None and since > case.now + CLOCKS_DIFFER_SECONDS:
        return LetGo.GARBLED
    began = case.now if since is None else since
    until = began + case.policy.eviction_hold.total_seconds()
    last = _last_moment(case)
    if case.now >= min(until, last):
        return LetGo.TIME_UP if until <= last else LetGo.NODE_ENDS
    return _unless_enough_serve(case, began) or EvictionHold(min(until, last), question, needs_note=since is None)


def _cools_until(case: EvictionCase) -> float:
    """When a pod of a node that stays may be moved again. A moment in the future was forged."""
    before = moved(case.pod) if case.node_stays and can_be_released(case.workload, case.pod) else None
    if before is None or before.at > case.now + CLOCKS_DIFFER_SECONDS:
        return 0.0
    return before.at + case.cool_down_seconds


def _leaving_since(case: EvictionCase) -> float | None:
    """A pod that was released on a leaving node needs no note: its hold counts from when the node began to leave.

    A note at that time would do harm: we may be evicting the pod, and an eviction that meets a change of its pod fails
    and uses up a PodDisruptionBudget for two minutes.
    """
    return case.leaving_since if case.pod.is_released else None


def not_held(case: EvictionCase) -> LetGo | None:
    """Why evictions of this pod are never held, now; whoever else serves."""
    pod, policy = case.pod, case.policy
    if not policy.eviction_hold:
        return LetGo.OFF
    if policy.rebalance != "auto":
        return LetGo.MODE
    if case.is_paused:
        return LetGo.PAUSED
    if not case.is_led:
        return LetGo.UNLED
    if not pod.serves:
        return LetGo.NOT_SERVING
    return LetGo.NOT_OURS if pod.decision_id is None else None


def _unless_enough_serve(case: EvictionCase, since: float) -> LetGo | None:
    """A release is waited for, for a moment, or for its replacement. Without one, `min-available` is a budget."""
    if case.pod.is_released:
        return LetGo.REPLACED if case.company.live >= case.workload.replicas else None
    is_replaced = case.company.live >= case.workload.replicas
    is_possible = can_be_released(case.workload, case.pod)
    if is_possible and not is_replaced and case.now < since + RELEASE_SECONDS:
        return None
    if not case.counts_here:
        return LetGo.UNCOUNTED
    return LetGo.BUDGET if sum(case.company) >= least(case) else None


def least(case: EvictionCase) -> int:
    """So many others must serve. When all serve, one may always go: waiting would not help."""
    return min(case.availability.needed, case.workload.replicas - 1)


def _last_moment(case: EvictionCase) -> float:
    """A node whose end is announced must leave the pod its whole grace period."""
    return float("inf") if case.node_ends is None else case.node_ends - case.pod.needs.grace_seconds


def sentence(hold: EvictionHold, case: EvictionCase) -> str:
    """What a drainer prints: who holds, why, and until when."""
    return _sentence(case.pod, _waits_for(case), hold.until)


def sentence_of_turn(pod: Pod, first: Pod, until: float) -> str:
    """The same for a pod that waits until another one is replaced."""
    return _sentence(pod, f"pod {first.name}, which was evicted from the same node, is replaced", until)


def _sentence(pod: Pod, what: str, until: float) -> str:
    latest = f"at the latest until {moment(until)} ({names.EVICTION_HOLD})"
    return f"Spotweave holds the eviction of pod {pod.name} until {what}, {latest}"


def _waits_for(case: EvictionCase) -> str:
    if case.pod.is_released:
        return "its replacement serves"
    question = asked(case.pod)
    if question is None and case.now < _cools_until(case):
        return "it may be moved again: it has just been moved (moves.coolDown)"
    is_early = question is None or case.now < question.at + RELEASE_SECONDS
    if is_early and can_be_released(case.workload, case.pod):
        return "a replacement is started and serves"
    return f"{least(case)} other replicas serve (now {sum(case.company)})"
