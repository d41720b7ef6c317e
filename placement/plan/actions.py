"""What the rebalancer does, why, and why not: the words of plans, logs, metrics and Events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from placement.gang.gang import GangStatus
from placement.model import NOTHING, Class, Owner, Pod, Workload
from placement.outage import Outage


class How(StrEnum):
    """What is done to a pod."""

    ANNOTATE = "annotate"  # annotations and labels of ours
    RELEASE = "release"  # its ReplicaSet lets go of it and creates a replacement
    FINISH = "finish"  # the replacement serves: the released pod is evicted
    UNDO = "undo"  # the replacement does not: the released pod is put back
    EVICT = "evict"  # with a proven place, where a release cannot be
    REPLACE = "replace"  # a pod that was never scheduled is created again, with what is known now
    BURY = "bury"  # a pod whose machine is gone
    DELETE = "delete"  # a released pod of a workload that wants none, or is gone: as its ReplicaSet would
    RESERVE = "reserve"  # a node is kept free for a member of a gang, while it has its gate
    UNRESERVE = "unreserve"  # no more
    START = "start"  # the gate of a member is taken off, and it may go to the nodes of the plan
    UNGATE = "ungate"  # the gate is taken off, without a plan: gangs are off, or a gang waits no longer
    PREEMPT = "preempt"  # evicted: its room goes to a gang of higher priority
    ROLL_BACK = "roll-back"  # a member of a gang that did not start whole is evicted: its owner creates it again
    SUSPEND = "suspend"  # the Job or JobSet of a member is suspended: its gang has failed, or its time is up
    END = "end"  # the same for a member that nothing owns: it is deleted


class Why(StrEnum):
    """The reason of an action. In the order of importance."""

    LOST = "node-lost"
    LEAVING = "node-leaving"
    ASKED = "eviction-asked"  # somebody else wants it gone
    CORDON = "node-cordoned"  # and the configuration says that this moves pods
    FLOOR = "below-floor"  # too few on on-demand
    EXPOSED = "exposed"  # the loss of one pool would break a declared min-available
    STUCK = "unschedulable"  # because of our own constraint
    ADOPT = "adopt"  # admission missed it
    SLOT = "slot"  # doubled, or beyond the replicas
    RATIO = "wrong-class"  # the class of its slot is another one
    RETURN = "return"  # it was admitted soft, and came out on the other class
    OVERFLOW = "overflow"  # it is where it belongs, with the low priority of an outage that is over
    BALANCE = "balance"  # too many in one pool
    GANG = "gang"  # gangs start whole, or not at all
    OVER = "over"  # the end of a move: its workload is gone or opted out, or the leader that knew why was restarted

    @property
    def rank(self) -> int:
        return _RANKS[self]

    @property
    def is_urgent(self) -> bool:
        """Waits for no window and no budget: what is there now will not be there in a minute."""
        return self in (Why.LOST, Why.LEAVING, Why.ASKED, Why.STUCK)


DEPARTING = (Why.LEAVING, Why.ASKED)  # it goes, whether or not a replacement is there
EVENING = (Why.EXPOSED, Why.BALANCE)  # moves from one pool to another
WITHIN = (*EVENING, Why.OVERFLOW)  # moves within a class
_RANKS = {why: rank for rank, why in enumerate(Why)}


class Blocked(StrEnum):
    """Why something that should be done is not."""

    OFF = "rebalance is off"
    PLAN_ONLY = "rebalance is plan-only"
    WINDOW = "outside rebalance-window"
    PAUSED = "paused by `spotweave pause`"
    ROLLOUT = "a rollout is under way"
    ROLLED_OUT = "a rollout has just ended; Spotweave waits so that tools see its end"
    UNSETTLED = "its controller has not settled yet"
    UNSLOTTED = "Spotweave writes the slots of its pods first"
    MISSING = "fewer pods exist than it has replicas"
    UNREADY = "not all of its replicas are ready"
    UNADOPTED = "Spotweave must adopt the pod before it moves it"
    KEPT = "the pod asks not to be disrupted"
    LOCAL_STORAGE = "the pod has local storage"
    OWN_TERMS = "the pod's own node selector or affinity excludes the class"
    YOUNG = "the pod is too young"
    COOL_DOWN = "the pod was moved recently"
    UNDONE = "an earlier move was undone; Spotweave retries later"
    BREAKER = "recent moves failed; Spotweave retries later"
    UNPATCHED = "another policy or quota refuses pods with Spotweave's patch; Spotweave retries later"
    OUTAGE = "the class is out"
    PROBING = "another pod probes the class first"
    CROWDED = "other pods are unschedulable on the class"
    CORDONED = "its node is cordoned, and a second pod cannot run beside it"
    GATHERING = "more nodes may be leaving; Spotweave waits a moment for the last of them"
    QUOTA = "the namespace's quota has no room for one more pod"
    BUDGET = "a PodDisruptionBudget allows no disruption"
    MINIMUM = "no replica to spare: exactly `min-available` are ready"
    LAST = "no other replica would serve during the move (min-available: 0 allows it)"
    LAST_ON_DEMAND = "the workload would fall below its min-on-demand"
    NO_PLACE = "no node is known to have room for its replacement"
    AUTOSCALER = "an autoscaler is adding a node"
    WAITING = "the scheduler may still find a node"
    PER_WORKLOAD = "the limit of moves per workload is reached"
    PER_NODE = "the limit of moves per node is reached"
    PER_NAMESPACE = "the limit of moves per namespace is reached"
    IN_ALL = "the limit of concurrent moves is reached"
    PER_MINUTE = "the limit of moves per minute is reached"
    REFUSED = "the API server refused it; Spotweave retries later"
    BUSY = "the API server was busy; Spotweave retries soon"

    @property
    def label(self) -> str:
        """For metrics: `per-workload`."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class Action:
    """One thing to do to one pod."""

    how: How
    why: Why
    workload: Workload | None  # None: it is gone
    pod: Pod
    origin: Class | None = None
    to: Class | None = None
    annotations: Mapping[str, str | None] = field(default_factory=lambda: NOTHING)  # None: removed
    labels: Mapping[str, str | None] = field(default_factory=lambda: NOTHING)
    text: str = ""
    rests_on: tuple[Pod, ...] = ()  # pods that must still serve when it is done: the replacement, the siblings
    owner: Owner | None = None  # its controller from then on, where it is released or put back; what is suspended
    nodes: tuple[str, ...] = ()  # of a member of a gang: that is kept free for it, or where it may start
    in_every_mode: bool = False  # also while moves are paused: it undoes what we did, or replaces what is lost

    def raw(self) -> dict[str, Any]:
        """As `spotweave plan -o json` prints it."""
        return {
            "pod": str(self.pod.key),
            "uid": self.pod.uid,
            "reason": str(self.why),
            "from": None if self.origin is None else str(self.origin),
            "to": None if self.to is None else str(self.to),
            "how": str(self.how),
        }


@dataclass(frozen=True, slots=True)
class Skipped:
    """Something that should be done to a workload, and is not."""

    workload: Workload
    why: Why
    blocked: Blocked
    pods: int = 1

    @property
    def text(self) -> str:
        count = "1 pod" if self.pods == 1 else f"{self.pods} pods"
        return f"{count} not moved ({self.why}): {self.blocked}"

    def raw(self) -> dict[str, Any]:
        return {"workload": f"{self.workload.kind} {self.workload.key}", "reason": self.text}


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do now, in this order, and what is left. Outages are noted, and read by the webhooks, before all else."""

    outages: tuple[Outage, ...] = ()
    ended: tuple[Outage, ...] = ()  # outages that are over
    actions: tuple[Action, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    left: int = 0  # what is left to the next pass, which follows at once: annotations, pods on leaving nodes
    witnesses: tuple[tuple[Workload, Outage], ...] = ()  # whose pods are the evidence of outages
    gangs: tuple[GangStatus, ...] = ()  # those that wait or start

    def raw(self) -> dict[str, Any]:
        return {"actions": [each.raw() for each in self.actions], "skipped": [each.raw() for each in self.skipped]}
