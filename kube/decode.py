"""API objects → `placement.model`, reading only what is used.

A pod of 5 KB becomes a few hundred bytes: `msgspec` skips what the structs below do not name, and what siblings have
in common (labels, owner, node affinity) is kept once. Absent, null and unknown fields never raise; a field of the wrong
type does (`msgspec.ValidationError`), and the one object that has it is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from sys import intern
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Raw

from kube.shared import Shared
from placement import names
from placement.model import (
    DEFAULT_SCHEDULER,
    NOTHING,
    Key,
    Kind,
    Namespace,
    Node,
    NodeRequirement,
    NodeTaint,
    NodeTerm,
    Owner,
    Pod,
    PriorityClass,
    ReplicaSet,
    Rollout,
    Template,
    Workload,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741 - an object as it is on the wire


# --- the wire: what is read of each object ------------------------------------------------------------------------


class Wire(msgspec.Struct, gc=False, rename="camel"):
    """A part of an API object. Every field may be absent or null."""


class ListMeta(Wire):
    resource_version: str | None = None
    continue_: str | None = msgspec.field(default=None, name="continue")


class Meta(Wire):
    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    resource_version: str | None = None
    deletion_timestamp: str | None = None
    labels: Raw = Raw()
    annotations: dict[str, str] | None = None
    owner_references: Raw = Raw()


class Identity(Wire):
    """Enough of any object to know which one is meant."""

    metadata: Meta = msgspec.field(default_factory=Meta)


class Condition(Wire):
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None


class OwnerReference(Wire):
    api_version: str | None = None
    kind: str | None = None
    name: str | None = None
    uid: str | None = None
    controller: bool | None = None


class Expression(Wire):
    key: str | None = None
    operator: str | None = None
    values: list[str] | None = None


class SelectorTerm(Wire):
    match_expressions: list[Expression] | None = None


class NodeSelector(Wire):
    node_selector_terms: list[SelectorTerm] | None = None


class NodeAffinity(Wire):
    required: Raw = msgspec.field(default=Raw(), name="requiredDuringSchedulingIgnoredDuringExecution")


class Affinity(Wire):
    node_affinity: NodeAffinity | None = None


class PodSpec(Wire):
    node_name: str | None = None
    affinity: Affinity | None = None


class PodStatus(Wire):
    phase: str | None = None
    conditions: list[Condition] | None = None


class PodObject(Identity):
    spec: PodSpec | None = None
    status: PodStatus | None = None


class Taint(Wire):
    key: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSpec(Wire):
    taints: list[Taint] | None = None
    unschedulable: bool | None = None


class NodeStatus(Wire):
    conditions: list[Condition] | None = None


class NodeObject(Identity):
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


class TemplateSpec(Wire):
    priority_class_name: str | None = None
    node_name: str | None = None
    scheduler_name: str | None = None


class TemplateObject(Wire):
    metadata: Meta | None = None
    spec: TemplateSpec | None = None


class RollingUpdate(Wire):
    max_unavailable: int | str | None = None
    max_surge: int | str | None = None


class Strategy(Wire):
    type: str | None = None
    rolling_update: RollingUpdate | None = None


class Ordinals(Wire):
    start: int | None = None


class WorkloadSpec(Wire):
    """Of Deployments, StatefulSets and ReplicaSets alike."""

    replicas: int | None = None
    selector: Raw = Raw()
    template: TemplateObject | None = None
    strategy: Strategy | None = None
    update_strategy: Strategy | None = None
    pod_management_policy: str | None = None
    ordinals: Ordinals | None = None


class WorkloadObject(Identity):
    spec: WorkloadSpec | None = None


class PriorityClassObject(Identity):
    value: int | None = None


# --- parts that siblings share ------------------------------------------------------------------------------------

_decode_strings = msgspec.json.Decoder(dict[str, str] | None).decode
_decode_selector = msgspec.json.Decoder(dict[str, Any] | None).decode
_decode_owners = msgspec.json.Decoder(list[OwnerReference] | None).decode
_decode_node_selector = msgspec.json.Decoder(NodeSelector | None).decode


def _build_labels(raw: bytes) -> Mapping[str, str]:
    labels = _decode_strings(raw) if raw else None
    return {intern(key): intern(value) for key, value in labels.items()} if labels else NOTHING


def _build_selector(raw: bytes) -> Mapping[str, object]:
    return (_decode_selector(raw) if raw else None) or {}


def _build_owner(raw: bytes) -> Owner | None:
    references = (_decode_owners(raw) if raw else None) or ()
    return next((_owner(reference) for reference in references if reference.controller), None)


def _owner(reference: OwnerReference) -> Owner:
    group, slash, _ = (reference.api_version or "").partition("/")
    return Owner(
        kind=intern(reference.kind or ""),
        name=reference.name or "",
        uid=reference.uid or "",
        api_group=intern(group if slash else ""),
    )


def _build_terms(raw: bytes) -> tuple[NodeTerm, ...]:
    selector = _decode_node_selector(raw) if raw else None
    return tuple(
        tuple(
            NodeRequirement(expression.key or "", expression.operator or "", tuple(expression.values or ()))
            for expression in term.match_expressions or ()
        )
        for term in (selector.node_selector_terms if selector is not None else None) or ()
    )


shared_labels = Shared(_build_labels)
shared_selector = Shared(_build_selector)
shared_owner = Shared(_build_owner)
shared_terms = Shared(_build_terms)


# --- wire → model -------------------------------------------------------------------------------------------------


def pod(wire: PodObject) -> Pod:
    meta, spec, status = wire.metadata, wire.spec or _NO_POD_SPEC, wire.status or _NO_POD_STATUS
    ready, unschedulable = _conditions_of(status.conditions)
    return Pod(
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        uid=meta.uid or "",
        owner=shared_owner(meta.owner_references),
        labels=shared_labels(meta.labels),
        annotations=_ours(meta.annotations),
        node=intern(spec.node_name or ""),
        phase=intern(status.phase or "Pending"),
        ready=ready,
        terminating=meta.deletion_timestamp is not None,
        unschedulable=unschedulable,
        required_terms=_required_terms(spec.affinity),
    )


def node(wire: NodeObject) -> Node:
    spec = wire.spec or NodeSpec()
    conditions = (wire.status.conditions if wire.status is not None else None) or ()
    return Node(
        name=intern(wire.metadata.name or ""),
        labels=shared_labels(wire.metadata.labels),
        taints=tuple(
            NodeTaint(intern(taint.key or ""), taint.value or "", intern(taint.effect or ""))
            for taint in spec.taints or ()
        ),
        unschedulable=bool(spec.unschedulable),
        ready=any(condition.type == "Ready" and condition.status == "True" for condition in conditions),
    )


def namespace(wire: Identity) -> Namespace:
    meta = wire.metadata
    return Namespace(intern(meta.name or ""), shared_labels(meta.labels), _ours(meta.annotations))


def deployment(wire: WorkloadObject) -> Workload:
    return _workload(Kind.DEPLOYMENT, wire, _deployment_rollout)


def stateful_set(wire: WorkloadObject) -> Workload:
    return _workload(Kind.STATEFUL_SET, wire, _stateful_set_rollout)


def replica_set(wire: WorkloadObject) -> ReplicaSet:
    meta, spec = wire.metadata, wire.spec or WorkloadSpec()
    return ReplicaSet(
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        uid=meta.uid or "",
        owner=shared_owner(meta.owner_references),
        replicas=_replicas(spec),
        selector=shared_selector(spec.selector),
        template=_template(spec.template),
    )


def priority_class(wire: PriorityClassObject) -> PriorityClass:
    return PriorityClass(wire.metadata.name or "", wire.value or 0)


_NO_POD_SPEC = PodSpec()
_NO_POD_STATUS = PodStatus()
_PREFIX_LENGTH = len(names.PREFIX)
# Values that differ from pod to pod gain nothing from interning; all others repeat.
_UNIQUE = frozenset({names.DECISION, names.RELEASED})


def _conditions_of(conditions: list[Condition] | None) -> tuple[bool, str]:
    """Whether the pod is ready, and the scheduler's sentence if it is not placed."""
    ready, unschedulable = False, ""
    for condition in conditions or ():
        if condition.type == "Ready":
            ready = condition.status == "True"
        elif condition.type == "PodScheduled" and condition.status == "False":
            unschedulable = intern(condition.message or condition.reason or "not scheduled")
    return ready, unschedulable


