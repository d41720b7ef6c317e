"""What goes into the spec of a pod that was given a class: node affinity, tolerations, spreading, priority."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from placement import names
from placement.classes import Classes
from placement.clusterstate import ClusterState
from placement.model import Class, NodeRequirement, NodeTerm, Pool
from placement.policy import TOPOLOGY_KEYS, Spread
from placement.revision import Revision

MILD_SKEW = 20


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


def injection_for(
    placed: Class, soft: bool, pool: Pool | None, is_overflow: bool, revision: Revision, cluster: ClusterState
) -> Injection:
    """For a pod of this class that prefers this pool. A soft pod prefers its class, any other requires it."""
    classes = cluster.configuration.classes
    tolerations = classes.tolerations if placed is Class.SPOT or soft else ()
    return Injection(
        required=() if soft else classes.terms(placed),
        preferred=_preferences(placed, soft, pool, classes),
        tolerations=(*tolerations, *cluster.shunned.get(placed, ())) if soft else tolerations,
        spread=tuple(_spread(placed, revision, soft, pool is not None, cluster)),
        priority_class=_priority_class(placed, is_overflow, revision, cluster),
    )


def _preferences(placed: Class, soft: bool, pool: Pool | None, classes: Classes) -> tuple[Preference, ...]:
    """The class where it is not required, and the pool. The class outweighs the pool.

    No pool where an autoscaler buys by preference: it would buy a node for each, and only of pools that are there.
    """
    terms = classes.terms(placed)
    by_class = tuple(Preference(100, term) for term in terms) if soft else ()
    if pool is None or classes.buys_by_preference:
        return by_class
    return by_class + tuple(Preference(10 if soft else 100, term + _pool_term(pool)) for term in terms)


def _pool_term(pool: Pool) -> NodeTerm:
    labels = ((names.ZONE, pool.zone), (names.INSTANCE_TYPE, pool.instance_type))
    return tuple(NodeRequirement(key, "In", (value,)) for key, value in labels if value)


def _spread(
    placed: Class, revision: Revision, soft: bool, has_pool: bool, cluster: ClusterState
) -> list[dict[str, Any]]:
    """Even spreading within this revision: a ReplicaSet's selector names it, a StatefulSet's needs the label's key.

    Each class is spread by itself. The scheduler counts only nodes of a required class anyway. Karpenter and the
    descheduler count by the selector alone, so the selector names the class, too.

    The scheduler adds up scores, and an empty on-demand node could outweigh the preference of a soft pod for spot.
    In its score a larger `maxSkew` makes one pod more or less count for less (about 1/maxSkew), so that the class
    comes first and spreading decides among nodes of the class. A pod that prefers a pool is spread mildly, too: pools
    are what the cloud takes, and where one zone has more of them than another, even pools mean uneven zones. Where the
    policy names a topology, it is spread evenly all the same.
    """
    by_revision = {"matchLabelKeys": [names.CONTROLLER_REVISION_HASH]}
    if not revision.is_stateful or revision.selects(names.CONTROLLER_REVISION_HASH):
        by_revision = {}  # the API server refuses a key that is in both
    return [
        {
            "maxSkew": _skew(rule, revision, soft or (has_pool and not rule.is_asked), cluster),
            "topologyKey": TOPOLOGY_KEYS[rule.topology],
            "whenUnsatisfiable": "DoNotSchedule" if rule.hard else "ScheduleAnyway",
            "labelSelector": _selector(placed, revision),
            **({"nodeTaintsPolicy": "Honor"} if rule.hard else {}),
            **by_revision,
        }
        for rule in revision.policy.spread
    ]


def _selector(placed: Class, revision: Revision) -> dict[str, Any]:
    """The revision's pods of one class, by the label that admission gives them."""
    labels = revision.selector.get("matchLabels") or {}
    return {**revision.selector, "matchLabels": {**labels, names.CLASS: str(placed)}}


def _skew(rule: Spread, revision: Revision, is_mild: bool, cluster: ClusterState) -> int:
    """One, where nothing speaks against it.

    Karpenter takes soft rules for hard ones at first, and buys nodes for them. So those that the policy does not name
    are so mild that they never bind it; the scheduler goes by them on the nodes that are there. Karpenter counts hosts
    from nothing: with a skew of 1 it would buy a node for each pod. Where the policy names them, a host may hold as
    many as the workload can spare: of 10 replicas of which 8 must serve, 2.
    """
    if rule.hard:
        return 1
    least = MILD_SKEW if is_mild else 1
    if not cluster.configuration.classes.buys_by_preference:
        return least
    if not rule.is_asked:
        return max(MILD_SKEW, revision.workload.replicas)
    spare = revision.workload.replicas - revision.needed(cluster.budgets)
    return max(least, spare) if rule.topology == "host" else least


def _priority_class(placed: Class, is_overflow: bool, revision: Revision, cluster: ClusterState) -> str:
    """The class of the pod's role, if it exists and the owner's template names none of its own.

    Overflow is what is more than the service needs: soft because spot is out, and at or above `min-available`.
    """
    roles = cluster.configuration.priority_roles
    role = roles.overflow if is_overflow else roles.spot if placed is Class.SPOT else roles.on_demand
    return role if role in cluster.priority_classes and not revision.template.priority_class else ""
