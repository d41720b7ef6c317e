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
from tests.cluster.autoscaler import autoscaling
from tests.cluster.scene import Scene
from tests.cluster.world import label, wait_for

pytestmark = pytest.mark.cluster

ALL_SPOT = Choice(all_spot=True)


def test_everything_returns_to_spot_that_an_autoscaler_brings_only_for_who_waits(scene: Scene) -> None:
    """All spot nodes are gone for good. When the outage is over, pods ask for spot again, one of them first."""
    scene.serves("web", 10, minAvailable=9)
    scene.settles("web")
    scene.cluster.reclaim(ALL_SPOT, Way.CLOUD)
    wait_for("all to serve again", partial(scene.serves_in_full, "web", 10))
    wait_for("what was lost to be gone", lambda: len(scene.world.pods("web")) == 10)
    scene.watcher.forget()
    with autoscaling(scene.cluster, "shop") as autoscaler:
        change_outages(scene.world.client, lambda known: ended(known, known.noted, time.time()))
        assert scene.settles("web")["web"].actual == Mix(7, 3)
        assert scene.watcher.worst("web") == 10
        assert len(autoscaler.brought) == 3  # 7 pods, 3 places each


def webhooks(scene: Scene) -> list[Process]:
    return [each for each in scene.installed.processes if each.name.startswith(names.WEBHOOK_COMPONENT)]


def missed(scene: Scene, name: str) -> int:
    """How many admission did not see: they carry no decision, or one that was made afterwards."""
    decisions = [pod["metadata"].get("annotations", {}).get(names.DECISION, "") for pod in scene.world.pods(name)]
    return sum(not decision or "/adopted-" in decision for decision in decisions)


def test_pods_of_a_rollout_without_a_webhook_are_adopted_and_moved(scene: Scene) -> None:
    """Both webhooks are killed, and come back when the rollout is over and moves have failed for want of them."""
    scene.serves("web", 10)
    scene.settles("web")
    for each in webhooks(scene):
        each.process.kill()
        each.process.wait()
    undone = scene.told(f"{names.METRIC_ACTIONS}_total", 'action="undo"')
    scene.world.roll_out("web")
    scene.world.rest("web")
    wait_for("a move to fail", lambda: scene.told(f"{names.METRIC_ACTIONS}_total", 'action="undo"') > undone)
    wait_until_ready([scene.installed.add() for _ in range(2)])
    scene.watcher.forget()
    assert scene.settles("web")["web"].actual == Mix(7, 3)
    assert scene.watcher.worst("web") == 10


def test_pods_of_a_rollout_with_a_webhook_that_hangs_are_adopted_and_moved(scene: Scene) -> None:
    scene.serves("web", 10)
    scene.settles("web")
    hanging = [each for each in webhooks(scene) if each.process.poll() is None]
    for each in hanging:
        os.kill(each.process.pid, signal.SIGSTOP)
    try:
        scene.world.roll_out("web")
        wait_for("the rollout to go on", lambda: missed(scene, "web") >= 3)
    finally:
        for each in hanging:
            os.kill(each.process.pid, signal.SIGCONT)
    scene.world.rest("web")
    scene.watcher.forget()
    assert scene.settles("web")["web"].actual == Mix(7, 3)
    assert scene.watcher.worst("web") == 10


def test_pods_that_are_older_than_the_label_are_adopted_and_moved(scene: Scene) -> None:
    """Labelled and slotted where they are, if that fits; else moved, with never one less."""
    client = scene.world.client
    client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "older"}})
    older = replace(scene, world=replace(scene.world, namespace="older"))
    try:
        older.create("mature", 10, maxUnavailable=0)
        wait_for("all to serve", partial(older.serves_in_full, "mature", 10))
        scene.watcher.forget()
        before = older.uids("mature")
        label(client, "older")
        found = older.settles("mature")["mature"]
        assert found.actual == Mix(7, 3)
        assert not found.missed
        assert scene.watcher.worst("mature") == 10
        assert before & older.uids("mature"), "those whose node fits stay"
    finally:
        client.delete("/api/v1/namespaces/older")


def revisions(scene: Scene, name: str) -> list[dict[str, Any]]:
    query = {"labelSelector": f"app={name}"}
    found = scene.world.client.get_json(scene.world.path("ReplicaSet"), query)["items"]
    return [each for each in found if each["status"].get("readyReplicas")]


def test_a_paused_rollout_with_two_revisions_is_left_alone(scene: Scene) -> None:
    """The ratio changes meanwhile: no move and no loop, until it goes on."""
    scene.serves("web", 10)
    scene.settles("web")
    path = scene.world.path("Deployment", "web")
    scene.world.roll_out("web")
    wait_for("two revisions", lambda: len(revisions(scene, "web")) == 2)
    scene.world.client.patch(path, {"spec": {"paused": True}})
    wait_for("the rollout to rest", lambda: all(_is_at_rest(each) for each in revisions(scene, "web")))
    scene.falls_silent(2)
    before, moves = scene.uids("web"), scene.moves()
    scene.annotate("web", spot_ratio="30%")
    scene.falls_silent()
    assert scene.uids("web") == before
    assert scene.moves() == moves
    scene.world.client.patch(path, {"spec": {"paused": False}})
    assert scene.settles("web")["web"].actual == Mix(3, 7)


