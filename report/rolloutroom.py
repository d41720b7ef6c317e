"""What would be in the way of the next rollout: free places that it needs at its peak, and that are not there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from placement import names
from placement.configuration import Configuration
from placement.model import NO_AMOUNTS, Class, NodeRequirement, Pod, PodTerm, Snapshot, Workload
from placement.plan.ground import ground_of
from placement.plan.neighbours import Neighbours, tenants_in
from placement.plan.room import Room
from placement.plan.stock import amounts_of
from placement.plan.storage import storage_in
from report.rollout import rollout_need
from report.status import WorkloadStatus

NEXT = "next"  # the template hash of a revision that is not there yet


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What a workload's owner should know before the next rollout."""

    workload: Workload
    text: str

    def raw(self) -> dict[str, str]:
        return {"workload": f"{self.workload.kind} {self.workload.key}", "text": self.text}


def foreseen(found: Iterable[WorkloadStatus], room: Room) -> tuple[Foreseen, ...]:
    told = ((each.workload, rollout_shortage(each, room)) for each in found)
    return tuple(Foreseen(workload, text) for workload, text in told if text)


def rollout_shortage(status: WorkloadStatus, room: Room) -> str:
    """`a rollout needs 2 more on-demand places, 0 free`; "" if there are enough, or no pod shows what it requests.

    Each class by itself, as if no other pods came meanwhile. Where an autoscaler brings nodes, it waits for them.
    """
    need = rollout_need(status.policy, status.workload)
    pod = next((each.pod for each in status.pods if each.pod.is_live), None)
    if pod is None:
        return ""
    wanted, newcomer = {Class.ON_DEMAND: need.on_demand, Class.SPOT: need.spot}, of_next_revision(pod)
    free = {of: room.count(newcomer, of, count) for of, count in wanted.items() if count}
    told = [f"{_places(wanted[of], of)}, {there} free" for of, there in free.items() if there < wanted[of]]
    waits = " now: it waits until the autoscaler brings them" if room.ground.configuration.classes.is_scaled else ""
    return f"a rollout needs {' and '.join(told)}{waits}" if told else ""


def _places(count: int, of: Class) -> str:
    return f"{count} more {of} place{'' if count == 1 else 's'}"


def of_next_revision(pod: Pod) -> Pod:
    """As a rollout creates it: terms that name its revision (`matchLabelKeys: [pod-template-hash]`) name the next."""
    before = pod.labels.get(names.POD_TEMPLATE_HASH)
    if before is None or not pod.needs.has_pod_affinity:
        return pod

    def renamed(term: PodTerm) -> PodTerm:
        if term.selector is None:
            return term
        this, following = (NodeRequirement(names.POD_TEMPLATE_HASH, "In", (each,)) for each in (before, NEXT))
        return replace(term, selector=tuple(following if each == this else each for each in term.selector))

    near, apart = (tuple(map(renamed, terms)) for terms in (pod.needs.affinity, pod.needs.anti_affinity))
    needs = replace(pod.needs, affinity=near, anti_affinity=apart)
    return replace(pod, labels={**pod.labels, names.POD_TEMPLATE_HASH: NEXT}, needs=needs)


def room_in(snapshot: Snapshot, configuration: Configuration) -> Room:
    """What is free in a snapshot."""
    used = used_by(snapshot.pods)
    waiting = [pod for pod in snapshot.pods if not pod.node and pod.is_live]
    ground = ground_of(snapshot.nodes.values(), configuration)
    pods_on: dict[str, list[Pod]] = {}
    for pod in snapshot.pods:
        if pod.node:
            pods_on.setdefault(pod.node, []).append(pod)
    neighbours = Neighbours(ground, tenants_in(pods_on, snapshot.namespaces, storage_in(snapshot.others)))
    return Room(ground, lambda node: used.get(node, NO_AMOUNTS), lambda: waiting, neighbours)


def used_by(pods: Iterable[Pod]) -> Mapping[str, Mapping[str, int]]:
    """By node: what its pods ask for, their host ports, their number."""
    there: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.is_on_node:
            there.setdefault(pod.node, []).append(pod)
    return {node: amounts_of(each) for node, each in there.items()}
