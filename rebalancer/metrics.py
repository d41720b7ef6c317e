"""What the rebalancer tells Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from placement import names


class Metrics:
    """The rebalancer's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.leading = Gauge(names.METRIC_LEADING, "1 while this replica leads", registry=self.registry)

    def text(self) -> bytes:
        return generate_latest(self.registry)