def _is_at_rest(raw_set: dict[str, Any]) -> bool:
    return bool(raw_set["status"].get("readyReplicas") == raw_set["spec"]["replicas"] == raw_set["status"]["replicas"])


def test_without_the_label_released_pods_are_put_back_and_nothing_else_is_done(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    """Within seconds. All go on running; `status --left-over` tells what they still carry."""
    scene.serves("web", 20, ready_after=6)
    scene.settles("web")
    scene.watcher.forget()
    scene.annotate("web", spot_ratio="30%")
    wait_for("moves to be under way", lambda: scene.released("web"))
    try:
        scene.world.client.patch("/api/v1/namespaces/shop", {"metadata": {"labels": {names.PLACEMENT: None}}})
        wait_for("released pods to be put back", lambda: not scene.released("web"), 5)
        scene.falls_silent()
        wait_for("the newcomers to go", lambda: len(scene.world.pods("web")) == 20)
        assert scene.watcher.worst("web") == 20
        before = scene.uids("web")
        capsys.readouterr()
        assert scene.spotweave("status", "--left-over", "-o", "json") == 1
        told = json.loads(capsys.readouterr().out)["leftOver"]
        assert {each["uid"] for each in told} == before
        assert scene.uids("web") == before
    finally:
        label(scene.world.client, "shop")


def test_a_pause_lets_no_move_begin_and_resume_finishes_the_change(scene: Scene) -> None:
    scene.serves("web", 20, minAvailable="100%")
    scene.settles("web")
    scene.watcher.forget()
    before = scene.moves()
    scene.annotate("web", spot_ratio="30%")
    wait_for("moves to be under way", lambda: scene.released("web"))
    scene.spotweave("pause", "--for", "5m")
    scene.falls_silent(2)
    begun = scene.moves()
    assert begun - before < 8
    scene.falls_silent()
    assert scene.moves() == begun
    scene.spotweave("resume")
    assert scene.settles("web")["web"].actual == Mix(6, 14)
    assert scene.moves() - before == 8
    assert scene.watcher.worst("web") == 20


@pytest.mark.parametrize("mode", ["plan-only", "off"])
def test_nothing_moves_where_that_is_asked_for(scene: Scene, mode: str, capsys: pytest.CaptureFixture[str]) -> None:
    scene.serves("web", 10, {names.REBALANCE: mode})
    before, writes = scene.uids("web"), scene.writes()
    scene.annotate("web", spot_ratio="30%")
    scene.falls_silent()
    assert scene.writes() == writes
    assert scene.uids("web") == before
    capsys.readouterr()
    assert scene.spotweave("plan", "-o", "json", "-n", "shop") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["actions"] == []
    assert told["skipped"] == [
        {"workload": "Deployment shop/web", "reason": f"4 pods not moved (wrong-class): rebalance is {mode}"}
    ]


@pytest.mark.parametrize("management", ["Parallel", "OrderedReady"])
def test_a_stateful_set_is_moved_one_pod_at_a_time(scene: Scene, management: str) -> None:
    """It cannot be released: one is evicted while all others serve, and its place is proven."""
    spec = {"podManagementPolicy": management}
    scene.serves("db", 5, kind="StatefulSet", spec=spec, maxUnavailable=1)
    scene.settles("db")
    scene.watcher.forget()
    before = scene.moves()
    scene.annotate("db", "StatefulSet", spot_ratio="20%")
    assert scene.settles("db")["db"].actual == Mix(1, 4)
    assert scene.watcher.worst("db") == 4
    assert scene.moves() - before == 2


def test_uninstalling_puts_back_what_is_released(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """In the midst of moves: the old pods are their ReplicaSet's again, all serve, and nothing moves any more."""
    scene.serves("web", 10, minAvailable="100%")
    scene.settles("web")
    before = scene.uids("web")
    scene.watcher.forget()
    scene.annotate("web", spot_ratio="30%")
    wait_for("moves to be under way", lambda: scene.released("web"))
    assert scene.spotweave("uninstall") == 0
    told = capsys.readouterr().out
    assert "Put back" in told
    assert "kubectl delete -k manifests/base" in told
    assert f"kubectl label namespace shop {names.PLACEMENT}-" in told
    assert scene.released("web") == []
    wait_for("as many as wanted", lambda: len(scene.world.pods("web")) == 10)
    assert all(pod["metadata"].get("ownerReferences") for pod in scene.world.pods("web"))
    writes = scene.writes()
    time.sleep(3)  # that nothing is begun anew
    assert scene.writes() == writes
    assert scene.watcher.worst("web") == 10
    assert before & scene.uids("web")
