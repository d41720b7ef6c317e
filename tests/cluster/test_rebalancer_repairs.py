"""What the rebalancer repairs, and what it leaves alone, on a real control plane."""

from __future__ import annotations

import json
import os
import signal
import time
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from demo.supervisor import Process, wait_until_ready
from kube.configmaps import change_outages
from localcluster import Choice, Way
from placement import names
from placement.outage import ended
from placement.slots import Mix
from tests.builders.api import raw_namespace
from tests.cluster.autoscaler import autoscaling
from tests.cluster.clustersetup import ClusterSetup
from tests.cluster.longreleases import serve_with_slow_replacements, start_releases
from tests.cluster.namespaceuser import label, wait_for, wait_within
from tests.timing import timed

pytestmark = pytest.mark.cluster

ALL_SPOT = Choice(all_spot=True)
UNDO_SECONDS = 60.0  # `moves.timeout` of the configuration: then a move is undone in any case


def test_everything_returns_to_spot_that_an_autoscaler_brings_only_for_who_waits(setup: ClusterSetup) -> None:
    """All spot nodes are gone for good. When the outage is over, pods ask for spot again, one of them first."""
    setup.serves("web", 10, minAvailable=9)
    setup.settles("web")
    setup.cluster.reclaim(ALL_SPOT, Way.CLOUD)
    wait_for("all to serve again", partial(setup.serves_in_full, "web", 10))
    wait_for("what was lost to be gone", lambda: len(setup.user.pods("web")) == 10)
    setup.history.forget()
    with autoscaling(setup.cluster, "shop") as autoscaler:
        change_outages(setup.user.client, lambda known: ended(known, known.noted, time.time()))
        assert setup.settles("web")["web"].actual == Mix(7, 3)
        assert setup.history.worst("web") == 10
        assert len(autoscaler.brought) == 3  # 7 pods, 3 places each


def webhooks(setup: ClusterSetup) -> list[Process]:
    return [each for each in setup.installed.processes if each.name.startswith(names.WEBHOOK_COMPONENT)]


def missed(setup: ClusterSetup, name: str) -> int:
    """How many admission did not see: they carry no decision, or one that was made afterwards."""
    decisions = [pod["metadata"].get("annotations", {}).get(names.DECISION, "") for pod in setup.user.pods(name)]
    return sum(not decision or "/adopted-" in decision for decision in decisions)


def test_pods_of_a_rollout_without_a_webhook_are_adopted_and_moved(setup: ClusterSetup) -> None:
    """Both webhooks are killed, and come back when the rollout is over and moves have failed for want of them."""
    setup.serves("web", 10)
    setup.settles("web")
    for each in webhooks(setup):
        each.process.kill()
        each.process.wait()
    undone = setup.told(f"{names.METRIC_ACTIONS}_total", 'action="undo"')
    setup.user.roll_out("web")
    setup.user.rest("web")
    wait_for("a move to fail", lambda: setup.told(f"{names.METRIC_ACTIONS}_total", 'action="undo"') > undone)
    wait_until_ready([setup.installed.add() for _ in range(2)])
    setup.history.forget()
    assert setup.settles("web")["web"].actual == Mix(7, 3)
    assert setup.history.worst("web") == 10


def test_pods_of_a_rollout_with_a_webhook_that_hangs_are_adopted_and_moved(setup: ClusterSetup) -> None:
    setup.serves("web", 10)
    setup.settles("web")
    hanging = [each for each in webhooks(setup) if each.process.poll() is None]
    for each in hanging:
        os.kill(each.process.pid, signal.SIGSTOP)
    try:
        setup.user.roll_out("web")
        wait_for("the rollout to go on", lambda: missed(setup, "web") >= 3)
    finally:
        for each in hanging:
            os.kill(each.process.pid, signal.SIGCONT)
    setup.user.rest("web")
    setup.history.forget()
    assert setup.settles("web")["web"].actual == Mix(7, 3)
    assert setup.history.worst("web") == 10


def test_pods_that_are_older_than_the_label_are_adopted_and_moved(setup: ClusterSetup) -> None:
    """Labelled and slotted where they are, if that fits; else moved, with never one less."""
    client = setup.user.client
    client.post("/api/v1/namespaces", raw_namespace("older"))
    older = replace(setup, user=replace(setup.user, namespace="older"))
    try:
        older.create("mature", 10, maxUnavailable=0)
        wait_for("all to serve", partial(older.serves_in_full, "mature", 10))
        setup.history.forget()
        before = older.uids("mature")
        label(client, "older")
        found = older.settles("mature")["mature"]
        assert found.actual == Mix(7, 3)
        assert not found.missed
        assert setup.history.worst("mature") == 10
        assert before & older.uids("mature"), "those whose node fits stay"
    finally:
        client.delete("/api/v1/namespaces/older")


def revisions(setup: ClusterSetup, name: str) -> list[dict[str, Any]]:
    query = {"labelSelector": f"app={name}"}
    found = setup.user.client.get_json(setup.user.path("ReplicaSet"), query)["items"]
    return [each for each in found if each["status"].get("readyReplicas")]


