"""What every program answers in plain text: is it alive, is it ready, and its metrics."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from serving.messages import Answer, Request, Response, text

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def probe_routes(
    missing: Callable[[], str | None], metrics: Answer, hang: Callable[[], str | None] = lambda: None
) -> Mapping[str, Mapping[str, Answer]]:
    """`missing` gives what is missing until it is ready, `hang` what only a restart helps against, or None."""

    def healthz(_request: Request) -> Response:
        wrong = hang()
        return text(503, f"unhealthy: {wrong}") if wrong else text(200, "ok")

    def readyz(_request: Request) -> Response:
        lacks = missing()
        return text(503, f"not ready: {lacks}") if lacks else text(200, "ok")

    return {"/healthz": {"GET": healthz}, "/readyz": {"GET": readyz}, "/metrics": {"GET": metrics}}


def exposed(metrics_text: bytes) -> Response:
    """Metrics in Prometheus's text format."""
    return Response(200, metrics_text, METRICS_TYPE)
