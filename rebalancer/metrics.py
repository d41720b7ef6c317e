"""The rebalancer's metrics. Only the leader exposes series of workloads, for a limited number of them."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from heapq import nlargest

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from placement import names
from placement.gang.gang import State
from placement.lack import Lack
from placement.metrics import METRICS
from placement.model import NO_AMOUNTS, Class
from placement.observation import NEVER_WATCHED
from placement.plan.actions import How, Plan
from placement.plan.ground import Site
from placement.slots import Mix
from rebalancer.executor import Done
from report.exposure import Domain
from report.view import Taken, View
from report.workloadview import WorkloadView

# Without the second series of each counter (its creation time).
disable_created_metrics()  # type: ignore[no-untyped-call]

# A gang may wait for half a second, or for half a day.
GANG_BUCKETS = (0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600, 4 * 3600, 12 * 3600)
GIVEN_UP = "given-up"
MOST_SKIPPED = 500  # series of pods that are not placed, by namespace and reason
_MOVES = (How.RELEASE, How.FINISH, How.UNDO, How.EVICT, How.REPLACE, How.BURY, How.DELETE)


class RebalancerMetrics:
    """The rebalancer's metrics, in a registry of their own."""

    def __init__(
        self,
        view: Callable[[], View | None],
        is_leading: Callable[[], bool],
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
        self._gangs = Gauge(*METRICS[names.METRIC_GANGS].declared, registry=own)
        self._gang_starts = Counter(*METRICS[names.METRIC_GANG_STARTS].declared, registry=own)
        self._gang_preemptions = Counter(*METRICS[names.METRIC_GANG_PREEMPTIONS].declared, registry=own)
        self._gang_victims = Counter(*METRICS[names.METRIC_GANG_VICTIMS].declared, registry=own)
        seconds = METRICS[names.METRIC_GANG_SECONDS]
        self._gang_seconds = Histogram(*seconds.declared, registry=own, buckets=GANG_BUCKETS)
        self._gangs_late = Gauge(*METRICS[names.METRIC_GANGS_LATE].declared, registry=own)
        self._gated = Gauge(*METRICS[names.METRIC_GATED_PODS].declared, registry=own)
        self._gates_left = Gauge(*METRICS[names.METRIC_GATES_LEFT].declared, registry=own)
        self._gang_attempts = Counter(*METRICS[names.METRIC_GANG_ATTEMPTS].declared, registry=own)
        self._gang_failures = Counter(*METRICS[names.METRIC_GANG_FAILURES].declared, registry=own)
        for counter, labels in (  # from 0 on: the first one counts, too
            (self._gang_starts, ("whole", "rolled-back")),
            (self._gang_attempts, ("reserved", "preempting", "no-room")),
            (self._gang_failures, ("rolled-back", GIVEN_UP)),
            (self._gang_preemptions, ("begun", GIVEN_UP)),
        ):
            for label in labels:
                counter.labels(label)
        Gauge(*METRICS[names.METRIC_LEADING].declared, registry=own).set_function(is_leading)
        self.registry.register(_Workloads(view, is_leading))

    def tell(self, made: Plan, done: Sequence[Done], plan_seconds: float, pass_seconds: float) -> None:
        """On the loop's thread, after a pass."""
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

    def count_gangs(self, states: Mapping[State, int], late: int = 0) -> None:
        """None where this replica does not lead."""
        self._gangs_late.set(late)
        self._gangs.clear()
        for state, count in states.items():
            self._gangs.labels(state).set(count)

    def started(self, seconds: float) -> None:
        self._gang_starts.labels("whole").inc()
        self._gang_seconds.observe(seconds)

    def attempted(self, outcome: str, lack: Lack | None = None) -> None:
        """Room was looked for; where there was none, what was missing."""
        self._gang_attempts.labels(outcome).inc()
        if lack is not None:
            self._gang_failures.labels(lack.label).inc()

    def rolled_back(self) -> None:
        self._gang_starts.labels("rolled-back").inc()
        self._gang_failures.labels("rolled-back").inc()

    def preempting(self, outcome: str) -> None:
        self._gang_preemptions.labels(outcome).inc()
        if outcome == GIVEN_UP:
            self._gang_failures.labels(GIVEN_UP).inc()

    def gates(self, pods: int, left_behind: int) -> None:
        """Whoever leads."""
        self._gated.set(pods)
        self._gates_left.set(left_behind)

    def preempted(self, pods: int) -> None:
        self._gang_victims.inc(pods)

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
    """Series that are computed on request, from what the page shows. Scrapes arrive on their own threads."""

    def __init__(self, view: Callable[[], View | None], is_leading: Callable[[], bool]) -> None:
        self._view = view
        self._is_leading = is_leading

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        view = self._view() if self._is_leading() else None
        if view is None:
            return
        most = view.taken.ground.configuration.metrics.workloads
        yield _single(names.METRIC_WORKLOADS_LEFT_OUT, max(0, len(view.seen) - most))
        yield _single(names.METRIC_WORKLOADS_FAILING, view.taken.failing)
        moving = (cohort for each in view.seen if each.assessment.under_way for cohort in each.assessment.group.cohorts)
        yield _single(names.METRIC_UNDER_WAY, sum(len(cohort.released) for cohort in moving))
        yield from _of_workloads(view.seen[:most])
        yield _held(view, view.seen[:most])
        yield from _exposures(view.seen[:most])
        yield from _of_pools(view)
        yield _skipped(view.taken)
        yield from _nodes(view.taken)


def _exposures(found: Sequence[WorkloadView]) -> Iterator[GaugeMetricFamily]:
    headroom = _family(names.METRIC_HEADROOM)
    blast = _family(names.METRIC_BLAST_RADIUS)
    survives = _family(names.METRIC_SURVIVES)
    incidents, unavailable = _family(names.METRIC_INCIDENTS), _family(names.METRIC_UNAVAILABILITY)
    for each in found:
        exposed = each.exposure
        incidents.add_metric(each.key, exposed.risk.incidents)
        unavailable.add_metric(each.key, exposed.risk.unavailability)
        headroom.add_metric([*each.key, str(exposed.is_assumed).lower()], exposed.headroom)
        for domain in Domain:
            blast.add_metric([*each.key, str(domain)], exposed.blast(domain).replicas)
            survives.add_metric([*each.key, str(domain)], exposed.survives(domain))
    yield from (headroom, blast, survives, incidents, unavailable)


def _nodes(taken: Taken) -> Iterator[GaugeMetricFamily]:
    sites = list(taken.ground.sites.values())
    nodes = _family(names.METRIC_NODES)
    for (pool, state), count in Tally((_pool(site), _state(site)) for site in sites).items():
        nodes.add_metric([*pool, state], count)
    yield nodes
    used = _family(names.METRIC_UTILISATION)
    for pool in sorted({_pool(site) for site in sites}):
        there = [site for site in sites if _pool(site) == pool]
        for resource in ("cpu", "memory", "pods"):
            total = sum(site.node.allocatable.get(resource, 0) for site in there)
            asked = sum(taken.used.get(site.node.name, NO_AMOUNTS).get(resource, 0) for site in there)
            if total:
                used.add_metric([*pool, resource], asked / total)
    yield used
    classes = taken.ground.configuration.classes
    unknown = sum(classes.of_node(site.node.labels) is None for site in sites)
    yield _single(names.METRIC_UNKNOWN_NODES, unknown)


def _held(view: View, found: Sequence[WorkloadView]) -> GaugeMetricFamily:
    family = _family(names.METRIC_EVICTIONS_HELD)
    for each in found:
        family.add_metric(each.key, len(view.held.get(each.key, ())))
    return family


def _skipped(taken: Taken) -> GaugeMetricFamily:
    family = _family(names.METRIC_SKIPPED)
    for (namespace, reason), pods in nlargest(MOST_SKIPPED, taken.skipped.items(), key=lambda each: each[1]):
        family.add_metric([namespace, str(reason)], pods)
    return family


def _of_pools(view: View) -> Iterator[GaugeMetricFamily]:
    """Pools that were watched, and pools that exist: an unobserved pool has an expected rate, too."""
    rates, hours = _family(names.METRIC_POOL_LOSSES), _family(names.METRIC_POOL_WATCHED)
    there = {site.spot_pool: NEVER_WATCHED for site in view.sites.values() if site.spot_pool}
    for pool, record in {**there, **view.observed.pools}.items():
        labels = pool.split("/", 1)
        rates.add_metric(labels, record.rate)
        hours.add_metric(labels, record.hours * 3600)
    yield from (rates, hours)


def _of_workloads(found: Sequence[WorkloadView]) -> Iterator[GaugeMetricFamily]:
    pods = _family(names.METRIC_WORKLOAD_PODS)
    wanted = _family(names.METRIC_WORKLOAD_WANTED)
    share = _family(names.METRIC_SPOT_SHARE)
    floor = _family(names.METRIC_FLOOR)
    for each in found:
        for state, mix in states_of(each).items():
            pods.add_metric([*each.key, str(Class.SPOT), state], mix.spot)
            pods.add_metric([*each.key, str(Class.ON_DEMAND), state], mix.on_demand)
        wanted.add_metric([*each.key, str(Class.SPOT)], each.wanted.spot)
        wanted.add_metric([*each.key, str(Class.ON_DEMAND)], each.wanted.on_demand)
        serving = each.actual.spot + each.actual.on_demand
        if serving:
            share.add_metric(each.key, each.actual.spot / serving)
        floor.add_metric(each.key, each.assessment.group.policy.slots.floor)
    yield from (pods, wanted, share, floor)


def states_of(seen: WorkloadView) -> dict[str, Mix]:
    """Serving, soft and fallen-back pods by the class of their node, pending ones by the class that they are of."""
    members = seen.assessment.members
    pending = [member for member in members if not member.pod.ready or member.site is None]
    soft = [member for member in members if names.SOFT in member.pod.annotations]
    fallen = [each for each in soft if each.site is not None and each.pod.labels.get(names.CLASS) != each.of]
    return {
        "serving": seen.actual,
        "pending": Mix.of(member.of or Class.ON_DEMAND for member in pending),
        "soft": Mix.of(member.of or Class.ON_DEMAND for member in soft),
        "fallback": Mix.of(member.of or Class.ON_DEMAND for member in fallen),
    }


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
