"""What the webhook tells Prometheus. Labels are bounded: classes and reasons, never names of workloads."""

from __future__ import annotations

from functools import cache

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from placement import names
from webhook.review import Verdict


class Metrics:
    """The webhook's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        decisions = Counter(
            names.METRIC_DECISIONS, "Pods by class and reason", ("class", "reason"), registry=self.registry
        )
        self._decision = cache(decisions.labels)  # finding the right one costs more than counting
        self.fail_open = Counter(
            names.METRIC_FAIL_OPEN, "Pods allowed unchanged because something went wrong", registry=self.registry
        )
        self.mistakes = Counter(
            names.METRIC_POLICY_MISTAKES, "Policy mistakes met while placing pods", registry=self.registry
        )
        self.seconds = Histogram(
            names.METRIC_ADMISSION_SECONDS,
            "Time from the call to the answer",
            buckets=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0),
            registry=self.registry,
        )
        self._forwarded = Counter(
            names.METRIC_FORWARDED,
            "Calls handed to the replica that owns the ReplicaSet",
            ("outcome",),
            registry=self.registry,
        )
        self.ledger = Gauge(names.METRIC_LEDGER, "Decisions whose pod was not seen yet", registry=self.registry)
        self.outage_version = Gauge(
            names.METRIC_OUTAGE_VERSION, "Version of the outages that was read", registry=self.registry
        )
        self.cache_age = Gauge(
            names.METRIC_CACHE_AGE, "Time since the API server was last heard", registry=self.registry
        )
        self.certificate_expiry = Gauge(
            names.METRIC_CERTIFICATE_EXPIRY, "When the served certificate expires", registry=self.registry
        )

    def count(self, verdict: Verdict) -> None:
        placed = verdict.decision.placed if verdict.decision else None
        self._decision(placed or "none", verdict.reason).inc()
        if verdict.mistakes:
            self.mistakes.inc(len(verdict.mistakes))

    def forwarded(self, answered: bool) -> None:
        self._forwarded.labels("answered" if answered else "failed").inc()

    def text(self) -> bytes:
        return generate_latest(self.registry)
