"""API objects as they are on the wire: what is read of each, and nothing else.

`msgspec` skips what the structs do not name, which is most of an object. Every field may be absent or null; fields that
are `Raw` are decoded later, once for all siblings that have the same (`kube.interning`).
"""

from __future__ import annotations

import msgspec
from msgspec import Raw

from placement import names

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


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
    generation: int | None = None
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    labels: Raw = Raw()
    annotations: dict[str, str] | None = None
    owner_references: Raw = Raw()


class AnyObject(Wire):
    """Enough of any object to know which one is meant."""

    metadata: Meta = msgspec.field(default_factory=Meta)


class Condition(Wire):
    type: str | None = None
    status: str | None = None
    reason: str | None = None
    message: str | None = None
    last_transition_time: str | None = None
    last_update_time: str | None = None  # of a Deployment's


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
    match_fields: list[Expression] | None = None


class NodeSelector(Wire):
    node_selector_terms: list[SelectorTerm] | None = None


class NodeAffinity(Wire):
    required: Raw = msgspec.field(default=Raw(), name=_REQUIRED)


class Affinity(Wire):
    node_affinity: NodeAffinity | None = None


class PodSpec(Wire):
    node_name: str | None = None
    affinity: Affinity | None = None
    termination_grace_period_seconds: int | None = None


class RawPodStatus(Wire):
    phase: str | None = None
    conditions: list[Condition] | None = None
    nominated_node_name: str | None = None


class PodAnnotations(Wire):
    """The annotations of a pod that are read, whoever wrote them; others can be as large as a whole manifest."""

    decision: str | None = msgspec.field(default=None, name=names.DECISION)
    slot: str | None = msgspec.field(default=None, name=names.SLOT)
    reason: str | None = msgspec.field(default=None, name=names.REASON)
    soft: str | None = msgspec.field(default=None, name=names.SOFT)
    left_alone: str | None = msgspec.field(default=None, name=names.LEFT_ALONE)
    released: str | None = msgspec.field(default=None, name=names.RELEASED)
    moved: str | None = msgspec.field(default=None, name=names.MOVED)
    undone: str | None = msgspec.field(default=None, name=names.UNDONE)
    eviction_asked: str | None = msgspec.field(default=None, name=names.EVICTION_ASKED)
    deletion_cost: str | None = msgspec.field(default=None, name=names.DELETION_COST)
    safe_to_evict: str | None = msgspec.field(default=None, name=names.SAFE_TO_EVICT)
    do_not_disrupt: str | None = msgspec.field(default=None, name=names.DO_NOT_DISRUPT)


class PodAnnotationsInFull(PodAnnotations):
    """The same, and those of gangs."""

    pod_group: str | None = msgspec.field(default=None, name=names.POD_GROUP)
    min_member: str | None = msgspec.field(default=None, name=names.POD_GROUP_MIN_MEMBER)
    size: str | None = msgspec.field(default=None, name=names.POD_GROUP_SIZE)
    wait_timeout: str | None = msgspec.field(default=None, name=names.POD_GROUP_WAIT_TIMEOUT)
    classes: str | None = msgspec.field(default=None, name=names.POD_GROUP_CLASS)
    expected_runtime: str | None = msgspec.field(default=None, name=names.EXPECTED_RUNTIME)
    availability_target: str | None = msgspec.field(default=None, name=names.AVAILABILITY_TARGET)
    time_limit: str | None = msgspec.field(default=None, name=names.TIME_LIMIT)
    on_partial_failure: str | None = msgspec.field(default=None, name=names.ON_PARTIAL_FAILURE)
    exclusive_node: str | None = msgspec.field(default=None, name=names.EXCLUSIVE_NODE)
    preemptible: str | None = msgspec.field(default=None, name=names.PREEMPTIBLE)
    priority: str | None = msgspec.field(default=None, name=names.PRIORITY)
    preempted_by: str | None = msgspec.field(default=None, name=names.PREEMPTED_BY)
    gang_run: str | None = msgspec.field(default=None, name=names.GANG_RUN)
    gang_notice: str | None = msgspec.field(default=None, name=names.GANG_NOTICE)
    gang_failed: str | None = msgspec.field(default=None, name=names.GANG_FAILED)
    gang_plan: str | None = msgspec.field(default=None, name=names.GANG_PLAN)


