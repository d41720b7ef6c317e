"""What is left of us where nobody wants us any more: pods that still carry what admission or a move gave them.

They run on as they are. What cannot be changed in a pod that exists (its affinity) goes with its next rollout.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from placement import names
from placement.classes import Classes
from placement.model import Class, Pod, ReplicaSet, Snapshot
from placement.plan.actions import Action
from placement.plan.group import former_owner, released
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
    """All that are released, wherever. What only carries such an annotation, and was never let go, is nobody's move."""
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


def _is_opted_in(snapshot: Snapshot, namespace: str) -> bool:
    known = snapshot.namespaces.get(namespace)
    return known is not None and known.is_opted_in


def _left_over(pod: Pod, classes: Classes) -> LeftOver:
    labels = tuple(key for key in (names.CLASS,) if key in pod.labels)
    decision = (names.DECISION,) if pod.decision else ()
    annotations = (*decision, *(key for key in names.POD_ANNOTATIONS if key in pod.annotations))
    return LeftOver(pod, classes.of_pod(pod, None) if decision else None, labels, annotations)
