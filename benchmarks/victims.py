"""How long the search for victims takes at 5,000 nodes and 150,000 pods, for a gang of 1,000.

CPU time of one thread, from the candidates to the places. The nodes have about 18 CPUs free, 22 at most, and a member
asks for 21.5. One workload in three stands for a running gang of 15 pods on as many nodes; or each pod is a gang of
one. Each round asks a new room.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from benchmarks.report import rounds_wanted, tell
from benchmarks.stores import index_in_memory
from benchmarks.synthetic import Size
from kube.gctuning import THRESHOLDS
from placement import names
from placement.gang.candidate import Candidate, Claimant, Rules
from placement.gang.clearing import Clearing
from placement.gang.victims import Victims, choose
from placement.model import HardSpread, Key, Needs, NodeRequirement, Pod, PodTerm, Toleration
from placement.plan.room import Room
from rebalancer.index import Index

PODS = 1_000
OURS = (NodeRequirement("app", "In", ("asking",)),)
LABELS: Mapping[str, str] = {"app": "asking"}
PLAIN = Needs(requests={"cpu": 21_500, "memory": 1024**3}, tolerations=(Toleration("spot", "Exists"),))
LAUNCHER = replace(PLAIN, requests={"cpu": 500, "memory": 1024**3})
NOW = 1_800_000_000.0
UNLIMITED = 1_000_000
FIGURES = {
    "seconds": "victims, ms",
    "without": "the same gang alone, no victims, ms",
    "candidates": "candidates",
    "gangs": "gangs that go",
    "pods": "pods that go",
    "placements": "full placements asked",
}


@dataclass(frozen=True, slots=True)
class Hunt:
    """One question: a gang, and what may go for it."""

    needs: Needs = PLAIN
    launcher: Needs | None = None
    singles: bool = False
    min_member: int = 15
    evictions: int = UNLIMITED  # in a namespace; five times as many in all
    pods: int = PODS


HUNTS = {
    "gangs": Hunt(),
    "surplus": Hunt(min_member=12),
    "singles": Hunt(singles=True),
    "a launcher": Hunt(launcher=LAUNCHER),
    "one to a host": Hunt(replace(PLAIN, anti_affinity=(PodTerm(names.HOSTNAME, OURS),))),
    "even over zones": Hunt(replace(PLAIN, hard_spread=(HardSpread(names.ZONE, 1, OURS),))),
    "in one zone": Hunt(replace(PLAIN, affinity=(PodTerm(names.ZONE, OURS),))),
    "20 an hour": Hunt(evictions=20),
    "20 singles": Hunt(singles=True, evictions=20),
    "cannot fit": Hunt(replace(PLAIN, requests={"cpu": 40_000})),
}


def main() -> None:
    index = index_in_memory(Size())[1]
    gangs, singles = _gangs(index), _singles(index)
    gc.set_threshold(*THRESHOLDS)  # as the rebalancer does
    gc.collect()
    gc.freeze()
    rounds = [
        {name: _asked(index, hunt, singles if hunt.singles else gangs) for name, hunt in HUNTS.items()}
        for _ in range(rounds_wanted(3))
    ]
    tell("victims", "victims of a gang of 1,000 at 150,000 pods", rounds, FIGURES, [])


def _asked(index: Index, hunt: Hunt, candidates: Sequence[Candidate]) -> dict[str, float]:
    asking = _claimant(hunt)
    if hunt.min_member < 15:
        candidates = [replace(each, min_member=hunt.min_member) for each in candidates]
    rules = Rules(NOW, index.ground.sites, lambda _namespace: hunt.evictions, 5 * hunt.evictions)
    alone = _room(index)
    began = time.thread_time()
    alone.together(asking.pods)
    between = time.thread_time()
    trial = Clearing(_room(index), asking.pods)
    found = choose(asking, candidates, trial, rules)
    ended = time.thread_time()
    return {
        "seconds": (ended - between) * 1000,
        "without": (between - began) * 1000,
        "candidates": len(candidates),
        "gangs": found.cost.gangs if isinstance(found, Victims) else 0,
        "pods": found.cost.pods if isinstance(found, Victims) else 0,
        "placements": trial.effort // (hunt.pods + len(index.ground.sites)),
    }


def _claimant(hunt: Hunt) -> Claimant:
    kinds = [hunt.launcher or hunt.needs, *[hunt.needs] * (hunt.pods - 1)]
    pods = tuple(Pod("gangs", f"big-{n}", f"big-{n}", labels=LABELS, needs=needs) for n, needs in enumerate(kinds))
    return Claimant(Key("gangs", "big"), pods, 10, 10)


def _gangs(index: Index) -> list[Candidate]:
    """One workload in three, by its pods."""
    by_owner: dict[str, list[Pod]] = {}
    for pods in index.pods().values():
        for pod in pods:
            by_owner.setdefault("" if pod.owner is None else pod.owner.uid, []).append(pod)
    chosen = sorted(by_owner.items())[::3]
    return [_candidate(uid, tuple(pods), number % 3) for number, (uid, pods) in enumerate(chosen) if uid]


def _singles(index: Index) -> list[Candidate]:
    return [_candidate(pod.name, (pod,), 0) for pods in index.pods().values() for pod in pods]


def _candidate(name: str, pods: tuple[Pod, ...], priority: int) -> Candidate:
    started = min(pod.created for pod in pods)
    return Candidate(Key(pods[0].namespace, name), pods, priority, priority, started, len(pods))


def _room(index: Index) -> Room:
    return Room(index.ground, index.used, neighbours=index.neighbours)
