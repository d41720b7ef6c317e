"""What the rebalancer tells Prometheus. Per-workload series come from the leader only, and from so many workloads."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from placement import names
from placement.exposure import Domain, exposure, places
from placement.model import Class
from placement.plan.actions import How, Plan
from placement.plan.assess import Assessment
from placement.plan.group import Site
from rebalancer.board import Board
from rebalancer.executor import Done

MOST_WORKLOADS = 2000
_WORKLOAD = ("namespace", "kind", "name")
_MOVES = (How.RELEASE, How.FINISH, How.UNDO, How.EVICT, How.REPLACE, How.BURY)


class Metrics:
    """The rebalancer's metrics, in a registry of their own."""

    def __init__(self, board: Board, is_leading: Callable[[], bool], most_workloads: int = MOST_WORKLOADS) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        self._moves = Counter(names.METRIC_MOVES, "Moves by reason and outcome", ("reason", "outcome"), registry=own)
        self._actions = Counter(
            names.METRIC_ACTIONS, "What was done to pods", ("action", "reason", "outcome"), registry=own
        )
        self._blocked = Gauge(names.METRIC_BLOCKED, "Pods that should be moved and are not", ("reason",), registry=own)
        self._plan_seconds = Histogram(names.METRIC_PLAN_SECONDS, "Time that planning took", registry=own)
        self._pass_seconds = Histogram(names.METRIC_PASS_SECONDS, "The same with all actions", registry=own)
        self.passes = Counter(names.METRIC_PASSES, "Passes by outcome", ("outcome",), registry=own)
        self.paused = Gauge(names.METRIC_PAUSED, "1 while all moves are paused", registry=own)
        self.cache_age = Gauge(names.METRIC_CACHE_AGE, "Time since the API server was last heard", registry=own)
        self.outage_version = Gauge(names.METRIC_OUTAGE_VERSION, "Version of the outages that was read", registry=own)
        Gauge(names.METRIC_LEADING, "1: this replica leads", registry=own).set_function(is_leading)
        self.registry.register(_Workloads(board, is_leading, most_workloads))

    def tell(self, made: Plan, done: Sequence[Done], plan_seconds: float, pass_seconds: float) -> None:
        self._plan_seconds.observe(plan_seconds)
        self._pass_seconds.observe(pass_seconds)
        blocked: Tally[str] = Tally()
        for skipped in made.skipped:
            blocked[skipped.blocked.label] += skipped.pods
        self._blocked.clear()
        for reason, pods in blocked.items():
            self._blocked.labels(reason).set(pods)
        for each in done:
            outcome = "not-tried" if each.outcome is None else str(each.outcome)
            self._actions.labels(each.action.how, each.action.why, outcome).inc()
            if each.action.how in _MOVES:
                self._moves.labels(each.action.why, f"{each.action.how}-{outcome}").inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Workloads(Collector):
    """Series that are worked out when somebody asks."""

    def __init__(self, board: Board, is_leading: Callable[[], bool], most: int) -> None:
        self._board = board
        self._is_leading = is_leading
        self._most = most

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if not self._is_leading():
            return
        found = sorted(self._board.assessments.values(), key=lambda each: each.group.workload.key)
        yield _single(names.METRIC_WORKLOADS_LEFT_OUT, "Workloads beyond the cap", max(0, len(found) - self._most))
        yield _single(names.METRIC_UNDER_WAY, "Moves under way", sum(each.under_way for each in found))
        yield from _of_workloads(found[: self._most])
        yield from self._exposures(found[: self._most])
        yield from self._nodes()

    def _exposures(self, found: Sequence[Assessment]) -> Iterator[GaugeMetricFamily]:
        ground = self._board.ground
        where = places({name: site.node for name, site in ground.sites.items()}, ground.configuration)
        headroom = _family(names.METRIC_HEADROOM, "Replicas that may be lost", "assumed")
        blast = _family(names.METRIC_BLAST_RADIUS, "The most replicas lost with one of these", "domain")
        survives = _family(names.METRIC_SURVIVES, "1: min-available holds without any one of these", "domain")
        for each in found:
            ready = [where[member.pod.node] for member in each.members if member.serves]
            seen = exposure(ready, each.group.availability)
            labels = _labels(each)
            headroom.add_metric([*labels, str(seen.is_assumed).lower()], seen.headroom)
            for domain in Domain:
                blast.add_metric([*labels, str(domain)], seen.blast(domain).replicas)
                survives.add_metric([*labels, str(domain)], seen.survives(domain))
        yield from (headroom, blast, survives)

    def _nodes(self) -> Iterator[GaugeMetricFamily]:
        sites = list(self._board.ground.sites.values())
        labels = ("class", "zone", "instance_type")
        nodes = GaugeMetricFamily(names.METRIC_NODES, "Nodes by pool and state", labels=(*labels, "state"))
        for (pool, state), count in Tally((_pool(site), _state(site)) for site in sites).items():
            nodes.add_metric([*pool, state], count)
        yield nodes
        used = GaugeMetricFamily(names.METRIC_UTILISATION, "Share of a pool asked for", labels=(*labels, "resource"))
        for pool in sorted({_pool(site) for site in sites}):
            there = [site for site in sites if _pool(site) == pool]
            for resource in ("cpu", "memory", "pods"):
                total = sum(site.node.allocatable.get(resource, 0) for site in there)
                asked = sum(self._board.used(site.node.name).get(resource, 0) for site in there)
                if total:
                    used.add_metric([*pool, resource], asked / total)
        yield used
        classes = self._board.ground.configuration.classes
        unknown = sum(classes.of_node(site.node.labels) is None for site in sites)
        yield _single(names.METRIC_UNKNOWN_NODES, "Nodes whose labels tell no class; they count as on-demand", unknown)


