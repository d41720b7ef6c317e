"""The facts that decisions are made from, as small frozen dataclasses. `kube` builds them from API objects."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from placement import names
from placement.lack import Lack

NOTHING: Mapping[str, str] = {}


def nothing() -> Mapping[str, str]:
    """The one empty mapping, as a default: dataclasses take no dict for that."""
    return NOTHING


DEFAULT_SCHEDULER = "default-scheduler"
FINISHED = ("Failed", "Succeeded")  # phases of pods that will never run again


class Class(StrEnum):
    """The capacity class of a node, or that a pod belongs to."""

    ON_DEMAND = "on-demand"
    SPOT = "spot"

    @property
    def other(self) -> Class:
        return Class.SPOT if self is Class.ON_DEMAND else Class.ON_DEMAND


class Kind(StrEnum):
    """The two kinds of workload that are placed."""

    DEPLOYMENT = "Deployment"
    STATEFUL_SET = "StatefulSet"


class Key(NamedTuple):
    """Where an object is found: a namespace ("" for cluster-wide objects) and a name.

    A tuple, because it is looked up more often than anything else, and a dataclass takes four times as long to hash.
    """

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


@dataclass(frozen=True, slots=True)
class Owner:
    """The controller reference of an object."""

    kind: str
    name: str
    uid: str
    api_group: str = "apps"
    index: int = 0  # among all owner references of the object


class Pool(NamedTuple):
    """Zone × instance type of a class: what the cloud takes away at once."""

    zone: str
    instance_type: str

    def __str__(self) -> str:
        return f"{self.zone}/{self.instance_type}"


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace: opted in or not, and its defaults for policy."""

    name: str
    labels: Mapping[str, str] = field(default_factory=nothing)
    annotations: Mapping[str, str] = field(default_factory=nothing)

    @property
    def key(self) -> Key:
        return Key("", self.name)

    @property
    def is_opted_in(self) -> bool:
        return self.labels.get(names.PLACEMENT) == names.ENABLED and self.name not in names.EXCLUDED_NAMESPACES


@dataclass(frozen=True, slots=True)
class NodeTaint:
    """A taint of a node."""

    key: str
    value: str = ""
    effect: str = "NoSchedule"


@dataclass(frozen=True, slots=True)
class Toleration:
    """What a pod tolerates; an empty key or effect stands for all."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: NodeTaint) -> bool:
        if self.effect not in ("", taint.effect) or self.key not in ("", taint.key):
            return False
        return self.operator == "Exists" or (
            self.operator == "Equal" and self.key == taint.key and self.value == taint.value
        )


NO_AMOUNTS: Mapping[str, int] = {}  # resource → how much: cpu in thousandths, all else in units (bytes, pieces)


def no_amounts() -> Mapping[str, int]:
    return NO_AMOUNTS


@dataclass(frozen=True, slots=True)
class Node:
    """A node as far as placement looks at it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=nothing)
    taints: tuple[NodeTaint, ...] = ()
    unschedulable: bool = False
    ready: bool = True
    allocatable: Mapping[str, int] = field(default_factory=no_amounts)  # with "pods"
    deleting: bool = False  # its deletion was requested, and a finalizer holds it
    created: float = 0.0
    uid: str = ""
    annotations: Mapping[str, str] = field(default_factory=nothing)  # only ours
    outlives_machine: bool = False  # a finalizer holds its deletion until the machine is gone
    provider_id: str = ""  # the machine's name at its cloud: aws:///eu-central-1a/i-0fea4fd46592d050b
    drained: bool = False  # it is cordoned, and pods are evicted from it

    @property
    def key(self) -> Key:
        return Key("", self.name)

    @property
    def pool(self) -> Pool:
        return Pool(self.labels.get(names.ZONE, ""), self.labels.get(names.INSTANCE_TYPE, ""))

    def is_leaving(self, taints: Collection[str]) -> bool:
        """Its termination was announced, it is under deletion, or it is drained: its pods count as lost.

        A bare cordon only keeps new pods away. `taints` are those that announce its end at once.
        """
        return self.deleting or self.drained or any(taint.key in taints for taint in self.taints)


