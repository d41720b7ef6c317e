"""A simulated API server: lists of the synthetic cluster, and a watch of its pods that sends changes on request.

`python -m benchmarks.feed 5000 10000 10000` prints its port. `POST /speak` makes every watch of pods send 10,000
changes, as fast as they are read, each of another pod, in no order. The Lease is granted to any caller. All other
writes are accepted and dropped.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from benchmarks.synthetic import PODS_PER_WORKLOAD, Collection, Size, collections, raw_pod
from kube.lease import PATH as LEASE
from kube.lease import lease_object, released_spec

VERSION = "1000000"
BATCH = 50  # changes sent at once
NONE = Collection(0, lambda _: {})
_encode = msgspec.json.encode


def page(size: Size, resource: str, first: int, limit: int) -> bytes:
    """A page of a list; the continue token is the number of the next object. Unknown resources are empty."""
    of = collections(size).get(resource, NONE)
    end = min(of.count, first + limit)
    metadata = {"resourceVersion": VERSION, **({"continue": str(end)} if end < of.count else {})}
    return _encode({"kind": "List", "metadata": metadata, "items": [of.raw(number) for number in range(first, end)]})


def pages(size: Size, resource: str, limit: int = 500) -> Iterator[bytes]:
    for first in range(0, collections(size).get(resource, NONE).count, limit):
        yield page(size, resource, first, limit)


def changes(size: Size, count: int) -> Iterator[bytes]:
    """Lines of a watch: pods become unready, one of each workload in turn, each pod at most once."""
    stride = next(each for each in (7919, 7907, 7901) if size.workloads % each)
    for number in range(count):
        workload = number * stride % size.workloads
        pod = workload * PODS_PER_WORKLOAD + (number // size.workloads + workload) % PODS_PER_WORKLOAD
        raw = raw_pod(pod, size, version=int(VERSION) + 1 + number, ready=False)
        yield _encode({"type": "MODIFIED", "object": raw}) + b"\n"


class _Feed(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    size: Size
    batches: list[bytes]
    speak: threading.Event
    lease: dict[str, Any]

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query))
        resource = parts.path.rpartition("/")[2]
        if query.get("watch") == "true":
            self._watch(resource, float(query["timeoutSeconds"]))
        elif parts.path == LEASE:
            self._whole(_encode(self.lease))
        else:
            self._whole(page(self.size, resource, int(query.get("continue", 0)), int(query["limit"])))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = urlsplit(self.path).path
        if path == "/speak":
            self.speak.set()
        elif path == LEASE:
            self.lease["spec"] |= msgspec.json.decode(body)["spec"]
        self._whole(_encode(self.lease) if path == LEASE else b"{}")

    do_PUT = do_PATCH = do_DELETE = do_POST  # noqa: N815 - the base class looks for these names

    def _whole(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, resource: str, seconds: float) -> None:
        """Sends nothing until its time is over, except changes of pods on request."""
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        if resource == "pods" and self.speak.wait(seconds):
            for batch in self.batches:
                self._chunk(batch)
        if resource != "pods" or self.speak.is_set():
            threading.Event().wait(seconds)
        self._chunk(b"")

    def _chunk(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Silent."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: the program under test ends without closing its connections."""


def main(nodes: int, workloads: int, events: int) -> None:
    size = Size(nodes, workloads)
    lines = list(changes(size, events))
    batches = [b"".join(lines[first : first + BATCH]) for first in range(0, events, BATCH)]
    lease = lease_object(released_spec())
    lease["metadata"]["resourceVersion"] = VERSION
    kept = {"size": size, "batches": batches, "speak": threading.Event(), "lease": lease}
    feed = type("Feed", (_Feed,), kept)
    server = _Server(("127.0.0.1", 0), feed)
    print(server.server_port, flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
