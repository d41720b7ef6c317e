"""What a controller says about pods that it could not create, as of now: asked of the API server, not of a cache.

A ReplicaSet has a condition for it, which goes when the next creation succeeds. A StatefulSet has none: its Events
tell. Both tell the message of the API server, which names who refused the pod.
"""

from __future__ import annotations

import logging
from typing import Any

from kube.client import Client
from kube.convert import seconds
from kube.errors import ApiError
from kube.events import EVENTS
from kube.paths import collection_in, path_of
from kube.resources import REPLICA_SETS
from placement.model import Owner

log = logging.getLogger(__name__)

CALL_SECONDS = 2.0
RECENT_SECONDS = 120.0  # an Event that is older tells of another trouble; clocks of other machines differ
MOST_EVENTS = 50
MOST_BYTES = 1 << 20


def creation_failure(client: Client, owner: Owner, namespace: str, now: float) -> str:
    """The message; "" where its pods are created, or where that cannot be found out."""
    try:
        if owner.kind != "ReplicaSet":
            return _latest_event(client, owner, namespace, now - RECENT_SECONDS)
        condition = _condition(client, owner, namespace)
        return condition and (_latest_event(client, owner, namespace, now - RECENT_SECONDS) or condition)
    except ApiError as error:
        log.warning("cannot see why pods of %s %s/%s are not created: %s", owner.kind, namespace, owner.name, error)
        return ""


def _condition(client: Client, owner: Owner, namespace: str) -> str:
    """Its message is that of the first failure: the latest Event may know better."""
    raw = client.get_json(path_of(REPLICA_SETS.path, owner.name, namespace), timeout_seconds=CALL_SECONDS)
    match raw:
        case {"metadata": {"uid": owner.uid}, "status": {"conditions": list(conditions)}}:
            return next((found for each in conditions if (found := _failure(each))), "")
    return ""


def _failure(raw_condition: object) -> str:
    match raw_condition:
        case {"type": "ReplicaFailure", "status": "True", "reason": "FailedCreate", "message": str(message)}:
            return message
    return ""


def _latest_event(client: Client, owner: Owner, namespace: str, after: float) -> str:
    query: dict[str, str | int] = {
        "fieldSelector": f"regarding.uid={owner.uid},reason=FailedCreate",
        "limit": MOST_EVENTS,
    }
    raw = client.get_json(collection_in(EVENTS, namespace), query, timeout_seconds=CALL_SECONDS, most_bytes=MOST_BYTES)
    told = [(_seen(each), str(each.get("note") or "")) for each in raw.get("items") or () if isinstance(each, dict)]
    return max(((at, note) for at, note in told if at >= after), default=(0.0, ""))[1]


def _seen(raw_event: dict[str, Any]) -> float:
    """When it was last seen, wherever its writer notes that."""
    series = raw_event.get("series") or {}
    moments = (
        series.get("lastObservedTime"),
        raw_event.get("deprecatedLastTimestamp"),
        raw_event.get("eventTime"),
        raw_event.get("metadata", {}).get("creationTimestamp"),
    )
    return max(seconds(each) for each in moments if each is None or isinstance(each, str))
