"""What the rebalancer tells Prometheus. Per-workload series come from the leader only, and from so many workloads."""

from __future__ import annotations

import time
from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from placement import names
from placement.exposure import Domain, Exposure, exposure, places
from placement.metrics import METRICS
from placement.model import NO_AMOUNTS, Class
from placement.observation import NOTHING_OBSERVED, Observed
from placement.plan.actions import How, Plan
from placement.plan.assess import Assessment
from placement.plan.group import Ground, Site
from rebalancer.board import Board
from rebalancer.executor import Done

# A second series for each counter, that nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]

STATES = ("serving", "pending", "soft", "fallback")
_MOVES = (How.RELEASE, How.FINISH, How.UNDO, How.EVICT, How.REPLACE, How.BURY)


@dataclass(frozen=True, slots=True)
class Left:
    """What a pass left, as of one moment. Scrapes come on threads of their own, and the board is the loop's alone:
    in the middle of a pass its workloads may be on nodes that it does not know any more.
    """

    assessments: tuple[Assessment, ...]
    ground: Ground
    used: Mapping[str, Mapping[str, int]]  # by node
    failing: int = 0  # workloads that could not be assessed


COPY_SECONDS = 1.0
NOTHING_LEFT = Left((), Ground({}), {})


class Metrics:
    """The rebalancer's metrics, in a registry of their own."""

    def __init__(
        self,
        board: Board,
        is_leading: Callable[[], bool],
        observed: Callable[[], Observed] = lambda: NOTHING_OBSERVED,
        timer: Callable[[], float] = time.monotonic,
    ) -> None:
        self._timer = timer
        self._copied_at = float("-inf")
        self.registry = CollectorRegistry()
        self._board = board
        self._left = NOTHING_LEFT
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
        self.registry.register(_Workloads(lambda: self._left, is_leading, observed))

    def _copy(self) -> None:
        """Once a second, however many passes there are: the work for an event must not grow with the cluster."""
        board, now = self._board, self._timer()
        if board.ground is self._left.ground and now - self._copied_at < COPY_SECONDS:
            return
        self._copied_at = now
        self._left = Left(tuple(board.assessments.values()), board.ground, board.amounts(), len(board.failing))

    def tell(self, made: Plan, done: Sequence[Done], plan_seconds: float, pass_seconds: float) -> None:
        """On the loop's thread, after a pass."""
        self._copy()
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
        """A family at a time: 200,000 series take 60 MiB before they are 5 MB of text."""
        return b"".join(generate_latest(_Family(each)) for each in self.registry.collect())


class _Family(Collector):
    """One family, to be written by itself."""

    def __init__(self, family: Metric) -> None:
        self._family = family

    def collect(self) -> Iterator[Metric]:
        yield self._family


class _Workloads(Collector):
    """Series that are worked out when somebody asks."""

    def __init__(
        self, left: Callable[[], Left], is_leading: Callable[[], bool], observed: Callable[[], Observed]
    ) -> None:
        self._left = left
        self._is_leading = is_leading
        self._observed = observed

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        if not self._is_leading():
            return
        left = self._left()
        found = sorted(left.assessments, key=lambda each: each.group.workload.key)
        most = left.ground.configuration.metrics.workloads
        yield _single(names.METRIC_WORKLOADS_LEFT_OUT, max(0, len(found) - most))
        yield _single(names.METRIC_WORKLOADS_FAILING, left.failing)
        moving = (cohort for each in found if each.under_way for cohort in each.group.cohorts)
        yield _single(names.METRIC_UNDER_WAY, sum(len(cohort.released) for cohort in moving))
        yield from _of_workloads(found[:most])
        observed = self._observed()
        yield from _exposures(found[:most], left.ground, observed)
        yield from _of_pools(observed)
        yield from _nodes(left)


def _exposures(found: Sequence[Assessment], ground: Ground, observed: Observed) -> Iterator[GaugeMetricFamily]:
    where = places({name: site.node for name, site in ground.sites.items()}, ground.configuration)

    def exposed(found: Assessment) -> Exposure:
        ready = [where[member.pod.node] for member in found.members if member.serves]
        return exposure(ready, found.group.availability, observed)

    seen = [(_labels(each), exposed(each)) for each in found]
    domains = [([*labels, str(domain)], each, domain) for labels, each in seen for domain in Domain]
    assumed = (([*labels, str(each.is_assumed).lower()], each.headroom) for labels, each in seen)
    yield _filled(names.METRIC_HEADROOM, assumed)
    yield _filled(names.METRIC_BLAST_RADIUS, ((labels, each.blast(of).replicas) for labels, each, of in domains))
    yield _filled(names.METRIC_SURVIVES, ((labels, each.survives(of)) for labels, each, of in domains))
    yield _filled(names.METRIC_INCIDENTS, ((labels, each.risk.incidents) for labels, each in seen))
    yield _filled(names.METRIC_UNAVAILABILITY, ((labels, each.risk.unavailability) for labels, each in seen))


def _nodes(left: Left) -> Iterator[GaugeMetricFamily]:
    sites = list(left.ground.sites.values())
    nodes = _family(names.METRIC_NODES)
    for (pool, state), count in Tally((_pool(site), _state(site)) for site in sites).items():
        nodes.add_metric([*pool, state], count)
    yield nodes
    used = _family(names.METRIC_UTILISATION)
    for pool in sorted({_pool(site) for site in sites}):
        there = [site for site in sites if _pool(site) == pool]
        for resource in ("cpu", "memory", "pods"):
            total = sum(site.node.allocatable.get(resource, 0) for site in there)
            asked = sum(left.used.get(site.node.name, NO_AMOUNTS).get(resource, 0) for site in there)
            if total:
                used.add_metric([*pool, resource], asked / total)
    yield used
    classes = left.ground.configuration.classes
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
    floors = ((_labels(each), each.group.policy.slots.floor) for each in found)
    yield _filled(names.METRIC_FLOOR, floors)
    mixes = (
        ([*_labels(each), str(of)], wanted)
        for each in found
        for of, wanted in ((Class.SPOT, each.wanted.spot), (Class.ON_DEMAND, each.wanted.on_demand))
    )
    yield _filled(names.METRIC_WORKLOAD_WANTED, mixes)
    share, pods = _family(names.METRIC_SPOT_SHARE), _family(names.METRIC_WORKLOAD_PODS)
    for each in found:
        labels, counts = _labels(each), _states(each)
        for (of, state), count in counts.items():
            pods.add_metric([*labels, of, state], count)
        serving = [counts[str(of), "serving"] for of in (Class.SPOT, Class.ON_DEMAND)]
        if any(serving):
            share.add_metric(labels, serving[0] / sum(serving))
    yield share
    yield pods


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


def _filled(name: str, series: Iterable[tuple[Sequence[str], float]]) -> GaugeMetricFamily:
    family = _family(name)
    for labels, value in series:
        family.add_metric(labels, value)
    return family


def _single(name: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, METRICS[name].help, value=value)


def _pool(site: Site) -> tuple[str, str, str]:
    return str(site.of), site.pool.zone, site.pool.instance_type


def _state(site: Site) -> str:
    if site.is_leaving:
        return "leaving"
    return "ready" if site.node.ready else "not-ready"
