"""API objects as the server writes them, for tests: only what a test names, the rest as it usually is."""

import json
from typing import Any

Raw = dict[str, Any]


def raw_pod(name: str, *, namespace: str = "shop", version: int = 1, node: str = "", **metadata: Any) -> Raw:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": str(version)}
        | metadata,
        "spec": {"nodeName": node} if node else {},
        "status": {"phase": "Running" if node else "Pending"},
    }


def page(*items: Raw, version: int = 10, token: str = "") -> bytes:
    metadata = {"resourceVersion": str(version)} | ({"continue": token} if token else {})
    return json.dumps({"kind": "PodList", "metadata": metadata, "items": items}).encode()


def event(kind: str, raw: Raw) -> bytes:
    return json.dumps({"type": kind, "object": raw}).encode()


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"kind": "Pod", "metadata": {"resourceVersion": str(version)}})


def status(code: int, reason: str, message: str = "", **details: Any) -> bytes:
    body = {"kind": "Status", "status": "Failure", "code": code, "reason": reason, "message": message}
    return json.dumps(body | ({"details": details} if details else {})).encode()
