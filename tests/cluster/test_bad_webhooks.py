"""Whatever stands at the webhook's address, every pod is created within the time-out, and none is refused.

Each scene also proves that it is one: the API server itself counts the calls that failed, and pods that had to wait for
the time-out have waited.
"""

from __future__ import annotations

import http.server
import json
import os
import resource
import signal
import socket
import ssl
import threading
import time
from base64 import b64encode
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from certs import publish
from certs.authority import Issued, issue, new_authority
from certs.publish import HOSTS
from demo.supervisor import Process, running
from kube.client import JSON_PATCH, Client, connect
from localcluster import LocalCluster, Options, demo_profile
from placement import names
from tests.cluster.world import World, failed_open, is_exact, label, pod_spec, wait_for, workload
from webhook.server import LARGEST_BODY

pytestmark = pytest.mark.cluster

SERVICE = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/services/{names.WEBHOOK_SERVICE}"
PODS = 8  # at once, as their creator sees them
NOISE = 2.0  # how many times as long a call may take here, where programs share two cores with others
BATCHES = 3  # in which a ReplicaSet creates seven pods: 1, 2, 4
Stand = Callable[[World, Process], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster whose webhook is replaced by worse ones."""
    with LocalCluster.start(demo_profile(), options=Options(controller_qps=200, controller_burst=400)) as own:
        yield own


# --- who stands there ------------------------------------------------------------------------------------------------


def dead(_world: World, process: Process) -> AbstractContextManager[None]:
    process.process.kill()
    process.process.wait()
    return nullcontext()


@contextmanager
def hung(_world: World, process: Process) -> Iterator[None]:
    os.kill(process.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.process.pid, signal.SIGCONT)


@contextmanager
def throttled(world: World, process: Process) -> Iterator[None]:
    """Our own webhook, which gets the processor for a third of the time: stopped for a third of the time-out each time.

    As a processor limit does it. Answers come late, but they come.
    """
    ended, stop_seconds = threading.Event(), timeout_seconds(world.client) / 3

    def throttle() -> None:
        while not ended.is_set():
            with hung(world, process):
                ended.wait(stop_seconds)
            ended.wait(stop_seconds / 2)

    thread = threading.Thread(target=throttle)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def starved(world: World, process: Process) -> Iterator[None]:
    """It gets no page of memory more, and what it had left over is used up: by requests that never end.

    Each is held open. When one is too much for it, the next ones are half as large: in the end nothing is left.
    """
    page, size, refused = resource.getpagesize(), LARGEST_BODY // 2, 0
    resource.prlimit(process.process.pid, resource.RLIMIT_AS, (page, page))
    with ExitStack() as held:
        for _ in range(40):
            try:
                send_part(held, address(world), size)
            except OSError:  # it has cut the connection, or cannot even take it
                refused, size = refused + 1, max(size // 2, page)
        assert refused > 0
        yield


def send_part(held: ExitStack, where: tuple[str, int], size: int) -> None:
    """The beginning of a request with a large body. Raises OSError where that is not taken."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    greedy = held.enter_context(context.wrap_socket(socket.create_connection(where, timeout=1)))
    greedy.sendall(f"POST {names.WEBHOOK_PATH} HTTP/1.1\r\ncontent-length: {LARGEST_BODY}\r\n\r\n".encode())
    greedy.sendall(b" " * size)
    greedy.settimeout(0.2)
    with suppress(TimeoutError):  # no news is good news
        if not greedy.recv(1):
            raise ConnectionResetError


@contextmanager
def silent(world: World, process: Process) -> Iterator[None]:
    """Somebody accepts connections there and never says a word."""
    with dead(world, process), socket.create_server(address(world)):
        yield


def wrong_certificate(world: World, process: Process) -> AbstractContextManager[None]:
    """An impostor, whose certificate nobody trusts, and who would deny every pod if anybody believed it."""
    leaf = issue(new_authority(datetime.now(UTC)), HOSTS, datetime.now(UTC))
    return impostor(world, process, leaf, denying(0.0))


@contextmanager
def wrong_authority(world: World, process: Process) -> Iterator[None]:
    """The certificate is right, but the caBundle is that of another authority, and nobody is there to repair it."""
    with impostor(world, process, served(world.client), denying(0.0)):
        value = b64encode(new_authority(datetime.now(UTC)).certificate).decode()
        operation = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": value}
        world.client.patch(publish.CONFIGURATION, [operation], content_type=JSON_PATCH)
        # The API server goes on with the old one for a moment, and would believe the impostor.
        wait_for("the API server to read it", lambda: is_ignored(world))
        yield


def slow(world: World, process: Process) -> AbstractContextManager[None]:
    """Trusted, and its answer, a denial, comes two seconds after the time-out."""
    return impostor(world, process, served(world.client), denying(timeout_seconds(world.client) + 2))


def trickling(world: World, process: Process) -> AbstractContextManager[None]:
    """Trusted, and its answer comes byte by byte, for longer than the time-out."""
    return impostor(world, process, served(world.client), denying(0.0, seconds_per_byte=0.2))


def denying(seconds: float, *, seconds_per_byte: float = 0.0) -> type[http.server.BaseHTTPRequestHandler]:
    """Says no to every pod, after so long."""

    class Denying(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))["request"]
            time.sleep(seconds)
            response = {"uid": request["uid"], "allowed": False, "status": {"message": "an impostor says no"}}
            kind = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
            body = json.dumps({**kind, "response": response}).encode()
            try:
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                for byte in body if seconds_per_byte else ():
                    self.wfile.write(bytes([byte]))
                    time.sleep(seconds_per_byte)
                if not seconds_per_byte:
                    self.wfile.write(body)
            except OSError:  # nobody listens any more
                self.close_connection = True

        def log_message(self, *_: Any) -> None:
            """Says nothing."""

    return Denying


