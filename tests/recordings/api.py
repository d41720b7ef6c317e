"""A tiny API server on loopback that answers GET of lists and objects of one cluster."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.recordings.clusters import Raw, RawCluster

_PATH = re.compile(r"(/api/v1|/apis/[^/]+/v1)(?:/namespaces/([^/]+)(?=/[a-z]))?/([a-z]+)(?:/([^/]+))?")


@contextmanager
def serving(cluster: RawCluster, kubeconfig: Path) -> Iterator[Path]:
    """Serves the cluster meanwhile, and writes a kubeconfig that points to it."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(cluster))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    kubeconfig.write_text(json.dumps(_kubeconfig(server.server_port)))
    try:
        yield kubeconfig
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _kubeconfig(port: int) -> Raw:
    context = {"cluster": "recorded", "user": "nobody", "namespace": "shop"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "recorded", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "nobody", "user": {}}],
        "contexts": [{"name": "recorded", "context": context}],
        "current-context": "recorded",
    }


def answer(cluster: RawCluster, target: str) -> Raw | None:
    """The object or list at a path; None where there is none."""
    parts = urlsplit(target)
    found = _PATH.fullmatch(parts.path)
    if found is None:
        return None
    group, namespace, resource, name = found.groups()
    objects = cluster.objects.get(f"{group}/{resource}", [])
    here = [each for each in objects if namespace in (None, each["metadata"].get("namespace"))]
    if name is not None:
        return next((each for each in here if each["metadata"]["name"] == name), None)
    query = parse_qs(parts.query)
    selected = [each for each in here if _is_selected(each, query)]
    return {"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": selected}


def _is_selected(raw: Raw, query: dict[str, list[str]]) -> bool:
    """By equality, which is all that the product asks for."""
    for selector in query.get("fieldSelector", []):
        key, _, value = selector.partition("=")
        if (raw["metadata"]["name"] if key == "metadata.name" else raw.get(key)) != value:
            return False
    for selector in query.get("labelSelector", []):
        key, _, value = selector.partition("=")
        if raw["metadata"].get("labels", {}).get(key) != value:
            return False
    return True


def _handler(cluster: RawCluster) -> type[BaseHTTPRequestHandler]:
    class ClusterHandler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            found = answer(cluster, self.path)
            missing = {"kind": "Status", "status": "Failure", "reason": "NotFound", "message": "not found", "code": 404}
            body = json.dumps(missing if found is None else found).encode()
            self.send_response(404 if found is None else 200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            return

    return ClusterHandler
