"""KWOK's Stages: how the imitated kubelets behave. The built-in ones come with the program, yours may replace them."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from localcluster.errors import BAD_INPUT, ClusterError


def merged_stages(built_in: Path, given: Iterable[Path]) -> str:
    """One file with all Stages; a given one replaces the built-in one of the same name (`pod-ready`, `pod-delete`…)."""
    stages: dict[str, Any] = {}
    for path in [*sorted(built_in.glob("*.yaml")), *given]:
        for stage in _read(path):
            stages[stage["metadata"]["name"]] = stage
    return yaml.safe_dump_all(stages.values(), sort_keys=False)


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
