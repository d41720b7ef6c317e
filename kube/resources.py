"""The resources that are read, each with its path, its shape and the indexes that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from kube import convert as build
from kube import wire
from kube.client import Client
from kube.decode import Decoder, Page
from kube.errors import AnswerTooLarge, Garbled
from placement import names
from placement.model import Budget, Namespace, Node, Pod, PriorityClass, Quota, ReplicaSet, Sign, Workload

T = TypeVar("T")

PAGE_SIZE = 500
PAGE_SECONDS = 60.0  # the API server gives up after that, too
PAGE_BYTES = 64 << 20  # most pages have a few MiB; of larger objects fewer are asked for at once


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A collection of the API. `dataclasses.replace` with another `path` or `query` narrows it.

    Example: `replace(PODS, query={"labelSelector": "app=shop"})`. What `keeps` refuses is as good as not there.
    """

    name: str
    path: str
    shape: Decoder[T]
    query: Mapping[str, str | int] = field(default_factory=dict)
    keeps: Callable[[T], object] = lambda _item: True


# Two of the same: the webhook looks for no room, and is spared the reading of whole specs.
PODS: Resource[Pod] = Resource("pods", "/api/v1/pods", Decoder(wire.PodObject, build.pod))
PODS_IN_FULL: Resource[Pod] = Resource("pods", "/api/v1/pods", Decoder(wire.PodInFullObject, build.pod_in_full))
NODES: Resource[Node] = Resource("nodes", "/api/v1/nodes", Decoder(wire.NodeObject, build.node))
NAMESPACES: Resource[Namespace] = Resource("namespaces", "/api/v1/namespaces", Decoder(wire.AnyObject, build.namespace))
DEPLOYMENTS: Resource[Workload] = Resource(
    "deployments", "/apis/apps/v1/deployments", Decoder(wire.WorkloadObject, build.deployment)
)
STATEFUL_SETS: Resource[Workload] = Resource(
    "statefulsets", "/apis/apps/v1/statefulsets", Decoder(wire.WorkloadObject, build.stateful_set)
)
REPLICA_SETS: Resource[ReplicaSet] = Resource(
    "replicasets", "/apis/apps/v1/replicasets", Decoder(wire.WorkloadObject, build.replica_set)
)
# Those that have pods or are to have some. Most are old revisions, ten for each Deployment.
REPLICA_SETS_IN_USE: Resource[ReplicaSet] = Resource(
    "replicasets",
    "/apis/apps/v1/replicasets",
    Decoder(wire.WorkloadObject, build.replica_set_in_brief),
    keeps=lambda each: each.replicas or each.observed,
)
PRIORITY_CLASSES: Resource[PriorityClass] = Resource(
    "priorityclasses",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    Decoder(wire.PriorityClassObject, build.priority_class),
)
BUDGETS: Resource[Budget] = Resource(
    "poddisruptionbudgets", "/apis/policy/v1/poddisruptionbudgets", Decoder(wire.BudgetObject, build.budget)
)
QUOTAS: Resource[Quota] = Resource("resourcequotas", "/api/v1/resourcequotas", Decoder(wire.QuotaObject, build.quota))


def _signs(reason: str) -> Resource[Sign]:
    """Events with one reason: the server sends no others, of which there are many."""
    shape = Decoder(wire.SignObject, build.sign)
    return Resource(f"events-{reason}", "/api/v1/events", shape, {"fieldSelector": f"reason={reason}"})


DELETED_NODES = _signs(names.SIGN_NODE_DELETED)
SCALE_UPS = _signs(names.SIGN_SCALE_UP)
NOMINATIONS = _signs(names.SIGN_NOMINATED)


def owner_uid(owned: Pod | ReplicaSet) -> str | None:
    """For an index: the UID of what controls it."""
    return owned.owner.uid if owned.owner is not None else None


def node_name(pod: Pod) -> str | None:
    """For an index: where the pod runs, if it has been placed."""
    return pod.node or None


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
