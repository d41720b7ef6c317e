"""Installs `manifests/overlays/local` on a local control plane, and runs the programs there as processes.

They run with their ServiceAccounts' tokens, never as admin, so that what works here works in a cluster. Kubeconfigs
are passed in memory, so no file is left, however this process ends.
"""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from demo.gangs import guard_solo, list_schedulers, overlay_for, remove_gangs, rendered, wants_gangs
from kube.client import Client, connect
from kube.configmaps import parse_configuration_text
from kube.configuration import read_text
from kube.errors import ApiError, NotFound
from kube.lease import permit_first_leader
from kube.paths import path_of
from localcluster import kubectl
from localcluster.errors import ClusterError
from localcluster.layout import free_port
from localcluster.process import spawn
from placement import names

log = logging.getLogger(__name__)

LOOPBACK = IPv4Network("127.0.0.0/8")
TOKEN_SECONDS = 365 * 24 * 3600
READY_SECONDS = 60.0
STOP_SECONDS = 15.0
CANARY = "spotweave-canary"
PINNED = 50  # the overlay's own number in the range


@dataclass(frozen=True, slots=True)
class Process:
    """A running program: its process, the addresses of its probes and metrics, and its page, if it has one."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    dashboard_port: int | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


Start = Callable[[str, str, Mapping[str, str]], Process]  # component, name, environment


@dataclass(frozen=True, slots=True)
class Installed:
    """Spotweave on a local control plane."""

    processes: list[Process]
    start: Start

    def add(self, component: str = names.WEBHOOK_COMPONENT, **environment: str) -> Process:
        """Starts one more program, a webhook or a rebalancer, without waiting for it."""
        number = sum(each.name.startswith(component) for each in self.processes)
        self.processes.append(self.start(component, f"{component}-{number}", environment))
        return self.processes[-1]

    def metrics(self, name: str) -> str:
        """The metrics of a program now."""
        return _fetch(next(f"{each.url}/metrics" for each in self.processes if each.name == name))

    @property
    def dashboard(self) -> str | None:
        """The page of the first rebalancer; any of them would do."""
        ports = (each.dashboard_port for each in self.processes if each.process.poll() is None)
        return next((f"http://127.0.0.1:{port}/" for port in ports if port is not None), None)

    def report(self) -> dict[str, Any]:
        return {
            "ready": True,
            "pids": {each.name: each.process.pid for each in self.processes},
            "metrics": {each.name: f"{each.url}/metrics" for each in self.processes},
            "dashboard": self.dashboard,
        }

    def watch(self) -> None:
        """Waits, and reports a program that ends. It is not restarted, because tests cause faults on purpose."""
        told: set[str] = set()
        while len(told) < len(self.processes) or not self.processes:
            time.sleep(0.5)
            for each in self.processes:
                if each.process.poll() is not None and each.name not in told:
                    log.error("%s exited with code %s", each.name, each.process.returncode)
                    told.add(each.name)
        raise ClusterError("every program has exited", "see the log lines above", exit_code=1)

    def stop(self) -> None:
        for each in self.processes:
            each.process.terminate()
        deadline = time.monotonic() + STOP_SECONDS
        for each in self.processes:
            try:
                each.process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                each.process.kill()
                each.process.wait()


@contextmanager
def running(
    kubeconfig: Path,
    webhooks: int = 1,
    config: Path | None = None,
    log_format: str = "text",
    log_level: str = "info",
    *,
    rebalancers: int = 0,
) -> Iterator[Installed]:
    """Spotweave, installed and ready to place pods; stopped at the end. The manifests stay installed."""
    configuration = None if config is None else read_text(config)
    if configuration is not None:
        parse_configuration_text(configuration)  # before anything is touched
    admin = connect(kubeconfig, user_agent="spotweave-run")
    address = install(kubeconfig, admin, configuration)
    installed = Installed(
        [], _starter(kubeconfig, admin, address, ("--log-format", log_format, "--log-level", log_level))
    )
    try:
        if rebalancers:
            permit_first_leader(admin)  # no replica has led here, unless there is a Lease that says so
        for component, count in ((names.WEBHOOK_COMPONENT, webhooks), (names.REBALANCER_COMPONENT, rebalancers)):
            for _ in range(count):
                installed.add(component)  # one by one: what was started is stopped, even if the next one fails
        wait_until_ready(installed.processes)
        if webhooks:
            _wait_until_asked(admin, installed)
        yield installed
    finally:
        installed.stop()
        admin.close()


# --- installing ------------------------------------------------------------------------------------------------------


def install(kubeconfig: Path, admin: Client, configuration: str | None) -> str:
    """Applies the overlay; returns the address that the API server will call."""
    objects = rendered(overlay_for(admin, configuration))
    service = _named(objects, "Service", names.WEBHOOK_SERVICE)["spec"]
    port = service["ports"][0]["port"]
    first = _first_address(admin)
    if not wants_gangs(configuration):
        remove_gangs(kubeconfig, admin)
    _remove_foreign_service(admin, port)
    service["clusterIP"] = str(_service_address(admin, first, port))
    _configured(objects, configuration)
    list_schedulers(objects, configuration)
    guard_solo(objects, configuration)
    text = yaml.safe_dump_all(objects)
    apply = ("apply", "--server-side", "--force-conflicts", "--field-manager=spotweave", "-f", "-")
    kubectl.call(*apply, kubeconfig=kubeconfig, stdin=text)
    address = f"{service['clusterIP']}:{port}"
    log.info("installed %d objects; the API server calls %s", len(objects), address)
    return address


def _first_address(admin: Client) -> IPv4Address:
    """The address of the cluster's first Service. Checked before anything is written, to refuse a real cluster."""
    first = IPv4Address(_cluster_ip(admin, "default", "kubernetes"))
    if first not in LOOPBACK:
        raise ClusterError(
            f"the cluster's Services are at {first}, where no process on this machine can listen",
            "spotweave run needs a control plane on this machine with --service-cluster-ip-range=127.96.0.0/16 "
            "(`spotweave cluster up` starts one)",
            exit_code=2,
        )
    return first


