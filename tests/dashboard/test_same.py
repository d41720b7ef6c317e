"""One picture: the page's tiles and chart, `/metrics` and `status -o json` say the same, whatever befalls a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import pytest

from dashboard.viewer import Around, Viewer
from kube.snapshot import snapshot_from
from placement import names
from placement.configuration import Configuration
from placement.eviction import EvictionAsked
from placement.model import Class
from placement.outage import Outages
from placement.plan.actions import Plan
from rebalancer.index import Index
from rebalancer.metrics import RebalancerMetrics
from report.exposure import Domain
from report.history import History
from report.status import WorkloadStatus, statuses
from report.view import View
from tests.monitoring.exposed import values
from tests.rebalancer.rebalancing import SimulatedRebalancer
from tests.rebalancer.simulation import TERMINATION, Feed, SimulatedCluster


@dataclass
class Onlooker:
    """A replica that only looks: its index, its page, its metrics."""

    cluster: SimulatedCluster
    index: Index = field(default_factory=lambda: Index(Configuration()))
    history: History = field(default_factory=History)

    def __post_init__(self) -> None:
        around = Around(lambda: True, lambda: True, Outages, lambda: None, lambda: self.cluster.now)
        self.viewer = Viewer(self.index, around)
        self.metrics = RebalancerMetrics(self.viewer.view, lambda: True)
        self._feed = Feed(self.index.observe, lambda: 0.0)
        self._feed.relist(self.cluster.objects)
        self.cluster.feeds.append(self._feed)

    def looks(self) -> tuple[View, tuple[WorkloadStatus, ...]]:
        """What it shows after a pass, and what `spotweave status` makes of the same objects."""
        now = self.cluster.now
        self._feed.deliver(now)
        self.index.drain()
        self.index.refresh(now)
        self.history.note(self.viewer.take(Plan(), now), (), now)
        view = self.viewer.view()
        assert view is not None
        snapshot = snapshot_from(fact for store in self._feed.stores.values() for fact in store.values())
        return view, statuses(snapshot, Configuration(), now=now)


def events(cluster: SimulatedCluster) -> Iterator[None]:
    """Moves, a pool that leaves with notice, nodes that are lost, a drain, a rollout, pods that admission misses."""
    web = next(each for each in cluster.workloads if each.name == "web")
    spot = [name for name, node in sorted(cluster.nodes.items()) if node.labels[names.CAPACITY] == "spot"]
    yield
    cluster.annotate(web, spot_ratio="30%")
    yield
    cluster.cordon(spot[0], TERMINATION)
    cluster.cordon(spot[1])
    yield
    cluster.lose(spot[0])
    cluster.lose(spot[2])
    yield
    for pod in cluster.pods_of(web)[:3]:
        note = {names.EVICTION_ASKED: EvictionAsked(cluster.now, "alice").text()}
        cluster.put(replace(pod, annotations={**pod.annotations, **note}))
    yield
    cluster.webhook_is_up = False
    cluster.roll_out(web)
    yield
    cluster.delete(web)
    yield


@pytest.mark.parametrize("seed", range(3))
def test_whoever_is_asked_says_the_same(seed: int) -> None:
    """Each second of it: shares, mixes, exposure, soft and missed pods, of each workload and of all."""
    cluster = SimulatedCluster(seed)
    cluster.opt_in("shop")
    cluster.add_nodes(Class.SPOT, 6, "abc", ("m", "r"))
    cluster.add_nodes(Class.ON_DEMAND, 6, "abc")
    cluster.annotate(cluster.deploy("web", 10), min_available="8")
    cluster.deploy("guess", 5)
    cluster.deploy_stateful("store", 3)
    cluster.run(60)
    SimulatedRebalancer(cluster)
    onlooker = Onlooker(cluster)
    shares, seen, held = set(), 0, 0
    for _ in events(cluster):
        for _ in range(40):
            cluster.run(1)
            view, told = onlooker.looks()
            agree(view, told)
            shares.add(share_of(view))
            seen += any(each.actual != each.assessment.lasting for each in view.seen)
            held += sum(map(len, view.held.values()))
            if view.held:
                agree_in_metrics(onlooker, told)
        agree_in_metrics(onlooker, told)
        assert onlooker.history.points()[1][-1][1] == share_of(view)
    assert len(shares) > 3
    assert seen, "no pod was on a leaving node"
    assert held, "no eviction was held"


def share_of(view: View) -> float:
    return round(view.totals.spot / (view.totals.spot + view.totals.on_demand), 4)


def agree(view: View, told: tuple[WorkloadStatus, ...]) -> None:
    assert [view.status(each) for each in view.seen] == list(told)
    for seen, status in zip(view.seen, told, strict=True):
        assert (seen.actual, seen.wanted) == (status.actual, status.wanted)
        assert (seen.exposure, seen.soft, seen.missed) == (status.exposure, status.soft, len(status.missed))
    assert view.totals.spot == sum(each.actual.spot for each in told)
    assert view.totals.on_demand == sum(each.actual.on_demand for each in told)
    assert view.totals.exact == sum(each.is_exact for each in told)
    for number, domain in enumerate(Domain):
        perilous = [each for each in told if not each.exposure.survives(domain)]
        assert view.totals.declared[number] == sum(not each.exposure.is_assumed for each in perilous)
        assert view.totals.assumed[number] == sum(each.exposure.is_assumed for each in perilous)


def agree_in_metrics(onlooker: Onlooker, told: tuple[WorkloadStatus, ...]) -> None:
    text = onlooker.metrics.text().decode()
    pods = {
        (of["name"], of["class"]): value
        for labels, value in values(text, names.METRIC_WORKLOAD_PODS).items()
        if (of := dict(labels))["state"] == "serving"
    }
    blasts = {
        (of["name"], of["domain"]): value
        for labels, value in values(text, names.METRIC_BLAST_RADIUS).items()
        if (of := dict(labels))
    }
    held = {dict(labels)["name"]: value for labels, value in values(text, names.METRIC_EVICTIONS_HELD).items()}
    for each in told:
        name = each.workload.name
        assert held[name] == len(each.held)
        assert (pods[name, "spot"], pods[name, "on-demand"]) == (each.actual.spot, each.actual.on_demand)
        assert [blasts[name, domain] for domain in Domain] == [each.exposure.blast(of).replicas for of in Domain]
