"""What every contender is asked to do. Each figure is of one cluster that has nothing else to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from benchmarks.compare.contenders import HIGH, LARGE, NAMESPACE, PATIENT, SMALL, GangStarter, raw_member
from benchmarks.compare.sighting import Sighting, processor_seconds, writes
from kube.client import STRATEGIC_PATCH, Client
from kube.errors import ApiError, NotFound

PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
CONNECTIONS = 16
PATIENCE_SECONDS = 90.0
RUN_SECONDS = 3.0
WATCH_SECONDS = 30.0
NEVER = float("inf")
Figures = dict[str, float]


@dataclass
class CompareStage:
    """One contender on its cluster."""

    contender: GangStarter
    client: Client
    seen: Sighting
    pids: list[int]
    writers: ThreadPoolExecutor

    def create(
        self, gangs: Iterable[str], members: int, cpu: str = "1", pool: str = LARGE, priority: str = ""
    ) -> list[str]:
        """All at once; gives the names of the gangs."""
        names = list(gangs)
        list(self.writers.map(lambda gang: self.contender.declare(self.client, gang, members, priority, pool), names))
        raws = [
            self.contender.member(raw_member(f"{gang}-{number}", gang, cpu, pool, priority), gang, members, pool)
            for gang in names
            for number in range(members)
        ]
        list(self.writers.map(lambda raw: self.client.post(PODS, raw), raws))
        return names

    def create_plain(self, name: str, number: int, cpu: str, pool: str, priority: str) -> None:
        """Pods that are in no gang, for the default scheduler."""
        raws = [raw_member(f"{name}-{each}", name, cpu, pool, priority) for each in range(number)]
        list(self.writers.map(lambda raw: self.client.post(PODS, raw), raws))

    def finish(self, gang: str) -> None:
        """All its pods have succeeded: their room is free."""
        done = {"status": {"phase": "Succeeded"}}
        paths = [f"{PODS}/{pod.name}/status" for pod in self.seen.of(gang)]
        list(self.writers.map(lambda path: self.client.patch(path, done, content_type=STRATEGIC_PATCH), paths))

    def clear(self) -> None:
        """Also what finalizers hold."""

        def is_empty() -> bool:
            items = self.client.get_json(PODS)["items"]
            held = [each["metadata"]["name"] for each in items if each["metadata"].get("finalizers")]
            for name in held:
                with suppress(ApiError):
                    self.client.patch(f"{PODS}/{name}", {"metadata": {"finalizers": None}})
            self.client.delete(PODS, query={"gracePeriodSeconds": 0})
            return not items

        until(is_empty)
        time.sleep(2.0)  # informers hear of it


def until(condition: Callable[[], bool], seconds: float = PATIENCE_SECONDS, pause: float = 0.01) -> float:
    """Seconds until it holds; infinity: it did not within the time."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            return NEVER
        time.sleep(pause)
    return time.monotonic() - began


def one_large(stage: CompareStage) -> Figures:
    """A gang of 64, and room for it."""
    began = time.monotonic()
    stage.create(["large"], 64)
    until(lambda: stage.seen.placed("large") == 64)
    return {"large": _last_bound(stage, ["large"], 64, began)}


def many_at_once(stage: CompareStage) -> Figures:
    """50 gangs of 8, and room for all."""
    began = time.monotonic()
    names = stage.create([f"many{number}" for number in range(50)], 8)
    until(lambda: all(stage.seen.placed(name) == 8 for name in names), pause=0.05)
    return {"many": _last_bound(stage, names, 8, began)}


def _last_bound(stage: CompareStage, names: Iterable[str], members: int, began: float) -> float:
    bound = [stage.seen.bound.get(f"{name}-{number}", NEVER) for name in names for number in range(members)]
    return max(bound) - began