def _service_address(admin: Client, first: IPv4Address, port: int) -> IPv4Address:
    """Where the API server finds the webhook: the present address, or one that no other cluster has.

    Clusters on one machine may share a range of addresses, but not the API server's port: with Services in
    127.96.0.0/16 and the API server at port 40123, it is number 40123 of the range, 127.96.156.187.
    """
    try:
        address = IPv4Address(_cluster_ip(admin, names.SYSTEM_NAMESPACE, names.WEBHOOK_SERVICE))
    except NotFound:
        address = IPv4Network((first, 16), strict=False)[urlsplit(admin.server).port or PINNED]
    if not _is_free(address, port):
        raise ClusterError(
            f"another process listens on {address}:{port}, where the API server calls the webhook",
            "is `spotweave run` running on this cluster already?",
            exit_code=2,
        )
    return address


def _remove_foreign_service(admin: Client, port: int) -> None:
    """A Service from `manifests/base` has another port, and no address that we could listen on."""
    path = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/services/{names.WEBHOOK_SERVICE}"
    try:
        if [each["port"] for each in admin.get_json(path)["spec"]["ports"]] != [port]:
            admin.delete(path)
    except NotFound:
        return


def _cluster_ip(admin: Client, namespace: str, service: str) -> str:
    return str(admin.get_json(path_of("/api/v1/services", service, namespace))["spec"]["clusterIP"])


def _is_free(address: IPv4Address, port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((str(address), port))
        except OSError:
            return False
    return True


def _configured(objects: list[dict[str, Any]], configuration: str | None) -> None:
    if configuration is not None:
        _named(objects, "ConfigMap", names.CONFIG_MAP)["data"] = {names.CONFIG_KEY: configuration}


def _named(objects: list[dict[str, Any]], kind: str, name: str) -> dict[str, Any]:
    return next(each for each in objects if each["kind"] == kind and each["metadata"]["name"] == name)


def access_for(kubeconfig: Path, admin: Client, account: str) -> bytes:
    """A kubeconfig with the ServiceAccount's own token and nothing else."""
    path = f"{path_of('/api/v1/serviceaccounts', account, names.SYSTEM_NAMESPACE)}/token"
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": TOKEN_SECONDS},
    }
    token = admin.post(path, request)["status"]["token"]
    view = ("config", "view", "--raw", "--minify", "--flatten", "-o", "json")
    given = json.loads(kubectl.call(*view, kubeconfig=kubeconfig))
    own = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": account,
        "clusters": [{"name": account, "cluster": given["clusters"][0]["cluster"]}],
        "users": [{"name": account, "user": {"token": token}}],
        "contexts": [{"name": account, "context": {"cluster": account, "user": account}}],
    }
    return json.dumps(own).encode()


# --- running ---------------------------------------------------------------------------------------------------------


