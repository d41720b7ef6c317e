"""Decides on one pod: its class, why, and what to inject."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import Any

from placement import names
from placement.availability import NO_BUDGETS, BudgetIndex, availability
from placement.classes import Classes
from placement.configuration import Configuration
from placement.model import Class, Kind, Node, NodeRequirement, NodeTerm, Pool, Template, Workload
from placement.policy import TOPOLOGY_KEYS, Policy, Spread
from placement.slots import Slots

NODE_KEYS = (names.HOSTNAME, names.NODE_NAME)
PREFER_NO_SCHEDULE = "PreferNoSchedule"
MOST_SHUNNED = 20  # tolerations that a pod gets for such taints


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
    NOT_READY = "not-ready"  # our caches are not synced
    TOO_LARGE = "too-large"  # with our patch it might be more than the API server stores
    MALFORMED = "malformed"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Preference:
    """A preferred node term and its weight."""

    weight: int
    term: NodeTerm


@dataclass(frozen=True, slots=True)
class Injection:
    """What goes into a pod's spec. Empty fields inject nothing. Pods of one class and pool share it."""

    required: tuple[NodeTerm, ...] = ()
    preferred: tuple[Preference, ...] = ()
    tolerations: tuple[Mapping[str, str], ...] = ()
    spread: tuple[Mapping[str, Any], ...] = ()
    priority_class: str = ""


NO_INJECTION = Injection()


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


@dataclass(frozen=True, slots=True)
class Revision:
    """The owner that a pod was created by (a ReplicaSet, or the StatefulSet itself) and what it stands for."""

    uid: str
    workload: Workload
    policy: Policy
    replicas: int
    selector: Mapping[str, Any]
    template: Template


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a decision depends on beside the pod and its owner."""

    configuration: Configuration
    spot_pools: tuple[Pool, ...] = ()  # in `pool_order`
    priority_classes: Collection[str] = ()
    out: frozenset[Class] = frozenset()  # for this pod, wherever it could find them
    unled: frozenset[Class] = frozenset()  # if this pod got stuck for want of them, no rebalancer would free it
    shunned: Mapping[Class, Sequence[Mapping[str, str]]] = field(default_factory=dict)  # see `shunned_by_class`
    node_classes: Mapping[str, Class] = field(default_factory=dict)  # by node name
    budgets: BudgetIndex = NO_BUDGETS


def allowed_classes(own_terms: tuple[NodeTerm, ...], around: Surroundings) -> frozenset[Class]:
    """The classes that a pod's own terms leave possible. Terms that name nodes leave those nodes' classes."""
    classes = around.configuration.classes
    possible = classes.allowed(own_terms)
    if not any(each.key in NODE_KEYS for term in own_terms for each in term):
        return possible
    return frozenset[Class]().union(*(classes.allowed((term,)) & _named_classes(term, around) for term in own_terms))


def _named_classes(term: NodeTerm, around: Surroundings) -> frozenset[Class]:
    """The classes of the nodes that a term names; all where it names none that exists."""
    naming = [each for each in term if each.key in NODE_KEYS]
    found = (of for name, of in around.node_classes.items() if all(each.allows(name) for each in naming))
    return (frozenset(found) if naming else frozenset()) or frozenset(Class)


def decide(
    decision_id: str, slot: int, revision: Revision, own_terms: tuple[NodeTerm, ...], around: Surroundings
) -> Decision:
    """The decision for a pod that has this slot. `own_terms` are the user's (node selector included), ORed."""
    return Decider(revision, own_terms, around).decide(decision_id, slot)


