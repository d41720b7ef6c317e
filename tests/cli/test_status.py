"""What `spotweave status` shows: JSON for scripts, in the shape that they rely on, and a table for people."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from placement import names
from placement.availability import Availability, Basis
from placement.configuration import Configuration
from placement.model import Class, Node, Pod, Snapshot
from placement.outage import Outage, Shape
from placement.pause import Pause
from placement.plan.ground import Site
from placement.skipped import SkipReason
from report.exposure import exposure
from report.residue import left_over
from report.savings import Prices, savings_in
from report.sentences import NO_LEADER, NO_WEBHOOK, NOT_INSTALLED, life_sentences
from report.status import WorkloadStatus, statuses
from report.statusjson import status_json
from report.tables import left_over_table, status_table
from tests.builders.model import pod, replica_set, workload
from tests.builders.plan import site
from tests.builders.snapshots import SHOP, deployment, snapshot
from tests.cli.printed import printed
from tests.dashboard.dashboardharness import dashboard_of

NOW = datetime(2026, 11, 16, tzinfo=UTC)
SOURCES = {"workload", "namespace", "configuration", "built-in"}


def found() -> tuple[WorkloadStatus, ...]:
    """A Deployment of three with a mistake: one pod on each class, and one that admission missed."""
    web = workload(replicas=3, annotations={names.SPOT_RATIO: "70"})
    placed = pod("web-a", None, "demand-1", "r", labels={})
    annotations = {names.SLOT: "0", names.REASON: "slot 0 is on-demand"}
    first = replace(placed, labels={names.CLASS: "on-demand"}, annotations=annotations, decision="r/1")
    second = replace(
        first,
        name="web-b",
        node="spot-1",
        labels={names.CLASS: "spot"},
        annotations={**annotations, names.SLOT: "1", names.SOFT: "true"},
    )
    nodes = (Node("spot-1", {names.CAPACITY: "spot"}), Node("demand-1"))
    pods = [first, second, replace(placed, name="web-c", node="")]
    return statuses(snapshot((web, replica_set("web-1", "r", 3), pods), nodes=nodes), Configuration())


def test_the_json_has_the_shape_that_scripts_rely_on() -> None:
    """As the design fixes it; what is more is allowed, what is missing is not."""
    told = status_json(found(), NOW)
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
    assert told["paused"] is None
    assert web["exposure"] == {
        "headroom": -1,
        "assumed": True,
        "blastRadius": {"node": 1, "pool": 1, "zone": 2, "spot": 1},
        "survives": {"node": False, "pool": False, "zone": False, "spot": False},
        "incidentsPer30Days": 1.11,
        "unavailability": 1.0,
        "restsOn": "assumed",
    }
    assert web["rollout"] == {"spot": 0, "onDemand": 1, "takesAllOnDemand": False}


def test_a_pause_is_shown_on_top() -> None:
    """Also where there is no workload."""
    pause = Pause(1750000000, None, "alice", "black friday")
    raw = {"since": 1750000000, "until": None, "by": "alice", "reason": "black friday"}
    assert status_json(found(), NOW, pause)["paused"] == raw
    for seen in (found(), ()):
        assert printed(status_table(seen, pause), 200).startswith("Paused since 2025-06-15 15:06:40Z")


def test_outages_that_stand_are_shown_on_top() -> None:
    """Below the pause, also where there is no workload; scripts get them as `outage list` tells them."""
    pause = Pause(1750000000, None, "alice", "black friday")
    outages = (
        Outage(Class.SPOT, 1750000000, frozenset({"zone-b", "zone-a"})),
        Outage(Class.ON_DEMAND, 1750000000, shape=Shape(4000, 8192), by="rebalancer"),
    )
    for seen in (found(), ()):
        lines = printed(status_table(seen, pause, outages=outages), 200).splitlines()
        assert lines[0].startswith("Paused since")
        assert lines[1:3] == [
            "Spot is out in zone-a, zone-b for any pod, until 2025-06-15 15:06:40Z, by operator",
            "On-demand is out for pods that request ≥4000m CPU, ≥8192Mi memory, until 2025-06-15 15:06:40Z, "
            "by rebalancer",
        ]
    assert status_json((), NOW, outages=outages)["outages"] == [each.raw for each in outages]


def exposed(ready: list[Site], needed: int, source: Basis = Basis.DECLARED) -> tuple[str, str]:
    """The last column of the table, and what is said below it."""
    (web,) = found()
    exposure_of = exposure(ready, Availability(needed, source))
    text = printed(status_table([replace(web, exposure=exposure_of, missed=(), reason="", mistakes=())]), 120)
    row, *below = text.splitlines()[2:]
    return " ".join(row.split()[-2:]), "\n".join(below)


ON_DEMAND = [site(f"d{number}", zone=f"zone-{number}") for number in range(3)]
PAIR = [site(f"a{number}", Class.SPOT, "zone-a", "m5") for number in range(2)]
EXPOSED: dict[str, tuple[list[Site], int, str, str]] = {
    "no node may go": (
        ON_DEMAND,
        3,
        "0 none",
        "! shop/web: losing node d0 takes 1 replica and leaves 2, but 3 must serve",
    ),
    "a node may go, a pool may not": (
        [*PAIR, *ON_DEMAND],
        4,
        "1 node",
        "! shop/web: losing pool zone-a/m5 takes 2 replicas and leaves 3, but 4 must serve",
    ),
    "a pool may go, a zone or all spot may not": (
        [*PAIR, site("a9", Class.SPOT, "zone-a", "c5"), *ON_DEMAND],
        4,
        "2 pool",
        "",
    ),
    "all spot may go, a zone may not": ([*PAIR, site("da", zone="zone-a"), *ON_DEMAND], 4, "2 spot", ""),
    "a zone may go, all spot may not": ([*PAIR, site("b1", Class.SPOT, "zone-b", "m5")], 1, "2 zone", ""),
    "anything may go": (ON_DEMAND, 2, "1 all", ""),
    "fewer are ready than must serve": (ON_DEMAND, 5, "-2 none", "! shop/web: 3 replicas are ready, but 5 must serve"),
}


@pytest.mark.parametrize(("ready", "needed", "column", "remark"), EXPOSED.values(), ids=EXPOSED.keys())
def test_headroom_and_the_largest_loss_that_is_survived(
    ready: list[Site], needed: int, column: str, remark: str
) -> None:
    """And a sentence where a node or pool may not go."""
    assert exposed(ready, needed) == (column, remark)


def test_what_is_assumed_is_marked_and_not_complained_about() -> None:
    """Nobody said how many must serve."""
    assert exposed(ON_DEMAND, 3, Basis.ASSUMED) == (
        "0* none",
        "* assumed from the rollout strategy: neither min-available nor a PodDisruptionBudget is set",
    )


def test_pods_are_listed_on_request() -> None:
    """Where each is, and why."""
    (web,) = status_json(found(), NOW, with_pods=True)["workloads"]
    assert [(pod["name"], pod["slot"], pod["class"], pod["serves"]) for pod in web["pods"]] == [
        ("web-a", 0, "on-demand", True),
        ("web-b", 1, "spot", True),
        ("web-c", None, None, False),
    ]


def test_the_table_fits_eighty_columns_and_says_it_all() -> None:
    """Mixes, why they differ, who was missed, what was written wrong, and every pod's place and reason."""
    text = printed(status_table(found(), with_pods=True), 80)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    for part in (
        "shop/web (deploy)",
        "2+1",
        "1+1",
        "missed by admission: web-c",
        "'70' is ignored",
        "slot 0 is on-demand",
        "-1* none",
        "a rollout needs 0 more spot and 1 more on-demand places",
    ):
        assert part in " ".join(text.split())


