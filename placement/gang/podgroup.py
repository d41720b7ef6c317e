"""PodGroup objects of `scheduling.x-k8s.io`, which the coscheduling plugin has made known: what they ask for and show.

Example: `minMember: 8, scheduleTimeoutSeconds: 600`. Eight members start together, and a gang that waits for longer
than ten minutes is reported. While seven of them run its status says `phase: Scheduling, scheduled: 8, running: 7`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from placement.model import Key, Pod


class NoPodGroup(StrEnum):
    """Why there is no PodGroup for members that name one; "": the cluster has no such objects, so none is missing."""

    UNREAD = "PodGroup objects have not been read yet"
    MISSING = "its PodGroup does not exist"
    UNSERVED = ""


class GroupPhase(StrEnum):
    """As the CRD has them."""

    PENDING = "Pending"
    SCHEDULING = "Scheduling"  # min-member are on nodes, and not all of them run yet
    UNKNOWN = "Unknown"  # some are on nodes, and others cannot be
    RUNNING = "Running"
    FINISHED = "Finished"
    FAILED = "Failed"


@dataclass(frozen=True, slots=True)
class GroupStatus:
    """What a PodGroup says of its members. `scheduled` is not in every version of the CRD."""

    phase: str = ""
    scheduled: int = 0
    running: int = 0
    succeeded: int = 0
    failed: int = 0


@dataclass(frozen=True, slots=True)
class PodGroup:
    """A PodGroup that exists. A phase that ends it stays, as its members are deleted one by one."""

    namespace: str
    name: str
    uid: str = ""
    min_member: int = 0
    timeout_seconds: int = 0
    status: GroupStatus = GroupStatus()

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def is_over(self) -> bool:
        return self.status.phase in (GroupPhase.FINISHED, GroupPhase.FAILED)


def status_for(group: PodGroup, members: Iterable[Pod]) -> GroupStatus:
    """What its members come to, those that have ended among them."""
    there = list(members)
    phases = [pod.phase for pod in there]
    running, succeeded, failed = (phases.count(phase) for phase in ("Running", "Succeeded", "Failed"))
    scheduled = sum(bool(pod.node) for pod in there)
    phase = _phase(group.min_member or 1, scheduled, running, succeeded, failed)
    return GroupStatus(phase, scheduled, running, succeeded, failed)


def _phase(least: int, scheduled: int, running: int, succeeded: int, failed: int) -> GroupPhase:
    if succeeded >= least:
        return GroupPhase.FINISHED
    if failed and failed + running + succeeded >= least:
        return GroupPhase.FAILED
    if running + succeeded >= least:
        return GroupPhase.RUNNING
    if scheduled >= least:
        return GroupPhase.SCHEDULING
    return GroupPhase.UNKNOWN if scheduled else GroupPhase.PENDING
