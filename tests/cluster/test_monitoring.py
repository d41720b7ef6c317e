"""Metrics, rules and dashboards with a real Prometheus, against Spotweave on a real control plane."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from dashboard.prometheus import PrometheusArchive, checked_url
from demo.supervisor import Installed
from generators.files import MONITORING, ROOT
from kube.client import Client, connect
from localcluster import LocalCluster, Options, demo_profile
from placement import names
from tests.builders.api import raw_namespace, raw_workload
from tests.cluster.gangsetup import pod_spec
from tests.cluster.killing import running
from tests.cluster.namespaceuser import NamespaceUser, label, wait_for
from tests.monitoring.exposed import differences
from tests.monitoring.prometheus import Prometheus, scraping

pytestmark = [pytest.mark.cluster, pytest.mark.prometheus]

CONFIGURATION = "moves: {minAge: 1s, coolDown: 2m, timeout: 60s, afterRollout: 0s}\ngangs: {enabled: true}\n"
SHARE = names.RULE_SPOT_SHARE
FAIL_OPEN = f'apiserver_admission_webhook_fail_open_count{{name="{names.WEBHOOK_ENTRY}"'


@dataclass(frozen=True)
class MonitoredCluster:
    """Workloads of all kinds after some moves: declared and assumed, mistaken, blocked."""

    installed: Installed
    user: NamespaceUser
    prometheus: Prometheus


@pytest.fixture(scope="module")
def monitored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MonitoredCluster]:
    directory = tmp_path_factory.mktemp("prometheus")
    config = directory / "config.yaml"
    config.write_text(CONFIGURATION)
    rules = ROOT / MONITORING / "rules.yaml"
    with (
        LocalCluster.start(demo_profile(), options=Options(controller_qps=200, controller_burst=400)) as cluster,
        running(cluster.kubeconfig, 1, config, log_level="warning", rebalancers=1) as installed,
        scraping(directory, installed.report()["metrics"], rules) as prometheus,
    ):
        client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
        client.post("/api/v1/namespaces", raw_namespace("shop"))
        label(client, "shop")
        user = NamespaceUser(client, Path(cluster.kubeconfig), "shop")
        populate(user)
        start_gang(client)
        yield MonitoredCluster(installed, user, prometheus)
        client.close()


def populate(user: NamespaceUser) -> None:
    for name, replicas, settings in (
        ("web", 10, {names.MIN_AVAILABLE: "8"}),
        ("guess", 4, {}),
        ("typo", 3, {names.SPOT_RATIO: "70"}),
        ("held", 6, {}),
    ):
        user.create(raw_workload("Deployment", name, replicas, settings))
    for name in ("web", "guess", "typo", "held"):
        user.rest(name)
    changes = {"web": {names.SPOT_RATIO: "40%"}, "held": {names.SPOT_RATIO: "20%", names.REBALANCE: "plan-only"}}
    for name, written in changes.items():
        user.client.patch(user.path("Deployment", name), {"metadata": {"annotations": written}})
    wait_for("the mix of web", lambda: user.status("web").is_exact and len(user.pods("web")) == 10)


def start_gang(client: Client) -> None:
    """In a namespace of its own: its pods are of no mix."""
    client.post("/api/v1/namespaces", raw_namespace("lab"))
    label(client, "lab")
    raw = raw_workload("Deployment", "trio", 3)
    meta = {"labels": {"app": "trio"}, "annotations": {names.POD_GROUP: "trio"}}
    raw["spec"]["template"] = {"metadata": meta, "spec": pod_spec("100m")}
    path = "/api/v1/namespaces/lab/pods"
    client.post("/apis/apps/v1/namespaces/lab/deployments", raw)
    wait_for("the gang to start", lambda: sum("nodeName" in pod["spec"] for pod in client.get_json(path)["items"]) == 3)


def queries() -> dict[str, str]:
    """Every panel's queries, as Grafana would send them for all namespaces."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / MONITORING / "grafana").glob("*.json")):
        for panel in json.loads(path.read_text())["panels"]:
            for target in panel["targets"]:
                asked = target["expr"].replace("$__rate_interval", "2m").replace("$namespace", ".*")
                found[f"{path.stem}: {panel['title']} {target['refId']}"] = asked
    return found