def _required_terms(affinity: Affinity | None) -> tuple[NodeTerm, ...]:
    if affinity is None or affinity.node_affinity is None:
        return ()
    return shared_terms(affinity.node_affinity.required)


def _ours(annotations: dict[str, str] | None) -> Mapping[str, str]:
    """Only what Spotweave reads; others can be as large as a whole manifest."""
    kept = {
        intern(key): value if key in _UNIQUE else intern(value)
        for key, value in (annotations or NOTHING).items()
        if key[:_PREFIX_LENGTH] == names.PREFIX or key == names.DELETION_COST
    }
    return kept or NOTHING


def _workload(kind: Kind, wire: WorkloadObject, rollout: Callable[[WorkloadSpec], Rollout]) -> Workload:
    meta, spec = wire.metadata, wire.spec or WorkloadSpec()
    return Workload(
        kind=kind,
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        uid=meta.uid or "",
        replicas=_replicas(spec),
        labels=shared_labels(meta.labels),
        annotations=_ours(meta.annotations),
        selector=shared_selector(spec.selector),
        template=_template(spec.template),
        rollout=rollout(spec),
        ordered=kind is Kind.STATEFUL_SET and spec.pod_management_policy != "Parallel",
        first_ordinal=(spec.ordinals.start if spec.ordinals is not None else None) or 0,
    )


