"""Counts pods that are not placed, by differences: a namespace may have thousands of Jobs' pods."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from placement.model import Pod
from placement.plan.relations import Relations
from placement.skipped import SkipCounts, SkipReason, by_pod, by_revision, by_workload

_Of = tuple[str, SkipReason]


class SkippedPods:
    """By namespace and reason, of all namespaces: which are opted in is asked when somebody wants to know."""

    def __init__(self) -> None:
        self._alone = Counter[_Of]()  # of pods whose owner alone tells the reason
        self._of_owner: dict[str, tuple[_Of, int]] = {}  # by the UID of what owns the others

    def change(self, old: Pod | None, new: Pod | None) -> None:
        """A pod came, changed or went."""
        if old is not None:
            self._count(old, -1)
        if new is not None:
            self._count(new, 1)

    def _count(self, pod: Pod, difference: int) -> None:
        reason = by_pod(pod) if pod.is_live else None
        if reason is not None:
            key = (pod.namespace, reason)
            self._alone[key] += difference
            if not self._alone[key]:
                del self._alone[key]

    def look(self, uid: str, relations: Relations) -> None:
        """At a workload, a ReplicaSet without one, or an unknown owner of ReplicaSets, whose pods have changed."""
        found = _skipped_of(uid, relations)
        if found is None:
            self._of_owner.pop(uid, None)
        else:
            self._of_owner[uid] = found

    def counts(self, is_opted_in: Callable[[str], bool]) -> SkipCounts:
        found = Counter({key: pods for key, pods in self._alone.items() if is_opted_in(key[0])})
        for key, pods in self._of_owner.values():
            if is_opted_in(key[0]):
                found[key] += pods
        return found


def _skipped_of(uid: str, relations: Relations) -> tuple[_Of, int] | None:
    """One that is owned itself is counted with its owner, even if its pods came first."""
    workload = relations.workloads.get(uid)
    if workload is not None:
        namespace, reason = workload.namespace, by_workload(workload, leaves_gangs=relations.leaves_gangs)
        if reason is None:
            return None  # as most are
        pods = [pod for cohort in relations.cohorts(workload) for pod in cohort.pods]
    else:
        revision = relations.sets.get(uid)
        bare = () if revision is None or revision.owner is not None else (revision,)
        sets = bare or relations.sets_of.get(uid, ())
        namespace, reason = (sets[0].namespace, by_revision(sets[0])) if sets else ("", None)
        pods = [pod for each in sets for pod in relations.own(each.uid, each.namespace)] if reason else []
    live = sum(pod.is_live for pod in pods)
    return ((namespace, reason), live) if reason is not None and live else None
