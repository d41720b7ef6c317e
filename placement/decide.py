"""Decides on one pod: its class, why, and what to inject."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from placement import names
from placement.clusterstate import ClusterState
from placement.inject import NO_INJECTION, Injection, injection_for
from placement.model import Class, NodeTerm, Workload
from placement.policy import Policy
from placement.pools import first_pool
from placement.revision import Revision
from placement.slots import Slots

NODE_KEYS = (names.HOSTNAME, names.NODE_NAME)


class Reason(StrEnum):
    """Why a pod was placed as it was, or left alone. One enum for metrics, logs and annotations."""

    SLOT = "slot"  # the class of its slot
    SPOT_OUT = "spot-out"  # a spot slot, admitted soft
    ON_DEMAND_OUT = "on-demand-out"  # an on-demand slot, admitted soft
    REBALANCE_OFF = "rebalance-off"  # a spot slot, admitted soft: nothing is moved later
    PLAN_ONLY = "plan-only"  # the same
    NO_LEADER = "no-leader"  # a slot of either class, admitted soft: no rebalancer leads
    ORDERED = "ordered"  # a spot ordinal of an OrderedReady StatefulSet: preferred, lest it block the later ones
    CONTRADICTION = "contradiction"  # the pod's own node terms exclude the class of its slot
    DECIDED = "decided"  # it carries a decision of ours already
    OPTED_OUT = "opted-out"
    NOT_OPTED_IN = "not-opted-in"
    NOT_A_WORKLOAD = "not-a-workload"  # a bare pod, a Job's, a DaemonSet's, another controller's
    UNKNOWN_OWNER = "unknown-owner"  # neither the caches nor the API server knew it in time
    PRESET_NODE = "preset-node"  # spec.nodeName is set
    FOREIGN_SCHEDULER = "foreign-scheduler"
    MIRROR = "mirror"
    GANG = "gang"  # a member of a gang: it takes no slot
    TWIN = "twin"  # the same, and it gets the PriorityClass that preempts nobody
    NO_TWIN = "no-twin"  # the same, and it keeps its PriorityClass
    GATED = "gated"  # the same, and it gets its gate here, where no policy gives it
    NOT_A_MEMBER = "not-a-member"  # it is sent as one, and is none
    REFUSED = "refused"  # another policy or quota refuses pods of its kind that carry our patch
    NOT_READY = "not-ready"  # our caches are not synced
    TOO_LARGE = "too-large"  # with our patch it might be more than the API server stores
    MALFORMED = "malformed"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of one pod. A pod that is left alone holds its slot all the same."""

    id: str
    controller_uid: str
    reason: Reason
    explanation: str
    placed: Class | None = None  # None: left alone
    slot: int | None = None
    soft: bool = False
    injection: Injection = NO_INJECTION
    deletion_cost: int | None = None


@dataclass(frozen=True)
class Case:
    """What pods are decided on by, their slots apart: revision, the node terms that users wrote (ORed), the cluster.

    Most pods come in crowds of one case. What is the same for all of them, or for all of one class and pool, is worked
    out once and kept here.
    """

    revision: Revision
    own_terms: tuple[NodeTerm, ...]
    cluster: ClusterState

    @cached_property
    def slots(self) -> Slots:
        return self.revision.policy.slots

    @cached_property
    def policy(self) -> str:
        """For people."""
        return self.revision.policy.explain()

    @cached_property
    def exclusions(self) -> dict[Class, str]:
        """What contradicts a class; empty where nothing does."""
        return {placed: _exclusion(placed, self) for placed in Class}

    @cached_property
    def reasons(self) -> dict[Class, Reason]:
        return {placed: _reason(placed, self.revision, self.cluster) for placed in Class}

    @cached_property
    def leaves_by_cost(self) -> bool:
        return self.revision.leaves_by_cost

    @cached_property
    def first_pool(self) -> int:
        return first_pool(self.revision.workload)

    @cached_property
    def needed(self) -> int:
        """How many must serve."""
        return self.revision.needed(self.cluster.budgets)

    @cached_property
    def injections(self) -> dict[tuple[Class, int | None, bool], Injection]:
        """Those that were asked for so far, by class, pool and whether it is overflow."""
        return {}


def decide(decision_id: str, slot: int, case: Case) -> Decision:
    """The decision for a pod that has this slot."""
    placed, uid = case.slots.class_of(slot), case.revision.uid
    because = f"slot {slot} is {placed} ({case.policy})"
    if case.exclusions[placed]:
        text = f"left alone: {because}, but {case.exclusions[placed]}"
        return Decision(decision_id, uid, Reason.CONTRADICTION, text, slot=slot)
    reason = case.reasons[placed]
    return Decision(
        decision_id,
        uid,
        reason,
        because + _SOFTENED.get(reason, ""),
        placed,
        slot,
        reason is not Reason.SLOT,
        _injection(placed, reason, slot, case),
        -slot if case.leaves_by_cost else None,
    )


