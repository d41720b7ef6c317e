"""Objects as they are on the wire → `placement.model`.

A pod of 5 KB becomes a few hundred bytes: `msgspec` skips what the structs of `kube.wire` do not name, and what
siblings have in common (labels, owner, node affinity, needs) is kept once. Absent, null and unknown fields never raise;
a field of the wrong type does (`msgspec.ValidationError`), and the one object that has it is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import lru_cache
from sys import intern
from typing import Any, NamedTuple

import msgspec
from msgspec import Raw

from kube.fastfrozen import mint
from kube.interning import SHARED, RecentlyUsed, Shared
from kube.needs import add_parts, amounts, marks_of, needs_of, shared_amounts
from kube.wire import (
    AnyObject,
    BudgetObject,
    BudgetSpec,
    BudgetStatus,
    Condition,
    FailurePolicy,
    FailureRule,
    JobObject,
    JobSpec,
    JobStatus,
    Meta,
    NodeObject,
    NodeSelector,
    NodeSpec,
    NodeStatus,
    OwnerReference,
    PodAnnotations,
    PodAnnotationsInFull,
    PodInFullObject,
    PodObject,
    PodSpec,
    PodSpecInFull,
    PriorityClassObject,
    QuotaObject,
    QuotaSpec,
    QuotaStatus,
    RawPodStatus,
    RawWorkloadStatus,
    RollingUpdate,
    SchedulingGate,
    SignObject,
    Strategy,
    TemplateObject,
    TemplateSpec,
    WorkloadObject,
    WorkloadSpec,
)
from placement import names
from placement.gang.belonging import group_name
from placement.model import (
    DEFAULT_SCHEDULER,
    NO_NEEDS,
    NOTHING,
    Budget,
    Job,
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

FAMILIES = 1024  # their keys are long, and what they are made of is shared, too


_Pod = mint(Pod)
_Owner = mint(Owner)

# --- parts that siblings share ------------------------------------------------------------------------------------

_decode_strings = msgspec.json.Decoder(dict[str, str] | None).decode
_decode_selector = msgspec.json.Decoder(dict[str, Any] | None).decode
_decode_owners = msgspec.json.Decoder(list[OwnerReference] | None).decode
_decode_node_selector = msgspec.json.Decoder(NodeSelector | None).decode


def _build_labels(raw: bytes) -> Mapping[str, str]:
    labels = _decode_strings(raw) if raw else None
    return {intern(key): intern(value) for key, value in labels.items()} if labels else NOTHING


def _build_selector(raw: bytes) -> Mapping[str, object]:
    selector = (_decode_selector(raw) if raw else None) or {}
    wanted = selector.get("matchLabels")
    if isinstance(wanted, dict):
        selector["matchLabels"] = {key: intern(value) if type(value) is str else value for key, value in wanted.items()}
    return selector


def _build_owner(raw: bytes) -> Owner | None:
    references = (_decode_owners(raw) if raw else None) or ()
    return next((_owner(each, index) for index, each in enumerate(references) if each.controller), None)


def _owner(reference: OwnerReference, index: int) -> Owner:
    group, slash, _ = (reference.api_version or "").partition("/")
    return _Owner(
        kind=intern(reference.kind or ""),
        name=reference.name or "",
        uid=reference.uid or "",
        api_group=intern(group if slash else ""),
        index=index,
    )


def _build_terms(raw: bytes) -> tuple[NodeTerm, ...]:
    selector = _decode_node_selector(raw) if raw else None
    return tuple(
        tuple(
            NodeRequirement(expression.key or "", expression.operator or "", tuple(expression.values or ()))
            for expression in (*(term.match_expressions or ()), *(term.match_fields or ()))
        )
        for term in (selector.node_selector_terms if selector is not None else None) or ()
    )


shared_labels = Shared(_build_labels)
shared_selector = Shared(_build_selector)
shared_owner = Shared(_build_owner)
shared_terms = Shared(_build_terms)


# --- wire → model -------------------------------------------------------------------------------------------------


class Family(NamedTuple):
    """What siblings of one class have in common."""

    owner: Owner | None
    terms: tuple[NodeTerm, ...]
    needs: Needs


_families: RecentlyUsed[Hashable, Family] = RecentlyUsed(FAMILIES)
LONGEST_SHARED = 1024  # what we write to pods, and what people write for gangs, is shorter
_annotations: RecentlyUsed[tuple[str | None, ...], Mapping[str, str]] = RecentlyUsed()


def pod(wire: PodObject) -> Pod:
    """Without its needs, the grace period apart, for whoever does not look for room."""
    spec = wire.spec or _NO_POD_SPEC
    owner, terms, grace = wire.metadata.owner_references, _required(spec), spec.termination_grace_period_seconds
    key = (b"\0".join((owner, terms)), grace)
    decision, annotations = _read(wire.metadata.annotations)
    family = _families.get(key) or _families.recall(key, lambda: _family(owner, terms, _graceful(grace)))
    return _pod(wire, decision, annotations, family)


def _graceful(grace_seconds: int | None) -> Needs:
    """Kubernetes writes its default of 30 s into every pod."""
    return NO_NEEDS if grace_seconds in (None, NO_NEEDS.grace_seconds) else Needs(grace_seconds=grace_seconds)


def pod_in_full(wire: PodInFullObject) -> Pod:
    spec = wire.spec or _NO_POD_SPEC_IN_FULL
    owner, terms = wire.metadata.owner_references, _required(spec)
    parts: list[Raw | bytes] = [owner, terms]
    add_parts(parts, spec)
    marks = marks_of(spec, wire.metadata.name or "")
    key = (b"\0".join(parts), marks)
    decision, annotations, plan = _read_in_full(wire.metadata.annotations)
    family = _families.get(key) or _families.recall(key, lambda: _family(owner, terms, needs_of(spec, marks)))
    return _pod(wire, decision, annotations, family, _gates(spec.scheduling_gates), plan)


def _family(owner: Raw, terms: Raw, needs: Needs) -> Family:
    return Family(shared_owner(owner), shared_terms(terms), needs)


def _pod(
    wire: PodObject,
    decision: str,
    annotations: Mapping[str, str],
    family: Family,
    gates: tuple[str, ...] = (),
    gang_plan: str = "",
) -> Pod:
    meta, spec, status = wire.metadata, wire.spec or _NO_POD_SPEC, wire.status or _NO_POD_STATUS
    ready, unschedulable, changed, waits, disrupted = _conditions_of(status.conditions)
    if unschedulable and status.nominated_node_name:  # the scheduler makes room for it, by preemption
        unschedulable, waits = "", f"room on {status.nominated_node_name}: {unschedulable}"
    return _Pod(  # by position, in the order of the model: twenty names cost as much again as all the rest
        intern(meta.namespace or ""),
        meta.name or "",
        meta.uid or "",
        family.owner,
        shared_labels[bytes(meta.labels)],
        annotations,
        intern(spec.node_name or ""),
        intern(status.phase or "Pending"),
        ready,
        meta.deletion_timestamp is not None,
        unschedulable,
        family.terms,
        family.needs,
        seconds(meta.creation_timestamp),
        seconds(changed) if changed is not None else 0.0,
        decision,
        waits,
        disrupted == names.EVICTED,
        gates,
        intern(status.nominated_node_name) if status.nominated_node_name else "",
        gang_plan,
        disrupted,
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
        uid=meta.uid or "",
        annotations=_ours(meta.annotations),
        outlives_machine=any(each in names.TERMINATION_FINALIZERS for each in meta.finalizers or ()),
        provider_id=spec.provider_id or "",
    )


def namespace(wire: AnyObject) -> Namespace:
    meta = wire.metadata
    return Namespace(intern(meta.name or ""), shared_labels(meta.labels), _ours(meta.annotations))


def deployment(wire: WorkloadObject) -> Workload:
    return _workload(Kind.DEPLOYMENT, wire, _deployment_rollout)


def stateful_set(wire: WorkloadObject) -> Workload:
    return _workload(Kind.STATEFUL_SET, wire, _stateful_set_rollout)


def replica_set(wire: WorkloadObject) -> ReplicaSet:
    spec = wire.spec or _NO_WORKLOAD_SPEC
    return _replica_set(wire, shared_selector(spec.selector), _template(spec.template))


def replica_set_in_brief(wire: WorkloadObject) -> ReplicaSet:
    """Without selector and template where it neither has pods nor is to have any, as most."""
    observed = wire.status.replicas if wire.status is not None else None
    if observed or _replicas(wire.spec or _NO_WORKLOAD_SPEC):
        return replica_set(wire)
    return _replica_set(wire, _NO_SELECTOR, _NO_TEMPLATE)


def _replica_set(wire: WorkloadObject, selector: Mapping[str, object], template: Template) -> ReplicaSet:
    meta, status = wire.metadata, wire.status or _NO_WORKLOAD_STATUS
    return ReplicaSet(
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        uid=meta.uid or "",
        owner=shared_owner(meta.owner_references),
        replicas=_replicas(wire.spec or _NO_WORKLOAD_SPEC),
        selector=selector,
        template=template,
        observed=status.replicas or 0,
        settled=(status.observed_generation or 0) >= (meta.generation or 0),
    )


def job(wire: JobObject) -> Job:
    """No more pods run at once than are to succeed at all. The API's own default for both is 1."""
    meta, spec = wire.metadata, wire.spec or JobSpec()
    at_once = 1 if spec.parallelism is None else spec.parallelism
    most = at_once if spec.completions is None else min(at_once, spec.completions)
    status, owner = wire.status or JobStatus(), shared_owner(meta.owner_references)
    return Job(
        intern(meta.namespace or ""),
        meta.name or "",
        meta.uid or "",
        most,
        bool(spec.suspend),
        owner is not None and owner.kind != "CronJob",
        annotations=_ours(meta.annotations),
        owner=owner,
        backoff_limit=_failures_allowed(spec),
        failed=status.failed or 0,
        succeeded=status.succeeded or 0,
        completions=spec.completions,
        ignores_disruption=_ignores_disruptions((spec.pod_failure_policy or FailurePolicy()).rules or ()),
        is_over=any(each.status == "True" and each.type in ENDS_OF_JOBS for each in status.conditions or ()),
    )


