"""What a pod asks of a node, read from its spec; siblings share one `Needs`.

The bytes of two siblings' specs differ (node, name, the volume of the token), so they are compared by the parts that
matter. Only a spec whose parts were not seen of late is decoded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from sys import intern

import msgspec
from msgspec import Raw

from kube.interning import RecentlyUsed, Shared
from kube.wire import (
    AffinityInFull,
    Asking,
    Disks,
    LabelSelector,
    PodAffinityTerm,
    PodSpecInFull,
    Port,
    Quantities,
    Resources,
    SpreadConstraint,
    TolerationObject,
)
from placement.lack import Lack
from placement.model import (
    NO_AMOUNTS,
    NOTHING,
    HardSpread,
    HostPort,
    Needs,
    NodeRequirement,
    NodeTerm,
    PodTerm,
    Toleration,
)
from placement.quantity import amount

_Names = tuple[str, ...]
_Stored = tuple[
    _Names, _Names, Lack | None, bool
]  # claims, disks, what is not modelled, whether the node's disk is used
Marks = tuple[int | None, str | None, int | None, bool | None, _Stored, tuple[str | None, ...] | None, bool]
_Key = tuple[bytes, Marks]

_HARD = b"DoNotSchedule"
_HOST_PORT = b"hostPort"
_SIDECAR = "Always"
_NEVER = "Never"

# The drivers that attach what pods and volumes of older clouds name.
_DRIVERS = {
    "gce_persistent_disk": "pd.csi.storage.gke.io",
    "aws_elastic_block_store": "ebs.csi.aws.com",
    "azure_disk": "disk.csi.azure.com",
    "cinder": "cinder.csi.openstack.org",
    "vsphere_volume": "csi.vsphere.vmware.com",
    "portworx_volume": "pxd.portworx.com",
    "iscsi": "iscsi",
    "rbd": "rbd",
    "fc": "fc",
}
_NOTHING_STORED: _Stored = ((), (), None, False)

_NO_RAW = Raw()
_NONE = _NO_RAW, _NO_RAW

_decode_asking = msgspec.json.Decoder(Asking).decode
_decode_resources = msgspec.json.Decoder(Resources | None).decode
_decode_quantities = msgspec.json.Decoder(Quantities | None).decode
_decode_ports = msgspec.json.Decoder(list[Port] | None).decode
_decode_selector = msgspec.json.Decoder(dict[str, str] | None).decode
_decode_tolerations = msgspec.json.Decoder(list[TolerationObject] | None).decode
_decode_spread = msgspec.json.Decoder(list[SpreadConstraint] | None).decode
_decode_pod_terms = msgspec.json.Decoder(list[PodAffinityTerm] | None).decode


def amounts(quantities: Quantities | None) -> Mapping[str, int]:
    """Resource → how much, in the model's units."""
    return {intern(name): amount(name, each) for name, each in quantities.items()} if quantities else NO_AMOUNTS


def _build_amounts(raw: bytes) -> Mapping[str, int]:
    return amounts(_decode_quantities(raw) if raw else None)


def _build_requests(raw: bytes) -> Mapping[str, int]:
    resources = _decode_resources(raw) if raw else None
    return amounts(resources.requests) if resources is not None else NO_AMOUNTS


def _build_limits(raw: bytes) -> Mapping[str, int]:
    resources = _decode_resources(raw) if raw else None
    return amounts(resources.limits) if resources is not None else NO_AMOUNTS


shared_amounts = Shared(_build_amounts)
shared_requests = Shared(_build_requests, 1024)
shared_limits = Shared(_build_limits, 1024)
_kept: RecentlyUsed[_Key, Needs] = RecentlyUsed()
_kept_related: RecentlyUsed[tuple[_Key, bytes, bytes, bytes], Needs] = RecentlyUsed(1024)


def needs_of(spec: PodSpecInFull, marks: Marks) -> Needs:
    """One for all pods that need the same, of whatever workload. What names other pods is added to it.

    That is hard spread, and required affinity and anti-affinity: they differ for every workload.
    """
    key = _key(spec, marks)
    needs = _kept.get(key) or _kept.recall(key, lambda: _needs(spec, marks))
    spread, (near, apart) = bytes(spec.topology_spread_constraints), map(bytes, _pod_terms_in(spec.affinity))
    return _related(key, needs, spread, near, apart) if _HARD in spread or near or apart else needs