def _injection(placed: Class, reason: Reason, slot: int, case: Case) -> Injection:
    pool, is_overflow = _pool(placed, slot, case), reason is Reason.SPOT_OUT and slot >= case.needed
    key = (placed, pool, is_overflow)
    if key not in case.injections:
        preferred = None if pool is None else case.cluster.spot_pools[pool]
        case.injections[key] = injection_for(
            placed, reason is not Reason.SLOT, preferred, is_overflow, case.revision, case.cluster
        )
    return case.injections[key]


def _pool(placed: Class, slot: int, case: Case) -> int | None:
    """The pool that a spot slot prefers: the j-th spot slot takes pool (start + j) mod P."""
    if placed is not Class.SPOT or not case.cluster.spot_pools:
        return None
    return (case.first_pool + case.slots.spot_index(slot)) % len(case.cluster.spot_pools)


# --- contradictions --------------------------------------------------------------------------------------------------


def _exclusion(placed: Class, case: Case) -> str:
    """What contradicts this class, if anything does."""
    if case.revision.selects(names.CLASS):
        # with our label changed the pod would not be its owner's any more, which would create another, without end
        return f"its owner selects pods by our label {names.CLASS}"
    if placed not in allowed_classes(case.own_terms, case.cluster):
        return f"the pod's own node selector or affinity excludes {placed} nodes"
    return ""


def allowed_classes(own_terms: tuple[NodeTerm, ...], cluster: ClusterState) -> frozenset[Class]:
    """The classes that a pod's own terms leave possible. Terms that name nodes leave those nodes' classes."""
    classes = cluster.configuration.classes
    possible = classes.allowed(own_terms)
    if not any(each.key in NODE_KEYS for term in own_terms for each in term):
        return possible
    return frozenset[Class]().union(*(classes.allowed((term,)) & _named_classes(term, cluster) for term in own_terms))


def _named_classes(term: NodeTerm, cluster: ClusterState) -> frozenset[Class]:
    """The classes of the nodes that a term names; all where it names none that exists."""
    naming = [each for each in term if each.key in NODE_KEYS]
    found = (of for name, of in cluster.node_classes.items() if all(each.allows(name) for each in naming))
    return (frozenset(found) if naming else frozenset()) or frozenset(Class)


# --- required or preferred -------------------------------------------------------------------------------------------

_SOFTENED = {
    Reason.SPOT_OUT: "; preferred, not required: spot is out",
    Reason.ON_DEMAND_OUT: "; preferred, not required: on-demand is out",
    Reason.REBALANCE_OFF: "; preferred, not required: rebalance is off",
    Reason.PLAN_ONLY: "; preferred, not required: rebalance is plan-only",
    Reason.NO_LEADER: "; preferred, not required: no rebalancer leads",
    Reason.ORDERED: "; preferred, not required: a pending ordinal would block all later ones (OrderedReady)",
}


_BY_MODE = {"off": Reason.REBALANCE_OFF, "plan-only": Reason.PLAN_ONLY}


def _reason(placed: Class, revision: Revision, cluster: ClusterState) -> Reason:
    """A class is required only where a rebalancer lets the pod fall back in time, or where the policy says to wait.

    With `off` and `plan-only` spot is preferred from the first. On-demand stays required, as the floor rests on it; a
    pod that finds none falls back when the rebalancer has noted that on-demand is out for it.
    """
    may_fall = falls_back(placed, revision.policy, revision.workload)
    if may_fall and placed in cluster.out:
        return Reason.SPOT_OUT if placed is Class.SPOT else Reason.ON_DEMAND_OUT
    if placed is Class.SPOT and revision.workload.ordered:
        return Reason.ORDERED
    if placed is Class.SPOT and may_fall and revision.policy.rebalance in _BY_MODE:
        return _BY_MODE[revision.policy.rebalance]
    return Reason.NO_LEADER if may_fall and placed in cluster.unled else Reason.SLOT


def falls_back(placed: Class, policy: Policy, workload: Workload) -> bool:
    """Whether the policy lets a pod of this class run on the other one. A single replica waits, unless it says so."""
    if placed is Class.SPOT:
        return policy.spot_fallback == "on-demand"
    default = "spot" if workload.replicas > 1 else "wait"
    return (policy.on_demand_fallback or default) == "spot"
