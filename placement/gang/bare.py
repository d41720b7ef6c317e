"""Annotations without a prefix, as people wrote them for another scheduler, and what they become at admission.

Example: `pod-group: train` and `priority: "100"` become `spotweave.dev/pod-group` and `spotweave.dev/priority`.
What is written with the prefix counts first. The policy `spotweave-gang-bare` says the same
(manifests/components/gangs-bare-annotations/gate.yaml).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement import names
from placement.gang.terms import LONGEST_NAME

LONGEST_PRIORITY = 20


def copied(annotations: Mapping[str, Any]) -> dict[str, str]:
    """The annotations that are added."""
    found = {}
    group = next((text for key in names.BARE_POD_GROUPS if (text := _text(annotations, key)).strip()), "")
    if group and len(group) <= LONGEST_NAME and not _text(annotations, names.POD_GROUP).strip():
        found[names.POD_GROUP] = group
    priority = _text(annotations, names.BARE_PRIORITY)
    if priority.strip() and len(priority) <= LONGEST_PRIORITY and names.PRIORITY not in annotations:
        found[names.PRIORITY] = priority.strip()
    return found


def _text(annotations: Mapping[str, Any], key: str) -> str:
    return str(annotations.get(key) or "")
