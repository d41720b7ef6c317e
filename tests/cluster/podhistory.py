"""Every state that the pods of a namespace went through, and the rules by which other tools look at a pod."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from kube.client import Stream
from placement import names
from tests.cluster.namespaceuser import NamespaceUser, wait_for
from tests.cluster.servinghistory import APP

Meta = Mapping[str, Any]  # a pod's metadata

WATCH_SECONDS = 300
# The controllers whose pods Cluster Autoscaler takes for replicated.
REPLICATED = ("ReplicationController", "Job", "ReplicaSet", "StatefulSet")


def owners(meta: Meta) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = meta.get("ownerReferences", [])
    return found


def controllers(meta: Meta) -> list[dict[str, Any]]:
    return [each for each in owners(meta) if each.get("controller")]


def is_released(meta: Meta) -> bool:
    return str(meta.get("labels", {}).get(names.POD_TEMPLATE_HASH, "")).startswith(names.RELEASED_HASH)


def is_replicated(meta: Meta) -> bool:
    """Cluster Autoscaler's rule. It keeps the node of any other pod."""
    is_marked = meta.get("annotations", {}).get(names.SAFE_TO_EVICT) == "true"
    return is_marked or any(each["kind"] in REPLICATED for each in controllers(meta))


def is_top_level(meta: Meta) -> bool:
    """Argo CD's rule. It prunes such a pod if the pod carries the label of an application."""
    return not owners(meta)


def others_part(meta: Meta) -> dict[str, Any]:
    """What others wrote: all labels and owners, and the annotations that are not ours."""
    ours = (names.PREFIX, names.DELETION_COST)
    annotations = {key: value for key, value in meta.get("annotations", {}).items() if not key.startswith(ours)}
    return {"labels": meta.get("labels"), "annotations": annotations, "ownerReferences": owners(meta)}


class PodHistory:
    """Every state of every pod of a namespace, in order. It has a watch of its own, so no state is left out."""

    def __init__(self, user: NamespaceUser) -> None:
        self._world = user
        self._lock = threading.Lock()
        self._states: list[Meta] = []
        self._versions: dict[str, str] = {}  # by UID, of the pods that are there

    def open(self) -> Stream:
        """The watch, from now on."""
        listed = self._world.client.get_json(self._world.pods_path)
        for raw in listed["items"]:
            self._note("ADDED", raw["metadata"])
        query = {
            "watch": "true",
            "resourceVersion": listed["metadata"]["resourceVersion"],
            "timeoutSeconds": WATCH_SECONDS,
        }
        return self._world.client.stream(self._world.pods_path, query, read_timeout_seconds=WATCH_SECONDS)

    def follow(self, stream: Stream) -> None:
        for line in stream:
            event = msgspec.json.decode(line)
            self._note(event["type"], event["object"]["metadata"])

    def _note(self, kind: str, meta: Meta) -> None:
        with self._lock:
            if kind == "DELETED":
                self._versions.pop(meta["uid"], None)
                return
            self._states.append(meta)
            self._versions[meta["uid"]] = meta["resourceVersion"]

    def _is_complete(self) -> bool:
        items = self._world.client.get_json(self._world.pods_path)["items"]
        with self._lock:
            return self._versions == {raw["metadata"]["uid"]: raw["metadata"]["resourceVersion"] for raw in items}

    def read(self) -> list[Meta]:
        """All states of pods that were not on their way out, up to now."""
        wait_for("the watch to show the last change", self._is_complete)
        with self._lock:
            return [meta for meta in self._states if "deletionTimestamp" not in meta]

    def releases(self) -> set[str]:
        """The UIDs of the pods that were released at some moment."""
        return {meta["uid"] for meta in self.read() if is_released(meta)}

    def complaints(self, spared: str = "") -> list[str]:
        """Where a pod was without exactly one controller, or a released pod was alone by the rule of a tool.

        The pods of an app may be spared.
        """
        found = []
        for meta in self.read():
            if meta["labels"][APP] == spared:
                continue
            where = f"{meta['name']} at version {meta['resourceVersion']}"
            if len(controllers(meta)) != 1:
                found.append(f"{where}: controllers are {controllers(meta)}, labels {meta['labels']}")
            if is_released(meta) and not is_replicated(meta):
                found.append(f"{where}: not replicated by Cluster Autoscaler's rule")
            if is_released(meta) and is_top_level(meta):
                found.append(f"{where}: a top-level resource by Argo CD's rule")
        return found


@contextmanager
def recording_pods(user: NamespaceUser) -> Iterator[PodHistory]:
    """Follows the namespace's pods until the block ends."""
    pod_history = PodHistory(user)
    stream = pod_history.open()
    thread = threading.Thread(target=pod_history.follow, args=(stream,), name="pod-history", daemon=True)
    thread.start()
    try:
        yield pod_history
    finally:
        stream.close()
        thread.join(10)
