"""How long the fit test takes at 5,000 nodes and 150,000 pods: 1,000 pods together, and single questions.

CPU time of one thread. The joint questions differ in what keeps the pods apart. Each round asks a new room, so that
nothing is remembered from the round before; within a question, what is found out for one sibling serves the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from benchmarks.report import rounds_wanted, tell
from benchmarks.stores import index_in_memory
from benchmarks.synthetic import Size
from placement import names
from placement.model import Class, HardSpread, HostPort, Needs, NodeRequirement, Pod, PodTerm, Toleration
from placement.plan.room import Room
from rebalancer.index import Index

PODS = 1_000
GANG = (NodeRequirement("app", "In", ("gang",)),)
LABELS: Mapping[str, str] = {"app": "gang"}
PLAIN = Needs(requests={"cpu": 500, "memory": 1024**3}, tolerations=(Toleration("spot", "Exists"),))
KINDS = {
    "plain": PLAIN,
    "one to a host": replace(PLAIN, anti_affinity=(PodTerm(names.HOSTNAME, GANG),)),
    "in one zone": replace(PLAIN, affinity=(PodTerm(names.ZONE, GANG),)),
    "even over zones": replace(PLAIN, hard_spread=(HardSpread(names.ZONE, 1, GANG),)),
    "even over hosts": replace(PLAIN, hard_spread=(HardSpread(names.HOSTNAME, 1, GANG),)),
    "a host port": replace(PLAIN, host_ports=(HostPort(9000),)),
    "no room": replace(PLAIN, requests={"cpu": 1_000_000}),
}
FIGURES = {
    "joint": f"{PODS:,} pods together, ms",
    "first": "one pod, the first question, ms",
    "next": "a sibling after it, ms",
}


def main() -> None:
    index = index_in_memory(Size())[1]
    rounds = [{name: _asked(index, needs) for name, needs in KINDS.items()} for _ in range(rounds_wanted(5))]
    tell("fit", "the fit test, 5,000 nodes and 150,000 pods", rounds, FIGURES, [])


def _asked(index: Index, needs: Needs) -> dict[str, float]:
    pods = [Pod("gangs", f"gang-{each}", f"gang-{each}", labels=LABELS, needs=needs) for each in range(PODS)]
    room = _room(index)
    return {
        "joint": _millis(lambda: _room(index).together(pods)),
        "first": _millis(lambda: room.take(pods[0], Class.ON_DEMAND)),
        "next": _millis(lambda: room.take(pods[1], Class.ON_DEMAND)),
    }


def _room(index: Index) -> Room:
    return Room(index.ground, index.used, neighbours=index.neighbours)


def _millis(act: Callable[[], object]) -> float:
    began = time.thread_time()
    act()
    return (time.thread_time() - began) * 1000
