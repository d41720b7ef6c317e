"""Pods of opted-in namespaces that are not placed, and why: the one list of reasons for status, page and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum

from placement.model import Kind, Owner, Pod, ReplicaSet, Workload


class SkipReason(StrEnum):
    """Why a pod is not placed. The values are labels of metrics."""

    ARGO_ROLLOUT = "argo-rollout"
    CLONE_SET = "clone-set"
    JOB = "job"
    DAEMON_SET = "daemon-set"
    BARE_REPLICA_SET = "bare-replica-set"
    BARE_POD = "bare-pod"
    OTHER_OWNER = "other-owner"
    OTHER_SCHEDULER = "other-scheduler"
    OPTED_OUT = "opted-out"
    GANG = "gang"

    @property
    def text(self) -> str:
        """For people, after a count of pods."""
        return _TEXTS[self]


_TEXTS = {
    SkipReason.ARGO_ROLLOUT: "owned by an Argo Rollout",
    SkipReason.CLONE_SET: "owned by an OpenKruise CloneSet",
    SkipReason.JOB: "owned by a Job",
    SkipReason.DAEMON_SET: "owned by a DaemonSet",
    SkipReason.BARE_REPLICA_SET: "owned by a ReplicaSet without a Deployment",
    SkipReason.BARE_POD: "without an owner",
    SkipReason.OTHER_OWNER: "owned by another controller",
    SkipReason.OTHER_SCHEDULER: "whose template names a node or another scheduler",
    SkipReason.OPTED_OUT: "opted out",
    SkipReason.GANG: "that are members of a gang",
}
_BY_OWNER = {
    ("argoproj.io", "Rollout"): SkipReason.ARGO_ROLLOUT,
    ("apps.kruise.io", "CloneSet"): SkipReason.CLONE_SET,
    ("batch", "Job"): SkipReason.JOB,
    ("apps", "DaemonSet"): SkipReason.DAEMON_SET,
}
_LOOKED_INTO = (("apps", "ReplicaSet"), ("apps", "StatefulSet"))

SkipCounts = Mapping[tuple[str, SkipReason], int]  # pods by namespace and reason
NOTHING_SKIPPED: SkipCounts = {}


def by_owner(owner: Owner | None) -> SkipReason | None:
    """What a pod's owner alone tells; None: a ReplicaSet or StatefulSet, which has to be looked into."""
    if owner is None:
        return SkipReason.BARE_POD
    kind = (owner.api_group, owner.kind)
    return None if kind in _LOOKED_INTO else _BY_OWNER.get(kind, SkipReason.OTHER_OWNER)


def by_pod(pod: Pod) -> SkipReason | None:
    """The same of a pod: a Job's pods may be members of a gang, which says more."""
    found = by_owner(pod.owner)
    return SkipReason.GANG if found is not None and pod.is_member else found


def by_revision(revision: ReplicaSet) -> SkipReason | None:
    """What the owner of a ReplicaSet tells; None: a Deployment, which has to be looked into."""
    above = revision.owner
    if above is None:
        return SkipReason.BARE_REPLICA_SET
    if (above.api_group, above.kind) == ("apps", Kind.DEPLOYMENT):
        return None
    return _BY_OWNER.get((above.api_group, above.kind), SkipReason.OTHER_OWNER)


def by_workload(workload: Workload, *, leaves_gangs: bool = False) -> SkipReason | None:
    if workload.is_opted_out:
        return SkipReason.OPTED_OUT
    if leaves_gangs and workload.template.is_gang:
        return SkipReason.GANG
    return SkipReason.OTHER_SCHEDULER if workload.template.is_placed_by_others else None


def skip_reason(pod: Pod, revisions: Mapping[str, ReplicaSet], workloads: Mapping[str, Workload]) -> SkipReason | None:
    """Why a pod is not placed; None: it is, or its owner is not known (yet). Both mappings are by UID."""
    if pod.is_released or (found := by_pod(pod)) is not None:
        return None if pod.is_released else found
    assert pod.owner is not None  # a bare pod has a reason
    revision = revisions.get(pod.owner.uid)
    if revision is not None and (told := by_revision(revision)) is not None:
        return told
    above = revision.owner if revision is not None else pod.owner
    workload = workloads.get(above.uid) if above is not None else None
    return None if workload is None else by_workload(workload)


def skipped_among(
    pods: Iterable[Pod], revisions: Mapping[str, ReplicaSet], workloads: Mapping[str, Workload]
) -> SkipCounts:
    """Counts live pods alone: those of finished Jobs stay for long."""
    found = Counter[tuple[str, SkipReason]]()
    for pod in pods:
        reason = skip_reason(pod, revisions, workloads) if pod.is_live else None
        if reason is not None:
            found[pod.namespace, reason] += 1
    return found
