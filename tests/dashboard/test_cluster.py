"""The dashboard on a real control plane, in a real browser: the numbers are those of everybody else, and it is live."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from demo.supervisor import Installed
from kube.client import connect
from localcluster import Choice, LocalCluster, Way, demo_profile
from placement import names
from tests.builders.api import raw_namespace, raw_workload
from tests.cluster.killing import running
from tests.cluster.namespaceuser import NamespaceUser, label, wait_for
from tests.cluster.servinghistory import ServingHistory, tracking_serving
from tests.clusterfixtures import FAST_CONTROLLERS
from tests.dashboard.browser import PHONE, Tab, browsing
from tests.monitoring.exposed import values

pytestmark = [pytest.mark.cluster, pytest.mark.browser]

CONFIGURATION = "moves: {minAge: 1s, coolDown: 2m, timeout: 60s, afterRollout: 0s}\n"
SHOP: dict[str, tuple[int, dict[str, str]]] = {
    "web": (10, {names.MIN_AVAILABLE: "8"}),
    "cart": (6, {names.SPOT_RATIO: "50%", names.MIN_AVAILABLE: "5"}),
    "search": (12, {names.SPOT_RATIO: "90%"}),
    "billing": (1, {}),
}
NODE_CLASS = "node.kubernetes.io/capacity"


@dataclass(frozen=True)
class DashboardCluster:
    cluster: LocalCluster
    installed: Installed
    user: NamespaceUser
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
        command = [sys.executable, "-m", "cli.main", "status", "--kubeconfig", str(self.user.kubeconfig), "-o", "json"]
        printed = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        workloads: list[dict[str, Any]] = json.loads(printed)["workloads"]
        return workloads

    def is_at_rest(self) -> bool:
        """Nothing is under way, and the page tells what the command line tells."""
        answer = self.get("overview")
        told = self.get("workloads")["workloads"]
        rests = not any(answer["moves"][key] for key in ("runningTotal", "nextTotal", "notes"))
        return rests and answer["workloads"]["exact"] == len(SHOP) and same(told, self.status())

    def nodes(self) -> dict[str, dict[str, str]]:
        """The labels of each node."""
        found = self.user.client.get_json("/api/v1/nodes")["items"]
        return {each["metadata"]["name"]: each["metadata"]["labels"] for each in found}

    def counted(self) -> dict[str, Counter[str]]:
        """Ready pods of each workload by the class of their node, from nothing but pods and nodes."""
        nodes = self.nodes()
        return {name: Counter(of(nodes[node]) for node in self.serving(name)) for name in SHOP}

    def blasts(self) -> dict[str, dict[str, int]]:
        """The most ready pods of each workload on one node, in one spot pool, in one zone, on spot: by the same."""
        nodes = self.nodes()
        return {name: blast_radius([nodes[node] for node in self.serving(name)]) for name in SHOP}

    def serving(self, name: str) -> list[str]:
        """The node of each ready pod."""
        return [pod["spec"]["nodeName"] for pod in self.user.pods(name) if is_ready(pod)]


def of(node: dict[str, str]) -> str:
    return node.get(NODE_CLASS, "on-demand")


def blast_radius(nodes: list[dict[str, str]]) -> dict[str, int]:
    spot = [node for node in nodes if of(node) == "spot"]
    return {
        "node": most(node[names.HOSTNAME] for node in nodes),
        "pool": most((node[names.ZONE], node[names.INSTANCE_TYPE]) for node in spot),
        "zone": most(node[names.ZONE] for node in nodes),
        "spot": len(spot),
    }


def most(found: Iterable[object]) -> int:
    return max(Counter(found).values(), default=0)


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def same(told: list[dict[str, Any]], others: list[dict[str, Any]]) -> bool:
    return [{key: each[key] for key in others[0]} for each in told] == others


def serves(history: ServingHistory, name: str, replicas: int) -> bool:
    return history.serving(name) >= replicas


@pytest.fixture(scope="module")
def browsed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DashboardCluster]:
    config = tmp_path_factory.mktemp("config") / "config.yaml"
    config.write_text(CONFIGURATION)
    with (
        LocalCluster.start(demo_profile(), options=FAST_CONTROLLERS) as cluster,
        running(cluster.kubeconfig, 1, config, log_level="warning", rebalancers=1) as installed,
        browsing() as tab,
    ):
        client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
        client.post("/api/v1/namespaces", raw_namespace("shop"))
        label(client, "shop")
        made = DashboardCluster(cluster, installed, NamespaceUser(client, Path(cluster.kubeconfig), "shop"), tab)
        tab.looks()
        tab.open(made.url)
        tab.shows("No pod has been ready yet.")  # an empty cluster
        for name, (replicas, annotations) in SHOP.items():
            raw = raw_workload("Deployment", name, replicas, annotations)
            raw["spec"]["template"]["metadata"]["annotations"] = {"localcluster.spotweave.dev/ready-after": "3s"}
            made.user.create(raw)
        wait_for("everything to come to rest", made.is_at_rest, 120)
        yield made
        client.close()


NEEDED = {"web": 8, "cart": 5, "search": 9, "billing": 1}  # declared, or n less 25 % rounded down, as rollouts have it


def test_share_and_exposure_are_the_same_wherever_they_are_told(browsed: DashboardCluster) -> None:
    """On the page, in the API, in /metrics, in `status -o json`, and counted from pods and nodes."""
    told, counted = {each["name"]: each for each in browsed.get("workloads")["workloads"]}, browsed.counted()
    assert {each["name"]: each for each in browsed.status()}.keys() == told.keys() == SHOP.keys()
    metrics, blasts = browsed.installed.metrics("rebalancer-0"), browsed.blasts()
    browsed.tab.open(f"{browsed.url}#/workloads")
    browsed.tab.shows("1–4 of 4")
    for name, each in told.items():
        spot, on_demand = counted[name]["spot"], counted[name]["on-demand"]
        headroom = spot + on_demand - NEEDED[name]
        survived = {domain: lost <= headroom for domain, lost in blasts[name].items()}
        assert each["actual"] == {"spot": spot, "onDemand": on_demand}
        assert each["exposure"]["blastRadius"] == blasts[name]
        assert (each["exposure"]["headroom"], each["exposure"]["survives"]) == (headroom, survived)
        labels = {"namespace": "shop", "kind": "Deployment", "name": name}
        for domain, replicas in blasts[name].items():
            assert value(metrics, names.METRIC_BLAST_RADIUS, **labels, domain=domain) == replicas
            assert value(metrics, names.METRIC_SURVIVES, **labels, domain=domain) == survived[domain]
        assert value(metrics, names.METRIC_SPOT_SHARE, **labels) == spot / (spot + on_demand)
        row = cells(browsed.tab, name)
        assert row["actual"] == f"{spot} + {on_demand}"
        assert row["headroom"].removesuffix("*") == str(headroom).replace("-", "−")
        for domain, replicas in blasts[name].items():
            assert row[domain].split("!")[0] == str(replicas)
            assert ("!" not in row[domain]) is survived[domain]
    share = browsed.get("overview")["spotShare"]
    spot, serving = sum(each["spot"] for each in counted.values()), sum(each.total() for each in counted.values())
    assert (share["spot"], share["share"]) == (spot, round(spot / serving, 4))
    browsed.tab.open(browsed.url)
    browsed.tab.shows(f"{spot} of {serving} serving pods")
    browsed.tab.shows(f"{round(100 * spot / serving)} %")


def value(metrics: str, metric: str, **labels: str) -> float:
    """Of one series."""
    return values(metrics, metric)[frozenset(labels.items())]


def cells(tab: Tab, name: str) -> dict[str, str]:
    """What the table of workloads shows of one, by the key of the column."""
    found: dict[str, str] = tab.evaluate(
        "(() => { const keys = [...document.querySelectorAll('thead [data-key]')].map((each) => each.dataset.key);"
        "const row = [...document.querySelectorAll('tbody tr')]"
        f".find((each) => each.innerText.includes('shop/{name}'));"
        "return Object.fromEntries([...row.children].map((each, index) => [keys[index], each.innerText.trim()])); })()"
    )
    return found


def test_it_is_seen_light_dark_and_on_a_phone(browsed: DashboardCluster) -> None:
    """Kept in out/dashboard, to be looked at. The console says nothing."""
    tab = browsed.tab
    for page, path, awaited in (
        ("overview", "", "Each square is a node"),
        ("workloads", "#/workloads", "1–4 of 4"),
        ("workload", "#/workloads/shop/Deployment/web", "slot 0 is on-demand"),
        ("drill", "#/drill?zone=zone-b", "would be lost"),
    ):
        tab.looks()
        tab.open(browsed.url + path)
        tab.shows(awaited)
        tab.screenshot(f"{page}-light")
        tab.looks("dark")
        tab.screenshot(f"{page}-dark")
        tab.looks("light", PHONE)
        fits = "[...document.querySelectorAll('svg.line')].every((each) => each.viewBox.baseVal.width < 390)"
        tab.waits(f"innerWidth === 390 && {fits}")
        tab.screenshot(f"{page}-phone")
    assert tab.complaints == []


def test_a_filter_leads_to_a_workload(browsed: DashboardCluster) -> None:
    """Typed into the field; then its page, with every pod and why it is there."""
    tab = browsed.tab
    tab.looks()
    tab.open(f"{browsed.url}#/workloads")
    tab.shows("shop/billing")
    tab.evaluate(
        "const q = document.getElementById('q'); q.value = 'deployment/we'; q.dispatchEvent(new Event('input'))"
    )
    tab.shows("1–1 of 1 (4 in total)")
    tab.evaluate("document.querySelector('tbody a').click()")
    tab.shows("8 of 10 replicas must serve (declared)")
    for pod in browsed.user.pods("web"):
        tab.shows(pod["metadata"]["name"])


def test_a_drill_predicts_what_a_reclaim_does_and_the_page_shows_it_live(browsed: DashboardCluster) -> None:
    """The replicas that each workload loses with a pool are those that were told before; then it recovers."""
    tab = browsed.tab
    tab.open(f"{browsed.url}#/drill?pool=zone-a/m5.2xlarge")
    tab.shows("would be lost")
    tab.open(browsed.url)
    tab.shows("Nodes and pools")
    wait_for("everything to be at rest", browsed.is_at_rest, 120)
    losses = browsed.get("drill?pool=zone-a/m5.2xlarge")["losses"]
    predicted = dict.fromkeys(SHOP, 0) | {each["name"]: each["lost"] for each in losses}
    assert any(predicted.values())
    with tracking_serving(browsed.user.client) as history:
        history.forget()  # how the pods came in, one by one
        browsed.cluster.reclaim(Choice(zone="zone-a", all_spot=True), Way.CLOUD)
        tab.shows("is gone")  # in the timeline, without anybody reloading anything
        for name, (replicas, _) in SHOP.items():
            wait_for(f"{name} to serve again", partial(serves, history, name, replicas))
        assert {name: replicas - history.worst(name) for name, (replicas, _) in SHOP.items()} == predicted
    tab.looks()
    tab.screenshot("overview-after-a-loss")
    browsed.cluster.restore()
    wait_for("everything to come to rest again", browsed.is_at_rest, 120)
    tab.shows("node-lost")
    tab.screenshot("overview-recovered")
    assert tab.complaints == []
