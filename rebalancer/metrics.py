"""What the rebalancer tells Prometheus. Per-workload series come from the leader only, and from so many workloads."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from placement import names
from placement.exposure import Domain, exposure, places
from placement.metrics import METRICS
from placement.model import Class
from placement.observation import NOTHING_OBSERVED, Observed
from placement.plan.actions import How, Plan
from placement.plan.assess import Assessment
from placement.plan.group import Site
from rebalancer.board import Board
from rebalancer.executor import Done

# A second series for each counter, that nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]

MOST_WORKLOADS = 2000
STATES = ("serving", "pending", "soft", "fallback")
_MOVES = (How.RELEASE, How.FINISH, How.UNDO, How.EVICT, How.REPLACE, How.BURY)


class Metrics:
    """The rebalancer's metrics, in a registry of their own."""

    def __init__(
        self,
        board: Board,
        is_leading: Callable[[], bool],
        most_workloads: int = MOST_WORKLOADS,
        observed: Callable[[], Observed] = lambda: NOTHING_OBSERVED,
    ) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        self._moves = Counter(*METRICS[names.METRIC_MOVES].declared, registry=own)
        self._actions = Counter(*METRICS[names.METRIC_ACTIONS].declared, registry=own)
        self._blocked = Gauge(*METRICS[names.METRIC_BLOCKED].declared, registry=own)
        self._plan_seconds = Histogram(*METRICS[names.METRIC_PLAN_SECONDS].declared, registry=own)
        self._pass_seconds = Histogram(*METRICS[names.METRIC_PASS_SECONDS].declared, registry=own)
        self.paused = Gauge(*METRICS[names.METRIC_PAUSED].declared, registry=own)
        self.cache_age = Gauge(*METRICS[names.METRIC_CACHE_AGE].declared, registry=own)
        self.outage_version = Gauge(*METRICS[names.METRIC_OUTAGE_VERSION].declared, registry=own)
        Gauge(*METRICS[names.METRIC_LEADING].declared, registry=own).set_function(is_leading)
        self.registry.register(_Workloads(board, is_leading, most_workloads, observed))

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

    def __init__(
        self, board: Board, is_leading: Callable[[], bool], most: int, observed: Callable[[], Observed]
    ) -> None:
        self._board = board
        self._is_leading = is_leading
        self._most = most
        self._observed = observed

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if not self._is_leading():
            return
        found = sorted(self._board.assessments.values(), key=lambda each: each.group.workload.key)
        yield _single(names.METRIC_WORKLOADS_LEFT_OUT, max(0, len(found) - self._most))
        yield _single(names.METRIC_UNDER_WAY, sum(each.under_way for each in found))
        yield from _of_workloads(found[: self._most])
        yield from self._exposures(found[: self._most])
        yield from self._nodes()

    def _exposures(self, found: Sequence[Assessment]) -> Iterator[GaugeMetricFamily]:
        ground = self._board.ground
        where = places({name: site.node for name, site in ground.sites.items()}, ground.configuration)
        headroom = _family(names.METRIC_HEADROOM)
        blast = _family(names.METRIC_BLAST_RADIUS)
        survives = _family(names.METRIC_SURVIVES)
        incidents, unavailable = _family(names.METRIC_INCIDENTS), _family(names.METRIC_UNAVAILABILITY)
        observed = self._observed()
        for each in found:
            ready = [where[member.pod.node] for member in each.members if member.serves]
            seen = exposure(ready, each.group.availability, observed)
            labels = _labels(each)
            incidents.add_metric(labels, seen.risk.incidents)
            unavailable.add_metric(labels, seen.risk.unavailability)
            headroom.add_metric([*labels, str(seen.is_assumed).lower()], seen.headroom)
            for domain in Domain:
                blast.add_metric([*labels, str(domain)], seen.blast(domain).replicas)
                survives.add_metric([*labels, str(domain)], seen.survives(domain))
        yield from (headroom, blast, survives, incidents, unavailable)
        yield from _of_pools(observed)

    def _nodes(self) -> Iterator[GaugeMetricFamily]:
        sites = list(self._board.ground.sites.values())
        nodes = _family(names.METRIC_NODES)
        for (pool, state), count in Tally((_pool(site), _state(site)) for site in sites).items():
            nodes.add_metric([*pool, state], count)
        yield nodes
        used = _family(names.METRIC_UTILISATION)
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
        yield _single(names.METRIC_UNKNOWN_NODES, unknown)


def _of_pools(observed: Observed) -> Iterator[GaugeMetricFamily]:
    rates, hours = _family(names.METRIC_POOL_LOSSES), _family(names.METRIC_POOL_WATCHED)
    for pool, record in observed.pools.items():
        labels = pool.split("/", 1)
        rates.add_metric(labels, record.rate)
        hours.add_metric(labels, record.hours * 3600)
    yield from (rates, hours)


def _of_workloads(found: Sequence[Assessment]) -> Iterator[GaugeMetricFamily]:
    pods = _family(names.METRIC_WORKLOAD_PODS)
    wanted = _family(names.METRIC_WORKLOAD_WANTED)
    share = _family(names.METRIC_SPOT_SHARE)
    floor = _family(names.METRIC_FLOOR)
    for each in found:
        labels = _labels(each)
        counts = _states(each)
        for (of, state), count in counts.items():
            pods.add_metric([*labels, of, state], count)
        wanted.add_metric([*labels, str(Class.SPOT)], each.wanted.spot)
        wanted.add_metric([*labels, str(Class.ON_DEMAND)], each.wanted.on_demand)
        serving = [counts[str(of), "serving"] for of in (Class.SPOT, Class.ON_DEMAND)]
        if any(serving):
            share.add_metric(labels, serving[0] / sum(serving))
        floor.add_metric(labels, each.group.policy.slots.floor)
    yield from (pods, wanted, share, floor)


def _states(found: Assessment) -> Tally[tuple[str, str]]:
    """Serving, soft and fallen-back pods by the class of their node, pending ones by the class that they are of."""
    counts = Tally[tuple[str, str]]({(str(of), state): 0 for of in Class for state in STATES})
    for member in found.members:
        of = str(member.of or Class.ON_DEMAND)
        is_soft = names.SOFT in member.pod.annotations
        is_serving = member.pod.ready and member.site is not None  # on a leaving node, too, as in `status`
        counts[of, "serving" if is_serving else "pending"] += 1
        counts[of, "soft"] += is_soft
        counts[of, "fallback"] += is_soft and member.site is not None and member.pod.labels.get(names.CLASS) != of
    return counts


def _labels(found: Assessment) -> list[str]:
    workload = found.group.workload
    return [workload.namespace, str(workload.kind), workload.name]


def _family(name: str) -> GaugeMetricFamily:
    metric = METRICS[name]
    return GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)


def _single(name: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, METRICS[name].help, value=value)


def _pool(site: Site) -> tuple[str, str, str]:
    return str(site.of), site.pool.zone, site.pool.instance_type


def _state(site: Site) -> str:
    if site.is_leaving:
        return "leaving"
    return "ready" if site.node.ready else "not-ready"
