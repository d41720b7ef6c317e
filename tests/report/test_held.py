"""Evictions by others that are held: what status, page and metrics are made from."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from placement import names
from placement.configuration import Configuration
from placement.eviction import EvictionAsked
from placement.model import Node, NodeTaint, Owner, Pod, Snapshot
from placement.plan.marks import Released
from report.held import HeldEviction, held_sentence
from report.status import WorkloadStatus, statuses
from report.statusjson import status_json
from report.tables import status_table
from tests.builders.model import NOW, SPOT, node, own_annotations
from tests.builders.snapshots import NODES, deployment, snapshot
from tests.cli.printed import printed

ASKED = NOW - 10
HELD = HeldEviction("web-1", "web-1", ASKED, ASKED + 90, "alice")
NODE_ENDS = node("spot-a", SPOT, "a", taints=(NodeTaint("aws-node-termination-handler/spot-itn"),))


def asked_for(old: Pod, by: str = "alice", at: float = ASKED) -> Pod:
    return replace(old, annotations={**old.annotations, names.EVICTION_ASKED: EvictionAsked(at, by).text()})


def let_go(old: Pod) -> Pod:
    """Released: its Deployment owns it."""
    note, labels = Released(NOW + 300, "h").text(), {**old.labels, names.POD_TEMPLATE_HASH: "released-h"}
    owner = Owner("Deployment", "web", "web", "apps")
    return replace(old, owner=owner, labels=labels, annotations={**old.annotations, names.RELEASED: note})


def cluster(*changed: Pod, nodes: tuple[Node, ...] = NODES, **annotations: str) -> Snapshot:
    """Three replicas, some of them changed, by their names."""
    made, revision, pods = deployment("web", ("od-a", "spot-a", "spot-b"), **annotations)
    there = {each.name: each for each in (*pods, *changed)}
    return snapshot((made, revision, list(there.values())), nodes=nodes)


PODS = cluster().pods
WEB_1 = asked_for(let_go(PODS[1]))


def status(seen: Snapshot, now: float = NOW, *, is_paused: bool = False) -> WorkloadStatus:
    (only,) = statuses(seen, Configuration(), now=now, is_paused=is_paused)
    return only


def test_a_released_pod_that_others_evict_is_held() -> None:
    """Since the first question, for as long as `eviction-hold` says."""
    assert status(cluster(WEB_1)).held == (HELD,)


def test_a_pod_that_waits_for_its_release_is_held() -> None:
    """For a few seconds: after that the eviction passes."""
    fresh = asked_for(PODS[1], at=NOW - 2)
    assert [each.pod for each in status(cluster(fresh)).held] == ["web-1"]
    assert status(cluster(fresh), NOW + 5).held == ()


def test_a_node_that_ends_shortens_the_hold() -> None:
    """As the webhook answers: of the notice of 120 s the pod keeps its grace period, which is 75 s."""
    slow = replace(WEB_1, needs=replace(WEB_1.needs, grace_seconds=75))
    nodes = tuple(NODE_ENDS if each.name == "spot-a" else each for each in NODES)
    (held,) = status(cluster(slow, nodes=nodes)).held
    assert held.until == ASKED + 45


NOT_HELD = {
    "nobody asked": status(cluster(let_go(PODS[1]))),
    "the time is up": status(cluster(WEB_1), ASKED + 90),
    "moves are paused": status(cluster(WEB_1), is_paused=True),
    "it is terminating": status(cluster(replace(WEB_1, terminating=True))),
    "its node is gone": status(cluster(WEB_1, nodes=NODES[:2])),
    "eviction-hold is off": status(cluster(WEB_1, eviction_hold="off")),
    "the note is garbled": status(
        cluster(replace(WEB_1, annotations={**WEB_1.annotations, **own_annotations({"eviction_asked": "soon/alice"})}))
    ),
}


@pytest.mark.parametrize("found", NOT_HELD.values(), ids=NOT_HELD.keys())
def test_what_the_webhook_lets_pass_is_not_shown_as_held(found: WorkloadStatus) -> None:
    """It answers by the same rule."""
    assert found.held == ()


def test_status_shows_who_is_held_since_when_until_when_and_who_asked() -> None:
    """One line per workload; in JSON one entry per pod, in the order of their names."""
    found = [status(cluster(asked_for(let_go(PODS[2]), "bob"), WEB_1))]
    raw = status_json(found, datetime.fromtimestamp(NOW, UTC))["workloads"][0]["held"]
    assert raw[0] == {"pod": "web-1", "since": ASKED, "until": ASKED + 90, "by": "alice"}
    assert [each["pod"] for each in raw] == ["web-1", "web-2"]
    (line,) = [each for each in printed(status_table(found), 200).splitlines() if "held" in each]
    when = "since 2025-06-15 15:06:30Z, until 2025-06-15 15:08:00Z at the latest"
    assert line.rstrip() == f"! shop/web: 2 evictions held {when}: web-1, web-2; asked for by alice, bob"


def test_many_are_a_count() -> None:
    """No line grows with the workload."""
    many = [replace(HELD, pod=f"web-{number}", by=f"user-{number % 3}") for number in range(40)]
    assert held_sentence(many).endswith(": web-0, web-1 and 38 more; asked for by user-0, user-1 and 1 more")
    assert held_sentence(many[:1]).startswith("eviction held since ")
    assert held_sentence([]) == ""


def test_a_long_name_is_cut() -> None:
    """Tenants write on their pods what they like."""
    forged = {names.EVICTION_ASKED: f"2025-06-15T15:06:30Z/{'x' * 5000}"}
    (held,) = status(cluster(replace(WEB_1, annotations={**WEB_1.annotations, **forged}))).held
    assert held.by == "x" * 100
