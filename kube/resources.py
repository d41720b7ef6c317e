"""The resources that are read, each with its path, its shape and the indexes that are asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from kube import decode
from kube.client import Client
from kube.decode import Page, Shape
from kube.errors import Garbled
from placement.model import Namespace, Node, Pod, PriorityClass, ReplicaSet, Workload

T = TypeVar("T")

PAGE_SIZE = 500


@dataclass(frozen=True, slots=True)
class Resource(Generic[T]):
    """A collection of the API. `dataclasses.replace` with another `path` or `query` narrows it.

    Example: `replace(PODS, query={"labelSelector": "app=shop"})`.
    """

    name: str
    path: str
    shape: Shape[T]
    query: Mapping[str, str | int] = field(default_factory=dict)


PODS: Resource[Pod] = Resource("pods", "/api/v1/pods", Shape(decode.PodObject, decode.pod))
NODES: Resource[Node] = Resource("nodes", "/api/v1/nodes", Shape(decode.NodeObject, decode.node))
NAMESPACES: Resource[Namespace] = Resource("namespaces", "/api/v1/namespaces", Shape(decode.Identity, decode.namespace))
DEPLOYMENTS: Resource[Workload] = Resource(
    "deployments", "/apis/apps/v1/deployments", Shape(decode.WorkloadObject, decode.deployment)
)
STATEFUL_SETS: Resource[Workload] = Resource(
    "statefulsets", "/apis/apps/v1/statefulsets", Shape(decode.WorkloadObject, decode.stateful_set)
)
REPLICA_SETS: Resource[ReplicaSet] = Resource(
    "replicasets", "/apis/apps/v1/replicasets", Shape(decode.WorkloadObject, decode.replica_set)
)
PRIORITY_CLASSES: Resource[PriorityClass] = Resource(
    "priorityclasses",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    Shape(decode.PriorityClassObject, decode.priority_class),
)


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
        page = _page(resource, client.get(resource.path, query))
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