class PodMeta(Meta):
    annotations: PodAnnotations | None = None  # type: ignore[assignment]


class PodObject(AnyObject):
    metadata: PodMeta = msgspec.field(default_factory=PodMeta)
    spec: PodSpec | None = None
    status: RawPodStatus | None = None


# --- pods in full: also what they need of a node ---------------------------------------------------------------------


class Present(Wire):
    """Something of which it is enough to know that it is there."""


class PodAffinity(Wire):
    required: Raw = msgspec.field(default=Raw(), name=_REQUIRED)


class AffinityInFull(Affinity):
    pod_affinity: PodAffinity | None = None
    pod_anti_affinity: PodAffinity | None = None


class Container(Wire):
    resources: Raw = Raw()
    ports: Raw = Raw()
    restart_policy: str | None = None


class EmptyDir(Wire):
    medium: str | None = None


class ClaimReference(Wire):
    claim_name: str | None = None


class Disks(Wire):
    """Sources of volumes that name a disk; those of older clouds are attached by the drivers that replaced them."""

    gce_persistent_disk: Present | None = None
    aws_elastic_block_store: Present | None = msgspec.field(default=None, name="awsElasticBlockStore")
    azure_disk: Present | None = None
    cinder: Present | None = None
    vsphere_volume: Present | None = None
    portworx_volume: Present | None = None
    iscsi: Present | None = None
    rbd: Present | None = None
    fc: Present | None = None


class PodVolume(Disks):
    name: str | None = None
    empty_dir: EmptyDir | None = None
    host_path: Present | None = None
    persistent_volume_claim: ClaimReference | None = None
    ephemeral: Present | None = None


class SchedulingGate(Wire):
    name: str | None = None


class PodSpecInFull(PodSpec):
    affinity: AffinityInFull | None = None
    scheduling_gates: list[SchedulingGate] | None = None
    preemption_policy: str | None = None
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    volumes: list[PodVolume] | None = None
    resource_claims: list[Present] | None = None
    resources: Raw = Raw()
    overhead: Raw = Raw()
    node_selector: Raw = Raw()
    tolerations: Raw = Raw()
    topology_spread_constraints: Raw = Raw()
    host_network: bool | None = None
    priority: int | None = None
    priority_class_name: str | None = None


class Asking(Wire):
    """The part of a pod's spec that says how much it asks for."""

    containers: list[Container] | None = None
    init_containers: list[Container] | None = None
    resources: Raw = Raw()
    overhead: Raw = Raw()


class PodMetaInFull(PodMeta):
    annotations: PodAnnotationsInFull | None = None


class PodInFullObject(PodObject):
    metadata: PodMetaInFull = msgspec.field(default_factory=PodMetaInFull)
    spec: PodSpecInFull | None = None


Quantities = dict[str, str | int | float]


class Resources(Wire):
    requests: Quantities | None = None
    limits: Quantities | None = None


class Port(Wire):
    container_port: int | None = None
    host_port: int | None = None
    protocol: str | None = None
    host_ip: str | None = msgspec.field(default=None, name="hostIP")


class TolerationObject(Wire):
    key: str | None = None
    operator: str | None = None
    value: str | None = None
    effect: str | None = None


class LabelSelector(Wire):
    match_labels: dict[str, str] | None = None
    match_expressions: list[Expression] | None = None


class SpreadConstraint(Wire):
    topology_key: str | None = None
    max_skew: int | None = None
    when_unsatisfiable: str | None = None
    label_selector: LabelSelector | None = None
    min_domains: int | None = None
    node_affinity_policy: str | None = None
    node_taints_policy: str | None = None
    match_label_keys: list[str] | None = None


