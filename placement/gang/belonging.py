"""Which gang a pod belongs to, by what it says itself.

With the annotation `spotweave.dev/pod-group: train`, to the gang `train` of its namespace; the same with the label
`scheduling.x-k8s.io/pod-group: train`, where the annotation is absent. With neither, if admission has made it a member,
it is a gang of one: `pod/NAME`.

A pod that belongs to none may be guarded (`guardSolo`): it has no gate, and a PriorityClass by which it preempts
nobody. While it finds no node it is planned for as a gang of one, so that others go for it whole, as for a gang.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement import names
from placement.gang.twins import is_twin
from placement.model import NOTHING, Key, Pod

SOLO = "pod/"


def group_name(annotations: Mapping[str, Any], labels: Mapping[str, Any]) -> str:
    """The name of its group as it is written; "": it names none."""
    name = str(annotations.get(names.POD_GROUP) or "")
    return name if name.strip() else str(labels.get(names.POD_GROUP_LABEL) or "")


def is_by_label(pod: Pod) -> bool:
    """Its group is a PodGroup object, if there are such objects."""
    return names.POD_GROUP_LABEL in pod.labels and not pod.annotations.get(names.POD_GROUP, "").strip()


def solo_key(pod: Pod) -> Key:
    return Key(pod.namespace, SOLO + pod.name)


def is_guarded(pod: Pod) -> bool:
    """It waits for a node, and cannot take one from others by itself."""
    is_waiting = not (pod.node or pod.gates or pod.terminating) and pod.phase == "Pending"
    return is_waiting and is_twin(pod.needs.priority_class) and gang_key(pod) is None


def gang_key(pod: Pod) -> Key | None:
    """The gang that it says it is a member of. A pod that has opted out by itself gets no gate, and is none.

    The label of other tools counts only where admission has made the pod a member: it may be theirs to schedule.
    """
    if pod.labels.get(names.PLACEMENT) == names.DISABLED:
        return None
    name = group_name(pod.annotations, pod.labels if pod.is_member else NOTHING)
    if name:
        return Key(pod.namespace, name)
    is_solo = pod.is_member and bool(pod.is_gated or pod.gang_plan)
    return solo_key(pod) if is_solo else None