class Server(http.server.ThreadingHTTPServer):
    """Callers that hang up are no news."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def impostor(
    world: World, process: Process, leaf: Issued, handler: type[http.server.BaseHTTPRequestHandler]
) -> Iterator[None]:
    """The webhook is gone, and somebody else listens at its address, with this certificate."""
    with dead(world, process):
        server = Server(address(world), handler)
    server.socket = _context(leaf).wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def served(client: Client) -> Issued:
    """What the real webhook serves."""
    bundle = publish.bundle_of(publish.read_secret(client))
    return Issued(bundle.leaf, bundle.leaf_key)


def address(world: World) -> tuple[str, int]:
    spec = world.client.get_json(SERVICE)["spec"]
    return spec["clusterIP"], spec["ports"][0]["port"]


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


# --- what pods see ---------------------------------------------------------------------------------------------------


def timeout_seconds(client: Client) -> int:
    """Of the webhook configuration that is installed."""
    (entry,) = client.get_json(publish.CONFIGURATION)["webhooks"]
    seconds: int = entry["timeoutSeconds"]
    return seconds


def is_ignored(world: World) -> bool:
    """Whether a call fails now, and the pod is let through: a dry run."""
    before = failed_open(world.client)
    try:
        world.client.post(world.pods_path, bare("probe"), {"dryRun": "All"})
    except Exception:  # noqa: BLE001 - the impostor was believed
        return False
    return failed_open(world.client) > before


def bare(name: str, **spec: Any) -> dict[str, Any]:
    """A pod that its creator makes itself. We are asked about it like about any other."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": pod_spec(**spec)}


def seconds_to_create(world: World, size: int) -> list[float]:
    """Creates pods at once, each with arguments of this size, and tells how long each of them took. None is refused."""

    def create(number: int) -> float:
        container = {"name": "app", "image": "example/app:1.0", "args": ["x" * size]}
        client = connect(world.kubeconfig, user_agent="spotweave-tests")
        began = time.monotonic()
        client.post(world.pods_path, bare(f"bare-{number}", containers=[container]))
        took = time.monotonic() - began
        client.close()
        return took

    with ThreadPoolExecutor(PODS) as pool:
        return list(pool.map(create, range(PODS)))


@dataclass(frozen=True)
class Scene:
    """Who stands there; how many of the first calls fail at least and at most; and whether pods wait for it."""

    stand: Stand
    fail: tuple[int, int] = (PODS, PODS)
    waits: bool = False
    is_placed: bool = False  # the Deployment's pods
    size: int = 1  # of the first pods


SCENES: dict[str, Scene] = {
    "dead": Scene(dead),
    "hung": Scene(hung, waits=True),
    "silent": Scene(silent, waits=True),
    "slower than the time-out": Scene(slow, waits=True),
    "trickling for longer than the time-out": Scene(trickling, waits=True),
    "slower than usual": Scene(throttled, fail=(0, 0), is_placed=True),
    "a wrong certificate": Scene(wrong_certificate),
    "a wrong CA": Scene(wrong_authority),
    "out of memory": Scene(starved, fail=(1, PODS), size=600_000),
}


@contextmanager
def namespace(cluster: LocalCluster, what: str) -> Iterator[World]:
    """A namespace for a scene, opted in."""
    client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
    name = "bad-" + "".join(letter for letter in what.lower() if letter.isalpha())[:30]
    client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    label(client, name)
    world = World(client, Path(cluster.kubeconfig), name)
    wait_for("its account", lambda: world.exists(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    try:
        yield world
    finally:
        client.delete(f"/api/v1/namespaces/{name}")
        client.close()


def check_good_one(world: World) -> None:
    """Whatever stood there before."""
    world.create(workload("Deployment", "good", 10))
    assert is_exact(world.rest("good"), 7, 3)


@pytest.mark.parametrize("what", SCENES)
def test_every_pod_is_created_within_the_time_out(what: str, cluster: LocalCluster) -> None:
    """A good webhook places pods; then it is as the scene says: pods created at once, and those of a Deployment."""
    with namespace(cluster, what) as world, running(cluster.kubeconfig, log_level="critical") as installed:
        check_good_one(world)
        with SCENES[what].stand(world, installed.processes[0]):
            act(what, SCENES[what], world)


def test_after_all_that_a_good_webhook_places_again(cluster: LocalCluster) -> None:
    """Nothing of it is left."""
    with namespace(cluster, "after all") as world, running(cluster.kubeconfig, log_level="warning"):
        check_good_one(world)


def act(what: str, scene: Scene, world: World) -> None:
    timeout, before = timeout_seconds(world.client), failed_open(world.client)
    took = seconds_to_create(world, scene.size)
    failed = failed_open(world.client) - before
    began = time.monotonic()
    world.create(workload("Deployment", "web", 7))
    wait_for("all pods", lambda: len(world.pods("web")) == 7)
    whole = time.monotonic() - began
    print(f"{what}: {min(took):.2f} to {max(took):.2f} s for a pod, {failed} calls failed; Deployment {whole:.2f} s")
    assert max(took) < timeout * NOISE
    assert whole < timeout * BATCHES * NOISE
    assert scene.fail[0] <= failed <= scene.fail[1]
    if scene.waits:
        assert min(took) > 0.9 * timeout  # else it was not what it should be
    placed = [names.CLASS in pod["metadata"]["labels"] for pod in world.pods("web")]
    assert all(placed) if scene.is_placed else scene.fail[0] < PODS or not any(placed)
    assert world.events("FailedCreate") == []
    world.rest("web")
