"""KWOK's Stages: how the simulated kubelets behave. The built-in ones come with the program; yours may replace them.

Two things are added. A pod's annotation sets how long it takes to become ready: by default it takes no time, and a
replacement would be ready before its absence could be seen. And a pod that the node controller marked as not ready,
because its node was silent for a while, becomes ready again when the node is back, as with a real kubelet.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from localcluster.errors import BAD_INPUT, ClusterError

READY_AFTER_ANNOTATION = "localcluster.spotweave.dev/ready-after"  # on a pod: a duration such as 10s

READY_AGAIN: dict[str, Any] = {
    "apiVersion": "kwok.x-k8s.io/v1alpha1",
    "kind": "Stage",
    "metadata": {"name": "pod-ready-again"},
    "spec": {
        "resourceRef": {"apiGroup": "v1", "kind": "Pod"},
        "selector": {
            "matchExpressions": [
                {"key": ".metadata.deletionTimestamp", "operator": "DoesNotExist"},
                {"key": ".status.phase", "operator": "In", "values": ["Running"]},
                {
                    "key": '.status.conditions.[] | select( .type == "Ready" ) | .status',
                    "operator": "In",
                    "values": ["False"],
                },
            ]
        },
        "delay": {"durationMilliseconds": 1000},
        "next": {
            "statusTemplate": """
conditions:
- {type: Ready, status: "True", lastTransitionTime: {{ Now | Quote }}}
"""
        },
    },
}


def merged_stages(built_in: Path, given: Iterable[Path]) -> str:
    """One file with all Stages; a given one replaces the built-in one of the same name (`pod-ready`, `pod-delete`…)."""
    stages: dict[str, Any] = {"pod-ready-again": READY_AGAIN}
    for path in sorted(built_in.glob("*.yaml")):
        stages |= {stage["metadata"]["name"]: _with_delay(stage) for stage in _read(path)}
    for path in given:
        stages |= {stage["metadata"]["name"]: stage for stage in _read(path)}
    return yaml.safe_dump_all(stages.values(), sort_keys=False)


def _with_delay(stage: dict[str, Any]) -> dict[str, Any]:
    """`pod-ready` waits as long as the pod's annotation says; all others are as they are."""
    if stage["metadata"]["name"] != "pod-ready":
        return stage
    expression = f'.metadata.annotations["{READY_AFTER_ANNOTATION}"]'
    delay = {"durationMilliseconds": 0, "durationFrom": {"expressionFrom": expression}}
    return {**stage, "spec": {**stage["spec"], "delay": delay}}


def _read(path: Path) -> list[Any]:
    try:
        documents = [document for document in yaml.safe_load_all(path.read_text()) if document]
    except (OSError, yaml.YAMLError) as error:
        raise ClusterError(f"the Stage file {path} cannot be read: {error}", exit_code=BAD_INPUT) from error
    for document in documents:
        if not (
            isinstance(document, dict) and document.get("kind") == "Stage" and document.get("metadata", {}).get("name")
        ):
            raise ClusterError(f"{path} contains something other than named KWOK Stages", exit_code=BAD_INPUT)
    return documents
