"""The facts that decisions are made from, as small frozen dataclasses. `kube` builds them from API objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from placement import names

NOTHING: Mapping[str, str] = {}


def nothing() -> Mapping[str, str]:
    """The one empty mapping, as a default: dataclasses take no dict for that."""
    return NOTHING


DEFAULT_SCHEDULER = "default-scheduler"


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


@dataclass(frozen=True, slots=True)
class Pool:
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
class Node:
    """A node as far as placement looks at it."""

    name: str
    labels: Mapping[str, str] = field(default_factory=nothing)
    taints: tuple[str, ...] = ()  # keys only
    unschedulable: bool = False
    ready: bool = True

    @property
    def key(self) -> Key:
        return Key("", self.name)

    @property
    def pool(self) -> Pool:
        return Pool(self.labels.get(names.ZONE, ""), self.labels.get(names.INSTANCE_TYPE, ""))


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod as far as placement looks at it. `annotations` holds only ours and the deletion cost."""

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
    unschedulable: str = ""  # the scheduler's sentence, while PodScheduled is False
    required_terms: tuple[NodeTerm, ...] = ()  # of its own required node affinity

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def is_live(self) -> bool:
        """It counts for its owner: not on its way out, not finished, not released."""
        return (
            not self.terminating
            and self.phase not in ("Failed", "Succeeded")
            and names.RELEASED not in self.annotations
        )

    @property
    def decision_id(self) -> str | None:
        """The id of the decision that was made for this pod; None where its annotations came with a template."""
        uid, _, decision = self.annotations.get(names.DECISION, "").partition("/")
        return decision if self.owner is not None and uid == self.owner.uid and decision else None

    @property
    def slot(self) -> int | None:
        """Its slot, if a decision of ours gave it one."""
        text = self.annotations.get(names.SLOT, "")
        is_number = text.isascii() and text.isdigit() and len(text) < 10  # anybody may write any text there
        return int(text) if self.decision_id and is_number else None


@dataclass(frozen=True, slots=True)
class NodeRequirement:
    """One expression of a node selector term."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def allows(self, value: str | None) -> bool:
        """Whether a node whose label has this value (None: no such label) satisfies it. Gt and Lt are not judged."""
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        return True


NodeTerm = tuple[NodeRequirement, ...]  # ANDed; a tuple of terms is ORed


@dataclass(frozen=True, slots=True)
class Rollout:
    """What a workload's strategy says about replacing pods; counts or percentages as written."""

    recreate: bool = False
    max_unavailable: int | str = "25%"
    max_surge: int | str = "25%"


@dataclass(frozen=True, slots=True)
class Template:
    """What the owner's pod template itself says, where a pod may arrive with more than its owner wrote."""

    labels: Mapping[str, str] = field(default_factory=nothing)
    priority_class: str = ""
    has_deletion_cost: bool = False
    carries_decision: bool = False  # somebody copied a pod of ours into it
    is_placed_by_others: bool = False  # it names its node, or another scheduler


@dataclass(frozen=True, slots=True)
class ReplicaSet:
    """A revision of a Deployment. `selector` is the raw label selector, which tells this revision's pods."""

    namespace: str
    name: str
    uid: str
    owner: Owner | None
    replicas: int
    selector: Mapping[str, object] = field(default_factory=dict)
    template: Template = Template()

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

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def is_opted_out(self) -> bool:
        return names.DISABLED in (
            self.labels.get(names.PLACEMENT),
            self.annotations.get(names.PLACEMENT),
            self.template.labels.get(names.PLACEMENT),
        )


@dataclass(frozen=True, slots=True)
class PriorityClass:
    """A PriorityClass that exists."""

    name: str
    value: int = 0

    @property
    def key(self) -> Key:
        return Key("", self.name)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was known of the cluster at one moment."""

    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)
    workloads: tuple[Workload, ...] = ()
    replica_sets: tuple[ReplicaSet, ...] = ()
    pods: tuple[Pod, ...] = ()