class PodAffinityTerm(Wire):
    topology_key: str | None = None
    label_selector: LabelSelector | None = None
    namespaces: list[str] | None = None
    namespace_selector: LabelSelector | None = None


# --- nodes -----------------------------------------------------------------------------------------------------------


class RawTaint(Wire):
    key: str | None = None
    value: str | None = None
    effect: str | None = None


class NodeSpec(Wire):
    provider_id: str | None = msgspec.field(default=None, name="providerID")
    taints: list[RawTaint] | None = None
    unschedulable: bool | None = None


class NodeStatus(Wire):
    conditions: list[Condition] | None = None
    allocatable: Raw = Raw()


class NodeMeta(Meta):
    finalizers: list[str] | None = None


class NodeObject(AnyObject):
    metadata: NodeMeta = msgspec.field(default_factory=NodeMeta)
    spec: NodeSpec | None = None
    status: NodeStatus | None = None


# --- workloads -------------------------------------------------------------------------------------------------------


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
    partition: int | None = None


class Strategy(Wire):
    type: str | None = None
    rolling_update: RollingUpdate | None = None


class Ordinals(Wire):
    start: int | None = None


class ConditionPattern(Wire):
    type: str | None = None
    status: str | None = None


class FailureRule(Wire):
    action: str | None = None
    on_pod_conditions: list[ConditionPattern] | None = None
    on_exit_codes: Raw = Raw()


class FailurePolicy(Wire):
    rules: list[FailureRule] | None = None


class JobSpec(Wire):
    parallelism: int | None = None
    completions: int | None = None
    suspend: bool | None = None
    backoff_limit: int | None = None
    backoff_limit_per_index: int | None = None
    pod_failure_policy: FailurePolicy | None = None


class JobStatus(Wire):
    succeeded: int | None = None
    failed: int | None = None
    conditions: list[Condition] | None = None


class JobObject(AnyObject):
    spec: JobSpec | None = None
    status: JobStatus | None = None


class WorkloadSpec(Wire):
    """Of Deployments, StatefulSets and ReplicaSets alike."""

    replicas: int | None = None
    selector: Raw = Raw()
    template: TemplateObject | None = None
    strategy: Strategy | None = None
    update_strategy: Strategy | None = None
    pod_management_policy: str | None = None
    ordinals: Ordinals | None = None
    paused: bool | None = None
    min_ready_seconds: int | None = None


class RawWorkloadStatus(Wire):
    observed_generation: int | None = None
    replicas: int | None = None
    update_revision: str | None = None
    conditions: list[Condition] | None = None


class WorkloadObject(AnyObject):
    spec: WorkloadSpec | None = None
    status: RawWorkloadStatus | None = None


# --- what limits and what tells --------------------------------------------------------------------------------------


class PriorityClassObject(AnyObject):
    value: int | None = None
    preemption_policy: str | None = None


class BudgetSpec(Wire):
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    selector: Raw = Raw()


class BudgetStatus(Wire):
    observed_generation: int | None = None
    disruptions_allowed: int | None = None
    current_healthy: int | None = None
    desired_healthy: int | None = None
    expected_pods: int | None = None


class BudgetObject(AnyObject):
    spec: BudgetSpec | None = None
    status: BudgetStatus | None = None


class QuotaSpec(Wire):
    hard: Quantities | None = None
    scopes: list[str] | None = None
    scope_selector: Present | None = None


class QuotaStatus(Wire):
    used: Quantities | None = None


class QuotaObject(AnyObject):
    spec: QuotaSpec | None = None
    status: QuotaStatus | None = None


class Reference(Wire):
    kind: str | None = None
    name: str | None = None
    uid: str | None = None


class EventSeries(Wire):
    last_observed_time: str | None = None


class SignObject(AnyObject):
    """An Event, of whichever age and API it was written by."""

    reason: str | None = None
    message: str | None = None
    involved_object: Reference | None = None
    event_time: str | None = None
    last_timestamp: str | None = None
    series: EventSeries | None = None
