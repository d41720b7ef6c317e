"""What might go for a gang: running gangs, and single pods that no workload keeps at a number.

Pods of Deployments and StatefulSets are another matter (`placement.gang.services`), unless they are members of a gang.
Pods that say that they are not to be disrupted are not preemptible.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from placement import names
from placement.gang.belonging import gang_key
from placement.gang.candidate import Candidate, effective_priority, is_preemptible
from placement.gang.gang import Gang
from placement.gang.reservation import reservation_of
from placement.model import Pod


def of_gangs(gangs: Iterable[Gang]) -> Iterator[Candidate]:
    """A gang that starts, or for which room is kept, is part of a plan."""
    for gang in gangs:
        if gang.running:
            is_moving = gang.starting or gang.reservations or not gang.is_settled
            yield Candidate(
                gang.key,
                gang.running,
                gang.wish,
                gang.priority,
                min(map(began, gang.running)),
                gang.needed or len(gang.running),
                may_go(gang.running),
                "its start" if is_moving else "",
            )


def of_solo(pods: Iterable[Pod]) -> Iterator[Candidate]:
    """Bare pods, and those of Jobs, that are members of no gang."""
    for pod in pods:
        if not is_solo(pod) or pod.labels.get(names.PLACEMENT) == names.DISABLED:
            continue
        priority = effective_priority(pod)
        yield Candidate(pod.key, (pod,), priority, pod.needs.priority, began(pod), is_preemptible=may_go((pod,)))


def is_solo(pod: Pod) -> bool:
    """It runs, and nobody keeps a number of its kind."""
    is_free = pod.owner is None or pod.owner.kind == "Job"
    is_there = is_free and pod.is_on_node and not pod.terminating and not pod.is_released
    return is_there and gang_key(pod) is None


def began(pod: Pod) -> float:
    """When it started to run, about: a member waits for its gang first."""
    found = reservation_of(pod)
    return pod.created if found is None else max(pod.created, found.at)


def may_go(pods: tuple[Pod, ...]) -> bool:
    """None of them says that it is not to be disrupted."""
    return is_preemptible(pods) and not any(
        pod.annotations.get(names.SAFE_TO_EVICT) == "false" or pod.annotations.get(names.DO_NOT_DISRUPT) == "true"
        for pod in pods
    )