class Decider:
    """Decides on pods of one revision that have the same terms of their own, in the same surroundings.

    Most pods come in crowds of such: what is the same for all of them, or for all of one class and pool, is worked
    out once.
    """

    def __init__(self, revision: Revision, own_terms: tuple[NodeTerm, ...], around: Surroundings) -> None:
        self._revision = revision
        self._around = around
        self._slots = revision.policy.slots
        self._policy = revision.policy.explain()
        self._exclusions = {placed: _exclusion(placed, revision, own_terms, around) for placed in Class}
        self._reasons = {placed: _reason(placed, revision, around) for placed in Class}
        self._leaves_by_cost = _leaves_by_cost(revision)
        self._first_pool = first_pool(revision.workload)
        self._injections: dict[tuple[Class, int | None, bool], Injection] = {}

    def decide(self, decision_id: str, slot: int) -> Decision:
        placed, uid = self._slots.class_of(slot), self._revision.uid
        because = f"slot {slot} is {placed} ({self._policy})"
        if self._exclusions[placed]:
            text = f"left alone: {because}, but {self._exclusions[placed]}"
            return Decision(decision_id, uid, Reason.CONTRADICTION, text, slot=slot)
        reason = self._reasons[placed]
        return Decision(
            decision_id,
            uid,
            reason,
            because + _SOFTENED.get(reason, ""),
            placed,
            slot,
            reason is not Reason.SLOT,
            self._injection(placed, slot),
            -slot if self._leaves_by_cost else None,
        )

    def _injection(self, placed: Class, slot: int) -> Injection:
        reason, pool = self._reasons[placed], self._pool(placed, slot)
        is_overflow = reason is Reason.SPOT_OUT and slot >= self._needed
        key = (placed, pool, is_overflow)
        if key not in self._injections:
            self._injections[key] = _injection(placed, reason, pool, is_overflow, self._revision, self._around)
        return self._injections[key]

    def _pool(self, placed: Class, slot: int) -> int | None:
        """The pool that a spot slot prefers: the j-th spot slot takes pool (start + j) mod P."""
        if placed is not Class.SPOT or not self._around.spot_pools:
            return None
        return (self._first_pool + self._slots.spot_index(slot)) % len(self._around.spot_pools)

    @cached_property
    def _needed(self) -> int:
        """How many must serve."""
        return needed(self._revision, self._around)


def needed(revision: Revision, around: Surroundings) -> int:
    """How many of the workload's replicas must serve."""
    workload = revision.workload
    return availability(revision.policy, workload, around.budgets.of(workload)).needed


def _exclusion(placed: Class, revision: Revision, own_terms: tuple[NodeTerm, ...], around: Surroundings) -> str:
    """What contradicts this class, if anything does."""
    if selects(revision.selector, names.CLASS):
        # with our label changed the pod would not be its owner's any more, which would create another, without end
        return f"its owner selects pods by our label {names.CLASS}"
    if placed not in allowed_classes(own_terms, around):
        return f"the pod's own node selector or affinity excludes {placed} nodes"
    return ""


def _injection(
    placed: Class, reason: Reason, pool: int | None, is_overflow: bool, revision: Revision, around: Surroundings
) -> Injection:
    classes, soft = around.configuration.classes, reason is not Reason.SLOT
    tolerations = classes.tolerations if placed is Class.SPOT or soft else ()
    return Injection(
        required=() if soft else classes.terms(placed),
        preferred=_preferences(placed, soft, None if pool is None else around.spot_pools[pool], classes),
        tolerations=(*tolerations, *around.shunned.get(placed, ())) if soft else tolerations,
        spread=tuple(_spread(revision, soft, around)),
        priority_class=_priority_class(placed, is_overflow, revision, around),
    )


def selects(selector: Mapping[str, Any], label: str) -> bool:
    """Whether a label selector says anything of this label."""
    expressions = selector.get("matchExpressions") or ()
    return label in (selector.get("matchLabels") or ()) or any(each["key"] == label for each in expressions)


_SOFTENED = {
    Reason.SPOT_OUT: "; preferred, not required: spot is out",
    Reason.ON_DEMAND_OUT: "; preferred, not required: on-demand is out",
    Reason.REBALANCE_OFF: "; preferred, not required: rebalance is off",
    Reason.PLAN_ONLY: "; preferred, not required: rebalance is plan-only",
    Reason.NO_LEADER: "; preferred, not required: no rebalancer leads",
    Reason.ORDERED: "; preferred, not required: a pending ordinal would block all later ones (OrderedReady)",
}