@dataclass(frozen=True, slots=True)
class HardSpread:
    """A topology spread constraint that a pod is not scheduled against."""

    topology_key: str
    max_skew: int = 1
    selector: NodeTerm | None = None  # of pods, by label; () and None count none
    min_domains: int = 1
    counts_all_nodes: bool = False  # also those that its node terms exclude (nodeAffinityPolicy: Ignore)
    honors_taints: bool = False  # nodes whose taints it does not tolerate do not count (nodeTaintsPolicy: Honor)
    match_label_keys: tuple[str, ...] = ()  # only pods with the same values of these labels count

    def selector_of(self, labels: Mapping[str, str]) -> NodeTerm | None:
        """Which pods count for a pod with these labels. Newer API servers write the keys into the selector, too."""
        if self.selector is None:
            return None
        same = (NodeRequirement(key, "In", (labels[key],)) for key in self.match_label_keys if key in labels)
        return (*self.selector, *(each for each in same if each not in self.selector))


@dataclass(frozen=True, slots=True)
class PodTerm:
    """A required term of pod affinity or anti-affinity: which pods it is about, and what counts as beside them.

    The selector is all there is to read: the API server merges `matchLabelKeys` and `mismatchLabelKeys` into it when it
    creates the pod. A term that names no namespaces is about the pod's own.
    """

    topology_key: str
    selector: NodeTerm | None = None  # of pods, by label; () selects all, None selects none
    namespaces: tuple[str, ...] = ()
    namespace_selector: NodeTerm | None = None  # of further namespaces, by label; () selects all


class HostPort(NamedTuple):
    """A port of the node itself that a pod takes."""

    number: int
    protocol: str = "TCP"
    ip: str = "0.0.0.0"  # noqa: S104  (the API's own word for all addresses)


@dataclass(frozen=True, slots=True)
class Needs:
    """What a pod asks of a node, beside its required node affinity. Siblings share one."""

    requests: Mapping[str, int] = field(default_factory=no_amounts)
    limits: Mapping[str, int] = field(default_factory=no_amounts)
    node_selector: Mapping[str, str] = field(default_factory=nothing)
    tolerations: tuple[Toleration, ...] = ()
    hard_spread: tuple[HardSpread, ...] = ()
    affinity: tuple[PodTerm, ...] = ()  # required, to other pods
    anti_affinity: tuple[PodTerm, ...] = ()  # required
    claims: tuple[str, ...] = ()  # of volumes, by name; "*" stands for the pod's name, so that siblings share this
    disks: tuple[str, ...] = ()  # that the spec names itself, each by the driver that attaches it
    has_local_storage: bool = False  # emptyDir (not in memory) or hostPath: lost with the pod
    host_ports: tuple[HostPort, ...] = ()
    priority: int = 0
    grace_seconds: int = 30
    priority_class: str = ""
    unmodelled: Lack | None = None  # what it asks for and only the scheduler can judge
    never_preempts: bool = False  # the scheduler evicts nobody to make room for it

    @property
    def has_pod_affinity(self) -> bool:
        """Required affinity or anti-affinity to other pods."""
        return bool(self.affinity or self.anti_affinity)

    @property
    def has_claims(self) -> bool:
        """Volumes or devices that are bound to a zone or a node, or to one pod at a time."""
        return bool(self.claims or self.disks) or self.unmodelled is not None


