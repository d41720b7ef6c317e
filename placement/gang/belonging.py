"""Which gang a pod belongs to, by what it says itself.

annotation spotweave.dev/pod-group: train           the gang `train` of its namespace
label scheduling.x-k8s.io/pod-group: train          the same, where the annotation is absent
neither, and admission has made it a member         a gang of one: `pod/NAME`
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement import names
from placement.model import Key, Pod

SOLO = "pod/"


def group_name(annotations: Mapping[str, Any], labels: Mapping[str, Any]) -> str:
    """The name of its group as it is written; "": it names none."""
    name = str(annotations.get(names.POD_GROUP) or "")
    return name if name.strip() else str(labels.get(names.POD_GROUP_LABEL) or "")


def is_by_label(pod: Pod) -> bool:
    """Its group is a PodGroup object, if there are such objects."""
    return names.POD_GROUP_LABEL in pod.labels and not pod.annotations.get(names.POD_GROUP, "").strip()


def gang_key(pod: Pod) -> Key | None:
    """The gang that it says it is a member of. A pod that has opted out by itself gets no gate, and is none."""
    if pod.labels.get(names.PLACEMENT) == names.DISABLED:
        return None
    name = group_name(pod.annotations, pod.labels)
    if name:
        return Key(pod.namespace, name)
    is_solo = pod.is_member and bool(pod.is_gated or pod.gang_plan)
    return Key(pod.namespace, SOLO + pod.name) if is_solo else None
