"""Whatever stands at the webhook's address, every pod is created within the time-out, and none is refused."""

from __future__ import annotations

import http.server
import os
import resource
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from certs.authority import Issued, issue, new_authority
from certs.publish import HOSTS
from cli.run import Process, running
from kube.client import connect
from localcluster import LocalCluster, Options, demo_profile
from placement import names
from tests.cluster.conftest import label
from tests.cluster.world import World, is_exact, wait_for, workload

pytestmark = pytest.mark.cluster

SERVICE = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/services/{names.WEBHOOK_SERVICE}"
Stand = Callable[[World, Process], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster whose webhook is replaced by worse ones."""
    with LocalCluster.start(demo_profile(), options=Options(controller_qps=200, controller_burst=400)) as own:
        yield own


@contextmanager
def impostor(world: World, process: Process, handler: type[http.server.BaseHTTPRequestHandler]) -> Iterator[None]:
    """The webhook is gone, and somebody else listens at its address, with a certificate that nobody trusts."""
    process.process.kill()
    process.process.wait()
    spec = world.client.get_json(SERVICE)["spec"]
    server = http.server.ThreadingHTTPServer((spec["clusterIP"], spec["ports"][0]["port"]), handler)
    server.socket = _context(issue(new_authority(datetime.now(UTC)), HOSTS, datetime.now(UTC))).wrap_socket(
        server.socket, server_side=True, do_handshake_on_connect=False
    )
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _context(leaf: Issued) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    paths = []
    for content in (leaf.certificate, leaf.key):
        descriptor = os.memfd_create("leaf")
        os.write(descriptor, content)
        paths.append((descriptor, f"/proc/self/fd/{descriptor}"))
    context.load_cert_chain(paths[0][1], paths[1][1])
    for descriptor, _ in paths:
        os.close(descriptor)
    return context


class Refusing(http.server.BaseHTTPRequestHandler):
    """Would deny every pod, if anybody believed it."""

    def do_POST(self) -> None:
        self.send_error(500)

    def log_message(self, *_: Any) -> None:
        """Says nothing."""


def wrong_certificate(world: World, process: Process) -> AbstractContextManager[None]:
    return impostor(world, process, Refusing)


@contextmanager
def silent(world: World, process: Process) -> Iterator[None]:
    """Somebody accepts connections there and never says a word."""
    process.process.kill()
    process.process.wait()
    spec = world.client.get_json(SERVICE)["spec"]
    with socket.create_server((spec["clusterIP"], spec["ports"][0]["port"])):
        yield


@contextmanager
def hung(_world: World, process: Process) -> Iterator[None]:
    os.kill(process.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.process.pid, signal.SIGCONT)


@contextmanager
def starved(_world: World, process: Process) -> Iterator[None]:
    """It may not have one page of memory more."""
    size = int(Path(f"/proc/{process.process.pid}/statm").read_text().split()[0]) * resource.getpagesize()
    resource.prlimit(process.process.pid, resource.RLIMIT_AS, (size, size))
    yield


def dead(_world: World, process: Process) -> AbstractContextManager[None]:
    process.process.kill()
    process.process.wait()
    return nullcontext()


STANDS: dict[str, Stand] = {
    "dead": dead,
    "hung": hung,
    "silent": silent,
    "an impostor with a wrong certificate": wrong_certificate,
    "starved of memory": starved,
}


@pytest.mark.parametrize("what", STANDS)
def test_every_pod_is_created(what: str, cluster: LocalCluster) -> None:
    """Seven pods come within the controller's patience and the time-out; afterwards a good webhook places again."""
    client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
    name = "bad-" + "".join(letter for letter in what if letter.isalpha())[:20]
    client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    label(client, name)
    world = World(client, Path(cluster.kubeconfig), name)
    with running(cluster.kubeconfig, log_level="critical") as installed, STANDS[what](world, installed.processes[0]):
        began = time.monotonic()
        world.create(workload("Deployment", "web", 7))
        wait_for("all pods to serve", lambda: len(world.pods("web")) == 7)
        world.rest("web")
        assert time.monotonic() - began < 60
        assert world.events("FailedCreate") == []
    with running(cluster.kubeconfig, log_level="warning"):
        world.create(workload("Deployment", "after", 10))
        assert is_exact(world.rest("after"), 7, 3)
    client.delete(f"/api/v1/namespaces/{name}")
    client.close()
