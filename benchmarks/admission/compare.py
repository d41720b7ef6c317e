"""Ours against the Go reference: interleaved rounds at 16 connections over TLS, ratios with their spread."""

from __future__ import annotations

import base64
import json
import os
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from http.client import HTTPSConnection
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks.admission.serve import UID
from benchmarks.golang import build
from certs.authority import issue, new_authority
from certs.publish import HOSTS
from placement import names

HERE = Path(__file__).parent
OUT = Path(__file__).parent.parent.parent / "out" / "bench"
ROUNDS = int(os.environ.get("ROUNDS", "10"))
CONNECTIONS = 16
SECONDS = 3.0


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        prepare(directory)
        with server(directory, "ours") as ours, server(directory, "reference") as reference:
            _check_same_patch(directory, ours, reference)
            rounds = [_round(directory, ours, reference) for _ in range(ROUNDS)]
    _report(rounds, (len(json.dumps(review())),))


def pod_spec() -> dict[str, Any]:
    """The template of a pod of medium size."""
    mounts = [{"name": f"volume-{index}", "mountPath": f"/var/data/{index}", "readOnly": True} for index in range(4)]
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "periodSeconds": 10, "timeoutSeconds": 1}
    container = {
        "name": "app",
        "image": "example/app:1.0",
        "env": [{"name": f"SETTING_{index}", "value": f"a value of some length {index}"} for index in range(12)],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"memory": "256Mi"}},
        "volumeMounts": mounts,
        "livenessProbe": probe,
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
    }
    volumes = [{"name": f"volume-{index}", "configMap": {"name": f"settings-{index}"}} for index in range(4)]
    return {"containers": [container], "volumes": volumes}


def token_volume() -> dict[str, Any]:
    """What the API server's own admission adds to every pod."""
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}},
    ]
    return {"name": "kube-api-access-x7k2p", "projected": {"sources": sources, "defaultMode": 420}}


def review() -> dict[str, Any]:
    """A review as the API server sends it for a Deployment's pod; a dry run, so that no slot is used up."""
    toleration = {
        "key": "node.kubernetes.io/not-ready",
        "operator": "Exists",
        "effect": "NoExecute",
        "tolerationSeconds": 300,
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "name": "web-abc",
        "uid": UID,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    template = pod_spec()
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "generateName": "web-abc-",
            "namespace": "shop",
            "labels": {"app": "web", names.POD_TEMPLATE_HASH: "abc"},
            "ownerReferences": [owner],
        },
        "spec": {
            **template,
            "volumes": [*template["volumes"], token_volume()],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "default",
            "schedulerName": "default-scheduler",
            "priority": 0,
            "preemptionPolicy": "PreemptLowerPriority",
            "tolerations": [toleration],
        },
        "status": {},
    }
    request = {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "",
        "namespace": "shop",
        "operation": "CREATE",
        "userInfo": {
            "username": "system:serviceaccount:kube-system:replicaset-controller",
            "groups": ["system:authenticated"],
        },
        "object": pod,
        "oldObject": None,
        "dryRun": True,
        "options": {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"},
    }
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def prepare(directory: Path) -> None:
    """Everything that a server and its load need: the Go programs, certificates and the review."""
    build(HERE, directory, "./reference", "./load")
    certificates(directory)
    (directory / "review.json").write_text(json.dumps(review()))


def certificates(directory: Path) -> None:
    now = datetime.now(UTC)
    authority = new_authority(now)
    leaf = issue(authority, HOSTS, now)
    for name, content in (("ca.crt", authority.certificate), ("tls.crt", leaf.certificate), ("tls.key", leaf.key)):
        (directory / name).write_bytes(content)


@contextmanager
def server(directory: Path, which: str) -> Iterator[str]:
    """Ours or the reference, in a process of its own; gives its address."""
    with serving(directory, which) as (address, _process_id):
        yield address


@contextmanager
def serving(directory: Path, which: str = "ours") -> Iterator[tuple[str, int]]:
    """The same; gives its address and the process's id."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    files = [str(directory / "tls.crt"), str(directory / "tls.key"), address]
    ours = [sys.executable, "-m", "benchmarks.admission.serve"]
    process = subprocess.Popen([*(ours if which == "ours" else [str(directory / "reference")]), *files])
    try:
        _wait_for(address)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait()


def _wait_for(address: str) -> None:
    host, _, port = address.partition(":")
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.05)
    raise TimeoutError(f"no server listens on {address}")


def _check_same_patch(directory: Path, ours: str, reference: str) -> None:
    """Otherwise the figures mean nothing: one would have more to write than the other."""
    own, other = _patch(directory, ours), _patch(directory, reference)
    if own != other:
        raise AssertionError(f"ours answers with {own}, the reference with {other}")


def _patch(directory: Path, address: str) -> Any:
    """What a server would change about the pod."""
    context = ssl.create_default_context(cafile=directory / "ca.crt")
    context.check_hostname = False
    content = (directory / "review.json").read_bytes()
    with closing(HTTPSConnection(address, context=context)) as connection:
        connection.request("POST", "/mutate", content, {"content-type": "application/json"})
        return json.loads(base64.b64decode(json.load(connection.getresponse())["response"]["patch"]))


def _round(directory: Path, ours: str, reference: str) -> dict[str, dict[str, float]]:
    return {"ours": load(directory, ours), "reference": load(directory, reference)}


def load(
    directory: Path, address: str, connections: int = CONNECTIONS, seconds: float = SECONDS, *, anew: bool = False
) -> dict[str, float]:
    """Sends the review repeatedly; `anew` opens a connection for each."""
    command = [str(directory / "load"), str(directory / "ca.crt"), address, str(directory / "review.json")]
    options = [str(connections), str(seconds), *(["anew"] if anew else [])]
    done = subprocess.run([*command, *options], capture_output=True, text=True, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def _report(rounds: list[dict[str, dict[str, float]]], sizes: tuple[int, ...]) -> None:
    table = Table(title=f"admission, TLS, {CONNECTIONS} connections, {sizes[0]} byte review, {len(rounds)} rounds")
    for column in ("", "ours", "Go reference", "ours / Go (median)", "spread"):
        table.add_column(column, justify="right")
    result: dict[str, Any] = {"rounds": rounds, "ratios": {}}
    for key in ("rps", "p50_ms", "p99_ms", "failed"):
        ours, reference = ([each[which][key] for each in rounds] for which in ("ours", "reference"))
        ratios = [own / other for own, other in zip(ours, reference, strict=True) if other]
        middle = statistics.median(ratios) if ratios else 0.0
        result["ratios"][key] = middle
        spread = f"{min(ratios):.2f}–{max(ratios):.2f}" if ratios else "–"
        table.add_row(
            key, f"{statistics.median(ours):.1f}", f"{statistics.median(reference):.1f}", f"{middle:.2f}", spread
        )
    Console().print(table)
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / "admission.json").write_text(json.dumps(result, indent=2))