def _related(key: _Key, needs: Needs, spread: bytes, near: bytes, apart: bytes) -> Needs:
    whole = (key, spread, near, apart)
    return _kept_related.get(whole) or _kept_related.recall(
        whole,
        lambda: replace(
            needs, hard_spread=_hard_spread(spread), affinity=_pod_terms(near), anti_affinity=_pod_terms(apart)
        ),
    )


def add_parts(parts: list[Raw | bytes], spec: PodSpecInFull) -> None:
    """What of a spec tells two pods' needs apart, as far as it is told by bytes; `marks_of` tells the rest."""
    parts += (
        spec.tolerations,
        spec.node_selector,
        spec.overhead,
        spec.resources,
        spec.topology_spread_constraints,
        *_pod_terms_in(spec.affinity),
    )
    for container in spec.containers or ():
        parts += (container.resources, container.ports)
    for container in spec.init_containers or ():
        parts += (container.resources, container.ports)


def marks_of(spec: PodSpecInFull, name: str) -> Marks:
    """What of a spec tells two pods' needs apart and is no JSON any more. The name is the pod's."""
    return (
        spec.priority,
        spec.priority_class_name,
        spec.termination_grace_period_seconds,
        spec.host_network,
        _storage(spec, name),
        tuple([each.restart_policy for each in spec.init_containers]) if spec.init_containers else None,
        spec.preemption_policy == _NEVER,
    )


def _key(spec: PodSpecInFull, marks: Marks) -> _Key:
    """Without what most pods have and does not matter here: spread constraints, ports that are not the host's."""
    parts: list[Raw | bytes] = [spec.tolerations, spec.node_selector, spec.overhead, spec.resources]
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        ports = bytes(container.ports)
        parts += (container.resources, ports if spec.host_network or _HOST_PORT in ports else b"")
    return b"\0".join(parts), marks


def _pod_terms_in(affinity: AffinityInFull | None) -> tuple[Raw, Raw]:
    """Required affinity and anti-affinity to other pods, as JSON."""
    if affinity is None:
        return _NONE
    near, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    if near is None and apart is None:
        return _NONE
    return _NO_RAW if near is None else near.required, _NO_RAW if apart is None else apart.required


def _storage(spec: PodSpecInFull, name: str) -> _Stored:
    """Claims of volumes, disks, what is not modelled, and whether something is kept on the node's disk."""
    if not spec.volumes and not spec.resource_claims:
        return _NOTHING_STORED  # as many are
    claims, disks, local = [], [], False
    unmodelled = Lack.UNKNOWN_CLAIMS if spec.resource_claims else None
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None:
            claims.append(_shared_name(volume.persistent_volume_claim.claim_name or "", name))
        elif volume.ephemeral is not None:
            claims.append(f"*-{volume.name}")
            unmodelled = unmodelled or Lack.UNKNOWN_EPHEMERAL
        elif volume.host_path is not None or (volume.empty_dir is not None and volume.empty_dir.medium != "Memory"):
            local = True
        else:
            disks += drivers_of(volume)
    if disks:
        unmodelled = unmodelled or Lack.UNKNOWN_DISKS
    return tuple(claims), tuple(disks), unmodelled, local


def drivers_of(source: Disks) -> list[str]:
    """What attaches the disk that is named, if one is."""
    return [driver for field, driver in _DRIVERS.items() if getattr(source, field) is not None]


def _shared_name(claim: str, pod: str) -> str:
    """`data-web-0` of the pod `web-0` is `data-*`: a StatefulSet's pods then share one `Needs`."""
    return claim.removesuffix(pod) + "*" if pod and claim.endswith(f"-{pod}") else claim


# --- where nothing was kept ------------------------------------------------------------------------------------------


def _needs(spec: PodSpecInFull, marks: Marks) -> Needs:
    claims, disks, unmodelled, has_local_storage = marks[4]
    grace = spec.termination_grace_period_seconds
    return Needs(
        requests=_requests(spec),
        limits=_requests(spec, shared_limits),
        node_selector=_node_selector(spec.node_selector),
        tolerations=_tolerations(spec.tolerations),
        claims=claims,
        disks=disks,
        unmodelled=unmodelled,
        has_local_storage=has_local_storage,
        host_ports=_host_ports(spec),
        priority=spec.priority or 0,
        grace_seconds=30 if grace is None else grace,
        priority_class=intern(spec.priority_class_name or ""),
        never_preempts=marks[6],
    )