def _failures_allowed(spec: JobSpec) -> int:
    """In all, before it fails. With a limit of its own, each index may use that up: none is known to be left."""
    if spec.backoff_limit_per_index is not None:
        return 0
    return 6 if spec.backoff_limit is None else spec.backoff_limit


def _ignores_disruptions(rules: Iterable[FailureRule]) -> bool:
    """The first rule that matches counts: one about exit codes may come before, since an evicted pod has one, too."""
    for rule in rules:
        if _ignores_disruption(rule):
            return True
        if bytes(rule.on_exit_codes):
            return False
    return False


def _ignores_disruption(rule: FailureRule) -> bool:
    patterns = rule.on_pod_conditions or ()
    return rule.action == "Ignore" and any(
        each.type == names.DISRUPTION_TARGET and each.status in (None, "True") for each in patterns
    )


def priority_class(wire: PriorityClassObject) -> PriorityClass:
    return PriorityClass(wire.metadata.name or "", wire.value or 0, wire.preemption_policy == "Never")


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


def sign_with_message(wire: SignObject) -> Sign:
    """The same, with its text."""
    return replace(sign(wire), message=wire.message or "")


def sign(wire: SignObject) -> Sign:
    """Dated by the last time that it was seen, wherever its writer notes that."""
    meta, about = wire.metadata, wire.involved_object
    moments = (
        wire.last_timestamp,
        wire.event_time,
        wire.series.last_observed_time if wire.series is not None else None,
    )
    return Sign(
        namespace=intern(meta.namespace or ""),
        name=meta.name or "",
        reason=intern(wire.reason or ""),
        about=(about.name if about is not None else None) or "",
        at=max(map(seconds, moments)) or seconds(meta.creation_timestamp),
        uid=(about.uid if about is not None else None) or "",
        kind=intern((about.kind if about is not None else None) or ""),
    )