def test_long_names_of_pods_and_nodes_cost_no_slot_and_no_reason() -> None:
    """As clouds and people give them: they are folded, and whatever is beside them is printed."""
    (web,) = found()
    node = "ip-10-0-123-45.eu-central-1.compute.internal"
    reason = "slot 7 is spot; preferred, not required: a pending ordinal would block all later ones (OrderedReady)"
    pods = tuple(
        replace(each, reason=reason, pod=replace(each.pod, name=f"checkout-service-7c5ddbdf54-x8k2{index}", node=node))
        for index, each in enumerate(web.pods)
    )
    text = printed(status_table([replace(web, pods=pods)], with_pods=True), 80)
    rows = text[text.index("POD") :].splitlines()
    assert max(len(line.rstrip()) for line in rows) <= 80
    assert "…" not in text
    starts = [rows[0].index(title) for title in ("POD", "SLOT", "NODE", "CLASS", "WHY")]
    columns = [
        "".join(line[start:end].rstrip() if index < 3 else f"{line[start:end].rstrip()} " for line in rows[1:])
        for index, (start, end) in enumerate(zip(starts, [*starts[1:], None], strict=True))
    ]
    assert columns[0] == "".join(each.pod.name for each in pods)
    assert columns[1] == "01-"
    assert columns[2] == node * 3
    assert columns[3].split() == ["on-demand", "spot", "?", "(not", "ready)"]
    assert columns[4].split() == reason.split() * 3


