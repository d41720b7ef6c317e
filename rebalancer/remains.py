"""Released pods that no assessment covers: whose they were, what is left of that, and so how they end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass

from placement.model import Kind, Pod, ReplicaSet, Workload
from placement.plan.actions import Action
from placement.plan.assess import Assessment
from placement.plan.group import former_owner
from placement.plan.release import LeftBehind, ends_of, was_of
from placement.selector import matches


@dataclass(frozen=True, slots=True)
class Remains:
    """What the index knows, as far as this asks for it: everything by UID, and always as it is now."""

    workloads: Mapping[str, Workload]
    in_namespace: Mapping[str, Collection[str]]
    sets: Mapping[str, ReplicaSet]
    sets_of: Mapping[str, tuple[ReplicaSet, ...]]
    pods_of: Mapping[str, tuple[Pod, ...]]
    released_of: Mapping[str, tuple[Pod, ...]]
    assessments: Mapping[str, Assessment]
    failing: Collection[str]
    is_opted_in: Callable[[str], bool]

    def ends(self) -> Iterator[Action]:
        for uid, pods in self.released_of.items():
            revision = self.sets.get(uid)
            for pod in pods:
                if not pod.terminating and (revision is None or revision.namespace == pod.namespace):
                    yield from self._ends(pod, revision)

    def _ends(self, pod: Pod, revision: ReplicaSet | None) -> Iterator[Action]:
        """Its workload has opted out, left its ReplicaSet behind (`--cascade=orphan`) or been rolled out since.

        Where a Deployment that is gone still owns the pod or its ReplicaSet, both go in a moment.
        """
        owner_uid = _owner_uid(pod, revision)
        workload = self.workloads.get(owner_uid) if owner_uid else self._by_labels(pod, revision)
        if workload is None:
            if not owner_uid:
                yield from ends_of(self._left(pod, revision, None))
            return
        is_covered = workload.uid in self.assessments and revision is not None and was_of(pod, revision)
        if not is_covered and workload.uid not in self.failing:
            yield from ends_of(self._left(pod, revision, workload))

    def _left(self, pod: Pod, revision: ReplicaSet | None, workload: Workload | None) -> LeftBehind:
        found = self.assessments.get(workload.uid) if workload is not None else None
        if found is not None:
            serving = tuple(each.pod for each in found.members if each.is_available)
        else:
            sets = self.sets_of.get(workload.uid, ()) if workload is not None else ()
            serving = tuple(each for one in sets for each in self._live(one) if each.ready)
        siblings = self._live(revision) if revision is not None else ()
        may_evict = self.is_opted_in(pod.namespace)
        return LeftBehind(pod, revision, siblings, workload, serving, found is not None, may_evict)

    def _live(self, revision: ReplicaSet) -> tuple[Pod, ...]:
        own = self.pods_of.get(revision.uid, ())
        return tuple(pod for pod in own if pod.is_live and pod.namespace == revision.namespace)

    def _by_labels(self, pod: Pod, revision: ReplicaSet | None) -> Workload | None:
        """As the version before released pods: without an owner. A ReplicaSet that was left behind has none either."""
        if revision is not None:
            return None
        here = (self.workloads[uid] for uid in self.in_namespace.get(pod.namespace, ()))
        found = (each for each in here if each.kind is Kind.DEPLOYMENT and each.selector)
        return next((each for each in found if matches(each.selector, pod.labels)), None)


def _owner_uid(pod: Pod, revision: ReplicaSet | None) -> str:
    """Of the Deployment that the pod, or else its ReplicaSet, belongs to; "": neither has one."""
    if pod.owner is not None and pod.owner.uid != former_owner(pod):
        return pod.owner.uid
    return revision.owner.uid if revision is not None and revision.owner is not None else ""
