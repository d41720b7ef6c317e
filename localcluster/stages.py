"""KWOK's Stages: how the imitated kubelets behave. The built-in ones come with the program, yours may replace them.

One thing is added: a pod's annotation says how long it takes to become ready. By default that is no time at all, and
a replacement would be there before anyone could see it missing.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from localcluster.errors import BAD_INPUT, ClusterError

READY_AFTER_ANNOTATION = "localcluster.spotweave.dev/ready-after"  # on a pod: a duration such as 10s


def merged_stages(built_in: Path, given: Iterable[Path]) -> str:
    """One file with all Stages; a given one replaces the built-in one of the same name (`pod-ready`, `pod-delete`…)."""
    stages: dict[str, Any] = {}
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
            raise ClusterError(f"{path} holds something else than KWOK Stages with a name", exit_code=BAD_INPUT)
    return documents
