"""API objects → `placement.model`, reading only what is used.

A pod of 5 KB becomes a few hundred bytes: `msgspec` skips what the structs of `kube.wire` do not name, and what
siblings have in common (labels, owner, node affinity, needs) is kept once. Absent, null and unknown fields never raise;
a field of the wrong type does (`msgspec.ValidationError`), and the one object that has it is left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from sys import intern
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
from msgspec import Raw

from kube.mint import mint
from kube.needs import amounts, marks_of, needs_of, parts_of, shared_amounts
from kube.shared import SHARED, Kept, Shared
from kube.wire import (
    BudgetObject,
    BudgetSpec,
    BudgetStatus,
    Condition,
    Identity,
    ListMeta,
    Meta,
    NodeObject,
    NodeSelector,
    NodeSpec,
    NodeStatus,
    OwnerReference,
    PodInFullObject,
    PodObject,
    PodSpec,
    PodSpecInFull,
    PodStatus,
    PriorityClassObject,
    QuotaObject,
    QuotaSpec,
    QuotaStatus,
    RollingUpdate,
    SignObject,
    Strategy,
    TemplateObject,
    TemplateSpec,
    Wire,
    WorkloadObject,
    WorkloadSpec,
    WorkloadStatus,
)
from placement import names
from placement.model import (
    DEFAULT_SCHEDULER,
    NO_NEEDS,
    NOTHING,
    Budget,
    Key,
    Kind,
    Namespace,
    Needs,
    Node,
    NodeRequirement,
    NodeTaint,
    NodeTerm,
    Owner,
    Pod,
    PriorityClass,
    Quota,
    ReplicaSet,
    Rollout,
    Sign,
    Template,
    Workload,
)

log = logging.getLogger(__name__)

FAMILIES = 1024  # their keys are long, and what they are made of is shared, too

T = TypeVar("T")
O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741 - an object as it is on the wire


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


_Pod = mint(Pod)
_ReplicaSet = mint(ReplicaSet)


class Family(NamedTuple):
    """What siblings of one class have in common."""

    owner: Owner | None
    terms: tuple[NodeTerm, ...]
    needs: Needs


_families: Kept[Hashable, Family] = Kept(FAMILIES)


def pod(wire: PodObject) -> Pod:
    """Without its needs, for whoever does not look for room."""
    owner, terms = wire.metadata.owner_references, _required(wire.spec or _NO_POD_SPEC)
    return _pod(wire, _families.get(b"\0".join((owner, terms)), lambda: _family(owner, terms, NO_NEEDS)))


def pod_in_full(wire: PodInFullObject) -> Pod:
    spec = wire.spec or _NO_POD_SPEC_IN_FULL
    owner, terms = wire.metadata.owner_references, _required(spec)
    key = (b"\0".join((owner, terms, *parts_of(spec))), marks_of(spec))
    return _pod(wire, _families.get(key, lambda: _family(owner, terms, needs_of(spec))))


def _family(owner: Raw, terms: Raw, needs: Needs) -> Family:
    return Family(shared_owner(owner), shared_terms(terms), needs)


def _pod(wire: PodObject, family: Family) -> Pod:
    meta, spec, status = wire.metadata, wire.spec or _NO_POD_SPEC, wire.status or _NO_POD_STATUS
    ready, unschedulable, changed = _conditions_of(status.conditions)
    return _Pod(
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        uid=meta.uid or "",
        owner=family.owner,
        labels=shared_labels(meta.labels),
        annotations=_ours(meta.annotations),
        node=intern(spec.node_name or ""),
        phase=intern(status.phase or "Pending"),
        ready=ready,
        terminating=meta.deletion_timestamp is not None,
        unschedulable=unschedulable,
        required_terms=family.terms,
        needs=family.needs,
        created=seconds(meta.creation_timestamp),
        changed=seconds(changed),
    )


@lru_cache(SHARED)
def seconds(moment: str | None) -> float:
    """Since 1970; 0 for a moment that is absent, or that nobody can read. Siblings of one second share one number."""
    try:
        read = datetime.fromisoformat(moment or "")
    except ValueError:
        return 0.0
    return (read if read.tzinfo is not None else read.replace(tzinfo=UTC)).timestamp()


def node(wire: NodeObject) -> Node:
    meta, spec, status = wire.metadata, wire.spec or NodeSpec(), wire.status or NodeStatus()
    return Node(
        name=intern(meta.name or ""),
        labels=shared_labels(meta.labels),
        taints=tuple(
            NodeTaint(intern(taint.key or ""), taint.value or "", intern(taint.effect or ""))
            for taint in spec.taints or ()
        ),
        unschedulable=bool(spec.unschedulable),
        ready=any(each.type == "Ready" and each.status == "True" for each in status.conditions or ()),
        allocatable=shared_amounts(status.allocatable),
        deleting=meta.deletion_timestamp is not None,
        created=seconds(meta.creation_timestamp),
    )


def namespace(wire: Identity) -> Namespace:
    meta = wire.metadata
    return Namespace(intern(meta.name or ""), shared_labels(meta.labels), _ours(meta.annotations))


def deployment(wire: WorkloadObject) -> Workload:
    return _workload(Kind.DEPLOYMENT, wire, _deployment_rollout)


def stateful_set(wire: WorkloadObject) -> Workload:
    return _workload(Kind.STATEFUL_SET, wire, _stateful_set_rollout)


def replica_set(wire: WorkloadObject) -> ReplicaSet:
    meta, spec, status = wire.metadata, wire.spec or WorkloadSpec(), wire.status or _NO_WORKLOAD_STATUS
    return _ReplicaSet(
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        uid=meta.uid or "",
        owner=shared_owner(meta.owner_references),
        replicas=_replicas(spec),
        selector=shared_selector(spec.selector),
        template=_template(spec.template),
        observed=status.replicas or 0,
        settled=(status.observed_generation or 0) >= (meta.generation or 0),
    )


def priority_class(wire: PriorityClassObject) -> PriorityClass:
    return PriorityClass(wire.metadata.name or "", wire.value or 0)


def budget(wire: BudgetObject) -> Budget:
    meta, spec, status = wire.metadata, wire.spec or BudgetSpec(), wire.status or BudgetStatus()
    return Budget(
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        selector=shared_selector(spec.selector),
        min_available=spec.min_available,
        max_unavailable=spec.max_unavailable,
        allowed=status.disruptions_allowed or 0,
        healthy=status.current_healthy or 0,
        desired=status.desired_healthy or 0,
        expected=status.expected_pods or 0,
        settled=(status.observed_generation or 0) >= (meta.generation or 0),
    )


def quota(wire: QuotaObject) -> Quota:
    meta, spec, status = wire.metadata, wire.spec or QuotaSpec(), wire.status or QuotaStatus()
    return Quota(
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        hard=amounts(spec.hard),
        used=amounts(status.used),
        is_scoped=bool(spec.scopes) or spec.scope_selector is not None,
    )


def sign(wire: SignObject) -> Sign:
    """Dated by the last time that it was seen, wherever its writer notes that."""
    meta = wire.metadata
    moments = (
        wire.last_timestamp,
        wire.event_time,
        wire.series.last_observed_time if wire.series is not None else None,
    )
    return Sign(
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        reason=intern(wire.reason or ""),
        about=(wire.involved_object.name if wire.involved_object is not None else None) or "",
        at=max(map(seconds, moments)) or seconds(meta.creation_timestamp),
    )


_NO_RAW = Raw()
_NO_POD_SPEC = PodSpec()
_NO_POD_SPEC_IN_FULL = PodSpecInFull()
_NO_POD_STATUS = PodStatus()
_NO_WORKLOAD_STATUS = WorkloadStatus()
_PREFIX_LENGTH = len(names.PREFIX)
# Values that differ from pod to pod gain nothing from interning; all others repeat.
_UNIQUE = frozenset({names.DECISION, names.RELEASED})
_KEPT = frozenset({names.DELETION_COST, names.SAFE_TO_EVICT, names.DO_NOT_DISRUPT})


def _conditions_of(conditions: list[Condition] | None) -> tuple[bool, str, str | None]:
    """Whether the pod is ready, the scheduler's sentence if it is not placed, and since when that is so."""
    ready, unschedulable, changed = False, "", None
    for condition in conditions or ():
        if condition.type == "Ready":
            ready = condition.status == "True"
            changed = changed if unschedulable else condition.last_transition_time
        elif condition.type == "PodScheduled" and condition.status == "False":
            unschedulable = intern(condition.message or condition.reason or "not scheduled")
            changed = condition.last_transition_time
    return ready, unschedulable, changed


def _required(spec: PodSpec) -> Raw:
    """Its own required node affinity."""
    affinity = spec.affinity
    return affinity.node_affinity.required if affinity is not None and affinity.node_affinity is not None else _NO_RAW


def _ours(annotations: dict[str, str] | None) -> Mapping[str, str]:
    """Only what Spotweave reads, whoever wrote it; others can be as large as a whole manifest."""
    kept = {
        intern(key): value if key in _UNIQUE else intern(value)
        for key, value in (annotations or NOTHING).items()
        if key[:_PREFIX_LENGTH] == names.PREFIX or key in _KEPT
    }
    return kept or NOTHING


def _workload(kind: Kind, wire: WorkloadObject, rollout: Callable[[WorkloadSpec], Rollout]) -> Workload:
    meta, spec, status = wire.metadata, wire.spec or WorkloadSpec(), wire.status or _NO_WORKLOAD_STATUS
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
        settled=(status.observed_generation or 0) == (meta.generation or 0),
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
        paused=bool(spec.paused),
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
