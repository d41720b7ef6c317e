"""PodGroups of `scheduling.x-k8s.io/v1alpha1`: what is read of them, and their status, which is written."""

from __future__ import annotations

from dataclasses import asdict

from kube import wire
from kube.client import Client
from kube.errors import Conflict, NotFound
from kube.paths import path_of
from placement.gang.podgroup import GroupStatus, PodGroup

CALL_SECONDS = 4.0
PATH = "/apis/scheduling.x-k8s.io/v1alpha1/podgroups"


class PodGroupSpec(wire.Wire):
    """What its members ask for."""

    min_member: int | None = None
    schedule_timeout_seconds: int | None = None


class PodGroupStatus(wire.Wire):
    """What it says of them."""

    phase: str | None = None
    scheduled: int | None = None
    running: int | None = None
    succeeded: int | None = None
    failed: int | None = None


class PodGroupObject(wire.AnyObject):
    """Both together."""

    spec: PodGroupSpec | None = None
    status: PodGroupStatus | None = None


def pod_group(raw: PodGroupObject) -> PodGroup:
    meta, spec, status = raw.metadata, raw.spec or PodGroupSpec(), raw.status or PodGroupStatus()
    return PodGroup(
        meta.namespace or "",
        meta.name or "",
        meta.uid or "",
        spec.min_member or 0,
        spec.schedule_timeout_seconds or 0,
        GroupStatus(
            status.phase or "", status.scheduled or 0, status.running or 0, status.succeeded or 0, status.failed or 0
        ),
    )


def write_status(client: Client, group: PodGroup, status: GroupStatus) -> None:
    """Raises ApiError. If it is gone, or another one has its name, there is nothing to write."""
    patch = {"metadata": {"uid": group.uid}, "status": asdict(status)}
    try:
        client.patch(f"{path_of(PATH, group.name, group.namespace)}/status", patch, timeout_seconds=CALL_SECONDS)
    except (Conflict, NotFound):
        return