# Conditions by which a Job says that it wants no more pods: it deletes those that are left.
ENDS_OF_JOBS = ("Complete", "Failed", "SuccessCriteriaMet", "FailureTarget")
_NO_RAW = Raw()
_NO_POD_SPEC = PodSpec()
_NO_POD_SPEC_IN_FULL = PodSpecInFull()
_NO_POD_STATUS = RawPodStatus()
_NO_WORKLOAD_SPEC = WorkloadSpec()
_NO_WORKLOAD_STATUS = RawWorkloadStatus()
_OUR_GATE = (intern(names.GANG_GATE),)
_NO_SELECTOR: Mapping[str, object] = {}
_NO_TEMPLATE = Template()
_READ = [field.encode_name for field in msgspec.structs.fields(PodAnnotations)][1:]  # without the decision
_READ_IN_FULL = [field.encode_name for field in msgspec.structs.fields(PodAnnotationsInFull)][1:-1]  # nor the plan


def _conditions_of(conditions: list[Condition] | None) -> tuple[bool, str, str | None, str, str]:
    """Whether the pod is ready, the scheduler's sentence if it found no node, and since when it is so;

    else why the scheduler did not look; and why somebody else ends the pod.
    """
    ready, unschedulable, changed, waits, disrupted = False, "", None, "", ""
    for condition in conditions or ():
        kind = condition.type
        if kind == "Ready":
            if condition.status == "True":
                ready, changed = True, condition.last_transition_time
        elif kind == "PodScheduled" and condition.status == "False":
            sentence = intern(condition.message or condition.reason or "not scheduled")
            if condition.reason == names.UNSCHEDULABLE:
                unschedulable, changed = sentence, condition.last_transition_time
            else:
                waits = sentence
        elif kind == names.DISRUPTION_TARGET:
            disrupted = intern(condition.reason or "") if condition.status == "True" else ""
    return ready, unschedulable, changed, waits, disrupted