def _of_workloads(found: Sequence[Assessment]) -> Iterator[GaugeMetricFamily]:
    pods = _family(names.METRIC_WORKLOAD_PODS, "Pods by class and state", "class", "state")
    wanted = _family(names.METRIC_WORKLOAD_WANTED, "Pods that should be on each class", "class")
    share = _family(names.METRIC_SPOT_SHARE, "Share of serving pods that are on spot")
    floor = _family(names.METRIC_FLOOR, "min-on-demand")
    for each in found:
        labels = _labels(each)
        for (of, state), count in _states(each).items():
            pods.add_metric([*labels, of, state], count)
        wanted.add_metric([*labels, str(Class.SPOT)], each.wanted.spot)
        wanted.add_metric([*labels, str(Class.ON_DEMAND)], each.wanted.on_demand)
        serving = each.actual.spot + each.actual.on_demand
        if serving:
            share.add_metric(labels, each.actual.spot / serving)
        floor.add_metric(labels, each.group.policy.slots.floor)
    yield from (pods, wanted, share, floor)


def _states(found: Assessment) -> Tally[tuple[str, str]]:
    """Serving and soft pods by the class of their node, pending ones by the class that they are of."""
    counts = Tally[tuple[str, str]]({(str(of), state): 0 for of in Class for state in ("serving", "pending", "soft")})
    for member in found.members:
        of = str(member.of or Class.ON_DEMAND)
        counts[of, "serving" if member.serves else "pending"] += 1
        counts[of, "soft"] += names.SOFT in member.pod.annotations
    return counts


def _labels(found: Assessment) -> list[str]:
    workload = found.group.workload
    return [workload.namespace, str(workload.kind), workload.name]


def _family(name: str, text: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=(*_WORKLOAD, *labels))


def _single(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, value=value)


def _pool(site: Site) -> tuple[str, str, str]:
    return str(site.of), site.pool.zone, site.pool.instance_type


def _state(site: Site) -> str:
    if site.is_leaving:
        return "leaving"
    return "ready" if site.node.ready else "not-ready"
