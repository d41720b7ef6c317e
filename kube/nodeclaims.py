"""Karpenter's NodeClaims: whether a node is deleted because it has expired. No Event and no condition says so."""

from __future__ import annotations

import re
from typing import Any

from kube.client import Client
from kube.convert import seconds
from kube.paths import path_of
from kube.resources import NODES
from placement.model import Node

NODE_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
CALL_SECONDS = 1.0
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION = re.compile(r"(?:\d+(?:\.\d+)?(?:h|ms|m|s))+")
_PART = re.compile(r"(\d+(?:\.\d+)?)(h|ms|m|s)")


def is_expired(client: Client, node: Node) -> bool:
    """Karpenter deletes its NodeClaim, which has become as old as its NodePool lets nodes become.

    A node owned by no NodeClaim has not expired. Raises ApiError.
    """
    raw = client.get_json(path_of(NODES.path, node.name), timeout_seconds=CALL_SECONDS)
    name = _claim_of(raw["metadata"]) if raw["metadata"].get("uid") == node.uid else ""
    return bool(name) and has_expired(client.get_json(path_of(NODE_CLAIMS, name), timeout_seconds=CALL_SECONDS))


def _claim_of(raw_metadata: dict[str, Any]) -> str:
    owners = raw_metadata.get("ownerReferences") or ()
    own = (each for each in owners if each["kind"] == "NodeClaim" and each["apiVersion"].startswith("karpenter.sh/"))
    return str(next((each["name"] for each in own), ""))


def has_expired(raw_claim: dict[str, Any]) -> bool:
    """Created at 10:00:00 with `expireAfter: 2m`, it is deleted at 10:02:00, not earlier."""
    meta = raw_claim["metadata"]
    after = lifetime(str((raw_claim.get("spec") or {}).get("expireAfter") or ""))
    deleted = meta.get("deletionTimestamp")
    return after is not None and deleted is not None and seconds(deleted) >= seconds(meta["creationTimestamp"]) + after


def lifetime(text: str) -> float | None:
    """Seconds; `720h`, `1h30m`. None: it never expires."""
    if not _DURATION.fullmatch(text):
        return None
    return sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
