"""The rebalancer counts pods that are not placed by differences, and comes to what a snapshot comes to."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from placement import names
from placement.configuration import Configuration
from placement.model import Kind, Namespace, Owner, Pod, ReplicaSet, Snapshot, Workload
from placement.skipped import SkipReason
from rebalancer.index import Index
from report.skipped import skipped_in
from tests.examples import examples

OPTED_IN = {names.PLACEMENT: names.ENABLED}
OUT = {names.PLACEMENT: names.DISABLED}
OWNERS: tuple[Owner | None, ...] = (
    None,
    Owner("Job", "job", "job", "batch"),
    Owner("CloneSet", "clone", "clone", "apps.kruise.io"),
    Owner("StatefulSet", "kruise", "kruise", "apps.kruise.io"),
    Owner("StatefulSet", "db", "ss"),
    Owner("ReplicaSet", "web-abc", "rs"),
    Owner("ReplicaSet", "bare", "bare"),
    Owner("ReplicaSet", "rollout-abc", "ro"),
    Owner("ReplicaSet", "unknown", "unknown"),
)
WORKLOADS = (Workload(Kind.DEPLOYMENT, "shop", "web", "d", 3), Workload(Kind.STATEFUL_SET, "shop", "db", "ss", 3))
SETS = (
    ReplicaSet("shop", "web-abc", "rs", Owner("Deployment", "web", "d"), 3),
    ReplicaSet("shop", "bare", "bare", None, 3),
    ReplicaSet("shop", "rollout-abc", "ro", Owner("Rollout", "rollout", "r", "argoproj.io"), 3),
)


class SeenObjects:
    """What is there, and an index that hears of each difference."""

    def __init__(self) -> None:
        self.index = Index(Configuration())
        self.there: dict[tuple[type, str], Any] = {}

    def put(self, name: str, new: Any, kind: type) -> None:
        old = self.there.pop((kind, name), None)
        if new is not None:
            self.there[kind, name] = new
        if old is not None or new is not None:
            self.index.observe(old, new)

    def refresh(self, now: float, *, sweep: bool = False) -> None:
        self.index.drain()
        self.index.refresh(now, all_of_them=sweep)

    def snapshot(self) -> Snapshot:
        def of(kind: type) -> list[Any]:
            return [each for (own, _), each in self.there.items() if own is kind]

        return Snapshot(
            {each.name: each for each in of(Namespace)},
            workloads=tuple(of(Workload)),
            replica_sets=tuple(of(ReplicaSet)),
            pods=tuple(of(Pod)),
        )


@given(st.integers(0, 2**32))
@examples(60)
def test_differences_come_to_what_a_snapshot_comes_to(seed: int) -> None:
    """Whatever comes, changes and goes, in whatever order: pods before their owners, namespaces that opt in late."""
    chance, told = random.Random(seed), SeenObjects()
    for step in range(60):
        match chance.randrange(5):
            case 0:
                labels = chance.choice((OPTED_IN, {}))
                told.put("shop", Namespace("shop", labels), Namespace)
            case 1:
                workload = chance.choice(WORKLOADS)
                new = replace(workload, annotations=chance.choice(({}, OUT)))
                told.put(workload.uid, chance.choice((new, new, None)), Workload)
            case 2:
                revision = chance.choice(SETS)
                told.put(revision.uid, chance.choice((revision, revision, None)), ReplicaSet)
            case _:
                name = f"pod-{chance.randrange(12)}"
                phase = chance.choice(("Running", "Running", "Succeeded"))
                pod = Pod("shop", name, f"{name}-{step}", chance.choice(OWNERS), phase=phase)
                told.put(name, chance.choice((pod, pod, None)), Pod)
        if chance.random() < 0.3:
            told.refresh(float(step), sweep=chance.random() < 0.3)
    told.refresh(1000.0)
    assert dict(told.index.skipped) == dict(skipped_in(told.snapshot()))


def test_what_is_counted_is_named() -> None:
    """One pod of each kind of owner."""
    told = SeenObjects()
    told.put("shop", Namespace("shop", OPTED_IN), Namespace)
    for workload in WORKLOADS:
        told.put(workload.uid, workload, Workload)
    for revision in SETS:
        told.put(revision.uid, revision, ReplicaSet)
    for number, owner in enumerate(OWNERS):
        told.put(str(number), Pod("shop", f"p-{number}", str(number), owner, phase="Running"), Pod)
    told.refresh(0.0, sweep=True)
    assert dict(told.index.skipped) == {
        ("shop", SkipReason.BARE_POD): 1,
        ("shop", SkipReason.JOB): 1,
        ("shop", SkipReason.CLONE_SET): 1,
        ("shop", SkipReason.OTHER_OWNER): 1,
        ("shop", SkipReason.BARE_REPLICA_SET): 1,
        ("shop", SkipReason.ARGO_ROLLOUT): 1,
    }
