"""The webhook's metrics. Labels are bounded: classes and reasons, never names of workloads."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from functools import cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from placement import names
from placement.metrics import METRICS
from placement.model import Class
from placement.outage import Outage
from placement.refusal import PatchRefusal
from webhook.review import Verdict

# Without the second series of each counter (its creation time).
disable_created_metrics()  # type: ignore[no-untyped-call]

ANSWERED, FAILED = "answered", "failed"
MOST_REFUSERS = 50  # that are named: tenants name their quotas as they like
BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


class WebhookMetrics:
    """The webhook's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own = self.registry
        decisions = Counter(*METRICS[names.METRIC_DECISIONS].declared, registry=own)
        self._decision = cache(decisions.labels)  # finding the right one costs more than counting
        self.fail_open = Counter(*METRICS[names.METRIC_FAIL_OPEN].declared, registry=own)
        self.mistakes = Counter(*METRICS[names.METRIC_POLICY_MISTAKES].declared, registry=own)
        self.seconds = Histogram(*METRICS[names.METRIC_ADMISSION_SECONDS].declared, buckets=BUCKETS, registry=own)
        self._evictions = Counter(*METRICS[names.METRIC_EVICTIONS].declared, registry=own)
        self._forwarded = Counter(*METRICS[names.METRIC_FORWARDED].declared, registry=own)
        for outcome in (ANSWERED, FAILED):
            self._forwarded.labels(outcome)  # a rate that starts at nothing would miss the first
        self.ledger = Gauge(*METRICS[names.METRIC_LEDGER].declared, registry=own)
        self._outages = Gauge(*METRICS[names.METRIC_OUTAGES].declared, registry=own)
        self.outage_version = Gauge(*METRICS[names.METRIC_OUTAGE_VERSION].declared, registry=own)
        self.cache_age = Gauge(*METRICS[names.METRIC_CACHE_AGE].declared, registry=own)
        self.certificate_expiry = Gauge(*METRICS[names.METRIC_CERTIFICATE_EXPIRY].declared, registry=own)

    def show_outages(self, standing: Callable[[], Iterable[Outage]]) -> None:
        """Looks when it is asked: an outage ends by itself."""
        for of in Class:
            self._outages.labels(of).set_function(partial(_outages, standing, of))

    def show_refusals(self, let_in: Callable[[], Iterable[PatchRefusal]]) -> None:
        self.registry.register(_Refused(let_in))

    def count(self, verdict: Verdict) -> None:
        placed = verdict.decision.placed if verdict.decision else None
        self._decision(placed or "none", verdict.reason).inc()
        if verdict.mistakes:
            self.mistakes.inc(len(verdict.mistakes))

    def count_eviction(self, answer: str) -> None:
        self._evictions.labels(answer).inc()

    def forwarded(self, answered: bool) -> None:
        self._forwarded.labels(ANSWERED if answered else FAILED).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)


class _Refused(Collector):
    """Counts when somebody asks: a refusal ends by itself."""

    def __init__(self, let_in: Callable[[], Iterable[PatchRefusal]]) -> None:
        self._let_in = let_in

    def describe(self) -> Iterable[GaugeMetricFamily]:
        return ()

    def collect(self) -> Iterator[GaugeMetricFamily]:
        found = Tally((str(each.by), each.name) for each in self._let_in())
        named = dict(found.most_common(MOST_REFUSERS))
        family = GaugeMetricFamily(*METRICS[names.METRIC_REFUSED].declared[:2], labels=("by", "name"))
        for labels, count in named.items():
            family.add_metric(labels, count)
        if len(found) > len(named):
            family.add_metric(("other", "others"), found.total() - sum(named.values()))
        yield family


def _outages(standing: Callable[[], Iterable[Outage]], of: Class) -> int:
    return sum(outage.of is of for outage in standing())
