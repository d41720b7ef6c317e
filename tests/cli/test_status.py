"""What `spotweave status` shows: JSON for scripts, in the shape that they rely on, and a table for people."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO

from rich.console import Console

from cli.status import as_json, as_table
from placement import names
from placement.configuration import Configuration
from placement.model import Kind, Namespace, Node, Owner, Pod, ReplicaSet, Snapshot, Workload
from placement.status import WorkloadStatus, statuses

NOW = datetime(2026, 11, 16, tzinfo=UTC)
SOURCES = {"workload", "namespace", "configuration", "built-in"}


def found() -> tuple[WorkloadStatus, ...]:
    """A Deployment of three with a mistake: one pod on each class, and one that admission missed."""
    web = Workload(Kind.DEPLOYMENT, "shop", "web", "d", 3, annotations={names.SPOT_RATIO: "70"})
    owner = Owner("ReplicaSet", "web-1", "r")
    placed = Pod("shop", "web-a", "a", owner, node="demand-1", phase="Running", ready=True)
    annotations = {names.DECISION: "r/1", names.SLOT: "0", names.REASON: "slot 0 is on-demand"}
    first = replace(placed, labels={names.CLASS: "on-demand"}, annotations=annotations)
    second = replace(
        first,
        name="web-b",
        node="spot-1",
        labels={names.CLASS: "spot"},
        annotations={**annotations, names.SLOT: "1", names.SOFT: "true"},
    )
    snapshot = Snapshot(
        {"shop": Namespace("shop", {names.PLACEMENT: names.ENABLED})},
        {"spot-1": Node("spot-1", {names.CAPACITY: "spot"}), "demand-1": Node("demand-1")},
        (web,),
        (ReplicaSet("shop", "web-1", "r", Owner("Deployment", "web", "d"), 3),),
        (first, second, replace(placed, name="web-c", node="")),
    )
    return statuses(snapshot, Configuration())


def test_the_json_has_the_shape_that_scripts_rely_on() -> None:
    """As the design fixes it; what is more is allowed, what is missing is not."""
    told = as_json(found(), NOW)
    assert told["synced"] is True
    assert told["generatedAt"] == "2026-11-16T00:00:00+00:00"
    (web,) = told["workloads"]
    assert (web["namespace"], web["kind"], web["name"], web["replicas"]) == ("shop", "Deployment", "web", 3)
    assert web["wanted"] == {"spot": 2, "onDemand": 1}
    assert web["actual"] == {"spot": 1, "onDemand": 1}
    assert web["pending"] == {"spot": 0, "onDemand": 1}
    assert web["missed"] == ["web-c"]
    assert web["soft"] == 1
    assert web["policy"]["spotRatio"] == "70%"
    assert web["policy"]["minOnDemand"] == 1
    assert set(web["policy"]["source"].values()) <= SOURCES
    assert web["mistakes"][0]["annotation"] == names.SPOT_RATIO
    assert "missed by admission" in web["reason"]


def test_pods_are_listed_on_request() -> None:
    """Where each is, and why."""
    (web,) = as_json(found(), NOW, with_pods=True)["workloads"]
    assert [(pod["name"], pod["slot"], pod["class"], pod["serves"]) for pod in web["pods"]] == [
        ("web-a", 0, "on-demand", True),
        ("web-b", 1, "spot", True),
        ("web-c", None, None, False),
    ]


def test_the_table_fits_eighty_columns_and_says_it_all() -> None:
    """Mixes, why they differ, who was missed, what was written wrong, and every pod's place and reason."""
    out = StringIO()
    Console(file=out, width=80).print(as_table(found(), with_pods=True))
    text = out.getvalue()
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    for part in (
        "shop/web (deploy)",
        "2+1",
        "1+1",
        "missed by admission: web-c",
        "'70' does not count",
        "slot 0 is on-demand",
    ):
        assert part in " ".join(text.split())


def test_an_empty_cluster_is_told_what_to_do() -> None:
    """A newcomer's first look."""
    out = StringIO()
    Console(file=out, width=200).print(as_table([]))
    assert "kubectl label namespace NAME spotweave.dev/placement=enabled" in out.getvalue()
