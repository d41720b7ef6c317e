"""What is left of us where nobody wants us any more: pods that still carry what admission or a move gave them.

They run on as they are. What cannot be changed in a pod that exists (its affinity) goes with its next rollout.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from placement import names
from placement.classes import Classes
from placement.model import Class, Pod, Snapshot
from placement.plan.group import former_owner, released

LET_GO = "released-"  # begins the label of a pod that its ReplicaSet has let go


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
    """A pod that is released, and the label that makes it its ReplicaSet's again; "": that is gone."""

    pod: Pod
    template_hash: str


def put_back(snapshot: Snapshot) -> tuple[PutBack, ...]:
    """All that are released, wherever. What only carries such an annotation, and was never let go, is nobody's move."""
    sets = {each.uid: each for each in snapshot.replica_sets}
    found = []
    for pod in snapshot.pods:
        state, owner = released(pod), sets.get(former_owner(pod))
        if pod.terminating or state is None or not pod.labels.get(names.POD_TEMPLATE_HASH, "").startswith(LET_GO):
            continue
        is_there = owner is not None and owner.namespace == pod.namespace
        found.append(PutBack(pod, state.template_hash if is_there else ""))
    return tuple(found)


def _is_opted_in(snapshot: Snapshot, namespace: str) -> bool:
    known = snapshot.namespaces.get(namespace)
    return known is not None and known.is_opted_in


def _left_over(pod: Pod, classes: Classes) -> LeftOver:
    labels = tuple(key for key in (names.CLASS,) if key in pod.labels)
    decision = (names.DECISION,) if pod.decision else ()
    annotations = (*decision, *(key for key in names.POD_ANNOTATIONS if key in pod.annotations))
    return LeftOver(pod, classes.of_pod(pod, None) if decision else None, labels, annotations)
