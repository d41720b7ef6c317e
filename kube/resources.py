"""The resources that are read: one row each. Programs, snapshots and the offline plan follow what the rows say.

To add one: a row here and in `RESOURCES`, with the shape and conversion beside it if they are small, else in `wire` and
`convert`. tests/kube/test_resources.py shows the other places.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Generic, TypeVar

import msgspec

from kube import convert, podgroups, scopes, volumes, wire
from kube.client import Client
from kube.decode import Decoder, Page
from kube.errors import AnswerTooLarge, Garbled
from kube.paths import collection_in
from kube.reuse import reusing
from placement import names
from placement.gang.podgroup import PodGroup
from placement.gang.twins import ScopedQuota
from placement.model import (
    AttachLimits,
    Budget,
    Claim,
    Job,
    Key,
    Namespace,
    Node,
    Pod,
    PriorityClass,
    Quota,
    ReplicaSet,
    Sign,
    Volume,
    Workload,
)

T = TypeVar("T")

PAGE_SIZE = 500
PAGE_SECONDS = 60.0  # the API server gives up after that, too
PAGE_BYTES = 64 << 20  # most pages have a few MiB; of larger objects fewer are asked for at once


class Follower(StrEnum):
    """Who reads a resource. The programs list and watch it; a snapshot lists it once, for the command line."""

    WEBHOOK = "webhook"
    REBALANCER = "rebalancer"
    SNAPSHOT = "snapshot"


WEBHOOK, REBALANCER, SNAPSHOT = Follower
ALL = frozenset(Follower)
PLANNING = frozenset({REBALANCER, SNAPSHOT})


@dataclass(frozen=True, slots=True, eq=False)
class Resource(Generic[T]):
    """A collection of the API. `dataclasses.replace` with another `path` or `query` narrows it.

    Example: `replace(PODS, query={"labelSelector": "app=shop"})`. What `keeps` refuses is as good as not there.
    """

    name: str
    path: str
    shape: Decoder[T]
    query: Mapping[str, str | int] = field(default_factory=dict)
    keeps: Callable[[T], object] = lambda _item: True
    reuse: Callable[[T, T], T] = lambda _old, new: new  # what the store keeps of an object that has changed
    followed_by: Collection[Follower] = frozenset()
    is_awaited: bool = True  # else it makes its followers quick, and they work without it
    is_ours: bool = False  # an object of Spotweave itself, no fact about the cluster
    is_for_gangs: bool = False  # nobody reads it, and may read it, while gangs are switched off
    is_optional: bool = False  # its CRD may be missing: then there are none, until it is installed

    @property
    def group(self) -> str:
        """As RBAC names it: `apps` for `/apis/apps/v1/deployments`, nothing for `/api/v1/pods`."""
        parts = self.path.split("/")
        return parts[2] if parts[1] == "apis" else ""

    @property
    def plural(self) -> str:
        """As RBAC names it: `deployments` for `/apis/apps/v1/deployments`."""
        return self.path.rpartition("/")[2]


# --- the cluster -----------------------------------------------------------------------------------------------------

NAMESPACES: Resource[Namespace] = Resource(
    "namespaces", "/api/v1/namespaces", Decoder(wire.AnyObject, convert.namespace), followed_by=ALL
)
NODES: Resource[Node] = Resource("nodes", "/api/v1/nodes", Decoder(wire.NodeObject, convert.node), followed_by=ALL)
DEPLOYMENTS: Resource[Workload] = Resource(
    "deployments", "/apis/apps/v1/deployments", Decoder(wire.WorkloadObject, convert.deployment), followed_by=ALL
)
STATEFUL_SETS: Resource[Workload] = Resource(
    "statefulsets", "/apis/apps/v1/statefulsets", Decoder(wire.WorkloadObject, convert.stateful_set), followed_by=ALL
)
REPLICA_SETS: Resource[ReplicaSet] = Resource(
    "replicasets",
    "/apis/apps/v1/replicasets",
    Decoder(wire.WorkloadObject, convert.replica_set),
    followed_by={WEBHOOK, SNAPSHOT},
)
# Those that have pods or are to have some. Most are old revisions, ten for each Deployment.
REPLICA_SETS_IN_USE: Resource[ReplicaSet] = Resource(
    "replicasets",
    "/apis/apps/v1/replicasets",
    Decoder(wire.WorkloadObject, convert.replica_set_in_brief),
    keeps=lambda each: each.replicas or each.observed,
    followed_by={REBALANCER},
)
PODS: Resource[Pod] = Resource(
    "pods", "/api/v1/pods", Decoder(wire.PodObject, convert.pod), reuse=reusing, followed_by={WEBHOOK}
)
PODS_IN_FULL: Resource[Pod] = Resource(
    "pods", "/api/v1/pods", Decoder(wire.PodInFullObject, convert.pod_in_full), reuse=reusing, followed_by=PLANNING
)
BUDGETS: Resource[Budget] = Resource(
    "poddisruptionbudgets",
    "/apis/policy/v1/poddisruptionbudgets",
    Decoder(wire.BudgetObject, convert.budget),
    followed_by=ALL,
)
QUOTAS: Resource[Quota] = Resource(
    "resourcequotas", "/api/v1/resourcequotas", Decoder(wire.QuotaObject, convert.quota), followed_by=PLANNING
)
SCOPED_QUOTAS: Resource[ScopedQuota] = Resource(
    "resourcequotas",
    "/api/v1/resourcequotas",
    Decoder(scopes.ScopedQuotaObject, scopes.scoped_quota),
    keeps=lambda each: each.by_priority,
    followed_by={WEBHOOK},
    is_awaited=False,
    is_for_gangs=True,
)
# Where volumes can be used, and how many a node attaches. Of 1,000 claims little more than their names is kept.
CLAIMS: Resource[Claim] = Resource(
    "persistentvolumeclaims",
    "/api/v1/persistentvolumeclaims",
    Decoder(volumes.ClaimObject, volumes.claim),
    followed_by=PLANNING,
)
VOLUMES: Resource[Volume] = Resource(
    "persistentvolumes",
    "/api/v1/persistentvolumes",
    Decoder(volumes.VolumeObject, volumes.volume),
    followed_by=PLANNING,
)
ATTACH_LIMITS: Resource[AttachLimits] = Resource(
    "csinodes",
    "/apis/storage.k8s.io/v1/csinodes",
    Decoder(volumes.CsiNodeObject, volumes.attach_limits),
    followed_by=PLANNING,
)
JOBS: Resource[Job] = Resource(
    "jobs",
    "/apis/batch/v1/jobs",
    Decoder(wire.JobObject, convert.job),
    followed_by={REBALANCER},
    is_awaited=False,
    is_for_gangs=True,
)
POD_GROUPS: Resource[PodGroup] = Resource(
    "podgroups",
    podgroups.PATH,
    Decoder(podgroups.PodGroupObject, podgroups.pod_group),
    followed_by={REBALANCER},
    is_awaited=False,
    is_for_gangs=True,
    is_optional=True,
)
PRIORITY_CLASSES: Resource[PriorityClass] = Resource(
    "priorityclasses",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    Decoder(wire.PriorityClassObject, convert.priority_class),
    followed_by={WEBHOOK},
)


def _signs(reason: str) -> Resource[Sign]:
    """Events with one reason: the server sends no others, of which there are many.

    Nothing waits for them: they have no watch cache, their watches grow old, and RBAC may forbid them.
    """
    shape, only = Decoder(wire.SignObject, convert.sign), {"fieldSelector": f"reason={reason}"}
    return Resource(f"events-{reason}", "/api/v1/events", shape, only, followed_by=PLANNING, is_awaited=False)


DELETED_NODES = _signs(names.SIGN_NODE_DELETED)
PLANNED_REMOVALS = _signs(names.SIGN_PLANNED)
SCALE_UPS = _signs(names.SIGN_SCALE_UP)
NOMINATIONS = _signs(names.SIGN_NOMINATED)
NO_SCALE_UPS = _signs(names.SIGN_NO_SCALE_UP)
# Karpenter's alone: the scheduler writes one for every pod that finds no node.
UNSCHEDULED: Resource[Sign] = replace(
    _signs(names.SIGN_UNSCHEDULED),
    shape=Decoder(wire.SignObject, convert.sign_with_message),
    query={"fieldSelector": f"reason={names.SIGN_UNSCHEDULED},source=karpenter"},
)
# The scheduler's, about pods that it deletes to make room. Read to say what became of a member of a gang.
PREEMPTIONS: Resource[Sign] = replace(
    _signs(names.SIGN_PREEMPTED),
    shape=Decoder(wire.SignObject, convert.sign_with_message),
    followed_by={REBALANCER},
    is_for_gangs=True,
)
REFUSALS = _signs(names.EVENT_REFUSED)  # the webhooks' own


# --- our own objects -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConfigMap:
    """A ConfigMap's text."""

    namespace: str
    name: str
    data: dict[str, str]

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class Lease:
    """A member: the name of its Lease, and where it can be reached. The leader's: its name in place of an address."""

    name: str
    address: str
    renewed: str

    @property
    def key(self) -> Key:
        return Key(names.SYSTEM_NAMESPACE, self.name)