def test_every_query_of_every_panel_is_answered(monitored: MonitoredCluster) -> None:
    """None is wrong, which would be an error, and none is empty."""
    unanswered = queries()

    def is_answered() -> bool:
        for name, expression in list(unanswered.items()):
            assert "$" not in expression
            if monitored.prometheus.ask(expression):
                del unanswered[name]
        return not unanswered

    try:
        wait_for("an answer to every query", is_answered)
    finally:
        assert unanswered == {}


def test_everything_is_scraped_and_every_rule_evaluated(monitored: MonitoredCluster) -> None:
    """Prometheus complains of nothing, and nobody is alarmed without need."""
    wait_for("all targets and rules to be healthy", lambda: monitored.prometheus.unhealthy() == [])
    alarming = {dict(labels)["alertname"] for labels in monitored.prometheus.ask('ALERTS{alertstate="firing"}')}
    assert alarming == set()


def test_programs_expose_what_is_documented(monitored: MonitoredCluster) -> None:
    """Names, types, labels and texts of docs/metrics.md; all of them, now that there were moves."""
    for component in (names.WEBHOOK_COMPONENT, names.REBALANCER_COMPONENT):
        assert differences(monitored.installed.metrics(f"{component}-0"), component) == []


def test_numbers_are_those_that_pods_and_nodes_tell(monitored: MonitoredCluster) -> None:
    """Share, pods by class, and the most replicas in one pool, counted here from the API alone."""
    ask, nodes = monitored.prometheus, _nodes(monitored.user)
    pods = monitored.user.client.get_json(monitored.user.pods_path)["items"]
    on_spot = sum(nodes[pod["spec"]["nodeName"]][names.CAPACITY] == "spot" for pod in pods)
    wait_for("the share", lambda: ask.ask(SHARE) and abs(ask.one(SHARE) - on_spot / len(pods)) < 1e-9)
    for app in ("web", "guess", "typo", "held"):
        own = [nodes[pod["spec"]["nodeName"]] for pod in pods if pod["metadata"]["labels"]["app"] == app]
        spot = [node for node in own if node[names.CAPACITY] == "spot"]
        pools = Counter((node[names.ZONE], node[names.INSTANCE_TYPE]) for node in spot)
        serving = f'spotweave_workload_pods{{name="{app}",class="spot",state="serving"}}'
        assert ask.one(serving) == len(spot)
        blast = max(pools.values(), default=0)
        assert ask.one(f'spotweave_blast_radius{{name="{app}",domain="pool"}}') == blast
        assert ask.one(f'spotweave_blast_radius{{name="{app}",domain="spot"}}') == len(spot)
    assert ask.one('spotweave_workload_headroom{name="web",assumed="false"}') == 2
    assert ask.one('sum(spotweave_blocked_pods{reason="plan-only"})') > 0
    assert ask.one("sum(spotweave_nodes)") == len(nodes)


def test_the_dashboard_reads_the_share_of_the_last_day(monitored: MonitoredCluster) -> None:
    """As `--prometheus-url` makes it: what Prometheus says now is between the lowest and the highest of late."""
    archive = PrometheusArchive(checked_url(monitored.prometheus.url))

    def is_read() -> bool:
        archive.fetch()
        points = archive.points() or []
        latest = [share for at, share in points if at == points[-1][0]]  # the lowest and the highest of two minutes
        return bool(latest) and min(latest) - 1e-3 < monitored.prometheus.one(SHARE) < max(latest) + 1e-3

    wait_for("the share over time", is_read)


def _nodes(user: NamespaceUser) -> dict[str, dict[str, Any]]:
    found = user.client.get_json("/api/v1/nodes")["items"]
    return {each["metadata"]["name"]: each["metadata"]["labels"] for each in found}


def test_the_api_server_counts_what_does_not_reach_the_webhook(monitored: MonitoredCluster) -> None:
    """Under the name that the alert reads. The last test: no webhook is left."""
    for each in monitored.installed.processes:
        if each.name.startswith(names.WEBHOOK_COMPONENT):
            each.process.terminate()
            each.process.wait(15)
    monitored.user.scale("guess", 5)
    wait_for("the API server to count it", lambda: FAIL_OPEN in monitored.user.client.get("/metrics").decode())
