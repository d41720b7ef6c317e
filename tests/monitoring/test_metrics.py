"""The table of metrics is what the programs expose, what is documented, and what rules and dashboards ask for."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from dashboard.viewer import LASTS_SECONDS, Around, Viewer
from generators.files import ROOT, generated
from placement import names
from placement.configuration import Configuration, MetricLimits
from placement.decide import Reason
from placement.metrics import METRICS, Type
from placement.model import Class, Namespace, Owner, Pod
from placement.observation import NOTHING_OBSERVED, Observed, PoolRecord
from placement.outage import Outage, Outages
from placement.plan.actions import Plan
from placement.refusal import PatchRefusal, Refuser
from rebalancer.index import Index
from rebalancer.metrics import MOST_SKIPPED
from rebalancer.metrics import RebalancerMetrics as RebalancerMetrics
from tests.builders.snapshots import deployment, snapshot
from tests.dashboard.dashboardharness import dashboard_of
from tests.monitoring.exposed import differences, families, of_leader, values
from tests.rebalancer.rebalancing import SimulatedRebalancer
from tests.rebalancer.simulation import SimulatedCluster
from webhook.metrics import MOST_REFUSERS
from webhook.metrics import WebhookMetrics as WebhookMetrics
from webhook.review import Verdict

USING = [
    *sorted(ROOT.glob("docs/*.md")),
    *sorted(ROOT.glob("manifests/monitoring/**/*.*")),
    ROOT / "tests/monitoring/rules.yaml",
    ROOT / "README.md",
]
OURS = re.compile(r"(?<![:\w])spotweave_[a-z][a-z_]+(?![\w:])")
SUFFIXES = ("_bucket", "_sum", "_count")


@pytest.mark.parametrize("path", generated())
def test_generated_files_are_what_they_are_made_from(path: str) -> None:
    """`spotweave metrics --write` was run after the last change."""
    assert (ROOT / path).read_text() == generated()[path]


def test_every_metric_that_has_a_name_is_in_the_table() -> None:
    """And no other."""
    assert {value for key, value in vars(names).items() if key.startswith("METRIC_")} == set(METRICS)


@pytest.mark.parametrize("path", USING, ids=lambda path: str(path.relative_to(ROOT)))
def test_nobody_asks_for_a_metric_that_does_not_exist(path: Path) -> None:
    """Counters by the name that Prometheus knows, histograms by one of their three series."""
    known = {each.series for each in METRICS.values()}
    known |= {each.name + suffix for each in METRICS.values() if each.type is Type.HISTOGRAM for suffix in SUFFIXES}
    assert set(OURS.findall(path.read_text())) - known == set()


def test_the_webhook_exposes_what_the_table_says() -> None:
    """All of it, once something was decided."""
    metrics = WebhookMetrics()
    metrics.count(Verdict(Reason.OPTED_OUT))
    metrics.show_outages(lambda: [Outage(Class.SPOT, 1.0), Outage(Class.SPOT, 2.0, frozenset({"zone-a"}))])
    metrics.show_refusals(lambda: [PatchRefusal(Refuser.QUOTA, "no-overflow", "exceeded quota: no-overflow")])
    text = metrics.text().decode()
    assert differences(text, names.WEBHOOK_COMPONENT) == []
    assert values(text, names.METRIC_OUTAGES) == {
        frozenset({("class", "spot")}): 2.0,
        frozenset({("class", "on-demand")}): 0.0,
    }
    assert set(values(text, names.METRIC_FORWARDED).values()) == {0.0}


def shop() -> tuple[SimulatedCluster, SimulatedRebalancer]:
    """Ten replicas on a simulated cluster, at rest."""
    cluster = SimulatedCluster(0)
    cluster.opt_in("shop")
    cluster.add_nodes(Class.SPOT, 6, "abc", ("m", "r"))
    cluster.add_nodes(Class.ON_DEMAND, 4, "abc")
    cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = SimulatedRebalancer(cluster)
    cluster.run(60)
    return cluster, rebalancer


def viewer_of(index: Index, observed: Observed = NOTHING_OBSERVED) -> Viewer:
    around = Around(lambda: True, lambda: True, Outages, lambda: None, observed=lambda: observed)
    return Viewer(index, around)


def told(cluster: SimulatedCluster, rebalancer: SimulatedRebalancer, leads: bool = True) -> str:
    """What the rebalancer's metrics are after all passes so far, and one more."""
    viewer = viewer_of(rebalancer.index)
    metrics = RebalancerMetrics(viewer.view, lambda: leads)
    assert rebalancer.plan is not None
    viewer.take(rebalancer.plan, cluster.now)
    for plan, done in (*((plan, done) for _, plan, done in rebalancer.passes), (rebalancer.plan, [])):
        metrics.tell(plan, done, 0.01, 0.02)
    return metrics.text().decode()


