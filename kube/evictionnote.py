"""The one thing that a webhook writes on pods: when their eviction was first asked for, and by whom."""

from __future__ import annotations

from kube.client import JSON_PATCH, Client
from kube.errors import Invalid, NotFound
from kube.paths import path_of
from kube.resources import PODS
from placement import names
from placement.model import Pod

CALL_SECONDS = 3.0  # the answer does not wait for so long, but a note that comes late still counts
_ANNOTATION = "/metadata/annotations/" + names.EVICTION_ASKED.replace("/", "~1")


def note_eviction(client: Client, pod: Pod, text: str) -> str | None:
    """The note that the pod carries now: this one, or one that was there before. None if the pod is gone.

    A patch that tests for the UID, and that there is no note yet (`null` stands for absent).
    """
    patch = [
        {"op": "test", "path": "/metadata/uid", "value": pod.uid},
        {"op": "test", "path": _ANNOTATION, "value": None},
        {"op": "add", "path": _ANNOTATION, "value": text},
    ]
    path = path_of(PODS.path, pod.name, pod.namespace)
    try:
        client.patch(path, patch, content_type=JSON_PATCH, timeout_seconds=CALL_SECONDS)
    except NotFound:
        return None
    except Invalid:  # a test failed
        raw = client.get_json(path, timeout_seconds=CALL_SECONDS)
        meta = raw["metadata"]
        return (meta.get("annotations") or {}).get(names.EVICTION_ASKED) if meta["uid"] == pod.uid else None
    return text
