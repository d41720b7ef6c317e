"""Whatever stands at the webhook's address, every pod is created within the time-out, and none is refused.

Each case also proves that it is one: the API server itself counts the calls that failed, and pods that had to wait for
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
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from certs import publish
from certs.authority import Issued, issue, new_authority
from certs.publish import HOSTS
from demo.supervisor import Process
from kube.client import JSON_PATCH, Client, connect
from localcluster import LocalCluster, Options, demo_profile
from placement import names
from tests.builders.api import raw_namespace, raw_pod_spec, raw_workload
from tests.cluster.killing import forget_webhooks, running
from tests.cluster.namespaceuser import NamespaceUser, failed_open, is_exact, label, wait_for
from tests.cluster.repeating import again_and_again
from webhook.server import ADMISSION

pytestmark = pytest.mark.cluster

SERVICE = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/services/{names.WEBHOOK_SERVICE}"
ENOUGH_REFUSED = 5  # connections, and the memory is used up
STARVE_SECONDS = 60.0
SENDERS = 4
# glibc asks the system for every piece of memory that is larger, instead of taking one that it kept.
AT_ONCE = {"MALLOC_MMAP_THRESHOLD_": str(64 * 1024)}
PODS = 8  # at once, as their creator sees them
NOISE = 2.0  # how many times as long a call may take here, where programs share two cores with others
BATCHES = 3  # in which a ReplicaSet creates seven pods: 1, 2, 4
Stand = Callable[[NamespaceUser, Process], AbstractContextManager[None]]


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    """A cluster whose webhook is replaced by worse ones."""
    with LocalCluster.start(demo_profile(), options=Options(controller_qps=200, controller_burst=400)) as own:
        yield own


# --- who stands there ------------------------------------------------------------------------------------------------


def dead(_world: NamespaceUser, process: Process) -> AbstractContextManager[None]:
    process.process.kill()
    process.process.wait()
    return nullcontext()


@contextmanager
def hung(_world: NamespaceUser, process: Process) -> Iterator[None]:
    os.kill(process.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process.process.pid, signal.SIGCONT)


def throttled(user: NamespaceUser, process: Process) -> AbstractContextManager[None]:
    """Our own webhook, which gets the processor for a third of the time: stopped for a third of the time-out each time.

    As a processor limit does it. Answers come late, but they come.
    """
    stop_seconds = timeout_seconds(user.client) / 3

    def stop() -> None:
        with hung(user, process):
            time.sleep(stop_seconds)  # what is tested

    return again_and_again(stop, stop_seconds / 2)


@contextmanager
def starved(user: NamespaceUser, process: Process) -> Iterator[None]:
    """It gets no page of memory more, and every body needs some (`AT_ONCE`). What it had left over is used up, too.

    By parts of requests, each just too small to wait for its turn. The webhook gives each of them up after some
    seconds, so new ones are sent all the while.
    """
    page = resource.getpagesize()
    resource.prlimit(process.process.pid, resource.RLIMIT_AS, (page, page))
    greedy = Greedy(address(user))
    with ExitStack() as senders:
        senders.callback(greedy.close)
        for _ in range(SENDERS):
            senders.enter_context(again_and_again(greedy.send, 0.01))
        wait_for("parts to be refused", lambda: greedy.refused >= ENOUGH_REFUSED, STARVE_SECONDS)
        yield


class Greedy:
    """Sends the beginnings of requests with large bodies, all of which would be kept, and holds them open."""

    def __init__(self, where: tuple[str, int]) -> None:
        self.refused = 0
        self._where = where
        self._lock = threading.Lock()
        self._held: list[ssl.SSLSocket] = []
        self._context = ssl.create_default_context()
        self._context.check_hostname, self._context.verify_mode = False, ssl.CERT_NONE

    def send(self) -> None:
        """One more. That it was refused is seen now, or on a busy machine later."""
        try:
            part = self._sent()
        except TimeoutError:  # it is slow, which says nothing
            return
        except OSError:
            self.refused += 1
            return
        with self._lock:
            self._held.append(part)
            ended = [each for each in self._held if self._is_over(each)]
            self._held = [each for each in self._held if each not in ended]
        for each in ended:
            each.close()

    def _sent(self) -> ssl.SSLSocket:
        head = f"POST {names.WEBHOOK_PATH} HTTP/1.1\r\ncontent-length: {ADMISSION.kept_bytes}\r\n\r\n"
        with ExitStack() as unless_sent:
            plain = unless_sent.enter_context(socket.create_connection(self._where, timeout=5))
            part = unless_sent.enter_context(self._context.wrap_socket(plain))
            part.sendall(head.encode())
            part.sendall(b" " * (ADMISSION.large_bytes - 1))
            part.settimeout(0)
            unless_sent.pop_all()
        return part

    def _is_over(self, part: ssl.SSLSocket) -> bool:
        """It was cut without a word, which is a refusal, or given up after its time."""
        try:
            self.refused += not part.recv(1)
        except ssl.SSLWantReadError:
            return False
        except OSError:
            self.refused += 1
        return True

    def close(self) -> None:
        for each in self._held:
            each.close()


@contextmanager
def silent(user: NamespaceUser, process: Process) -> Iterator[None]:
    """Somebody accepts connections there and never says a word."""
    with dead(user, process), socket.create_server(address(user)):
        yield


def wrong_certificate(user: NamespaceUser, process: Process) -> AbstractContextManager[None]:
    """An impostor, whose certificate nobody trusts, and who would deny every pod if anybody believed it."""
    leaf = issue(new_authority(datetime.now(UTC)), HOSTS, datetime.now(UTC))
    return impostor(user, process, leaf, denying(0.0))


@contextmanager
def wrong_authority(user: NamespaceUser, process: Process) -> Iterator[None]:
    """The certificate is right, but the caBundle is that of another authority, and nobody is there to repair it."""
    with impostor(user, process, served(user.client), denying(0.0)):
        value = b64encode(new_authority(datetime.now(UTC)).certificate).decode()
        operation = {"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": value}
        user.client.patch(publish.CONFIGURATION, [operation], content_type=JSON_PATCH)
        # The API server goes on with the old one for a moment, and would believe the impostor.
        wait_for("the API server to read it", lambda: is_ignored(user))
        yield


def slow(user: NamespaceUser, process: Process) -> AbstractContextManager[None]:
    """Trusted, and its answer, a denial, comes two seconds after the time-out."""
    return impostor(user, process, served(user.client), denying(timeout_seconds(user.client) + 2))


def trickling(user: NamespaceUser, process: Process) -> AbstractContextManager[None]:
    """Trusted, and its answer comes byte by byte, for longer than the time-out."""
    return impostor(user, process, served(user.client), denying(0.0, seconds_per_byte=0.2))


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


class ImpostorServer(http.server.ThreadingHTTPServer):
    """Callers that hang up are no news."""

    daemon_threads = True
    block_on_close = False

    def handle_error(self, *_: Any) -> None:
        """Says nothing."""


@contextmanager
def impostor(
    user: NamespaceUser, process: Process, leaf: Issued, handler: type[http.server.BaseHTTPRequestHandler]
) -> Iterator[None]:
    """The webhook is gone, and somebody else listens at its address, with this certificate."""
    with dead(user, process):
        server = ImpostorServer(address(user), handler)
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


def address(user: NamespaceUser) -> tuple[str, int]:
    spec = user.client.get_json(SERVICE)["spec"]
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


def is_ignored(user: NamespaceUser) -> bool:
    """Whether a call fails now, and the pod is let through: a dry run."""
    before = failed_open(user.client)
    try:
        user.client.post(user.pods_path, bare("probe"), {"dryRun": "All"})
    except Exception:  # noqa: BLE001 - the impostor was believed
        return False
    return failed_open(user.client) > before


def bare(name: str, **spec: Any) -> dict[str, Any]:
    """A pod that its creator makes itself. We are asked about it like about any other."""
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": raw_pod_spec(**spec)}


def seconds_to_create(user: NamespaceUser, size: int) -> list[float]:
    """Creates pods at once, each with arguments of this size, and tells how long each of them took. None is refused."""

    def create(number: int) -> float:
        container = {"name": "app", "image": "example/app:1.0", "args": ["x" * size]}
        client = connect(user.kubeconfig, user_agent="spotweave-tests")
        began = time.monotonic()
        client.post(user.pods_path, bare(f"bare-{number}", containers=[container]))
        took = time.monotonic() - began
        client.close()
        return took

    with ThreadPoolExecutor(PODS) as pool:
        return list(pool.map(create, range(PODS)))


@dataclass(frozen=True)
class BadWebhook:
    """Who stands there; how many of the first calls fail at least and at most; and whether pods wait for it."""

    stand: Stand
    fail: tuple[int, int] = (PODS, PODS)
    waits: bool = False
    is_placed: bool = False  # the Deployment's pods
    size: int = 1  # of the first pods
    is_rare: bool = False  # for `make soak`: another case is much the same to the API server


BAD_WEBHOOKS: dict[str, BadWebhook] = {
    "dead": BadWebhook(dead),
    "hung": BadWebhook(hung, waits=True),
    "silent": BadWebhook(silent, waits=True, is_rare=True),  # as one that hangs: a connection, and no handshake
    "slower than the time-out": BadWebhook(slow, waits=True, is_rare=True),  # as one that trickles, without the bytes
    "trickling for longer than the time-out": BadWebhook(trickling, waits=True),
    "slower than usual": BadWebhook(throttled, fail=(0, 0), is_placed=True),
    "a wrong certificate": BadWebhook(wrong_certificate),
    "a wrong CA": BadWebhook(wrong_authority),
    "out of memory": BadWebhook(starved, fail=(1, PODS), size=1_200_000),
}


@contextmanager
def namespace(cluster: LocalCluster, what: str) -> Iterator[NamespaceUser]:
    """A namespace for a case, opted in. No webhook of an earlier case is known any more."""
    client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
    forget_webhooks(client)
    name = "bad-" + "".join(letter for letter in what.lower() if letter.isalpha())[:30]
    client.post("/api/v1/namespaces", raw_namespace(name))
    label(client, name)
    user = NamespaceUser(client, Path(cluster.kubeconfig), name)
    wait_for("its account", lambda: user.exists(f"/api/v1/namespaces/{name}/serviceaccounts/default"))
    try:
        yield user
    finally:
        client.delete(f"/api/v1/namespaces/{name}")
        client.close()


def check_good_one(user: NamespaceUser) -> None:
    """Whatever stood there before."""
    user.create(raw_workload("Deployment", "good", 10))
    assert is_exact(user.rest("good"), 7, 3)


@pytest.mark.parametrize(
    "what", [pytest.param(what, marks=[pytest.mark.soak] * bad.is_rare) for what, bad in BAD_WEBHOOKS.items()]
)
def test_every_pod_is_created_within_the_time_out(
    what: str, cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A good webhook places pods; then it is as the case says: pods created at once, and those of a Deployment."""
    for name, value in AT_ONCE.items():
        monkeypatch.setenv(name, value)
    with namespace(cluster, what) as user, running(cluster.kubeconfig, log_level="critical") as installed:
        check_good_one(user)
        with BAD_WEBHOOKS[what].stand(user, installed.processes[0]):
            act(what, BAD_WEBHOOKS[what], user)


