"""What Spotweave does not place, and why not, in one sentence each: for `explain`. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from placement import names
from placement.model import Key, Kind, Owner, Pod, ReplicaSet, Snapshot, Workload

PLACED = "Spotweave places pods of Deployments and StatefulSets."
SENTENCES = {
    "DaemonSet": "A DaemonSet runs one pod on each of its nodes, so there is no mix to keep.",
    "Job": f"{PLACED} Pods of Jobs are left alone.",
    "CronJob": f"{PLACED} Pods of CronJobs are left alone.",
    "Node": "It is a static pod: the kubelet of its node starts it.",
    "ReplicaSet": f"{PLACED} This ReplicaSet belongs to neither.",
    "": "The pod has no controller: nothing would create it again.",
}


@dataclass(frozen=True, slots=True)
class Unplaced:
    """A pod or a controller that is left alone: what it is, why, and its pods."""

    kind: str
    key: Key
    owner: str  # of a pod: `DaemonSet agent`, "" where it has none
    why: str
    pods: tuple[Pod, ...]


GANG = "Its pods are members of a gang, which starts whole or not at all; `spotweave queue` shows it."


def unplaced(snapshot: Snapshot, key: Key, kind: str = "") -> Unplaced | None:
    """The pod or controller of this name, if it is there and left alone; `kind` is "", `Pod` or a controller's."""
    sets = {each.uid: each for each in snapshot.replica_sets}
    here = [pod for pod in snapshot.pods if pod.namespace == key.namespace]
    for workload in snapshot.workloads:
        why = _why_not(workload)
        if why and workload.key == key and kind in ("", workload.kind):
            owned = [pod for pod in here if _is_of(pod, workload, sets)]
            return Unplaced(str(workload.kind), key, "", why, tuple(owned))
    for pod in here:
        if pod.key == key and kind in ("", "Pod"):
            return _of_pod(pod, snapshot, sets)
    for owner in dict.fromkeys(owner for pod in here for owner in _owners(pod, sets)):
        is_foreign = owner.kind not in tuple(Kind)
        if is_foreign and owner.name == key.name and kind in ("", owner.kind):
            owned = [pod for pod in here if owner in _owners(pod, sets)]
            above = sets[owner.uid].owner if owner.uid in sets else None
            return Unplaced(owner.kind, key, _named(above), _sentence(above or owner), tuple(owned))
    return None


def _of_pod(pod: Pod, snapshot: Snapshot, sets: dict[str, ReplicaSet]) -> Unplaced | None:
    """None: a Deployment or StatefulSet that is placed controls it, so the reason is another one."""
    owner = _owners(pod, sets)[-1] if pod.owner is not None else None
    workload = next((each for each in snapshot.workloads if owner is not None and each.uid == owner.uid), None)
    why = GANG if pod.is_member else _sentence(owner) if workload is None else _why_not(workload)
    return Unplaced("Pod", pod.key, _named(owner), why, (pod,)) if why else None


def _owners(pod: Pod, sets: dict[str, ReplicaSet]) -> tuple[Owner, ...]:
    """Its controller, and the controller of that, as far as they are known."""
    if pod.owner is None:
        return ()
    above = sets[pod.owner.uid].owner if pod.owner.uid in sets else None
    return (pod.owner,) if above is None else (pod.owner, above)


def _is_of(pod: Pod, workload: Workload, sets: dict[str, ReplicaSet]) -> bool:
    return any(owner.uid == workload.uid for owner in _owners(pod, sets))


def _named(owner: Owner | None) -> str:
    return "" if owner is None else f"{owner.kind} {owner.name}"


def _sentence(owner: Owner | None) -> str:
    if owner is None or owner.kind in SENTENCES:
        return SENTENCES["" if owner is None else owner.kind]
    group = f" ({owner.api_group})" if owner.api_group else ""
    return f"{PLACED} {owner.kind}{group} is a controller of another kind, whose pods are left alone."


def _why_not(workload: Workload) -> str:
    """What on a Deployment or StatefulSet says that it is not placed; "": nothing does."""
    places = "; ".join(_disabled(workload))
    if places:
        return f"It is opted out: {names.PLACEMENT}: {names.DISABLED} is {places}."
    if workload.template.is_placed_by_others:
        return "Its pod template names a node or another scheduler, so that one decides."
    return GANG if workload.template.is_gang else ""


def _disabled(workload: Workload) -> Iterator[str]:
    written = {
        "a label of the workload": workload.labels,
        "an annotation of the workload": workload.annotations,
        "a label of its pod template": workload.template.labels,
    }
    return (place for place, texts in written.items() if texts.get(names.PLACEMENT) == names.DISABLED)
