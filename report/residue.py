"""What is left in namespaces that have opted out: pods that still carry what admission or a move gave them.

They keep running. What cannot be changed in an existing pod (its affinity) goes with its next rollout.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placement import names
from placement.classes import Classes
from placement.model import Class, Pod, ReplicaSet, Snapshot
from placement.plan.actions import Action
from placement.plan.annotate import ADOPTED, LEAVES_FIRST
from placement.plan.marks import former_owner, released
from placement.plan.release import put_back_to, takes_back, was_of


@dataclass(frozen=True, slots=True)
class LeftOver:
    """A pod, and what it still carries."""

    pod: Pod
    requires: Class | None  # the one class that its affinity leaves, where we have placed it
    labels: tuple[str, ...]
    annotations: tuple[str, ...]

    @property
    def is_released(self) -> bool:
        return names.RELEASED in self.annotations

    @property
    def raw(self) -> dict[str, Any]:
        return {
            "namespace": self.pod.namespace,
            "pod": self.pod.name,
            "uid": self.pod.uid,
            "node": self.pod.node or None,
            "requires": None if self.requires is None else str(self.requires),
            "released": self.is_released,
            "labels": list(self.labels),
            "annotations": list(self.annotations),
        }


def left_over(snapshot: Snapshot, classes: Classes) -> tuple[LeftOver, ...]:
    """By namespace and name; of namespaces that are not opted in, or not any more."""
    found = (_left_over(pod, classes) for pod in snapshot.pods if not _is_opted_in(snapshot, pod.namespace))
    carrying = (each for each in found if each.labels or each.annotations)
    return tuple(sorted(carrying, key=lambda each: each.pod.key))


@dataclass(frozen=True, slots=True)
class PutBack:
    """A pod that is released, and what makes it its ReplicaSet's again; None: that is gone, or would delete it."""

    pod: Pod
    undo: Action | None


def put_back(snapshot: Snapshot) -> tuple[PutBack, ...]:
    """All released pods, in any namespace. A pod that only carries such an annotation was never released."""
    sets = {each.uid: each for each in snapshot.replica_sets}
    live: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.owner is not None and pod.is_live:
            live.setdefault(pod.owner.uid, []).append(pod)
    going = (pod for pod in snapshot.pods if pod.is_released and released(pod) is not None and not pod.terminating)
    return tuple(PutBack(pod, _undo(pod, sets.get(former_owner(pod)), live)) for pod in going)


def _undo(pod: Pod, revision: ReplicaSet | None, live: Mapping[str, Sequence[Pod]]) -> Action | None:
    if revision is None or not was_of(pod, revision) or not takes_back(revision.replicas, live.get(revision.uid, ())):
        return None
    return put_back_to(pod, revision, "Spotweave is uninstalled")


# --- what is taken off pods ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Remnant:
    """A pod that carries what we wrote, and what removes it: each key, with None."""

    pod: Pod
    annotations: Mapping[str, None]
    labels: Mapping[str, None]


def remnants(snapshot: Snapshot) -> tuple[Remnant, ...]:
    """Of all namespaces. A released pod keeps what tells whose it was, until it is put back."""
    costs = {each.uid: each.template.has_deletion_cost for each in snapshot.replica_sets}
    found = []
    for pod in snapshot.pods:
        if pod.is_released or pod.terminating:
            continue
        has_own_cost = costs.get(pod.owner.uid if pod.owner is not None else "", True)
        annotations = dict.fromkeys(_ours_on(pod, has_own_cost=has_own_cost))
        labels = dict.fromkeys(key for key in (names.CLASS, names.GANG_LABEL) if key in pod.labels)
        if annotations or labels:
            found.append(Remnant(pod, annotations, labels))
    return tuple(found)


def _ours_on(pod: Pod, *, has_own_cost: bool) -> Iterator[str]:
    """A deletion cost is ours where it is the slot's, and its template has none."""
    if pod.decision:
        yield names.DECISION
    yield from (key for key in names.POD_ANNOTATIONS if key in pod.annotations)
    if names.GANG_LABEL in pod.labels:
        yield names.GANG_PLAN
    cost, slot = pod.annotations.get(names.DELETION_COST), pod.slot
    if not has_own_cost and slot is not None and cost in (str(-slot), LEAVES_FIRST):
        yield names.DELETION_COST


def has_our_affinity(pod: Pod) -> bool:
    """Admission placed it. A pod that was adopted later, or left alone, carries no affinity of ours."""
    decided = pod.decision_id
    return decided is not None and not decided.startswith(ADOPTED) and names.LEFT_ALONE not in pod.annotations


def _is_opted_in(snapshot: Snapshot, namespace: str) -> bool:
    known = snapshot.namespaces.get(namespace)
    return known is not None and known.is_opted_in


def _left_over(pod: Pod, classes: Classes) -> LeftOver:
    labels = tuple(key for key in (names.CLASS,) if key in pod.labels)
    decision = (names.DECISION,) if pod.decision else ()
    annotations = (*decision, *(key for key in names.POD_ANNOTATIONS if key in pod.annotations))
    return LeftOver(pod, classes.of_pod(pod, None) if decision else None, labels, annotations)