def test_the_rebalancer_exposes_what_the_table_says() -> None:
    """All of it, once something was moved and something else could not be."""
    cluster, rebalancer = shop()
    web = next(iter(cluster.workloads))
    cluster.annotate(web, spot_ratio="30%")
    cluster.run(300)
    cluster.annotate(web, spot_ratio="90%", rebalance="plan-only")
    cluster.run(30)
    assert differences(told(cluster, rebalancer), names.REBALANCER_COMPONENT) == []


def test_who_does_not_lead_tells_nothing_of_workloads() -> None:
    """Its labelled counters are declared, but empty."""
    cluster, rebalancer = shop()
    text = told(cluster, rebalancer, leads=False)
    told_of = {name for name, each in families(text).items() if each.samples}
    assert told_of & of_leader() == set()
    assert names.METRIC_LEADING in told_of


def test_a_scrape_in_the_middle_of_a_pass_tells_what_the_last_one_left() -> None:
    """A node is gone, and the workloads on it were not looked at yet: the index is the loop's alone meanwhile."""
    cluster, rebalancer = shop()
    viewer = viewer_of(rebalancer.index)
    metrics = RebalancerMetrics(viewer.view, lambda: True)
    viewer.take(Plan(), cluster.now)
    before = metrics.text()
    for name in {pod.node for pod in cluster.pods}:
        rebalancer.index.observe(cluster.nodes[name], None)
    rebalancer.index.observe(cluster.pods[0], None)
    rebalancer.index.drain()
    assert metrics.text() == before
    rebalancer.index.refresh(cluster.now)
    viewer.take(Plan(), cluster.now + LASTS_SECONDS)
    assert sum(values(metrics.text().decode(), names.METRIC_BLAST_RADIUS).values()) == 0


def test_one_workload_more_than_configured_is_left_out_and_counted() -> None:
    """The last in the order of namespace and name."""
    cap = 5
    seen = snapshot(*(deployment(f"w{number}", ("od-a", "spot-a")) for number in range(cap + 1)))
    page = dashboard_of(seen, index=Index(Configuration(metrics=MetricLimits(cap))))
    text = RebalancerMetrics(page.viewer.view, lambda: True).text().decode()
    for name in (names.METRIC_WORKLOAD_PODS, names.METRIC_BLAST_RADIUS, names.METRIC_SPOT_SHARE, names.METRIC_FLOOR):
        assert {dict(labels)["name"] for labels in values(text, name)} == {f"w{number}" for number in range(cap)}
    assert values(text, names.METRIC_WORKLOADS_LEFT_OUT) == {frozenset(): 1.0}


def test_moves_under_way_are_released_pods() -> None:
    """A pod that goes because its workload is scaled down is no move."""
    cluster, rebalancer = shop()
    web = next(iter(cluster.workloads))
    cluster.annotate(web, spot_ratio="30%")
    cluster.run_until(lambda: rebalancer.count("release") > 0)
    released = sum(names.RELEASED in pod.annotations for pod in cluster.pods)
    rebalancer.act()
    assert values(told(cluster, rebalancer), names.METRIC_UNDER_WAY) == {frozenset(): released}
    for pod in [pod for pod in cluster.pods if names.RELEASED not in pod.annotations]:
        rebalancer.index.observe(pod, replace(pod, terminating=True))
    rebalancer.index.drain()
    rebalancer.index.refresh(cluster.now)
    assert values(told(cluster, rebalancer), names.METRIC_UNDER_WAY) == {frozenset(): released}