def _replicas(spec: WorkloadSpec) -> int:
    """The API's own default is 1."""
    return 1 if spec.replicas is None else spec.replicas


def _template(wire: TemplateObject | None) -> Template:
    meta = (wire.metadata if wire is not None else None) or Meta()
    spec = (wire.spec if wire is not None else None) or TemplateSpec()
    return Template(
        labels=shared_labels(meta.labels),
        priority_class=intern(spec.priority_class_name or ""),
        has_deletion_cost=names.DELETION_COST in (meta.annotations or NOTHING),
        carries_decision=names.DECISION in (meta.annotations or NOTHING),
        is_placed_by_others=bool(spec.node_name) or (spec.scheduler_name or DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER,
    )


def _deployment_rollout(spec: WorkloadSpec) -> Rollout:
    strategy = spec.strategy or Strategy()
    update = strategy.rolling_update or RollingUpdate()
    return Rollout(
        recreate=strategy.type == "Recreate",
        max_unavailable="25%" if update.max_unavailable is None else update.max_unavailable,
        max_surge="25%" if update.max_surge is None else update.max_surge,
    )


def _stateful_set_rollout(spec: WorkloadSpec) -> Rollout:
    """A StatefulSet never has more pods than replicas, and replaces one at a time unless it says otherwise."""
    update = (spec.update_strategy or Strategy()).rolling_update or RollingUpdate()
    return Rollout(max_unavailable=1 if update.max_unavailable is None else update.max_unavailable, max_surge=0)


# --- answers of the API -------------------------------------------------------------------------------------------


class PageObject(Wire, Generic[O]):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[O] | None = None


class RawPage(Wire):
    metadata: ListMeta = msgspec.field(default_factory=ListMeta)
    items: list[Raw] | None = None


class EventObject(Wire, Generic[O]):
    """A line of a watch."""

    type: str
    object: O


class RawEvent(Wire):
    type: str
    object: Raw


@dataclass(frozen=True, slots=True)
class Event(Generic[T]):
    """A line of a watch, read. `item` is None for bookmarks and errors, and for what does not decode (`mistake`)."""

    type: str
    version: str = ""
    key: Key | None = None
    item: T | None = None
    status: bytes = b""  # of an ERROR: the Status object
    mistake: str = ""


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """A part of a list. `rejected` counts the objects that did not decode."""

    items: tuple[T, ...]
    version: str
    continue_token: str
    rejected: int = 0


_decode_raw_event = msgspec.json.Decoder(RawEvent).decode
_decode_identity = msgspec.json.Decoder(Identity).decode
_decode_raw_page = msgspec.json.Decoder(RawPage).decode


class Shape(Generic[T]):
    """How one resource looks on the wire and what it becomes."""

    def __init__(self, wire: type[O], build: Callable[[O], T]) -> None:
        self._build: Callable[[Any], T] = build
        self._decode_object: Callable[[Raw | bytes], Any] = msgspec.json.Decoder(wire).decode
        self._decode_page: Callable[[bytes], Any] = msgspec.json.Decoder(PageObject[wire]).decode  # type: ignore[valid-type]
        self._decode_event: Callable[[bytes], Any] = msgspec.json.Decoder(EventObject[wire]).decode  # type: ignore[valid-type]

    def single(self, body: bytes) -> T:
        """One object, as a GET answers it."""
        return self._build(self._decode_object(body))

    def event(self, line: bytes) -> Event[T]:
        """A line of a watch. `msgspec.DecodeError` if it is no event at all."""
        try:
            wire = self._decode_event(line)
            if wire.type == "ERROR":
                return _error_event(_decode_raw_event(line))
            return _event(wire.type, wire.object.metadata, self._item(wire))
        except msgspec.ValidationError as mistake:
            return _odd_event(_decode_raw_event(line), str(mistake))

    def _item(self, wire: Any) -> T | None:
        return None if wire.type == "BOOKMARK" else self._build(wire.object)

    def page(self, body: bytes) -> Page[T]:
        """A page of a list. If one object is bad the page is read again object by object, to lose no other."""
        try:
            wire = self._decode_page(body)
            return _page(wire.metadata, tuple(map(self._build, wire.items or ())))
        except msgspec.ValidationError:
            raw = _decode_raw_page(body)
        items = [self._item_or_none(item) for item in raw.items or ()]
        kept = tuple(item for item in items if item is not None)
        return _page(raw.metadata, kept, len(items) - len(kept))

    def _item_or_none(self, raw: Raw) -> T | None:
        try:
            return self._build(self._decode_object(raw))
        except msgspec.ValidationError as error:
            log.warning("left out an object that does not decode: %s: %.200s", error, bytes(raw))
            return None


def _page(meta: ListMeta, items: tuple[T, ...], rejected: int = 0) -> Page[T]:
    return Page(items, meta.resource_version or "", meta.continue_ or "", rejected)


def _event(kind: str, meta: Meta, item: T | None, mistake: str = "") -> Event[T]:
    key = Key(intern(meta.namespace or ""), meta.name or "")
    return Event(kind, meta.resource_version or "", key, item, mistake=mistake)


def _error_event(raw: RawEvent) -> Event[Any]:
    return Event(raw.type, status=bytes(raw.object))


def _odd_event(raw: RawEvent, mistake: str) -> Event[Any]:
    """An error, whose object is a Status; or an object that does not decode, of which at least the name is of use."""
    if raw.type == "ERROR":
        return _error_event(raw)
    try:
        return _event(raw.type, _decode_identity(raw.object).metadata, None, mistake)
    except msgspec.ValidationError:
        return Event(raw.type, mistake=mistake)
