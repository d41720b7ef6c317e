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
    LabelSelector,
    PodAffinityTerm,
    PodSpecInFull,
    Port,
    Quantities,
    Resources,
    SpreadConstraint,
    TolerationObject,
)
from placement.model import NO_AMOUNTS, NOTHING, HardSpread, Needs, NodeRequirement, NodeTerm, PodTerm, Toleration
from placement.quantity import amount

Marks = tuple[int | None, str | None, int | None, bool | None, tuple[bool, bool], tuple[str | None, ...] | None]
_Key = tuple[bytes, Marks]

_HARD = b"DoNotSchedule"
_HOST_PORT = b"hostPort"
_SIDECAR = "Always"

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
_kept_related: RecentlyUsed[tuple[_Key, bytes, bytes, bytes], Needs] = RecentlyUsed(2048)


def needs_of(spec: PodSpecInFull) -> Needs:
    """One for all pods that need the same, of whatever workload. What names other pods is added to it.

    That is hard spread, and required affinity and anti-affinity: they differ for every workload.
    """
    key = _key(spec)
    needs = _kept.get(key) or _kept.recall(key, lambda: _needs(spec))
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


def marks_of(spec: PodSpecInFull) -> Marks:
    """What of a spec tells two pods' needs apart and is no JSON any more."""
    return (
        spec.priority,
        spec.priority_class_name,
        spec.termination_grace_period_seconds,
        spec.host_network,
        _storage(spec),
        tuple([each.restart_policy for each in spec.init_containers]) if spec.init_containers else None,
    )


def _key(spec: PodSpecInFull) -> _Key:
    """Without what most pods have and does not matter here: spread constraints, ports that are not the host's."""
    parts: list[Raw | bytes] = [spec.tolerations, spec.node_selector, spec.overhead, spec.resources]
    for container in (*(spec.containers or ()), *(spec.init_containers or ())):
        ports = bytes(container.ports)
        parts += (container.resources, ports if spec.host_network or _HOST_PORT in ports else b"")
    return b"\0".join(parts), marks_of(spec)


def _pod_terms_in(affinity: AffinityInFull | None) -> tuple[Raw, Raw]:
    """Required affinity and anti-affinity to other pods, as JSON."""
    if affinity is None:
        return _NONE
    near, apart = affinity.pod_affinity, affinity.pod_anti_affinity
    if near is None and apart is None:
        return _NONE
    return _NO_RAW if near is None else near.required, _NO_RAW if apart is None else apart.required


def _storage(spec: PodSpecInFull) -> tuple[bool, bool]:
    """Whether there are claims (of volumes, or of devices), and whether something is kept on the node's disk."""
    claims, local = bool(spec.resource_claims), False
    for volume in spec.volumes or ():
        if volume.persistent_volume_claim is not None or volume.ephemeral is not None:
            claims = True
        elif volume.host_path is not None or (volume.empty_dir is not None and volume.empty_dir.medium != "Memory"):
            local = True
    return claims, local


# --- where nothing was kept ------------------------------------------------------------------------------------------


def _needs(spec: PodSpecInFull) -> Needs:
    has_claims, has_local_storage = _storage(spec)
    grace = spec.termination_grace_period_seconds
    return Needs(
        requests=_requests(spec),
        limits=_requests(spec, shared_limits),
        node_selector=_node_selector(spec.node_selector),
        tolerations=_tolerations(spec.tolerations),
        has_claims=has_claims,
        has_local_storage=has_local_storage,
        host_ports=_host_ports(spec),
        priority=spec.priority or 0,
        grace_seconds=30 if grace is None else grace,
        priority_class=intern(spec.priority_class_name or ""),
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
            each.label_selector or {},
            each.min_domains or 1,
            each.node_affinity_policy == "Ignore",
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


def _host_ports(spec: PodSpecInFull) -> tuple[int, ...]:
    """Of what runs for long. With the host's network every port of a container is one of the node."""
    found = []
    sidecars = (each for each in spec.init_containers or () if each.restart_policy == _SIDECAR)
    for container in (*(spec.containers or ()), *sidecars):
        body = bytes(container.ports)
        for port in (_decode_ports(body) if body else None) or ():
            number = port.host_port or (port.container_port if spec.host_network else None)
            if number:
                found.append(number)
    return tuple(found)