def test_after_all_that_a_good_webhook_places_again(cluster: LocalCluster) -> None:
    """Nothing of it is left."""
    with namespace(cluster, "after all") as user, running(cluster.kubeconfig, log_level="warning"):
        check_good_one(user)


def act(what: str, bad: BadWebhook, user: NamespaceUser) -> None:
    timeout, before = timeout_seconds(user.client), failed_open(user.client)
    took = seconds_to_create(user, bad.size)
    failed = failed_open(user.client) - before
    began = time.monotonic()
    user.create(raw_workload("Deployment", "web", 7))
    wait_for("all pods", lambda: len(user.pods("web")) == 7)
    whole = time.monotonic() - began
    print(f"{what}: {min(took):.2f} to {max(took):.2f} s for a pod, {failed} calls failed; Deployment {whole:.2f} s")
    assert max(took) < timeout * NOISE
    assert whole < timeout * BATCHES * NOISE
    assert bad.fail[0] <= failed <= bad.fail[1]
    if bad.waits:
        assert min(took) > 0.9 * timeout  # else it was not what it should be
    placed = [names.CLASS in pod["metadata"]["labels"] for pod in user.pods("web")]
    assert all(placed) if bad.is_placed else bad.fail[0] < PODS or not any(placed)
    assert user.events("FailedCreate") == []
    user.rest("web")
