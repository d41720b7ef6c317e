"""Whether what was lost fits in what is left of a class, when all of it is put at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush, heapreplace

from placement.model import Class, NodeTerm, Pod, Toleration
from placement.plan.group import Site, own_terms
from placement.plan.neighbours import Joins, Neighbours
from placement.plan.reach import Reach, added_taints
from placement.plan.room import Room


def shortage(lost: Sequence[Pod], room: Room, of: Class) -> Pod | None:
    """The smallest pod that does not fit when all that were lost are put, also beside each other; None: all fit."""
    beside = room.neighbours.without(pod.uid for pod in lost) if room.neighbours is not None else None
    *_, smallest = None, *left_out(lost, room, of, beside)
    return smallest


def left_out(lost: Iterable[Pod], room: Room, of: Class, beside: Neighbours | None = None) -> Iterator[Pod]:
    """Those that do not fit when all are put, the largest first, each where most is free of what it may use.

    It takes the emptiest node each time, so it may find a shortage where a cleverer packing would not. That costs
    little: soft pods prefer their class all the same. Without `beside` it shows what the class lacks; with it, also
    which pods other pods keep out.
    """
    classes, sites = room.ground.configuration.classes, room.targets(of)
    free, crowd = [room.free(site) for site in sites], room.crowd
    heaps: dict[object, list[tuple[int, int]]] = {}  # by what tells where a pod may go
    refused: set[tuple[object, ...]] = set()  # siblings that others keep out

    def heap_for(terms: tuple[NodeTerm, ...], tolerations: tuple[Toleration, ...]) -> list[tuple[int, int]]:
        reach = Reach(terms, tolerations, added_taints(of, classes))
        heap = [(-free[index].get("cpu", 0), index) for index, site in enumerate(sites) if reach.admits(site)]
        heapify(heap)
        return heap

    for pod in sorted(lost, key=_size, reverse=True):
        alike = (id(pod.required_terms), id(pod.needs))
        if alike not in heaps:
            kind = (own_terms(pod, classes), pod.needs.tolerations)
            heaps[alike] = heaps.setdefault(kind, heaps.get(kind) or heap_for(*kind))
        joins = beside.judge(pod, crowd) if beside is not None else None
        sibling = (*alike, pod.namespace, id(pod.labels))
        index = _put(pod, heaps[alike], free, sites, joins) if joins is None or sibling not in refused else None
        if index is None:
            refused.add(sibling)
            yield pod
        elif beside is not None:
            crowd.add(pod, sites[index].node.name)


def _put(
    pod: Pod,
    heap: list[tuple[int, int]],
    free: Sequence[dict[str, int]],
    sites: Sequence[Site],
    joins: Joins | None,
) -> int | None:
    """On the emptiest that is open to it; which that is.

    Others may have put pods there since the heap was made: then it is not the emptiest any more.
    """
    shut: list[tuple[int, int]] = []
    while heap:
        top, index = heap[0]
        if -top != free[index].get("cpu", 0):
            heapreplace(heap, (-free[index].get("cpu", 0), index))
        elif joins is None or joins(sites[index]):
            break
        else:
            shut.append(heappop(heap))
    put = heap[0][1] if heap and _fits(free[heap[0][1]], pod.needs.requests) else None
    if put is not None:
        for key, amount in {**pod.needs.requests, "pods": 1}.items():
            free[put][key] = free[put].get(key, 0) - amount
        heapreplace(heap, (-free[put].get("cpu", 0), put))
    for entry in shut:
        heappush(heap, entry)
    return put


def _fits(free: Mapping[str, int], requests: Mapping[str, int]) -> bool:
    return free.get("pods", 1) >= 1 and all(free.get(key, 0) >= amount for key, amount in requests.items() if amount)


def _size(pod: Pod) -> tuple[int, int]:
    return (pod.needs.requests.get("cpu", 0), pod.needs.requests.get("memory", 0))