_BY_MODE = {"off": Reason.REBALANCE_OFF, "plan-only": Reason.PLAN_ONLY}


def _reason(placed: Class, revision: Revision, around: Surroundings) -> Reason:
    """A class is required only where a rebalancer lets the pod fall back in time, or where the policy says to wait.

    With `off` and `plan-only` spot is preferred from the first. On-demand stays required, as the floor rests on it; a
    pod that finds none falls back when the rebalancer has noted that on-demand is out for it.
    """
    may_fall = falls_back(placed, revision.policy, revision.workload)
    if may_fall and placed in around.out:
        return Reason.SPOT_OUT if placed is Class.SPOT else Reason.ON_DEMAND_OUT
    if placed is Class.SPOT and revision.workload.ordered:
        return Reason.ORDERED
    if placed is Class.SPOT and may_fall and revision.policy.rebalance in _BY_MODE:
        return _BY_MODE[revision.policy.rebalance]
    return Reason.NO_LEADER if may_fall and placed in around.unled else Reason.SLOT


def falls_back(placed: Class, policy: Policy, workload: Workload) -> bool:
    """Whether the policy lets a pod of this class run on the other one. A single replica waits, unless it says so."""
    if placed is Class.SPOT:
        return policy.spot_fallback == "on-demand"
    default = "spot" if workload.replicas > 1 else "wait"
    return (policy.on_demand_fallback or default) == "spot"


def shunned_by_class(
    nodes: Mapping[Class, Collection[Node]], leaving_taints: Collection[str]
) -> dict[Class, tuple[dict[str, str], ...]]:
    """What soft pods of a class tolerate, lest they end up on the other class: taints of effect PreferNoSchedule that

    nodes of their class carry and those of the other do not. One that is not tolerated counts for more in the
    scheduler's score than any preference (10 of 10 pods were sent away from spot).
    """
    left_out = {names.DELETION_CANDIDATE, *leaving_taints}
    found = {
        each: {
            (taint.key, taint.value)
            for node in some
            for taint in node.taints
            if taint.effect == PREFER_NO_SCHEDULE and taint.key not in left_out
        }
        for each, some in nodes.items()
    }
    return {each: tuple(islice(_tolerations(mine, found[each.other]), MOST_SHUNNED)) for each, mine in found.items()}


def _tolerations(mine: Collection[tuple[str, str]], others: Collection[tuple[str, str]]) -> Iterator[dict[str, str]]:
    """By key alone where the other class has no such key: values may be as many as nodes."""
    shared = {key for key, _ in others}
    for key in sorted({key for key, _ in mine} - shared):
        yield {"key": key, "operator": "Exists", "effect": PREFER_NO_SCHEDULE}
    for key, value in sorted(set(mine) - set(others)):
        if key in shared:
            said = {"value": value} if value else {}  # the API server leaves out what is empty
            yield {"key": key, "operator": "Equal", **said, "effect": PREFER_NO_SCHEDULE}


def pool_order(pools: Collection[Pool]) -> tuple[Pool, ...]:
    """Pools in the order that slots walk through them: zones take turns, so that neighbours differ in zone.

    Pools a/m, a/r, b/m, c/m come out as a/m, b/m, c/m, a/r.
    """
    rank: dict[Pool, int] = {}
    seen: dict[str, int] = {}
    for pool in sorted(pools, key=lambda pool: (pool.zone, pool.instance_type)):
        rank[pool] = seen.get(pool.zone, 0)
        seen[pool.zone] = rank[pool] + 1
    return tuple(sorted(rank, key=lambda pool: (rank[pool], pool.zone)))


