"""Members of gangs as users make them, for tests on a real control plane."""

from __future__ import annotations

from typing import Any

from placement import names
from tests.builders.api import raw_pod_spec
from tests.cluster.namespaceuser import NamespaceUser

CONFIGURATION = "gangs: {enabled: true}\n"
GATE = {"name": names.GANG_GATE}
FOREIGN = {"name": "example.com/wait"}
GROUP = {names.POD_GROUP: "train"}
MEMBER = {names.GANG_LABEL: names.GANG_MEMBER}


def raw_member(name: str, annotations: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A bare pod; without a group in its annotations it is none."""
    return {"metadata": {"name": name, "annotations": annotations}, "spec": raw_pod_spec(**spec)}


def create(user: NamespaceUser, raw: dict[str, Any], *, dry: bool = False) -> dict[str, Any]:
    created: dict[str, Any] = user.client.post(user.pods_path, raw, {"dryRun": "All"} if dry else None)
    return created


def is_gated(raw: dict[str, Any]) -> bool:
    return GATE in raw["spec"].get("schedulingGates", [])


def is_labelled(raw: dict[str, Any]) -> bool:
    return bool(raw["metadata"].get("labels", {}).get(names.GANG_LABEL) == names.GANG_MEMBER)