def _required(spec: PodSpec) -> Raw:
    """Its own required node affinity."""
    affinity = spec.affinity
    return affinity.node_affinity.required if affinity is not None and affinity.node_affinity is not None else _NO_RAW


def _read(written: PodAnnotations | None) -> tuple[str, Mapping[str, str]]:
    """A pod's decision, and its other annotations: those are one for all pods that carry the same, as many do."""
    if written is None:
        return "", NOTHING
    values = msgspec.structs.astuple(written)
    return values[0] or "", _shared(values[1:], _READ)


def _read_in_full(written: PodAnnotationsInFull | None) -> tuple[str, Mapping[str, str], str]:
    """The same with those of gangs, and the plan of its gang, which differs for every pod, too."""
    if written is None:
        return "", NOTHING, ""
    values = msgspec.structs.astuple(written)
    return values[0] or "", _shared(values[1:-1], _READ_IN_FULL), values[-1] or ""


def _shared(values: tuple[str | None, ...], keys: list[str]) -> Mapping[str, str]:
    """What is too long to be ours is not remembered: one pod that is changed over and over would fill the memory."""
    found = _annotations.get(values)
    if found is not None:
        return found
    if any(value is not None and len(value) > LONGEST_SHARED for value in values):
        return _named(values, keys)
    return _annotations.recall(values, lambda: _named(values, keys))


def _named(values: tuple[str | None, ...], keys: list[str]) -> Mapping[str, str]:
    return {name: value for name, value in zip(keys, values, strict=True) if value is not None} or NOTHING


def _gates(wire: list[SchedulingGate] | None) -> tuple[str, ...]:
    """Most pods have none, and most others have ours alone."""
    if not wire:
        return ()
    gates = tuple([intern(each.name or "") for each in wire])
    return _OUR_GATE if gates == _OUR_GATE else gates


def _ours(annotations: dict[str, str] | None) -> Mapping[str, str]:
    """Of what people write policy to: also what is misspelt, so that they can be told."""
    kept = {key: value for key, value in (annotations or NOTHING).items() if key.startswith(names.PREFIX)}
    return {intern(key): intern(value) for key, value in kept.items()} or NOTHING


def _workload(kind: Kind, wire: WorkloadObject, rollout: Callable[[WorkloadSpec], Rollout]) -> Workload:
    meta, spec, status = wire.metadata, wire.spec or _NO_WORKLOAD_SPEC, wire.status or _NO_WORKLOAD_STATUS
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
        revision=intern(status.update_revision or ""),
        min_ready_seconds=spec.min_ready_seconds or 0,
        rolled_out=_rolled_out(meta, status) if kind is Kind.DEPLOYMENT else 0.0,
    )


def _rolled_out(meta: Meta, status: RawWorkloadStatus) -> float:
    """When its last rollout ended. Its controller writes that once; moves and changed replicas do not renew it.

    The first revision is no rollout: nothing was there before.
    """
    if (meta.annotations or NOTHING).get(names.REVISION, "1") == "1":
        return 0.0
    ends = (each for each in status.conditions or () if (each.type, each.reason) == names.ROLLOUT_ENDED)
    return next((seconds(each.last_update_time) for each in ends), 0.0)


def _replicas(spec: WorkloadSpec) -> int:
    """The API's own default is 1."""
    return 1 if spec.replicas is None else spec.replicas


def _template(wire: TemplateObject | None) -> Template:
    meta = (wire.metadata if wire is not None else None) or Meta()
    spec = (wire.spec if wire is not None else None) or TemplateSpec()
    labels = shared_labels(meta.labels)
    return Template(
        labels=labels,
        priority_class=intern(spec.priority_class_name or ""),
        has_deletion_cost=names.DELETION_COST in (meta.annotations or NOTHING),
        carries_decision=names.DECISION in (meta.annotations or NOTHING),
        is_placed_by_others=bool(spec.node_name) or (spec.scheduler_name or DEFAULT_SCHEDULER) != DEFAULT_SCHEDULER,
        is_gang=bool(group_name(meta.annotations or NOTHING, labels).strip()),
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
    strategy = spec.update_strategy or Strategy()
    update = strategy.rolling_update or RollingUpdate()
    return Rollout(
        max_unavailable=1 if update.max_unavailable is None else update.max_unavailable,
        max_surge=0,
        partition=update.partition or 0,
        on_delete=strategy.type == "OnDelete",
    )