@dataclass(frozen=True, slots=True)
class Version:
    """That the webhook configuration has changed, not how: its readers read it again, together with the Secret."""

    name: str
    version: str

    @property
    def key(self) -> Key:
        return Key("", self.name)


class _ConfigMapObject(wire.AnyObject):
    data: dict[str, str] | None = None


class _MembershipSpec(msgspec.Struct, gc=False, rename="camel"):
    holder_identity: str | None = None
    renew_time: str | None = None


class _LeaseObject(wire.AnyObject):
    spec: _MembershipSpec | None = None


def _config_map(raw: _ConfigMapObject) -> ConfigMap:
    return ConfigMap(raw.metadata.namespace or "", raw.metadata.name or "", raw.data or {})


def _lease(raw: _LeaseObject) -> Lease:
    spec = raw.spec or _MembershipSpec()
    return Lease(raw.metadata.name or "", spec.holder_identity or "", spec.renew_time or "")


def _version(raw: wire.AnyObject) -> Version:
    return Version(raw.metadata.name or "", raw.metadata.resource_version or "")


def _named(name: str) -> dict[str, str | int]:
    """By its name alone: RBAC then grants the watch without the right to see others."""
    return {"fieldSelector": f"metadata.name={name}"}


STATE: Resource[ConfigMap] = Resource(
    names.STATE_MAP,
    collection_in("/api/v1/configmaps", names.SYSTEM_NAMESPACE),
    Decoder(_ConfigMapObject, _config_map),
    _named(names.STATE_MAP),
    followed_by={WEBHOOK, REBALANCER},
    is_ours=True,
)
WEBHOOK_LEASES: Resource[Lease] = Resource(
    "leases",
    collection_in("/apis/coordination.k8s.io/v1/leases", names.SYSTEM_NAMESPACE),
    Decoder(_LeaseObject, _lease),
    {"labelSelector": f"{names.COMPONENT}={names.WEBHOOK_COMPONENT}"},
    followed_by={WEBHOOK},
    is_ours=True,
)
# The rebalancers'. Without it the webhook assumes that there is no leader, which is the safe side.
LEADER: Resource[Lease] = Resource(
    names.LEASE,
    WEBHOOK_LEASES.path,
    WEBHOOK_LEASES.shape,
    _named(names.LEASE),
    followed_by={WEBHOOK},
    is_awaited=False,
    is_ours=True,
)
CONFIGURATION_VERSIONS: Resource[Version] = Resource(
    names.WEBHOOK_CONFIGURATION,
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    Decoder(wire.AnyObject, _version),
    _named(names.WEBHOOK_CONFIGURATION),
    followed_by={WEBHOOK},
    is_awaited=False,
    is_ours=True,
)
EVICTION_CONFIGURATION_VERSIONS: Resource[Version] = replace(
    CONFIGURATION_VERSIONS,
    name=f"{names.WEBHOOK_CONFIGURATION}-evictions",
    path="/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
)