def test_soft_pods_count_as_fallen_back_only_on_the_other_class() -> None:
    """Seven spot slots: all spot goes, and they run on on-demand."""
    cluster, rebalancer = shop()
    cluster.add_nodes(Class.ON_DEMAND, 4, "abc")
    for node in [each for each in cluster.nodes.values() if each.labels[names.CAPACITY] == "spot"]:
        cluster.lose(node.name)
    cluster.run(120)
    found = values(told(cluster, rebalancer), names.METRIC_WORKLOAD_PODS)
    counts = {(dict(key)["class"], dict(key)["state"]): value for key, value in found.items()}
    assert counts["on-demand", "serving"] == 10
    assert counts["on-demand", "soft"] == counts["on-demand", "fallback"] == 7
    assert counts["spot", "fallback"] == 0


def test_an_empty_cluster_has_no_series_of_workloads() -> None:
    """And nothing fails."""
    viewer = viewer_of(Index(Configuration()))
    viewer.take(Plan(), 0.0)
    text = RebalancerMetrics(viewer.view, lambda: True).text().decode()
    assert values(text, names.METRIC_WORKLOAD_PODS) == {}
    assert values(text, names.METRIC_WORKLOADS_LEFT_OUT) == {frozenset(): 0.0}


def test_pools_and_what_is_expected_of_workloads() -> None:
    """By what was observed: a pool that was watched for 30 days and lost three times goes 2.5 times a month."""
    cluster, rebalancer = shop()
    observed = Observed(pools={"a/m": PoolRecord(hours=720.0, losses=3.0), "b/gone": PoolRecord()})
    viewer = viewer_of(rebalancer.index, observed)
    viewer.take(Plan(), cluster.now)
    text = RebalancerMetrics(viewer.view, lambda: True).text().decode()
    losses = {
        (dict(key)["zone"], dict(key)["instance_type"]): value
        for key, value in values(text, names.METRIC_POOL_LOSSES).items()
    }
    unwatched = {(zone, kind): 1.0 for zone in "abc" for kind in "mr"}
    assert losses == {**unwatched, ("a", "m"): 2.5, ("b", "gone"): 1.0}
    watched = values(text, names.METRIC_POOL_WATCHED)
    assert sorted(watched.values())[-2:] == [0.0, 720.0 * 3600]
    [incidents] = values(text, names.METRIC_INCIDENTS).values()
    [share] = values(text, names.METRIC_UNAVAILABILITY).values()
    assert share == pytest.approx(incidents / 4320)


def refused_by(*found: str) -> dict[frozenset[tuple[str, str]], float]:
    metrics = WebhookMetrics()
    metrics.show_refusals(lambda: [PatchRefusal(Refuser.QUOTA, name, "exceeded quota") for name in found])
    return values(metrics.text().decode(), names.METRIC_REFUSED)


def test_refusals_are_counted_by_who_refuses() -> None:
    """Two ReplicaSets run into one quota. Where there are none, there is no series."""
    assert refused_by("few", "few") == {frozenset({("by", "quota"), ("name", "few")}): 2.0}
    assert refused_by() == {}


def test_so_many_refusers_are_named_and_no_more() -> None:
    """Tenants name their quotas as they like; the rest is one series."""
    told = refused_by(*(f"quota-{number}" for number in range(MOST_REFUSERS + 5)))
    assert len(told) == MOST_REFUSERS + 1
    assert told[frozenset({("by", "other"), ("name", "others")})] == 5.0


def test_pods_that_are_not_placed_are_counted_and_capped() -> None:
    """By namespace and reason, of opted-in namespaces alone; the largest, where there are too many."""
    cluster, rebalancer = shop()
    job = Owner("Job", "x", "x", "batch")
    rebalancer.index.observe(None, Namespace("plain"))
    for number, namespace in enumerate(("shop", "shop", "plain")):
        rebalancer.index.observe(None, Pod(namespace, f"job-{number}", f"job-{number}", job))
    rebalancer.index.drain()
    series = values(told(cluster, rebalancer), names.METRIC_SKIPPED)
    assert series == {frozenset({("namespace", "shop"), ("reason", "job")}): 2.0}
    for number in range(MOST_SKIPPED + 5):
        rebalancer.index.observe(None, Namespace(f"team-{number}", {names.PLACEMENT: names.ENABLED}))
        rebalancer.index.observe(None, Pod(f"team-{number}", "x", f"team-{number}", job))
    rebalancer.index.drain()
    series = values(told(cluster, rebalancer), names.METRIC_SKIPPED)
    assert len(series) == MOST_SKIPPED
    assert max(series.values()) == 2.0
