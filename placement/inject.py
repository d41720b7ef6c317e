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
        spread=tuple(_spread(revision, soft, cluster)),
        priority_class=_priority_class(placed, is_overflow, revision, cluster),
    )


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


def _spread(revision: Revision, soft: bool, cluster: ClusterState) -> list[dict[str, Any]]:
    """Even spreading within this revision: a ReplicaSet's selector names it, a StatefulSet's needs the label's key.

    The scheduler adds up scores, and an empty on-demand node could outweigh the preference of a soft pod for spot.
    In its score a larger `maxSkew` makes one pod more or less count for less (about 1/maxSkew), so that the class
    comes first and spreading decides among nodes of the class.
    """
    by_revision = {"matchLabelKeys": [names.CONTROLLER_REVISION_HASH]}
    if not revision.is_stateful or revision.selects(names.CONTROLLER_REVISION_HASH):
        by_revision = {}  # the API server refuses a key that is in both
    return [
        {
            "maxSkew": _skew(rule, revision, soft, cluster),
            "topologyKey": TOPOLOGY_KEYS[rule.topology],
            "whenUnsatisfiable": "DoNotSchedule" if rule.hard else "ScheduleAnyway",
            "labelSelector": dict(revision.selector),
            **({"nodeTaintsPolicy": "Honor"} if rule.hard else {}),
            **by_revision,
        }
        for rule in revision.policy.spread
    ]


def _skew(rule: Spread, revision: Revision, soft: bool, cluster: ClusterState) -> int:
    """One, where nothing speaks against it.

    Karpenter counts hosts from nothing and takes soft rules for hard ones at first: with a skew of 1 it would buy a
    node for each pod. A host may hold as many as the workload can spare: of 10 replicas of which 8 must serve, 2.
    """
    if rule.hard:
        return 1
    if rule.topology == "host" and cluster.configuration.classes.buys_by_preference:
        return max(MILD_SKEW if soft else 1, revision.workload.replicas - revision.needed(cluster.budgets))
    return MILD_SKEW if soft else 1


def _priority_class(placed: Class, is_overflow: bool, revision: Revision, cluster: ClusterState) -> str:
    """The class of the pod's role, if it exists and the owner's template names none of its own.

    Overflow is what is more than the service needs: soft because spot is out, and at or above `min-available`.
    """
    roles = cluster.configuration.priority_roles
    role = roles.overflow if is_overflow else roles.spot if placed is Class.SPOT else roles.on_demand
    return role if role in cluster.priority_classes and not revision.template.priority_class else ""