def requests_in(spec: bytes) -> Mapping[str, int]:
    """How much a pod with this spec, as JSON, asks for. Raises msgspec.DecodeError where it is none."""
    return _requests(_decode_asking(spec))


def _requests(
    spec: PodSpecInFull | Asking, of: Callable[[Raw], Mapping[str, int]] = shared_requests
) -> Mapping[str, int]:
    """As the scheduler counts: what runs together is added, what runs before it only has to fit; then the overhead.

    Sidecars (init containers that always restart) run beside all that starts after them. Example, CPU: containers
    100 + 200, a sidecar 50 and after it an init container of 400 → max(100 + 200 + 50, 50 + 400) = 450.
    """
    beside: dict[str, int] = {}  # the sidecars so far; in the end, all that runs together
    most: dict[str, int] = {}
    for container in spec.init_containers or ():
        asked = of(container.resources)
        if container.restart_policy == _SIDECAR:
            _add(beside, asked)
        else:
            _raise(most, beside)
            _raise(most, {name: beside.get(name, 0) + each for name, each in asked.items()})
    for container in spec.containers or ():
        _add(beside, of(container.resources))
    _raise(most, beside)
    most |= of(spec.resources)  # of the pod as a whole: stands for its containers' sum
    _add(most, shared_amounts(spec.overhead))
    return {name: each for name, each in most.items() if each} or NO_AMOUNTS


def _add(total: dict[str, int], amounts_: Mapping[str, int]) -> None:
    for name, each in amounts_.items():
        total[name] = total.get(name, 0) + each


def _raise(most: dict[str, int], amounts_: Mapping[str, int]) -> None:
    for name, each in amounts_.items():
        most[name] = max(most.get(name, 0), each)


def _node_selector(raw: Raw) -> Mapping[str, str]:
    body = bytes(raw)
    selector = _decode_selector(body) if body else None
    return {intern(key): intern(value) for key, value in selector.items()} if selector else NOTHING


def _tolerations(raw: Raw) -> tuple[Toleration, ...]:
    body = bytes(raw)
    return tuple(
        Toleration(
            intern(each.key or ""),
            intern(each.operator or "Equal"),
            intern(each.value or ""),
            intern(each.effect or ""),
        )
        for each in (_decode_tolerations(body) if body else None) or ()
    )


def _hard_spread(raw: bytes) -> tuple[HardSpread, ...]:
    return tuple(
        HardSpread(
            intern(each.topology_key or ""),
            1 if each.max_skew is None else each.max_skew,
            _label_terms(each.label_selector),
            each.min_domains or 1,
            each.node_affinity_policy == "Ignore",
            each.node_taints_policy == "Honor",
            tuple(map(intern, each.match_label_keys or ())),
        )
        for each in (_decode_spread(raw) if raw else None) or ()
        if each.when_unsatisfiable == _HARD.decode()
    )


def _pod_terms(raw: bytes) -> tuple[PodTerm, ...]:
    return tuple(
        PodTerm(
            intern(each.topology_key or ""),
            _label_terms(each.label_selector),
            tuple(map(intern, each.namespaces or ())),
            _label_terms(each.namespace_selector),
        )
        for each in (_decode_pod_terms(raw) if raw else None) or ()
    )


def _label_terms(selector: LabelSelector | None) -> NodeTerm | None:
    if selector is None:
        return None
    equal = (selector.match_labels or NOTHING).items()
    return (
        *(NodeRequirement(intern(key), "In", (intern(value),)) for key, value in equal),
        *(
            NodeRequirement(intern(each.key or ""), intern(each.operator or ""), tuple(map(intern, each.values or ())))
            for each in selector.match_expressions or ()
        ),
    )


def _host_ports(spec: PodSpecInFull) -> tuple[HostPort, ...]:
    """Of what runs for long. With the host's network every port of a container is one of the node."""
    found = []
    sidecars = (each for each in spec.init_containers or () if each.restart_policy == _SIDECAR)
    for container in (*(spec.containers or ()), *sidecars):
        body = bytes(container.ports)
        for port in (_decode_ports(body) if body else None) or ():
            number = port.host_port or (port.container_port if spec.host_network else None)
            if number:
                found.append(HostPort(number, port.protocol or "TCP", port.host_ip or HostPort(0).ip))
    return tuple(found)
