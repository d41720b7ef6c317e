"""The two objects that hold certificates, as an API server keeps them: versions, conflicts, JSON patches.

It stands at the seam of `kube.client`: same methods, same typed errors.
"""

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import Any

import jsonpatch

from kube.client import JSON_PATCH
from kube.errors import AlreadyExists, Conflict, Invalid, NotFound

Raw = dict[str, Any]


class FakeApi:
    """`before_write` is called once, before the next write: another writer that is faster.

    `before_call` is called before each call, also by whom it calls itself: others that come in between, or a crash.
    """

    def __init__(self, objects: Mapping[str, Raw]) -> None:
        self.objects: dict[str, Raw] = {}
        self.version = 0
        self.writes: list[tuple[str, str]] = []
        self.patches: list[list[Raw]] = []
        self.before_write: Callable[[], object] | None = None
        self.before_call: Callable[[], object] = lambda: None
        for path, raw in objects.items():
            self.store(path, raw)

    def store(self, path: str, raw: Raw) -> Raw:
        self.version += 1
        metadata = {**raw.get("metadata", {}), "resourceVersion": str(self.version)}
        self.objects[path] = deepcopy({**raw, "metadata": metadata})
        return deepcopy(self.objects[path])

    def get_json(self, path: str, *, timeout_seconds: float = 30.0) -> Any:
        assert timeout_seconds <= 30
        self.before_call()
        return self._get(path)

    def _get(self, path: str) -> Any:
        if path not in self.objects:
            raise NotFound(f"GET {path}", 404, "NotFound", "")
        return deepcopy(self.objects[path])

    def post(self, path: str, body: Raw, *, timeout_seconds: float = 30.0) -> Any:
        name = f"{path}/{body['metadata']['name']}"
        self._write("POST", name)
        if name in self.objects:
            raise AlreadyExists(f"POST {path}", 409, "AlreadyExists", "")
        return self.store(name, body)

    def put(self, path: str, body: Raw, *, timeout_seconds: float = 30.0) -> Any:
        self._write("PUT", path)
        if body["metadata"]["resourceVersion"] != self._get(path)["metadata"]["resourceVersion"]:
            raise Conflict(f"PUT {path}", 409, "Conflict", "")
        return self.store(path, body)

    def patch(self, path: str, body: list[Raw], *, content_type: str) -> Any:
        assert content_type == JSON_PATCH
        self._write("PATCH", path)
        self.patches.append(body)
        try:
            return self.store(path, jsonpatch.apply_patch(self._get(path), body))
        except (jsonpatch.JsonPatchConflict, jsonpatch.JsonPatchTestFailed) as error:
            raise Invalid(f"PATCH {path}", 422, "Invalid", str(error)) from error

    def _write(self, verb: str, path: str) -> None:
        self.before_call()
        self.writes.append((verb, path.rpartition("/")[2]))
        faster, self.before_write = self.before_write, None
        if faster is not None:
            faster()
