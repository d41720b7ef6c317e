"""The rebalancer's probes and metrics, as a Flask application on a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flask import Flask, Response
from werkzeug.serving import WSGIRequestHandler, make_server

from rebalancer.metrics import RebalancerMetrics

TEXT = "text/plain"


def create_app(
    metrics: RebalancerMetrics, missing: Callable[[], str | None], hang: Callable[[], str | None] = lambda: None
) -> Flask:
    """`missing` gives what is missing until it is ready, `hang` what only a restart helps against, or None."""
    app = Flask("rebalancer")

    @app.get("/healthz")
    def healthz() -> Response:
        wrong = hang()
        return Response(f"unhealthy: {wrong}\n", 503, mimetype=TEXT) if wrong else Response("ok\n", mimetype=TEXT)

    @app.get("/readyz")
    def readyz() -> Response:
        lacks = missing()
        return Response(f"not ready: {lacks}\n", 503, mimetype=TEXT) if lacks else Response("ok\n", mimetype=TEXT)

    @app.get("/metrics")
    def exposed() -> Response:
        return Response(metrics.text(), mimetype="text/plain; version=0.0.4")

    return app


class _Handler(WSGIRequestHandler):
    """Waits for nobody, and does not tell what it is made of."""

    timeout = 10

    def version_string(self) -> str:
        return "spotweave"


@contextmanager
def serving(app: Flask, address: str) -> Iterator[int]:
    """Serves it at HOST:PORT meanwhile; gives the port."""
    host, _, port = address.rpartition(":")
    logging.getLogger("werkzeug").setLevel(logging.WARNING)  # a line for each probe says nothing
    server = make_server(host.strip("[]"), int(port), app, threaded=True, request_handler=_Handler)
    thread = threading.Thread(target=server.serve_forever, name="probes", daemon=True)
    thread.start()
    try:
        yield server.server_port
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
