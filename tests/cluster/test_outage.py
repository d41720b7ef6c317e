"""Outages: noted by hand, read by the webhook at once, and pods fall back as their policy says."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from demo.supervisor import Installed, Process, wait_until_ready
from kube.client import connect
from kube.configmaps import read_outages
from kube.resources import WEBHOOK_LEASES as WEBHOOKS
from localcluster import LocalCluster, Options, demo_profile
from placement import names
from placement.slots import Mix
from tests.builders.api import raw_namespace, raw_template, raw_workload
from tests.cluster.idleleader import holding_lease
from tests.cluster.killing import running
from tests.cluster.namespaceuser import NamespaceUser, is_exact, label, wait_for

pytestmark = pytest.mark.cluster

UserAndInstalled = tuple[NamespaceUser, Installed]


@pytest.fixture(scope="module")
def user_and_installed() -> Iterator[UserAndInstalled]:
    """A cluster of its own, since outages are cluster-wide; two replicas of the webhook."""
    fast = Options(controller_qps=200, controller_burst=400)
    with (
        LocalCluster.start(demo_profile(), options=fast) as cluster,
        running(cluster.kubeconfig, 2, log_level="warning") as installed,
    ):
        client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
        for name in ("shop", "strangers"):
            client.post("/api/v1/namespaces", raw_namespace(name))
        label(client, "shop")
        with holding_lease(client):
            yield NamespaceUser(client, Path(cluster.kubeconfig), "shop"), installed
        client.close()


def outage(user: NamespaceUser, action: str, *options: str) -> None:
    """As an operator does it."""
    assert main(["outage", action, "--kubeconfig", str(user.kubeconfig), *options]) == 0


def versions(user: NamespaceUser, installed: Installed) -> set[int]:
    """The version of the outages that each webhook shows: as metric and in its Lease, both for all that run."""
    metrics = [shown_version(each) for each in installed.processes if each.process.poll() is None]
    leases = [
        lease["metadata"]["annotations"] for lease in user.client.get_json(WEBHOOKS.path, WEBHOOKS.query)["items"]
    ]
    if len(leases) != len(metrics):
        return {-1}  # one has not introduced itself yet, or has left
    return {*metrics, *(int(lease[names.OUTAGE_VERSION]) for lease in leases)}


def shown_version(webhook: Process) -> int:
    with urllib.request.urlopen(f"{webhook.url}/metrics") as answer:
        lines = answer.read().decode().splitlines()
    (line,) = [line for line in lines if line.startswith(f"{names.METRIC_OUTAGE_VERSION} ")]
    return int(float(line.split()[1]))


def test_an_outage_of_spot_makes_spot_pods_soft_until_it_is_cleared(user_and_installed: UserAndInstalled) -> None:
    """Every webhook shows the version that it has read; with spot still there, soft pods go to spot all the same."""
    user, installed = user_and_installed
    (before,) = versions(user, installed)
    outage(user, "set", "--for", "10m")
    wait_for("every webhook to know", lambda: versions(user, installed) == {before + 1})
    user.create(raw_workload("Deployment", "web", 10))
    status = user.rest("web")
    assert status.actual == Mix(7, 3)
    assert status.soft == 7
    outage(user, "clear")
    wait_for("every webhook to know", lambda: versions(user, installed) == {before + 2})
    user.roll_out("web")
    status = user.rest("web")
    assert is_exact(status, 7, 3)
    assert status.soft == 0
    user.delete("Deployment", "web")


def test_an_outage_survives_the_restart_of_every_webhook(user_and_installed: UserAndInstalled) -> None:
    """The new ones show the version before their first decision, and admit spot pods softly as the old ones did."""
    user, installed = user_and_installed
    (before,) = versions(user, installed)
    outage(user, "set", "--for", "10m")
    wait_for("every webhook to know", lambda: versions(user, installed) == {before + 1})
    old = [each for each in installed.processes if each.process.poll() is None]
    wait_until_ready([installed.add() for _ in old])
    for each in old:
        each.process.terminate()
    assert [each.process.wait(30) for each in old] == [0] * len(old)
    wait_for("the new webhooks to be alone", lambda: versions(user, installed) == {before + 1})
    user.create(raw_workload("Deployment", "web", 10))
    status = user.rest("web")
    assert (status.actual, status.soft, status.missed) == (Mix(7, 3), 7, ())
    outage(user, "clear")
    wait_for("every webhook to know", lambda: versions(user, installed) == {before + 2})
    user.delete("Deployment", "web")


def test_an_outage_of_one_zone_keeps_pods_out_of_it(user_and_installed: UserAndInstalled) -> None:
    """Spot is out in zone a: pods are not soft, since spot is elsewhere, and prefer the pools of the other zones."""
    user, installed = user_and_installed
    (before,) = versions(user, installed)
    outage(user, "set", "--zone", "zone-a")
    wait_for("every webhook to know", lambda: versions(user, installed) == {before + 1})
    user.create(raw_workload("Deployment", "web", 10))
    status = user.rest("web")
    assert is_exact(status, 7, 3)
    assert status.soft == 0
    assert preferred_zones(user.pods("web")) == {"zone-b", "zone-c"}
    outage(user, "clear")
    wait_for("every webhook to know", lambda: versions(user, installed) == {before + 2})
    user.delete("Deployment", "web")


def preferred_zones(pods: list[dict[str, Any]]) -> set[str]:
    return {
        expression["values"][0]
        for pod in pods
        for term in pod["spec"]["affinity"]["nodeAffinity"].get("preferredDuringSchedulingIgnoredDuringExecution", [])
        for expression in term["preference"]["matchExpressions"]
        if expression["key"] == names.ZONE
    }


def test_with_on_demand_full_a_rollout_finishes_by_falling_back(user_and_installed: UserAndInstalled) -> None:
    """A stranger fills on-demand; with the outage noted, the first new pod runs on spot, and status says so."""
    user, installed = user_and_installed
    (before,) = versions(user, installed)
    user.create(raw_workload("Deployment", "web", 3))
    assert is_exact(user.rest("web"), 2, 1)
    strangers = NamespaceUser(user.client, user.kubeconfig, "strangers")
    greedy = {"name": "app", "image": "example/app:1.0", "resources": {"requests": {"cpu": "7950m"}}}
    spec = raw_template("greedy", containers=[greedy], nodeSelector={names.CAPACITY: "on-demand"})
    strangers.create(raw_workload("Deployment", "greedy", 6, template=spec))
    wait_for("on-demand to be full", lambda: serving(strangers, "greedy") >= 5)
    fill = {"name": "app", "image": "example/app:1.0", "resources": {"requests": {"cpu": "10m"}}}
    crumbs = raw_template("crumbs", containers=[fill], nodeSelector={names.CAPACITY: "on-demand"})
    strangers.create(raw_workload("Deployment", "crumbs", 40, template=crumbs))
    wait_for("the crumbs to be stuck", lambda: unschedulable(strangers, "crumbs") > 0)
    outage(user, "set", "--class", "on-demand")
    wait_for("every webhook to know", lambda: versions(user, installed) == {before + 1})
    user.roll_out("web")
    status = user.rest("web")
    assert status.actual == Mix(3, 0)
    assert status.soft == 1
    assert "not on the class of their slot" in status.reason
    assert any("on-demand is out" in each.reason for each in status.pods)
    outage(user, "clear", "--class", "on-demand")
    for name in ("greedy", "crumbs"):
        strangers.delete("Deployment", name)
    user.delete("Deployment", "web")


def serving(user: NamespaceUser, app: str) -> int:
    return sum(pod["status"].get("phase") == "Running" for pod in user.pods(app))


def unschedulable(user: NamespaceUser, app: str) -> int:
    return sum(
        condition.get("reason") == "Unschedulable"
        for pod in user.pods(app)
        for condition in pod["status"].get("conditions", [])
    )


def test_a_pause_is_noted_beside_the_outages(
    user_and_installed: UserAndInstalled, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is shown by status, leaves the outages as they are, and goes with resume."""
    user, _ = user_and_installed
    outage(user, "set", "--for", "10m")
    known, _ = read_outages(user.client)
    access = ("--kubeconfig", str(user.kubeconfig))

    def shown() -> Any:
        capsys.readouterr()
        main(["status", "-o", "json", *access])
        return json.loads(capsys.readouterr().out)["paused"]

    assert shown() is None
    assert main(["pause", "--for", "10m", "--reason", "a test", *access]) == 0
    paused = shown()
    assert (paused["until"] - paused["since"], paused["reason"]) == (pytest.approx(600), "a test")
    outage(user, "list")
    assert capsys.readouterr().out.startswith("Paused since 20")
    assert main(["resume", *access]) == 0
    assert shown() is None
    assert read_outages(user.client)[0] == known
    outage(user, "clear")
