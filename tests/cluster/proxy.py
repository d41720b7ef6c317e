"""Stands between a program and the API server: counts what is asked, and answers some of it badly."""

from __future__ import annotations

import base64
import http.client
import json
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.message import Message
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

HELD_SECONDS = 6.0  # longer than the rebalancer waits for an answer
PIECE = 65_536


class Trouble(StrEnum):
    """What becomes of a request."""

    CONFLICT = "409"
    BUSY = "429"
    FAILURE = "500"
    SILENCE = "no answer, and nothing was done"
    LOST = "no answer, though it was done"
    EXPIRED = "410"

    @property
    def code(self) -> int:
        return int(self) if self.isdecimal() else 0


@dataclass(frozen=True)
class ProxiedRequest:
    """One request, when it came, and what became of it; None: it was passed on."""

    at: float
    method: str
    path: str
    trouble: Trouble | None

    @property
    def is_write(self) -> bool:
        return self.method != "GET"


Chance = Callable[[str, str], Trouble | None]  # by method and path


@dataclass
class Proxy:
    """`trouble` may be changed at any time."""

    url: str = ""
    trouble: Chance = lambda _method, _path: None
    asked: list[ProxiedRequest] = field(default_factory=list)
    cuts_watches: bool = False  # each ends with the next thing that it tells

    def met(self) -> Counter[Trouble]:
        return Counter(each.trouble for each in self.asked if each.trouble is not None)


def access_through(proxy: Proxy, access: bytes) -> bytes:
    """The same access, but by way of the proxy."""
    raw = json.loads(access)
    raw["clusters"][0]["cluster"] = {"server": proxy.url}
    return json.dumps(raw).encode()


@contextmanager
def proxied(access: bytes) -> Iterator[Proxy]:
    """In front of the API server that this kubeconfig, which must be whole, names."""
    cluster = json.loads(access)["clusters"][0]["cluster"]
    authority = base64.b64decode(cluster["certificate-authority-data"]).decode()
    proxy, tls = Proxy(), ssl.create_default_context(cadata=authority)
    kept = {"proxy": proxy, "server": urlsplit(cluster["server"]).netloc, "tls": tls}
    server = _ProxyServer(("127.0.0.1", 0), type("Connection", (_ProxiedConnection,), kept))
    proxy.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()


class _ProxyServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: clients that go away are what it is about."""


class _ProxiedConnection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    proxy: Proxy
    server: Any
    tls: ssl.SSLContext

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        trouble = self.proxy.trouble(self.command, self.path)
        self.proxy.asked.append(ProxiedRequest(time.monotonic(), self.command, self.path, trouble))
        if trouble is not None and trouble.code:
            self._refuse(trouble.code)
            return
        if trouble is Trouble.SILENCE:
            self._fall_silent()
            return
        upstream = http.client.HTTPSConnection(type(self).server, context=self.tls, timeout=600)
        try:
            upstream.request(self.command, self.path, body, _passed_on(self.headers))
            answer = upstream.getresponse()
            if trouble is Trouble.LOST:
                answer.read()
                self._fall_silent()
            else:
                self._pass_back(answer)
        except OSError:
            self.close_connection = True
        finally:
            upstream.close()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class looks for these names

    def _refuse(self, code: int) -> None:
        reasons = {409: "Conflict", 410: "Expired", 429: "TooManyRequests", 500: "InternalError"}
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reasons[code]}
        body = json.dumps(status | {"message": "by way of trouble"}).encode()
        self.send_response(code)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _fall_silent(self) -> None:
        time.sleep(HELD_SECONDS)
        self.close_connection = True

    def _pass_back(self, answer: http.client.HTTPResponse) -> None:
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                self.send_header(name, value)
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        while piece := answer.read1(PIECE):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            if self.proxy.cuts_watches and "watch=true" in self.path:
                self.close_connection = True
                return
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Silent."""


def _passed_on(headers: Message) -> dict[str, str]:
    return {name: value for name, value in headers.items() if name.lower() not in ("host", "connection")}
