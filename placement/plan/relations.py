"""Which pods and revisions belong to which workload; and so which workloads count, and with which pods."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from placement.model import Kind, Namespace, Pod, ReplicaSet, Workload
from placement.plan.group import Cohort
from placement.plan.release import was_of


@dataclass(frozen=True, slots=True)
class Relations:
    """Facts alone: everything by UID, and always as it is now."""

    namespaces: Mapping[str, Namespace]  # by name
    workloads: Mapping[str, Workload]
    in_namespace: Mapping[str, Collection[str]]  # by namespace: workloads
    sets: Mapping[str, ReplicaSet]
    sets_of: Mapping[str, tuple[ReplicaSet, ...]]  # by owner
    pods_of: Mapping[str, tuple[Pod, ...]]  # by owner
    released_of: Mapping[str, tuple[Pod, ...]]  # by former owner
    leaves_gangs: bool = False  # alone: gangs are switched on

    def is_opted_in(self, namespace: str) -> bool:
        found = self.namespaces.get(namespace)
        return found is not None and found.is_opted_in

    def looked_after(self, uid: str, *, opted_out: bool = False) -> Workload | None:
        """The workload, if it is ours to look after; or one in our namespaces that has opted out by itself."""
        workload = self.workloads.get(uid)
        if workload is None or not self.is_opted_in(workload.namespace):
            return None
        template = workload.template
        is_gang = template.is_gang and self.leaves_gangs
        is_other = workload.is_opted_out is not opted_out or template.is_placed_by_others or is_gang
        return None if is_other else workload

    def cohorts(self, workload: Workload) -> tuple[Cohort, ...]:
        """Its pods by revision; only revisions that have or want pods, since most are old ones."""
        if workload.kind is Kind.STATEFUL_SET:
            pods = self.own(workload.uid, workload.namespace)
            return (Cohort(workload.uid, workload.replicas, workload.settled, workload.template, pods),)
        return tuple(self._cohort(each) for each in self.sets_of.get(workload.uid, ()) if self._is_active(each))

    def own(self, uid: str, namespace: str) -> tuple[Pod, ...]:
        """Anybody may name an owner: pods of other namespaces are not its own."""
        return tuple([pod for pod in self.pods_of.get(uid, ()) if pod.namespace == namespace])

    def _is_active(self, revision: ReplicaSet) -> bool:
        return bool(revision.replicas) or revision.uid in self.pods_of or revision.uid in self.released_of

    def _cohort(self, revision: ReplicaSet) -> Cohort:
        uid = revision.uid
        own = self.own(uid, revision.namespace)
        released = tuple(pod for pod in self.released_of.get(uid, ()) if was_of(pod, revision))
        return Cohort(uid, revision.replicas, revision.settled, revision.template, own, released)
