"""A pod changes hands: owner, labels and annotations in one JSON patch, as a release and its undo write them.

Everything that changes is tested first to be what it was when the change was decided on. So the patch applies to the
very pod that was meant, as it was then, or not at all; and between the two owners there is no moment without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placement import names
from placement.model import Owner, Pod

Operation = dict[str, Any]
Patch = list[Operation]
_OWNERS = "/metadata/ownerReferences"


def patches(
    pod: Pod, owner: Owner, annotations: Mapping[str, str | None], labels: Mapping[str, str | None]
) -> Iterator[Patch]:
    """What makes this owner the pod's controller, the exact one first; what follows is tried where that is refused.

    A ReplicaSet's pods block its deletion in the foreground. To write that, some clusters ask for the right to change
    its finalizers (OwnerReferencesPermissionEnforcement).
    """
    rest = [*_changes("annotations", pod.annotations, annotations), *_changes("labels", pod.labels, labels)]
    for blocks in (True, False) if owner.kind == "ReplicaSet" else (False,):
        for handed_over in _owners(pod, _reference(owner, blocks)):
            yield [*_same(pod), *handed_over, *rest]


def _same(pod: Pod) -> Iterator[Operation]:
    """It is this pod, and its decision names the ReplicaSet that it was or will be one of."""
    yield {"op": "test", "path": "/metadata/uid", "value": pod.uid}
    yield {"op": "test", "path": _path("annotations", names.DECISION), "value": pod.decision}


def _owners(pod: Pod, reference: Mapping[str, Any]) -> Iterator[Sequence[Operation]]:
    """The controller's place in the list is kept. Without a controller there is no list, or it holds others."""
    if pod.owner is not None:
        path = f"{_OWNERS}/{pod.owner.index}"
        yield (
            {"op": "test", "path": f"{path}/uid", "value": pod.owner.uid},
            {"op": "replace", "path": path, "value": reference},
        )
        return
    yield ({"op": "test", "path": _OWNERS, "value": None}, {"op": "add", "path": _OWNERS, "value": [reference]})
    yield ({"op": "add", "path": f"{_OWNERS}/-", "value": reference},)


def _reference(owner: Owner, blocks: bool) -> dict[str, Any]:
    reference = {"apiVersion": f"{owner.api_group}/v1", "kind": owner.kind, "name": owner.name, "uid": owner.uid}
    return {**reference, "controller": True, **({"blockOwnerDeletion": True} if blocks else {})}


def _changes(part: str, before: Mapping[str, str], changes: Mapping[str, str | None]) -> Iterator[Operation]:
    """None removes a key. The API server takes a test for null to mean that the key is not there."""
    for key, value in changes.items():
        path = _path(part, key)
        yield {"op": "test", "path": path, "value": before.get(key)}
        if value is not None:
            yield {"op": "add", "path": path, "value": value}
        elif key in before:
            yield {"op": "remove", "path": path}


def _path(part: str, key: str) -> str:
    escaped = key.replace("~", "~0").replace("/", "~1")
    return f"/metadata/{part}/{escaped}"
