"""Claims, volumes and CSINodes: what is read of them, and what becomes of it. Little more than names is kept."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from sys import intern

from msgspec import Raw

from kube.convert import shared_labels, shared_terms
from kube.interning import SHARED
from kube.needs import drivers_of
from kube.wire import AnyObject, Disks, Wire
from placement import names
from placement.model import NO_AMOUNTS, NOTHING, AttachLimits, Claim, NodeRequirement, NodeTerm, Volume


class ClaimSpec(Wire):
    volume_name: str | None = None
    access_modes: list[str] | None = None


class ClaimStatus(Wire):
    phase: str | None = None


class ClaimObject(AnyObject):
    spec: ClaimSpec | None = None
    status: ClaimStatus | None = None


class CsiSource(Wire):
    driver: str | None = None


class VolumeNodes(Wire):
    required: Raw = Raw()


class VolumeSpec(Disks):
    csi: CsiSource | None = None
    node_affinity: VolumeNodes | None = None


class VolumeObject(AnyObject):
    spec: VolumeSpec | None = None


class CsiAllocatable(Wire):
    count: int | None = None


class CsiDriver(Wire):
    name: str | None = None
    allocatable: CsiAllocatable | None = None


class CsiNodeSpec(Wire):
    drivers: list[CsiDriver] | None = None


class CsiNodeObject(AnyObject):
    spec: CsiNodeSpec | None = None


# --- wire → model -------------------------------------------------------------------------------------------------


def claim(wire: ClaimObject) -> Claim:
    """It is bound once its controller says so: until then the scheduler waits, too."""
    meta, spec, status = wire.metadata, wire.spec or ClaimSpec(), wire.status or ClaimStatus()
    is_bound = names.BIND_COMPLETED in (meta.annotations or NOTHING)
    return Claim(
        intern(meta.namespace or ""),
        meta.name or "",
        (spec.volume_name or "") if is_bound else "",
        "ReadWriteOncePod" in (spec.access_modes or ()),
        meta.deletion_timestamp is None and status.phase != "Lost",
    )


def volume(wire: VolumeObject) -> Volume:
    meta, spec = wire.metadata, wire.spec or VolumeSpec()
    drivers = [spec.csi.driver or ""] if spec.csi is not None else drivers_of(spec)
    terms = shared_terms(spec.node_affinity.required) if spec.node_affinity is not None else ()
    return Volume(meta.name or "", terms, _zones(shared_labels(meta.labels)), intern(drivers[0]) if drivers else "")


@lru_cache(SHARED)
def _zone(key: str, value: str) -> NodeRequirement:
    """A volume of several zones names them with `__` in between."""
    return NodeRequirement(key, "In", tuple(value.split("__")))


def _zones(labels: Mapping[str, str]) -> NodeTerm:
    return tuple(_zone(key, labels[key]) for key in names.VOLUME_ZONES if key in labels)


def attach_limits(wire: CsiNodeObject) -> AttachLimits:
    drivers = (wire.spec.drivers if wire.spec is not None else None) or ()
    counts = {intern(each.name or ""): each.allocatable.count for each in drivers if each.allocatable is not None}
    most = {name: count for name, count in counts.items() if count is not None}
    return AttachLimits(intern(wire.metadata.name or ""), most or NO_AMOUNTS)
