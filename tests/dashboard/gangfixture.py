"""A cluster with gangs in several states: one runs on spot, one waits, one is blocked, one makes room for another."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from placement import names
from placement.configuration import Configuration
from placement.gang.claim import RoomClaim
from placement.gang.reservation import Reservation
from placement.gang.settings import Gangs
from placement.model import Class, Key, Needs, Pod, Snapshot
from rebalancer.index import Index
from tests.builders.model import NOW, namespace, node
from tests.dashboard.dashboardharness import DashboardHarness
from tests.placement.test_gang import GROUP, member

ON = Configuration(gangs=Gangs(enabled=True))
CPU = Needs(requests={"cpu": 1000})
NODES = {
    "s1": node("s1", Class.SPOT, "b", cpu=4000, taints=()),
    "od-1": node("od-1", cpu=4000),
    "od-2": node("od-2", cpu=2000),
}


def of_gang(name: str, count: int, where: str = "", **more: Any) -> list[Pod]:
    """Its members, with the annotations that are given."""
    own = {names.POD_GROUP: name, names.POD_GROUP_MIN_MEMBER: str(count)}
    written = {**GROUP, **own, **more.pop("annotations", {})}
    made = (member(n, where, **{"needs": CPU, "annotations": written, **more}) for n in range(count))
    return [replace(pod, name=f"{name.replace('/', '-')}-{n}", uid=f"{name}-{n}") for n, pod in enumerate(made)]


def gangs() -> Snapshot:
    mark = {names.PREEMPTED_BY: RoomClaim(Key("shop", "urgent"), "p1", 4).text()}
    waits = Reservation("p1", NOW - 1, "od-1", awaits_victims=True).text()
    high = replace(CPU, priority=9)
    long_run = {names.POD_GROUP_CLASS: "spot,on-demand", names.EXPECTED_RUNTIME: "12h"}
    pods = [
        *of_gang("train", 4, "s1", annotations=long_run),
        *of_gang("low", 4, "od-1", annotations=mark, created=NOW - 900),
        *of_gang("urgent", 4, needs=high, nominated="od-1", gang_plan=waits),
        *of_gang("large", 9, annotations={names.POD_GROUP_WAIT_TIMEOUT: "1s"}),
        *of_gang("team/job.1", 2, gates=("kueue.x-k8s.io/admission", names.GANG_GATE)),
    ]
    return Snapshot({"shop": namespace()}, NODES, pods=tuple(pods))


def gang_dashboard(seen: Snapshot | None = None) -> DashboardHarness:
    made = DashboardHarness(index=Index(ON))
    made.sees(gangs() if seen is None else seen)
    made.passes()
    return made