NO_NEEDS = Needs()


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as far as placement looks at it. `annotations` holds only ours and those of others that are read.

    Our decision is none of them: it differs for every pod, and without it many pods have the same annotations.
    """

    namespace: str
    name: str
    uid: str = ""
    owner: Owner | None = None
    labels: Mapping[str, str] = field(default_factory=nothing)
    annotations: Mapping[str, str] = field(default_factory=nothing)
    node: str = ""
    phase: str = "Pending"
    ready: bool = False
    terminating: bool = False
    unschedulable: str = ""  # the scheduler's sentence, once it has tried and found no node
    required_terms: tuple[NodeTerm, ...] = ()  # of its own required node affinity
    needs: Needs = NO_NEEDS
    created: float = 0.0
    changed: float = 0.0  # when it became ready; of one that is not, when it was found unschedulable
    decision: str = ""  # the annotation: `<UID of its owner>/<id>`
    waits: str = ""  # what it waits for before the scheduler looks for a node: a scheduling gate, a preemption
    evicted: bool = False  # it ends because of the eviction API
    gates: tuple[str, ...] = ()  # scheduling gates, by name: the scheduler does not look at it until all are off
    nominated: str = ""  # the node that is kept free for it, before it is bound
    gang_plan: str = ""  # the annotation, see `placement.gang.reservation`: it differs for every member
    disrupted: str = ""  # why somebody else ends it, in the words of the API: EvictionByEvictionAPI

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def is_member(self) -> bool:
        """Admission made it a member of a gang, with our gate: only its gang starts it."""
        return self.labels.get(names.GANG_LABEL) == names.GANG_MEMBER

    @property
    def is_gated(self) -> bool:
        """By us. It takes no room, and waits for us to take the gate off."""
        return names.GANG_GATE in self.gates

    @property
    def why_pending(self) -> str:
        """Why it has no node, for people."""
        return self.unschedulable or self.waits

    @property
    def is_live(self) -> bool:
        """It counts for its owner: not on its way out, not finished, not released."""
        return not self.terminating and self.phase not in FINISHED and not self.is_released

    @property
    def is_on_node(self) -> bool:
        """It takes room there."""
        return bool(self.node) and self.phase not in FINISHED

    @property
    def serves(self) -> bool:
        """It is ready on a node, and not on its way out. Whether that node still exists, its name does not say."""
        return self.ready and self.is_on_node and not self.terminating

    @property
    def is_released(self) -> bool:
        """We took it from its ReplicaSet, to move it: annotation and label say so, and its Deployment owns it.

        An annotation alone proves nothing: people copy pods. The previous version gave the pod no new owner. Its
        ReplicaSet owned it for a moment longer, then nothing did. `--cascade=orphan` leaves it like that, too.
        """
        return (
            names.RELEASED in self.annotations
            and self.labels.get(names.POD_TEMPLATE_HASH, "").startswith(names.RELEASED_HASH)
            and (self.owner is None or self._is_deployments or self.decision.startswith(f"{self.owner.uid}/"))
        )

    @property
    def is_drained(self) -> bool:
        """Others evict it. What we evict from a cordoned node was released before."""
        return self.evicted and bool(self.node) and not self.is_released

    @property
    def _is_deployments(self) -> bool:
        """A Deployment controls it directly, which Kubernetes itself never does, and it has a decision of ours."""
        is_theirs = self.owner is not None and (self.owner.kind, self.owner.api_group) == (Kind.DEPLOYMENT, "apps")
        return is_theirs and bool(self.decision)

    @property
    def decision_id(self) -> str | None:
        """The id of the decision that was made for this pod; None where its annotations came with a template.

        The decision of a released pod names the ReplicaSet that it was made for, which is not its owner any more.
        """
        uid, _, decision = self.decision.partition("/")
        if self.owner is None or not decision:
            return None
        return decision if uid == self.owner.uid or self.is_released else None

    @property
    def slot(self) -> int | None:
        """Its slot, if a decision of ours gave it one."""
        slot = _slot_in(self.annotations.get(names.SLOT, ""))
        return slot if slot is not None and self.decision_id is not None else None


@lru_cache(1024)
def _slot_in(text: str) -> int | None:
    """The annotation may contain any text."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