# --- the table -------------------------------------------------------------------------------------------------------

Rows = tuple[Resource[Any], ...]
# In the order in which a snapshot reads them: owners before what they own.
RESOURCES: Rows = (
    NAMESPACES,
    NODES,
    DEPLOYMENTS,
    STATEFUL_SETS,
    REPLICA_SETS,
    REPLICA_SETS_IN_USE,
    PODS,
    PODS_IN_FULL,
    BUDGETS,
    QUOTAS,
    SCOPED_QUOTAS,
    CLAIMS,
    VOLUMES,
    ATTACH_LIMITS,
    JOBS,
    POD_GROUPS,
    PRIORITY_CLASSES,
    DELETED_NODES,
    PLANNED_REMOVALS,
    SCALE_UPS,
    NOMINATIONS,
    NO_SCALE_UPS,
    UNSCHEDULED,
    PREEMPTIONS,
    REFUSALS,
    STATE,
    WEBHOOK_LEASES,
    LEADER,
    CONFIGURATION_VERSIONS,
    EVICTION_CONFIGURATION_VERSIONS,
)


def rows_of(follower: Follower, rows: Iterable[Resource[Any]] = RESOURCES, *, with_gangs: bool = False) -> Rows:
    """What it follows."""
    return tuple(row for row in rows if follower in row.followed_by and (with_gangs or not row.is_for_gangs))


# --- reading ---------------------------------------------------------------------------------------------------------


def pages(client: Client, resource: Resource[T], page_size: int = PAGE_SIZE) -> Iterator[Page[T]]:
    """The whole collection as of one moment, page by page.

    No resource version is given, which means: the most recent, never a cache that lags. The pages that follow belong
    to the same moment by their token; if that expires (`Gone`), only a new start gives a consistent whole.
    """
    token = ""
    while True:
        query = {**resource.query, "limit": page_size, **({"continue": token} if token else {})}
        try:
            body = client.get(resource.path, query, timeout_seconds=PAGE_SECONDS, most_bytes=PAGE_BYTES)
        except AnswerTooLarge:
            if page_size == 1:
                raise
            page_size //= 2
            continue
        page = _page(resource, body)
        yield page
        token = page.continue_token
        if not token:
            return


def _page(resource: Resource[T], body: bytes) -> Page[T]:
    """An answer without a version is not a list, whatever it is: `{}` must not pass for an empty cluster."""
    try:
        page = resource.shape.page(body)
    except msgspec.DecodeError as error:
        raise Garbled(f"GET {resource.path}", str(error)) from error
    if not page.version:
        raise Garbled(f"GET {resource.path}", f"a list without a resource version: {body[:80]!r}")
    return page
