"""Outages: noted by hand, read by the webhook at once, and pods fall back as their policy says."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from demo.supervisor import Installed, Process, running, wait_until_ready
from kube.client import connect
from kube.configmaps import read_outages
from kube.resources import WEBHOOK_LEASES as WEBHOOKS
from localcluster import LocalCluster, Options, demo_profile
from placement import names
from placement.slots import Mix
from tests.cluster.lead import leading
from tests.cluster.world import World, is_exact, label, template, wait_for, workload

pytestmark = pytest.mark.cluster

Scene = tuple[World, Installed]


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    """A cluster of its own, since outages are cluster-wide; two replicas of the webhook."""
    fast = Options(controller_qps=200, controller_burst=400)
    with (
        LocalCluster.start(demo_profile(), options=fast) as cluster,
        running(cluster.kubeconfig, 2, log_level="warning") as installed,
    ):
        client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
        for name in ("shop", "strangers"):
            client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
        label(client, "shop")
        with leading(client):
            yield World(client, Path(cluster.kubeconfig), "shop"), installed
        client.close()


def outage(world: World, action: str, *options: str) -> None:
    """As an operator does it."""
    assert main(["outage", action, "--kubeconfig", str(world.kubeconfig), *options]) == 0


def versions(world: World, installed: Installed) -> set[int]:
    """The version of the outages that each webhook shows: as metric and in its Lease, both for all that run."""
    metrics = [shown_version(each) for each in installed.processes if each.process.poll() is None]
    leases = [
        lease["metadata"]["annotations"] for lease in world.client.get_json(WEBHOOKS.path, WEBHOOKS.query)["items"]
    ]
    if len(leases) != len(metrics):
        return {-1}  # one has not introduced itself yet, or has left
    return {*metrics, *(int(lease[names.OUTAGE_VERSION]) for lease in leases)}


def shown_version(webhook: Process) -> int:
    with urllib.request.urlopen(f"{webhook.url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{names.METRIC_OUTAGE_VERSION} ")]
    return int(float(line.split()[1]))


def test_an_outage_of_spot_makes_spot_pods_soft_until_it_is_cleared(scene: Scene) -> None:
    """Every webhook shows the version that it has read; with spot still there, soft pods go to spot all the same."""
    world, installed = scene
    (before,) = versions(world, installed)
    outage(world, "set", "--for", "10m")
    wait_for("every webhook to know", lambda: versions(world, installed) == {before + 1})
    world.create(workload("Deployment", "web", 10))
    status = world.rest("web")
    assert status.actual == Mix(7, 3)
    assert status.soft == 7
    outage(world, "clear")
    wait_for("every webhook to know", lambda: versions(world, installed) == {before + 2})
    world.roll_out("web")
    status = world.rest("web")
    assert is_exact(status, 7, 3)
    assert status.soft == 0
    world.delete("Deployment", "web")


def test_an_outage_survives_the_restart_of_every_webhook(scene: Scene) -> None:
    """The new ones show the version before their first decision, and admit spot pods softly as the old ones did."""
    world, installed = scene
    (before,) = versions(world, installed)
    outage(world, "set", "--for", "10m")
    wait_for("every webhook to know", lambda: versions(world, installed) == {before + 1})
    old = [each for each in installed.processes if each.process.poll() is None]
    wait_until_ready([installed.add() for _ in old])
    for each in old:
        each.process.terminate()
        assert each.process.wait(30) == 0
    wait_for("the new webhooks to be alone", lambda: versions(world, installed) == {before + 1})
    world.create(workload("Deployment", "web", 10))
    status = world.rest("web")
    assert (status.actual, status.soft, status.missed) == (Mix(7, 3), 7, ())
    outage(world, "clear")
    wait_for("every webhook to know", lambda: versions(world, installed) == {before + 2})
    world.delete("Deployment", "web")


def test_an_outage_of_one_zone_keeps_pods_out_of_it(scene: Scene) -> None:
    """Spot is out in zone a: pods are not soft, since spot is elsewhere, and prefer the pools of the other zones."""
    world, installed = scene
    (before,) = versions(world, installed)
    outage(world, "set", "--zone", "zone-a")
    wait_for("every webhook to know", lambda: versions(world, installed) == {before + 1})
    world.create(workload("Deployment", "web", 10))
    status = world.rest("web")
    assert is_exact(status, 7, 3)
    assert status.soft == 0
    assert preferred_zones(world.pods("web")) == {"zone-b", "zone-c"}
    outage(world, "clear")
    wait_for("every webhook to know", lambda: versions(world, installed) == {before + 2})
    world.delete("Deployment", "web")


def preferred_zones(pods: list[dict[str, Any]]) -> set[str]:
    return {
        expression["values"][0]
        for pod in pods
        for term in pod["spec"]["affinity"]["nodeAffinity"].get("preferredDuringSchedulingIgnoredDuringExecution", [])
        for expression in term["preference"]["matchExpressions"]
        if expression["key"] == names.ZONE
    }


def test_with_on_demand_full_a_rollout_finishes_by_falling_back(scene: Scene) -> None:
    """A stranger fills on-demand; with the outage noted, the first new pod runs on spot, and status says so."""
    world, installed = scene
    (before,) = versions(world, installed)
    world.create(workload("Deployment", "web", 3))
    assert is_exact(world.rest("web"), 2, 1)
    strangers = World(world.client, world.kubeconfig, "strangers")
    greedy = {"name": "app", "image": "example/app:1.0", "resources": {"requests": {"cpu": "7950m"}}}
    spec = template("greedy", containers=[greedy], nodeSelector={names.CAPACITY: "on-demand"})
    strangers.create(workload("Deployment", "greedy", 6, template=spec))
    wait_for("on-demand to be full", lambda: serving(strangers, "greedy") >= 5)
    fill = {"name": "app", "image": "example/app:1.0", "resources": {"requests": {"cpu": "10m"}}}
    crumbs = template("crumbs", containers=[fill], nodeSelector={names.CAPACITY: "on-demand"})
    strangers.create(workload("Deployment", "crumbs", 40, template=crumbs))
    wait_for("the crumbs to be stuck", lambda: unschedulable(strangers, "crumbs") > 0)
    outage(world, "set", "--class", "on-demand")
    wait_for("every webhook to know", lambda: versions(world, installed) == {before + 1})
    world.roll_out("web")
    status = world.rest("web")
    assert status.actual == Mix(3, 0)
    assert status.soft == 1
    assert "not on the class of their slot" in status.reason
    assert any("on-demand is out" in each.reason for each in status.pods)
    outage(world, "clear", "--class", "on-demand")
    for name in ("greedy", "crumbs"):
        strangers.delete("Deployment", name)
    world.delete("Deployment", "web")


def serving(world: World, app: str) -> int:
    return sum(pod["status"].get("phase") == "Running" for pod in world.pods(app))


def unschedulable(world: World, app: str) -> int:
    return sum(
        condition.get("reason") == "Unschedulable"
        for pod in world.pods(app)
        for condition in pod["status"].get("conditions", [])
    )


def test_a_pause_is_noted_beside_the_outages(scene: Scene, capsys: pytest.CaptureFixture[str]) -> None:
    """It is shown by status, leaves the outages as they are, and goes with resume."""
    world, _ = scene
    outage(world, "set", "--for", "10m")
    known, _ = read_outages(world.client)
    access = ("--kubeconfig", str(world.kubeconfig))

    def shown() -> Any:
        capsys.readouterr()
        main(["status", "-o", "json", *access])
        return json.loads(capsys.readouterr().out)["paused"]

    assert shown() is None
    assert main(["pause", "--for", "10m", "--reason", "a test", *access]) == 0
    paused = shown()
    assert (paused["until"] - paused["since"], paused["reason"]) == (pytest.approx(600), "a test")
    outage(world, "list")
    assert capsys.readouterr().out.startswith("Paused since 20")
    assert main(["resume", *access]) == 0
    assert shown() is None
    assert read_outages(world.client)[0] == known
    outage(world, "clear")