def test_a_paused_rollout_with_two_revisions_is_left_alone(setup: ClusterSetup) -> None:
    """The ratio changes meanwhile: no move and no loop, until it goes on."""
    setup.serves("web", 10)
    setup.settles("web")
    path = setup.user.path("Deployment", "web")
    setup.user.roll_out("web")
    wait_for("two revisions", lambda: len(revisions(setup, "web")) == 2)
    setup.user.client.patch(path, {"spec": {"paused": True}})
    wait_for("the rollout to rest", lambda: all(_is_at_rest(each) for each in revisions(setup, "web")))
    setup.falls_silent(2)
    before, moves = setup.uids("web"), setup.moves()
    setup.annotate("web", spot_ratio="30%")
    setup.falls_silent()
    assert setup.uids("web") == before
    assert setup.moves() == moves
    setup.user.client.patch(path, {"spec": {"paused": False}})
    assert setup.settles("web")["web"].actual == Mix(3, 7)


def _is_at_rest(raw_set: dict[str, Any]) -> bool:
    return bool(raw_set["status"].get("readyReplicas") == raw_set["spec"]["replicas"] == raw_set["status"]["replicas"])


@timed
def test_without_the_label_released_pods_are_put_back_and_nothing_else_is_done(
    setup: ClusterSetup, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within seconds. All go on running; `status --left-over` tells what they still carry."""
    serve_with_slow_replacements(setup, {"web": 20})
    setup.history.forget()
    released = start_releases(setup, "web", 20)
    try:
        setup.user.client.patch("/api/v1/namespaces/shop", {"metadata": {"labels": {names.PLACEMENT: None}}})
        wait_within("released pods to be put back", lambda: not setup.released("web"), 5, UNDO_SECONDS / 2)
        setup.falls_silent()
        wait_for("the newcomers to go", lambda: len(setup.user.pods("web")) == 20)
        assert setup.history.worst("web") == 20
        before = setup.uids("web")
        assert released.keys() <= before
        capsys.readouterr()
        assert setup.spotweave("status", "--left-over", "-o", "json") == 1
        told = json.loads(capsys.readouterr().out)["leftOver"]
        assert {each["uid"] for each in told} == before
        assert setup.uids("web") == before
    finally:
        label(setup.user.client, "shop")


def test_a_pause_lets_no_move_begin_and_resume_finishes_the_change(setup: ClusterSetup) -> None:
    """Replacements take ten seconds, so that not all moves have begun when the pause does."""
    serve_with_slow_replacements(setup, {"web": 20}, ready_after=10, minAvailable="100%")
    setup.history.forget()
    before = setup.moves()
    setup.annotate("web", spot_ratio="30%")
    wait_for("moves to be under way", lambda: setup.released("web"))
    setup.spotweave("pause", "--for", "5m")
    setup.falls_silent(2)
    begun = setup.moves()
    assert begun - before < 8
    setup.falls_silent()
    assert setup.moves() == begun
    setup.spotweave("resume")
    assert setup.settles("web")["web"].actual == Mix(6, 14)
    assert setup.moves() - before == 8
    assert setup.history.worst("web") == 20


@pytest.mark.parametrize("mode", ["plan-only", "off"])
def test_nothing_moves_where_that_is_asked_for(
    setup: ClusterSetup, mode: str, capsys: pytest.CaptureFixture[str]
) -> None:
    setup.serves("web", 10, {names.REBALANCE: mode})
    before, writes = setup.uids("web"), setup.writes()
    setup.annotate("web", spot_ratio="30%")
    setup.falls_silent()
    assert setup.writes() == writes
    assert setup.uids("web") == before
    capsys.readouterr()
    assert setup.spotweave("plan", "-o", "json", "-n", "shop") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["actions"] == []
    assert told["skipped"] == [
        {"workload": "Deployment shop/web", "reason": f"4 pods not moved (wrong-class): rebalance is {mode}"}
    ]


@pytest.mark.parametrize("management", ["Parallel", "OrderedReady"])
def test_a_stateful_set_is_moved_one_pod_at_a_time(setup: ClusterSetup, management: str) -> None:
    """It cannot be released: one is evicted while all others serve, and its place is proven."""
    spec = {"podManagementPolicy": management}
    setup.serves("db", 5, kind="StatefulSet", spec=spec, maxUnavailable=1)
    setup.settles("db")
    setup.history.forget()
    before = setup.moves()
    setup.annotate("db", "StatefulSet", spot_ratio="20%")
    assert setup.settles("db")["db"].actual == Mix(1, 4)
    assert setup.history.worst("db") == 4
    assert setup.moves() - before == 2


def test_uninstalling_puts_back_what_is_released(setup: ClusterSetup, capsys: pytest.CaptureFixture[str]) -> None:
    """In the midst of moves: the old pods are their ReplicaSet's again, all serve, and nothing moves any more."""
    serve_with_slow_replacements(setup, {"web": 10}, minAvailable="100%")
    before = setup.uids("web")
    setup.history.forget()
    start_releases(setup, "web", 10)
    assert setup.spotweave("uninstall") == 0
    told = capsys.readouterr().out
    assert "Put back" in told
    assert "kubectl delete -k manifests/base" in told
    assert f"kubectl label namespace shop {names.PLACEMENT}-" in told
    assert setup.released("web") == []
    wait_for("as many as wanted", lambda: len(setup.user.pods("web")) == 10)
    assert all(pod["metadata"].get("ownerReferences") for pod in setup.user.pods("web"))
    writes = setup.writes()
    time.sleep(3)  # that nothing is begun anew
    assert setup.writes() == writes
    assert setup.history.worst("web") == 10
    assert before & setup.uids("web")