def in_turns(stage: CompareStage) -> Figures:
    """50 gangs of 8 in room for 10, each of which runs for 3 s once it is whole."""
    began = time.monotonic()
    names = stage.create([f"turn{number}" for number in range(50)], 8, "8")
    whole: dict[str, float] = {}
    left = set(names)
    while left and time.monotonic() - began < PATIENCE_SECONDS:
        now = time.monotonic()
        for name in left:
            if name not in whole and stage.seen.placed(name) == 8:
                whole[name] = now
        over = [name for name in left if name in whole and now - whole[name] >= RUN_SECONDS]
        for name in over:
            stage.finish(name)
        left -= set(over)
        stage.seen.look_for_torn(list(left - set(whole)), 8)
        time.sleep(0.02)
    return {"turns": NEVER if left else time.monotonic() - began, "torn": len(stage.seen.torn)}


def preemption(stage: CompareStage) -> Figures:
    """A gang of 8 is to make room for one of higher priority, and six thieves of that priority wait before it."""
    stage.create(["low"], 8, "3", SMALL)
    until(lambda: stage.seen.placed("low") == 8)
    time.sleep(RUN_SECONDS)
    stage.create_plain("thief", 6, "3", SMALL, PATIENT)
    time.sleep(1.0)
    stage.create(["high"], 8, "3", SMALL, HIGH)
    until(lambda: stage.seen.placed("high") == 8, 30.0)
    time.sleep(1.0)
    evicted = sum(f"low-{number}" in stage.seen.gone for number in range(8))
    return {"placed": stage.seen.placed("high"), "victims": evicted}


def waiting(stage: CompareStage) -> Figures:
    """A gang of 9 in room for 8: what it costs to let it wait."""
    stage.create(["wide"], 9, "3", SMALL)
    time.sleep(5.0)
    pids, before = _working(stage), writes(stage.client)
    processor = processor_seconds(pids)
    time.sleep(WATCH_SECONDS)
    cores = (processor_seconds(pids) - processor) / WATCH_SECONDS
    return {"cores": cores, "writes": writes(stage.client) - before, "partly": stage.seen.placed("wide")}


def _working(stage: CompareStage) -> list[int]:
    return stage.pids


SCENARIOS: Mapping[str, Callable[[CompareStage], Figures]] = {
    "one large": one_large,
    "many at once": many_at_once,
    "in turns": in_turns,
    "preemption": preemption,
    "waiting": waiting,
}


# --- how fast pods can be written to ---------------------------------------------------------------------------------

FOREIGN = {"name": "example.com/wait"}
RATED = 200


def bare_rates(stage: CompareStage) -> Figures:
    """Nominations and releases a second of a client that does nothing else, with as many connections."""
    raws: list[dict[str, Any]] = []
    for number in range(RATED):
        raw = raw_member(f"bare-{number}", "bare", "1", LARGE, "")
        raw["spec"]["schedulingGates"] = [FOREIGN]
        raws.append(raw)
    list(stage.writers.map(lambda raw: stage.client.post(PODS, raw), raws))
    note = {"metadata": {"annotations": {"example.com/plan": "1/2.000/large-0"}}}
    nominate = {**note, "status": {"nominatedNodeName": "large-0"}}
    release = {"spec": {"schedulingGates": [{"$patch": "delete", **FOREIGN}]}}
    names = [raw["metadata"]["name"] for raw in raws]
    nominated = _rate(stage, names, "/status", nominate, "application/merge-patch+json")
    return {"bare_nominations": nominated, "bare_releases": _rate(stage, names, "", release, STRATEGIC_PATCH)}


def _rate(stage: CompareStage, names: list[str], suffix: str, patch: dict[str, Any], kind: str) -> float:
    began = time.monotonic()
    list(stage.writers.map(lambda name: stage.client.patch(f"{PODS}/{name}{suffix}", patch, content_type=kind), names))
    return len(names) / (time.monotonic() - began)


def own_rates(stage: CompareStage) -> Figures:
    """The same of the rebalancer, for one gang: from the first to the last that is seen."""
    with suppress(NotFound):
        stage.create(["rated"], RATED)
    until(lambda: stage.seen.placed("rated") == RATED)
    names = [f"rated-{number}" for number in range(RATED)]
    return {"nominations": _seen_rate(stage.seen.nominated, names), "releases": _seen_rate(stage.seen.released, names)}


def _seen_rate(seen: Mapping[str, float], names: list[str]) -> float:
    at = sorted(seen[name] for name in names if name in seen)
    return len(at) / (at[-1] - at[0]) if len(at) == len(names) else 0.0