def _starter(kubeconfig: Path, admin: Client, address: str, options: tuple[str, ...]) -> Start:
    """Starts a component under a name, with its ServiceAccount's access."""
    accounts = {names.WEBHOOK_COMPONENT: names.WEBHOOK_ACCOUNT, names.REBALANCER_COMPONENT: names.REBALANCER_ACCOUNT}
    access = {each: access_for(kubeconfig, admin, account) for each, account in accounts.items()}

    def start(component: str, name: str, environment: Mapping[str, str]) -> Process:
        port = free_port()
        if component == names.WEBHOOK_COMPONENT:
            listen: tuple[str, ...] = ("--listen", address, "--share-port", "--peer-listen", f"127.0.0.1:{port}")
        else:
            listen = ("--dashboard-listen", f"127.0.0.1:{port}")
        started = _start(name, access[component], (component, *listen, *options), environment)
        return replace(started, dashboard_port=port) if component == names.REBALANCER_COMPONENT else started

    return start


def _start(name: str, access: bytes, arguments: tuple[str, ...], environment: Mapping[str, str]) -> Process:
    """A program with its ServiceAccount's access, and its probes and metrics on a port of its own."""
    port = free_port()
    descriptor = os.memfd_create("kubeconfig")
    try:
        os.write(descriptor, access)
        own = ("--kubeconfig", f"/dev/fd/{descriptor}", "--metrics-listen", f"127.0.0.1:{port}")
        command = [sys.executable, "-m", "cli.main", *arguments, *own]
        whole = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment}
        process = spawn(command, sys.stderr.fileno(), whole, descriptors=(descriptor,))
    finally:
        os.close(descriptor)
    return Process(name, process, port)


def wait_until_ready(processes: Iterable[Process]) -> None:
    deadline = time.monotonic() + READY_SECONDS
    for each in processes:
        while (answer := _fetch(f"{each.url}/readyz")) != "ok\n":
            if each.process.poll() is not None:
                raise ClusterError(f"{each.name} exited with code {each.process.returncode}", "see the log lines above")
            if time.monotonic() > deadline:
                raise ClusterError(f"{each.name} was not ready within {READY_SECONDS:.0f} s: {answer or 'no answer'}")
            time.sleep(0.05)


def _fetch(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:  # noqa: S310 - a loopback URL of our own
            return str(response.read().decode())
    except urllib.error.HTTPError as error:
        return error.read().decode().strip()
    except OSError:
        return ""


def _wait_until_asked(admin: Client, installed: Installed) -> None:
    """Waits until the API server really calls us: it needs a moment to read a new configuration.

    A pod is created as a dry run, in a namespace for this purpose, until a webhook has seen it. It belongs to no
    workload, so it is not placed, and it is never stored.
    """
    deadline = time.monotonic() + READY_SECONDS
    before = _calls(installed)
    with _canary_namespace(admin):
        while _calls(installed) == before:
            if time.monotonic() > deadline:
                raise ClusterError("the API server does not call the webhook", "see the log of the API server")
            try:
                admin.post(f"/api/v1/namespaces/{CANARY}/pods", _CANARY_POD, {"dryRun": "All"})
            except ApiError as error:  # the namespace's ServiceAccount takes a moment too
                log.debug("canary: %s", error)
            time.sleep(0.05)


_CANARY_POD: Mapping[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {
        "name": CANARY,
        "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": CANARY, "uid": CANARY, "controller": True}
        ],
    },
    "spec": {"containers": [{"name": "canary", "image": "canary"}], "schedulerName": "none"},
}


def _calls(installed: Installed) -> int:
    """How many admission calls the webhooks have answered."""
    texts = (_fetch(f"{each.url}/metrics") for each in installed.processes)
    prefix = f"{names.METRIC_ADMISSION_SECONDS}_count "
    return sum(
        int(float(line.removeprefix(prefix))) for text in texts for line in text.splitlines() if line.startswith(prefix)
    )


@contextmanager
def _canary_namespace(admin: Client) -> Iterator[None]:
    path = f"/api/v1/namespaces/{CANARY}"
    metadata = {"name": CANARY, "labels": {names.PLACEMENT: names.ENABLED}}
    _wait_gone(admin, path)
    admin.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
    try:
        yield
    finally:
        admin.delete(path)


def _wait_gone(admin: Client, path: str) -> None:
    """An object from a killed run may still exist, or be terminating."""
    deadline = time.monotonic() + READY_SECONDS
    try:
        admin.delete(path)
        while time.monotonic() < deadline:
            admin.get(path)
            time.sleep(0.1)
    except NotFound:
        return
    raise ClusterError(f"the namespace {CANARY} of an earlier run is still being deleted")