def preferred_pool(slot: int, slots: Slots, workload: Workload, spot_pools: Sequence[Pool]) -> Pool | None:
    """The pool that a spot slot prefers: the j-th spot slot takes pool (start + j) mod P."""
    if slots.class_of(slot) is not Class.SPOT or not spot_pools:
        return None
    return spot_pools[(first_pool(workload) + slots.spot_index(slot)) % len(spot_pools)]


def first_pool(workload: Workload) -> int:
    """Each workload starts elsewhere, or the first pools would hold the first pods of every small workload."""
    return zlib.crc32(f"{workload.kind}/{workload.key}".encode())


def _preferences(placed: Class, soft: bool, pool: Pool | None, classes: Classes) -> tuple[Preference, ...]:
    """The class where it is not required, and the pool. The class outweighs the pool."""
    terms = classes.terms(placed)
    by_class = tuple(Preference(100, term) for term in terms) if soft else ()
    by_pool = (
        tuple(Preference(10 if soft else 100, term + _pool_term(pool, classes.buys_by_preference)) for term in terms)
        if pool
        else ()
    )
    return by_class + by_pool


def _pool_term(pool: Pool, zone_only: bool) -> NodeTerm:
    labels = ((names.ZONE, pool.zone), (names.INSTANCE_TYPE, "" if zone_only else pool.instance_type))
    return tuple(NodeRequirement(key, "In", (value,)) for key, value in labels if value)


MILD_SKEW = 20


def _spread(revision: Revision, soft: bool, around: Surroundings) -> list[dict[str, Any]]:
    """Even spreading within this revision: a ReplicaSet's selector names it, a StatefulSet's needs the label's key.

    The scheduler adds up scores, and an empty on-demand node could outweigh the preference of a soft pod for spot.
    In its score a larger `maxSkew` makes one pod more or less count for less (about 1/maxSkew), so that the class
    comes first and spreading decides among nodes of the class.
    """
    by_revision = {"matchLabelKeys": [names.CONTROLLER_REVISION_HASH]}
    if revision.workload.kind is not Kind.STATEFUL_SET or selects(revision.selector, names.CONTROLLER_REVISION_HASH):
        by_revision = {}  # the API server refuses a key that is in both
    return [
        {
            "maxSkew": _skew(rule, revision, soft, around),
            "topologyKey": TOPOLOGY_KEYS[rule.topology],
            "whenUnsatisfiable": "DoNotSchedule" if rule.hard else "ScheduleAnyway",
            "labelSelector": dict(revision.selector),
            **({"nodeTaintsPolicy": "Honor"} if rule.hard else {}),
            **by_revision,
        }
        for rule in revision.policy.spread
    ]


def _skew(rule: Spread, revision: Revision, soft: bool, around: Surroundings) -> int:
    """One, where nothing speaks against it.

    Karpenter counts hosts from nothing and takes soft rules for hard ones at first: with a skew of 1 it would buy a
    node for each pod. A host may hold as many as the workload can spare: of 10 replicas of which 8 must serve, 2.
    """
    if rule.hard:
        return 1
    if rule.topology == "host" and around.configuration.classes.buys_by_preference:
        return max(MILD_SKEW if soft else 1, revision.workload.replicas - needed(revision, around))
    return MILD_SKEW if soft else 1


def _priority_class(placed: Class, is_overflow: bool, revision: Revision, around: Surroundings) -> str:
    """The class of the pod's role, if it exists and the owner's template names none of its own.

    Overflow is what is more than the service needs: soft because spot is out, and at or above `min-available`.
    """
    roles = around.configuration.priority_roles
    role = roles.overflow if is_overflow else roles.spot if placed is Class.SPOT else roles.on_demand
    return role if role in around.priority_classes and not revision.template.priority_class else ""


def _leaves_by_cost(revision: Revision) -> bool:
    """The highest slot leaves first. StatefulSets leave by ordinal anyway; users' own costs are theirs."""
    return revision.workload.kind is not Kind.STATEFUL_SET and not revision.template.has_deletion_cost
