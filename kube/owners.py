"""Asks the API server for a pod's owner that the caches have not seen yet."""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from kube.client import Client
from kube.errors import ApiError
from kube.paths import path_of
from kube.resources import DEPLOYMENTS, REPLICA_SETS, STATEFUL_SETS, Resource
from placement.model import Owner, ReplicaSet, Workload

log = logging.getLogger(__name__)

SECONDS = 0.5
_BY_KIND: dict[str, Resource[Any]] = {
    "ReplicaSet": REPLICA_SETS,
    "Deployment": DEPLOYMENTS,
    "StatefulSet": STATEFUL_SETS,
}


def look_up(client: Client, owner: Owner, namespace: str) -> ReplicaSet | Workload | None:
    """The owner, within half a second; None if it does not exist, is another object, or no answer came in time."""
    resource = _BY_KIND.get(owner.kind)
    if resource is None:
        return None
    try:
        path = path_of(resource.path, owner.name, namespace)
        found = resource.shape.single(client.get(path, timeout_seconds=SECONDS))
    except (ApiError, msgspec.DecodeError) as error:
        log.warning("look-up of %s %.80r in %.80r: %s", owner.kind, owner.name, namespace, error)
        return None
    assert isinstance(found, ReplicaSet | Workload)
    return found if found.uid == owner.uid else None
