"""What the webhook tells Prometheus. Labels are bounded: classes and reasons, never names of workloads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, partial

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest

from placement import names
from placement.metrics import METRICS
from placement.model import Class
from placement.outage import Outage
from webhook.review import Verdict

# A second series for each counter, that nobody asks for.
disable_created_metrics()  # type: ignore[no-untyped-call]

ANSWERED, FAILED = "answered", "failed"
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

    def count(self, verdict: Verdict) -> None:
        placed = verdict.decision.placed if verdict.decision else None
        self._decision(placed or "none", verdict.reason).inc()
        if verdict.mistakes:
            self.mistakes.inc(len(verdict.mistakes))

    def forwarded(self, answered: bool) -> None:
        self._forwarded.labels(ANSWERED if answered else FAILED).inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)


def _outages(standing: Callable[[], Iterable[Outage]], of: Class) -> int:
    return sum(outage.of is of for outage in standing())
