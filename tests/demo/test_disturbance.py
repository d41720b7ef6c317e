"""The course of a disturbance: before, at worst, after, from the same data as status."""

from __future__ import annotations

from dataclasses import replace

from demo.disturbance import Look, courses, look_at, sentences, told
from placement import names
from placement.configuration import Configuration
from placement.model import Owner, Snapshot
from tests.builders.snapshots import drill_snapshot
from tests.cli.printed import printed

SPOT = ("a1", "a2", "b1")


def without(*nodes: str) -> Snapshot:
    """Nodes are gone, and their pods still named after them."""
    whole = drill_snapshot()
    return replace(whole, nodes={name: node for name, node in whole.nodes.items() if name not in nodes})


def looks(*snapshots: Snapshot) -> list[Look]:
    """Half a second apart."""
    return [look_at(index / 2, snapshot, Configuration()) for index, snapshot in enumerate(snapshots)]


def test_a_loss_is_told_with_the_worst_of_it() -> None:
    """Seven of ten are on spot; for two looks, a second, three serve of the eight that must."""
    seen = looks(drill_snapshot(), without(*SPOT), without(*SPOT), drill_snapshot())
    web = next(each for each in courses(seen) if each.name == "shop/web")
    assert web.served == (10, 3, 10)
    assert [each.headroom for each in web.exposures] == [2, -5, 2]
    assert web.short_seconds == 1.0
    assert not web.is_spared
    assert "shop/web served 3 replicas, below its minimum of 8, for 1.0 s." in [*sentences(courses(seen), seen)]


def test_a_released_pod_serves_until_it_goes() -> None:
    """Its ReplicaSet has let go of it and its replacement is not there yet: nobody serves less."""
    whole = drill_snapshot()
    annotations = {names.RELEASED: "2026-11-16T00:00:00Z/5f7c"}
    first, *others = whole.pods
    labels = {**first.labels, names.POD_TEMPLATE_HASH: "released-5f7c"}
    for owner in (None, Owner("Deployment", "web", "d")):
        old = replace(first, owner=owner, annotations=annotations, labels=labels, decision="r/1")
        seen = looks(whole, replace(whole, pods=(old, *others)), whole)
        web = next(each for each in courses(seen) if each.name == "shop/web")
        assert web.served == (10, 10, 10)
        assert [each.headroom for each in web.exposures] == [2, 1, 2]
        assert next(sentences(courses(seen), seen)) == "No workload lost a serving replica."


def test_what_a_loss_leaves_in_peace_is_told_too() -> None:
    """One node: nine serve, and eight must. Of two workloads the store alone survives any pool."""
    seen = looks(drill_snapshot(), without("a2"), drill_snapshot())
    assert [*sentences(courses(seen), seen)] == [
        "Every workload kept its minimum of serving replicas.",
        "Workloads that survive the loss of any pool, out of 2: 1 before, 1 at the lowest point, 1 after.",
    ]


def test_it_fits_eighty_columns() -> None:
    """And names who must keep how many."""
    text = printed(told(looks(drill_snapshot(), without(*SPOT), drill_snapshot())), 80)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    (web,) = [line.split() for line in text.splitlines() if line.startswith("shop/web ") and "served" not in line]
    assert web == ["shop/web", "8", "10", "2", "none", "3", "-5", "none", "10", "2", "none"]
