"""Released pods that no assessment covers: what is left of what they belonged to."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from placement.model import Kind, Pod, ReplicaSet, Workload
from placement.plan.assess import Assessment
from placement.plan.marks import former_owner
from placement.plan.relations import Relations
from placement.plan.release import LeftBehind, was_of
from placement.selector import matches


def left_behind(
    relations: Relations, assessments: Mapping[str, Assessment], failing: Collection[str]
) -> Iterator[LeftBehind]:
    """`failing` are the UIDs of workloads that could not be assessed: their pods are left alone."""
    for uid, pods in relations.released_of.items():
        revision = relations.sets.get(uid)
        for pod in pods:
            if not pod.terminating and (revision is None or revision.namespace == pod.namespace):
                yield from _left_behind(pod, revision, relations, assessments, failing)


def _left_behind(
    pod: Pod,
    revision: ReplicaSet | None,
    relations: Relations,
    assessments: Mapping[str, Assessment],
    failing: Collection[str],
) -> Iterator[LeftBehind]:
    """Its workload has opted out, left its ReplicaSet behind (`--cascade=orphan`) or been rolled out since.

    Where a Deployment that is gone still owns the pod or its ReplicaSet, both go in a moment.
    """
    owner_uid = _owner_uid(pod, revision)
    workload = relations.workloads.get(owner_uid) if owner_uid else _by_labels(pod, revision, relations)
    if workload is None:
        if not owner_uid:
            yield _left(pod, revision, None, None, relations)
        return
    found = assessments.get(workload.uid)
    is_covered = found is not None and revision is not None and was_of(pod, revision)
    if not is_covered and workload.uid not in failing:
        yield _left(pod, revision, workload, found, relations)


def _left(
    pod: Pod,
    revision: ReplicaSet | None,
    workload: Workload | None,
    found: Assessment | None,
    relations: Relations,
) -> LeftBehind:
    if found is not None:
        serving = tuple(each.pod for each in found.members if each.is_available)
    else:
        sets = relations.sets_of.get(workload.uid, ()) if workload is not None else ()
        serving = tuple(each for one in sets for each in _live(one, relations) if each.ready)
    siblings = _live(revision, relations) if revision is not None else ()
    may_evict = relations.is_opted_in(pod.namespace)
    return LeftBehind(pod, revision, siblings, workload, serving, found is not None, may_evict)


def _live(revision: ReplicaSet, relations: Relations) -> tuple[Pod, ...]:
    return tuple(pod for pod in relations.own(revision.uid, revision.namespace) if pod.is_live)


def _by_labels(pod: Pod, revision: ReplicaSet | None, relations: Relations) -> Workload | None:
    """As the version before released pods: without an owner. A ReplicaSet that was left behind has none either."""
    if revision is not None:
        return None
    here = (relations.workloads[uid] for uid in relations.in_namespace.get(pod.namespace, ()))
    found = (each for each in here if each.kind is Kind.DEPLOYMENT and each.selector)
    return next((each for each in found if matches(each.selector, pod.labels)), None)


def _owner_uid(pod: Pod, revision: ReplicaSet | None) -> str:
    """Of the Deployment that the pod, or else its ReplicaSet, belongs to; "": neither has one."""
    if pod.owner is not None and pod.owner.uid != former_owner(pod):
        return pod.owner.uid
    return revision.owner.uid if revision is not None and revision.owner is not None else ""
