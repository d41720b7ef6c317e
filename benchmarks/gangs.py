"""What gangs cost at 5,000 nodes and 150,000 pods: 10,000 gated pods that wait, and the plan of one gang of 1,000.

All on stores in memory, with the real loop: CPU time of its thread. Waiting is measured over simulated seconds, one
pass each, as if nothing else happened: after four minutes, by when all gangs have been tried a few times.
"""

from __future__ import annotations

import gc
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.report import rounds_wanted, tell
from benchmarks.stores import index_in_memory
from benchmarks.synthetic import Size
from kube.gctuning import THRESHOLDS
from kube.resources import PODS_IN_FULL
from placement import names
from placement.configuration import Configuration
from placement.gang.settings import Gangs
from placement.model import Class, Needs, Pod, Toleration
from placement.outage import Outages
from placement.plan.room import Room
from placement.plan.whole import places
from rebalancer.executor import Executor
from rebalancer.loop import Loop, Watched

MEMBERS, GANGS = 8, 1_250
PODS = 1_000
SMALL = Needs(requests={"cpu": 500, "memory": 1024**3}, tolerations=(Toleration("spot", "Exists"),))
LARGE = replace(SMALL, requests={"cpu": 1_000_000})
WARM_SECONDS, SECONDS = 240, 60
FIGURES = {
    "cores": "10,000 gated pods waiting, % of a core",
    "mebibytes": "the same, memory, MiB",
    "spot": "places of 1,000 members, spot first, ms",
    "any": "places of 1,000 members, any class, ms",
}


def main() -> None:
    rounds = [{"rebalancer": _measured()} for _ in range(rounds_wanted(1))]
    tell("gangs", "gangs at 150,000 pods", rounds, FIGURES, [])


def _measured() -> dict[str, float]:
    stores, index = index_in_memory(Size(), Configuration(gangs=Gangs(enabled=True)))
    gc.set_threshold(*THRESHOLDS)
    gc.collect()
    gc.freeze()
    clock = [time.time()]
    watched = Watched(
        lambda: True,
        lambda: True,
        Outages,
        lambda _now: False,
        now=lambda: clock[0],
        timer=lambda: clock[0],
    )
    nobody: Any = None
    loop = Loop(index, Executor(nobody, nobody, nobody, nobody, nobody), watched, lambda *_: None)
    loop.once()
    figures = _planned(index)
    before = _mebibytes()
    namespace = next(name for name, each in index.namespaces.items() if each.is_opted_in)
    for number in range(GANGS):
        for pod in _gang(namespace, number, clock[0]):
            stores.of(PODS_IN_FULL).put(pod)
    for _ in range(WARM_SECONDS):
        _pass(loop, clock)
    began = time.thread_time()
    for _ in range(SECONDS):
        _pass(loop, clock)
    figures["cores"] = (time.thread_time() - began) / SECONDS * 100
    figures["mebibytes"] = _mebibytes() - before
    return figures


def _pass(loop: Loop, clock: list[float]) -> None:
    clock[0] += 1.0
    made = loop.once()
    assert made is not None
    assert not made.actions, made.actions[:3]


def _gang(namespace: str, number: int, created: float) -> list[Pod]:
    written = {names.POD_GROUP: f"g{number}", names.POD_GROUP_MIN_MEMBER: str(MEMBERS)}
    kept = {
        "labels": {names.GANG_LABEL: names.GANG_MEMBER},
        "annotations": written,
        "gates": (names.GANG_GATE,),
        "needs": LARGE,
        "created": created,
    }
    uids = [f"g{number}-{each}" for each in range(MEMBERS)]
    return [Pod(namespace, uid, uid, **kept) for uid in uids]  # type: ignore[arg-type]


def _planned(index: Any) -> dict[str, float]:
    pods = [Pod("gangs", f"big-{each}", f"big-{each}", needs=SMALL) for each in range(PODS)]
    found = {}
    for name, classes in (("spot", (Class.SPOT, Class.ON_DEMAND)), ("any", ())):
        room = Room(index.ground, index.used, neighbours=index.neighbours)
        began = time.thread_time()
        places(room, pods, PODS, classes)
        found[name] = (time.thread_time() - began) * 1000
    return found


def _mebibytes() -> float:
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
