"""The dashboard on a real control plane, in a real browser: the numbers are those of everybody else, and it is live."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from cli.run import Installed, running
from kube.client import connect
from localcluster import Choice, LocalCluster, Way, demo_profile
from placement import names
from tests.cluster.conftest import label
from tests.cluster.watcher import Watcher, watching
from tests.cluster.world import World, wait_for, workload
from tests.clusterfixtures import FAST_CONTROLLERS
from tests.dashboard.browser import PHONE, Tab, browsing

pytestmark = [pytest.mark.cluster, pytest.mark.browser]

CONFIGURATION = "moves: {minAge: 1s, coolDown: 2m, timeout: 60s}\n"
SHOP: dict[str, tuple[int, dict[str, str]]] = {
    "web": (10, {names.MIN_AVAILABLE: "8"}),
    "cart": (6, {names.SPOT_RATIO: "50%", names.MIN_AVAILABLE: "5"}),
    "search": (12, {names.SPOT_RATIO: "90%"}),
    "billing": (1, {}),
}
NODE_CLASS = "node.kubernetes.io/capacity"


@dataclass(frozen=True)
class Scene:
    cluster: LocalCluster
    installed: Installed
    world: World
    tab: Tab

    @property
    def url(self) -> str:
        assert self.installed.dashboard is not None
        return self.installed.dashboard

    def get(self, path: str) -> Any:
        with urlopen(f"{self.url}api/v1/{path}", timeout=10) as answer:
            return json.load(answer)

    def status(self) -> list[dict[str, Any]]:
        """What `spotweave status -o json` prints."""
        command = [sys.executable, "-m", "cli.main", "status", "--kubeconfig", str(self.world.kubeconfig), "-o", "json"]
        printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        workloads: list[dict[str, Any]] = json.loads(printed)["workloads"]
        return workloads

    def is_at_rest(self) -> bool:
        """Nothing is under way, and the page tells what the command line tells."""
        answer = self.get("overview")
        told = self.get("workloads")["workloads"]
        rests = not answer["moves"]["runningTotal"] and not answer["moves"]["nextTotal"]
        return rests and answer["workloads"]["exact"] == len(SHOP) and same(told, self.status())

    def counted(self) -> dict[str, Counter[str]]:
        """Ready pods of each workload by the class of their node, from nothing but pods and nodes."""
        nodes = self.world.client.get_json("/api/v1/nodes")["items"]
        classes = {each["metadata"]["name"]: each["metadata"]["labels"].get(NODE_CLASS, "on-demand") for each in nodes}
        return {
            name: Counter(classes[pod["spec"]["nodeName"]] for pod in self.world.pods(name) if is_ready(pod))
            for name in SHOP
        }


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def same(told: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    return [{key: each[key] for key in others[0]} for each in told] == others


def serves(watcher: Watcher, name: str, replicas: int) -> bool:
    return watcher.serving(name) >= replicas


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    config = tmp_path_factory.mktemp("config") / "config.yaml"
    config.write_text(CONFIGURATION)
    with (
        LocalCluster.start(demo_profile(), options=FAST_CONTROLLERS) as cluster,
        running(cluster.kubeconfig, 1, config, log_level="warning", rebalancers=1) as installed,
        browsing() as tab,
    ):
        client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
        client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
        label(client, "shop")
        made = Scene(cluster, installed, World(client, Path(cluster.kubeconfig), "shop"), tab)
        tab.looks()
        tab.open(made.url)
        tab.shows("No pod has served yet.")  # an empty cluster
        for name, (replicas, annotations) in SHOP.items():
            raw = workload("Deployment", name, replicas, annotations)
            raw["spec"]["template"]["metadata"]["annotations"] = {"localcluster.spotweave.dev/ready-after": "3s"}
            made.world.create(raw)
        wait_for("everything to come to rest", made.is_at_rest, 120)
        yield made
        client.close()


def test_share_and_exposure_are_the_same_wherever_they_are_told(scene: Scene) -> None:
    """On the page, in the API, in /metrics, in `status -o json`, and counted from pods and nodes."""
    told, counted = {each["name"]: each for each in scene.get("workloads")["workloads"]}, scene.counted()
    assert {each["name"]: each for each in scene.status()}.keys() == told.keys() == SHOP.keys()
    metrics = scene.installed.metrics("rebalancer-0")
    for name, each in told.items():
        assert each["actual"] == {"spot": counted[name]["spot"], "onDemand": counted[name]["on-demand"]}
        for domain, replicas in each["exposure"]["blastRadius"].items():
            labels = f'domain="{domain}",kind="Deployment",name="{name}",namespace="shop"'
            assert f"{names.METRIC_BLAST_RADIUS}{{{labels}}} {float(replicas)}" in metrics
    share = scene.get("overview")["spotShare"]
    spot, serving = sum(each["spot"] for each in counted.values()), sum(each.total() for each in counted.values())
    assert (share["spot"], share["share"]) == (spot, round(spot / serving, 4))
    scene.tab.shows(f"{spot} of {serving} serving pods")
    scene.tab.shows(f"{round(100 * spot / serving)} %")


def test_it_is_seen_light_dark_and_on_a_phone(scene: Scene) -> None:
    """Kept in out/dashboard, to be looked at. The console says nothing."""
    tab = scene.tab
    for page, path, awaited in (
        ("overview", "", "Each square is a node"),
        ("workloads", "#/workloads", "1–4 of 4"),
        ("workload", "#/workloads/shop/Deployment/web", "slot 0 is on-demand"),
        ("drill", "#/drill?zone=zone-b", "would go"),
    ):
        tab.looks()
        tab.open(scene.url + path)
        tab.shows(awaited)
        tab.screenshot(f"{page}-light")
        tab.looks("dark")
        tab.screenshot(f"{page}-dark")
        tab.looks("light", PHONE)
        tab.screenshot(f"{page}-phone")
    assert tab.complaints == []


def test_a_filter_leads_to_a_workload(scene: Scene) -> None:
    """Typed into the field; then its page, with every pod and why it is there."""
    tab = scene.tab
    tab.looks()
    tab.open(f"{scene.url}#/workloads")
    tab.shows("shop/billing")
    tab.evaluate(
        "const q = document.getElementById('q'); q.value = 'deployment/we'; q.dispatchEvent(new Event('input'))"
    )
    tab.shows("1–1 of 1 (4 in all)")
    tab.evaluate("document.querySelector('tbody a').click()")
    tab.shows("8 of 10 must serve, as declared")
    for pod in scene.world.pods("web"):
        tab.shows(pod["metadata"]["name"])


def test_a_drill_predicts_what_a_reclaim_does_and_the_page_shows_it_live(scene: Scene) -> None:
    """The replicas that each workload loses with a pool are those that were told before; then it recovers."""
    tab = scene.tab
    tab.open(f"{scene.url}#/drill?pool=zone-a/m5.2xlarge")
    tab.shows("would go")
    tab.open(scene.url)
    tab.shows("Nodes and pools")
    wait_for("everything to be at rest", scene.is_at_rest, 120)
    losses = scene.get("drill?pool=zone-a/m5.2xlarge")["losses"]
    predicted = dict.fromkeys(SHOP, 0) | {each["name"]: each["lost"] for each in losses}
    assert any(predicted.values())
    with watching(scene.world.client) as watcher:
        watcher.forget()  # how the pods came in, one by one
        scene.cluster.reclaim(Choice(zone="zone-a", all_spot=True), Way.CLOUD)
        tab.shows("is gone")  # in the timeline, without anybody reloading anything
        for name, (replicas, _) in SHOP.items():
            wait_for(f"{name} to serve again", partial(serves, watcher, name, replicas))
        assert {name: replicas - watcher.worst(name) for name, (replicas, _) in SHOP.items()} == predicted
    tab.looks()
    tab.screenshot("overview-after-a-loss")
    scene.cluster.restore()
    wait_for("everything to come to rest again", scene.is_at_rest, 120)
    tab.shows("node-lost")
    tab.screenshot("overview-recovered")
    assert tab.complaints == []
