"""The Flask application of the rebalancer: probes and metrics."""

from __future__ import annotations

from collections.abc import Callable

from flask import Flask, Response


def create_app(metrics: Callable[[], bytes], missing: Callable[[], str | None]) -> Flask:
    """`missing` gives None, or what is missing until this replica is ready."""
    app = Flask("rebalancer")

    @app.get("/healthz")
    def healthz() -> Response:
        return Response("ok\n", mimetype="text/plain")

    @app.get("/readyz")
    def readyz() -> Response:
        lacking = missing()
        text, status = (f"not ready: {lacking}\n", 503) if lacking else ("ok\n", 200)
        return Response(text, status, mimetype="text/plain")

    @app.get("/metrics")
    def exposed() -> Response:
        return Response(metrics(), mimetype="text/plain; version=0.0.4")

    return app
