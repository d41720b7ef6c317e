"""The taint of nodes that are a gang's own: written and removed, beside whatever other taints there are."""

from __future__ import annotations

from kube.client import Client
from kube.errors import NotFound
from kube.paths import path_of
from kube.podwriter import CALL_SECONDS
from kube.resources import NODES, pages
from placement import names
from placement.gang.exclusive import NO_SCHEDULE, TaintChange


def write_taint(client: Client, change: TaintChange) -> None:
    """Raises ApiError; Conflict where the node has changed between read and write."""
    path = path_of(NODES.path, change.node)
    try:
        raw = client.get_json(path, timeout_seconds=CALL_SECONDS)
        there = raw["spec"].get("taints") or []
        ours = {"key": names.EXCLUSIVE_TAINT, "value": change.mark, "effect": NO_SCHEDULE}
        wanted = [each for each in there if each.get("key") != names.EXCLUSIVE_TAINT] + ([ours] if change.mark else [])
        if wanted != there:
            version = {"uid": raw["metadata"]["uid"], "resourceVersion": raw["metadata"]["resourceVersion"]}
            client.patch(path, {"metadata": version, "spec": {"taints": wanted or None}}, timeout_seconds=CALL_SECONDS)
    except NotFound:
        return


def remove_taints(client: Client) -> int:
    """From how many nodes."""
    found = [node for page in pages(client, NODES) for node in page.items]
    tainted = [each.name for each in found if any(taint.key == names.EXCLUSIVE_TAINT for taint in each.taints)]
    for name in tainted:
        write_taint(client, TaintChange(name, ""))
    return len(tainted)