_WHOLE = re.compile(r"[+-]?[0-9]{1,18}")


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """One expression of a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        return " ".join((self.key, self.operator, ",".join(self.values))).rstrip()

    def allows(self, value: str | None) -> bool:
        """Whether a node whose label has this value (None: no such label) satisfies it."""
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
        return False

    def _compares(self, value: str | None) -> bool:
        """As whole numbers; what is none satisfies nothing (`1_000` is one to Python alone)."""
        if len(self.values) != 1 or not all(_WHOLE.fullmatch(each) for each in (value or "", *self.values)):
            return False
        there, limit = int(value or ""), int(self.values[0])
        return there > limit if self.operator == "Gt" else there < limit


NodeTerm = tuple[NodeRequirement, ...]  # ANDed; a tuple of terms is ORed


@dataclass(frozen=True, slots=True)
class Rollout:
    """What a workload's strategy says about replacing pods; counts or percentages as written."""

    recreate: bool = False
    max_unavailable: int | str = "25%"
    max_surge: int | str = "25%"
    paused: bool = False
    partition: int = 0  # of a StatefulSet: pods below keep their revision, even when they are created again
    on_delete: bool = False  # of a StatefulSet: a pod changes its revision only when it is deleted


@dataclass(frozen=True, slots=True)
class Template:
    """What the owner's pod template itself says, where a pod may arrive with more than its owner wrote."""

    labels: Mapping[str, str] = field(default_factory=nothing)
    priority_class: str = ""
    has_deletion_cost: bool = False
    carries_decision: bool = False  # a pod of ours was copied into it
    is_placed_by_others: bool = False  # it names its node, or another scheduler
    is_gang: bool = False  # its pods are members of a gang: no mix, no slots, no moves


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """A revision of a Deployment. `selector` is the raw label selector of this revision's pods."""

    namespace: str
    name: str
    uid: str
    owner: Owner | None
    replicas: int
    selector: Mapping[str, object] = field(default_factory=dict)
    template: Template = Template()
    observed: int = 0  # pods that its controller has seen, by its status
    settled: bool = True  # its controller has acted on the latest spec

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Workload:
    """A Deployment or StatefulSet. `annotations` holds only ours."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    replicas: int
    labels: Mapping[str, str] = field(default_factory=nothing)
    annotations: Mapping[str, str] = field(default_factory=nothing)
    selector: Mapping[str, object] = field(default_factory=dict)
    template: Template = Template()
    rollout: Rollout = Rollout()
    ordered: bool = False  # StatefulSet with podManagementPolicy OrderedReady
    first_ordinal: int = 0
    settled: bool = True  # its controller has acted on the latest spec
    revision: str = ""  # StatefulSet: the revision that its pods should have, by its status
    min_ready_seconds: int = 0  # a pod that has been ready for less does not serve yet
    rolled_out: float = 0.0  # Deployment: when its last rollout ended; 0: there was none, or one is under way

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def subject(self) -> Subject:
        return Subject(str(self.kind), self.namespace, self.name, self.uid)

    @property
    def is_opted_out(self) -> bool:
        return names.DISABLED in (
            self.labels.get(names.PLACEMENT),
            self.annotations.get(names.PLACEMENT),
            self.template.labels.get(names.PLACEMENT),
        )


@dataclass(frozen=True, slots=True)
class Subject:
    """An object that an Event is about."""

    kind: str
    namespace: str
    name: str
    uid: str
    api_version: str = "apps/v1"


@dataclass(frozen=True, slots=True)
class Job:
    """A Job: how many of its pods run at once, and how many more failures it survives."""

    namespace: str
    name: str
    uid: str
    parallelism: int = 1
    is_suspended: bool = False
    is_part: bool = False  # of something that makes several Jobs, such as a JobSet
    annotations: Mapping[str, str] = field(default_factory=nothing)  # only ours
    owner: Owner | None = None
    backoff_limit: int = 6
    failed: int = 0
    succeeded: int = 0  # pods, whether they are there still or not
    completions: int | None = None  # None: once one has succeeded, it creates no more
    ignores_disruption: bool = False  # an eviction is no failure, by its podFailurePolicy
    is_over: bool = False  # it has ended, well or not, and wants no more pods

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def wanted(self) -> int:
        """So many pods it keeps at once."""
        return 0 if self.is_suspended or self.is_over else self.parallelism

    @property
    def left(self) -> int:
        """So many it would create again: what has succeeded is not wanted any more."""
        if self.completions is None:
            return 0 if self.succeeded else self.wanted
        return min(self.wanted, max(0, self.completions - self.succeeded))


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass that exists."""

    name: str
    value: int = 0
    never: bool = False  # `preemptionPolicy: Never`: its pods preempt nobody

    @property
    def key(self) -> Key:
        return Key("", self.name)