def test_savings_are_told_with_their_source_as_the_dashboard_tells_them() -> None:
    """Six of eleven pods on spot at 0.35; a released pod is charged, too."""
    web, replica_set, pods = deployment("web", ("od-a", "spot-a", "spot-b"))
    mark = {**pods[1].annotations, names.RELEASED: "2025-06-15T15:10:00Z/h"}
    let_go = {**pods[1].labels, names.POD_TEMPLATE_HASH: "released-h"}
    going = snapshot(
        (web, replica_set, [pods[0], replace(pods[1], owner=None, annotations=mark, labels=let_go), pods[2]])
    )
    for seen in (SHOP, going):
        shown_by = statuses(seen, Configuration())
        saved = savings_in(seen, Configuration(), shown_by, Prices())
        assert status_json(shown_by, NOW, None, saved)["savings"] == dashboard_of(seen).get("overview")["savings"]
    saved = savings_in(SHOP, Configuration(), statuses(SHOP, Configuration()), Prices())
    text = printed(status_table(statuses(SHOP, Configuration()), None, saved), 120)
    told = "Estimated saving against all on-demand: 35.5 % (6 spot pods, priced at the default 0.35)"
    assert text.splitlines()[-1] == told


def test_an_empty_cluster_is_told_what_to_do() -> None:
    """A newcomer's first look."""
    assert (
        "  kubectl label namespace NAME spotweave.dev/placement=enabled" in printed(status_table([]), 80).splitlines()
    )


def test_what_is_left_over_is_told_for_people() -> None:
    placed = Pod("left", "web-a", "a", labels={names.CLASS: "spot"}, decision="r/1", node="spot-1")
    some = left_over_table(left_over(Snapshot({}, pods=(placed,)), Configuration().classes))
    lines = (printed(some, 120) + printed(left_over_table(()), 120)).splitlines()
    assert lines[1].split(maxsplit=3) == ["left/web-a", "spot-1", "-", "class, decision"]
    assert "rollout restart" in lines[2]
    assert lines[3].startswith("No pod outside opted-in namespaces")


def test_pods_that_are_not_placed_are_one_line_and_a_list_in_the_json() -> None:
    """With or without workloads that are; nothing is said where there are none."""
    counts = {("shop", SkipReason.ARGO_ROLLOUT): 3, ("shop", SkipReason.JOB): 2}
    line = "? Not placed: 5 pods in shop (3 owned by an Argo Rollout, 2 owned by a Job)"
    for workloads in (found(), ()):
        assert line in printed(status_table(workloads, skipped=counts), 120)
        assert "Not placed" not in printed(status_table(workloads), 120)
    assert [each["reason"] for each in status_json(found(), NOW, skipped=counts)["skipped"]] == ["argo-rollout", "job"]
    assert status_json(found(), NOW)["skipped"] == []


@pytest.mark.parametrize(
    ("life", "told"),
    [
        ((False, False, False), [NOT_INSTALLED]),
        ((True, False, True), [NO_WEBHOOK]),
        ((True, True, False), [NO_LEADER]),
        ((True, False, False), [NO_WEBHOOK, NO_LEADER]),
        ((True, True, True), []),
    ],
)
def test_programs_that_are_not_there_are_said_first(life: tuple[bool, bool, bool], told: list[str]) -> None:
    """An empty table would hide it; what the cluster holds is still shown below."""
    installed, webhook, leader = life
    problems = life_sentences(is_installed=installed, has_webhook=webhook, has_leader=leader)
    assert problems == told
    lines = printed(status_table(found(), problems=problems), 200).splitlines()
    assert lines[: len(told)] == told
    assert "shop/web (deploy)" in "\n".join(lines)
    empty = printed(status_table([], problems=problems), 200)
    assert ("No workload is opted in" in empty) == (not told)
