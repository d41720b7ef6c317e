"""The rebalancer program, put together, on an API server that refuses to show Events."""

from __future__ import annotations

import gc
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from kubernetes.client import Configuration as ClientConfiguration

from cli.signs import signs_for_reading
from kube.client import Client
from kube.crashpoints import NO_FAULTS
from kube.lease import PATH as LEASE
from kube.lease import lease_object, released_spec
from placement.configuration import Configuration
from rebalancer.program import RebalancerProgram
from tests.builders.api import status

EVENTS = "/api/v1/events"
FORBIDDEN = status(403, "Forbidden", "events is forbidden")


class _EmptyClusterServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: clients go away at the end."""


class _Api(BaseHTTPRequestHandler):
    """An empty cluster with a Lease that was given up. Events are refused, and counted."""

    protocol_version = "HTTP/1.1"
    lease: dict[str, Any]
    refused: list[str]
    closing: threading.Event

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == EVENTS:
            self.refused.append(self.path)
            self._send(FORBIDDEN, 403)
        elif dict(parse_qsl(parts.query)).get("watch") == "true":
            self.send_response(200)
            self.send_header("transfer-encoding", "chunked")
            self.end_headers()
            self.closing.wait()
            self.close_connection = True
        elif parts.path == LEASE:
            self._send(json.dumps(self.lease).encode())
        else:
            self._send(b'{"metadata": {"resourceVersion": "1"}, "items": []}')

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))))
        self.lease["spec"] |= body["spec"]
        self._send(json.dumps(self.lease).encode())

    def _send(self, body: bytes, code: int = 200) -> None:
        self.send_response(code)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Silent."""


@contextmanager
def api() -> Iterator[tuple[Client, list[str]]]:
    """A client of it, and the requests for Events."""
    lease = lease_object(released_spec())
    lease["metadata"]["resourceVersion"] = "1"
    refused: list[str] = []
    closing = threading.Event()
    handler = type("Api", (_Api,), {"lease": lease, "refused": refused, "closing": closing})
    server = _EmptyClusterServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    client = Client(ClientConfiguration(host=f"http://127.0.0.1:{server.server_port}"), user_agent="test/1")
    try:
        yield client, refused
    finally:
        closing.set()
        client.close()
        server.shutdown()
        server.server_close()


@contextmanager
def running(program: RebalancerProgram) -> Iterator[None]:
    thresholds = gc.get_threshold()
    thread = threading.Thread(target=program.run)
    thread.start()
    try:
        yield
    finally:
        program.loop.stop()
        thread.join(20)
        gc.unfreeze()  # the program spares the collector what it has read
        gc.set_threshold(*thresholds)
        gc.enable()


def wait_for(condition: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come to that"
        time.sleep(0.01)


def test_events_that_cannot_be_read_stop_nothing() -> None:
    """It is ready, leads, and makes passes; Events only make it quicker."""
    with api() as (client, refused):
        program = RebalancerProgram(client, Configuration(), NO_FAULTS)
        with running(program):
            wait_for(lambda: len(refused) >= 3)
            wait_for(lambda: program.missing() is None)
            wait_for(lambda: b"spotweave_rebalancer_leading 1.0" in program.metrics.text())
            wait_for(lambda: program.viewer.view() is not None)
            assert program.pulse.hang() is None


def test_a_plan_is_made_without_events_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    """The person's own role may not allow reading them."""
    with api() as (client, _):
        assert signs_for_reading(client) == ()
    (record,) = caplog.records
    assert record.message.startswith("cannot read Events: notices of the cloud and of autoscalers are not shown")