@dataclass(frozen=True, slots=True)
class Budget:
    """A PodDisruptionBudget: which pods it selects, and what its controller reports as left. Amounts as written."""

    namespace: str
    name: str
    selector: Mapping[str, object] = field(default_factory=dict)
    min_available: int | str | None = None
    max_unavailable: int | str | None = None
    allowed: int = 0  # disruptions, by its status
    healthy: int = 0
    desired: int = 0
    expected: int = 0
    settled: bool = True  # its status belongs to the latest spec

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def asks(self) -> tuple[object, ...]:
        """What it is about, without how it stands."""
        return (self.selector, self.min_available, self.max_unavailable)


@dataclass(frozen=True, slots=True)
class Quota:
    """A ResourceQuota: how much a namespace may have, and has. Keys as written (`pods`, `requests.cpu`, …)."""

    namespace: str
    name: str
    hard: Mapping[str, int] = field(default_factory=no_amounts)
    used: Mapping[str, int] = field(default_factory=no_amounts)
    is_scoped: bool = False  # it counts only some pods

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim, as far as it decides where its pod may go."""

    namespace: str
    name: str
    volume: str = ""  # "": not bound yet
    is_for_one_pod: bool = False  # ReadWriteOncePod
    is_usable: bool = True  # not lost, nor on its way out

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume: the nodes that can use it, and what attaches it to them."""

    name: str
    terms: tuple[NodeTerm, ...] = ()  # ORed; none: all nodes
    zones: NodeTerm = ()  # by its own labels; binding only for nodes that have such labels at all
    driver: str = ""

    @property
    def key(self) -> Key:
        return Key("", self.name)


@dataclass(frozen=True, slots=True)
class AttachLimits:
    """A CSINode: how many volumes of each driver its node can attach. Drivers without a limit are left out."""

    name: str
    most: Mapping[str, int] = field(default_factory=no_amounts)  # by driver

    @property
    def key(self) -> Key:
        return Key("", self.name)


@dataclass(frozen=True, slots=True)
class Sign:
    """An Event of another program that we use: the cloud deletes a node, an autoscaler adds one or cannot."""

    namespace: str
    name: str
    reason: str
    about: str  # the name of the object that it regards
    at: float = 0.0
    uid: str = ""  # of that object; some write its name there
    kind: str = ""  # of that object
    message: str = ""  # only where it is read

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


def with_drains(nodes: Iterable[Node], pods: Iterable[Pod]) -> Iterator[Node]:
    """The nodes, with those marked that are drained: cordoned, and a pod there is being evicted by others than us."""
    emptied = {pod.node for pod in pods if pod.is_drained}
    for node in nodes:
        yield replace(node, drained=True) if node.unschedulable and node.name in emptied else node


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was known of the cluster at one moment."""

    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    workloads: tuple[Workload, ...] = ()
    replica_sets: tuple[ReplicaSet, ...] = ()
    pods: tuple[Pod, ...] = ()
    budgets: tuple[Budget, ...] = ()
    quotas: tuple[Quota, ...] = ()
    others: tuple[object, ...] = ()  # of resources that have no field here: facts for the index alone
