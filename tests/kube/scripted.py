"""An API server on loopback that says what a test tells it to, and remembers what it was asked."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from kubernetes.client import Configuration

from kube.client import Client


@dataclass(frozen=True)
class ReceivedRequest:
    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""

    @property
    def is_watch(self) -> bool:
        return self.query.get("watch") == "true"


@dataclass(frozen=True)
class Answer:
    """A whole answer, sent after `delay_seconds`."""

    body: bytes = b"{}"
    status: int = 200
    retry_after: str = ""
    location: str = ""
    delay_seconds: float = 0.0


@dataclass(frozen=True)
class WatchLines:
    """The lines of a watch, then: "hold" it open in silence, "end" it as the server does, or "cut" the connection."""

    lines: Sequence[bytes] = ()
    then: str = "hold"
    says_close: bool = False  # "connection: close", as a server that is shutting down


@dataclass(frozen=True)
class Endless:
    """Bytes as they go over the wire: the first, and then a piece, again and again, until the client hangs up."""

    first: bytes = b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n"
    piece: bytes = b" "
    every_seconds: float = 0.0


class Script:
    """What to answer next. Lists and watches have queues of their own.

    When the queue is empty a watch is opened and silent, as in a quiet cluster, and anything else hangs.
    """

    def __init__(self) -> None:
        self.asked: queue.Queue[ReceivedRequest] = queue.Queue()
        self.lists: queue.Queue[Answer | Endless] = queue.Queue()
        self.watches: queue.Queue[Answer | WatchLines | Endless] = queue.Queue()
        self.closing = threading.Event()

    def answer(self, *answers: Answer | Endless | bytes) -> None:
        for answer in answers:
            self.lists.put(Answer(answer) if isinstance(answer, bytes) else answer)

    def watch(self, *watches: Answer | WatchLines | Endless) -> None:
        for watch in watches:
            self.watches.put(watch)

    def next_request(self, *, watch: bool | None = None) -> ReceivedRequest:
        """The next request that came in; with `watch`, the next that is (or is not) one."""
        while True:
            request = self.asked.get(timeout=5)
            if watch is None or request.is_watch is watch:
                return request


class _ScriptedConnection(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    script: Script

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        request = ReceivedRequest(self.command, parts.path, dict(parse_qsl(parts.query)), headers, body)
        self.script.asked.put(request)
        try:
            self._answer(self._next_watch() if request.is_watch else self._next_answer())
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET  # noqa: N815 - the base class looks for these names

    def _next_watch(self) -> Answer | WatchLines | Endless:
        try:
            return self.script.watches.get_nowait()
        except queue.Empty:
            return WatchLines()

    def _next_answer(self) -> Answer | Endless | None:
        try:
            return self.script.lists.get_nowait()
        except queue.Empty:
            return None

    def _answer(self, answer: Answer | WatchLines | Endless | None) -> None:
        if answer is None:
            self._hang()
        elif isinstance(answer, Endless):
            self._send_endlessly(answer)
        elif isinstance(answer, WatchLines):
            self._send_lines(answer)
        else:
            self._send_whole(answer)

    def _hang(self) -> None:
        self.script.closing.wait()
        self.close_connection = True

    def _send_endlessly(self, answer: Endless) -> None:
        self.wfile.write(answer.first)
        while not self.script.closing.wait(answer.every_seconds):
            self.wfile.write(answer.piece)

    def _send_whole(self, answer: Answer) -> None:
        self.script.closing.wait(answer.delay_seconds)
        self.send_response(answer.status)
        if answer.retry_after:
            self.send_header("retry-after", answer.retry_after)
        if answer.location:
            self.send_header("location", answer.location)
        self.send_header("content-length", str(len(answer.body)))
        self.end_headers()
        self.wfile.write(answer.body)

    def _send_lines(self, watch: WatchLines) -> None:
        self.send_response(200)
        self.send_header("transfer-encoding", "chunked")
        if watch.says_close:
            self.send_header("connection", "close")
        self.end_headers()
        for line in watch.lines:
            self.wfile.write(b"%x\r\n%s\n\r\n" % (len(line) + 1, line))
        if watch.then == "hold":
            self._hang()
        elif watch.then == "cut":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it so
        """Silent: what was asked is in the script."""


class _ScriptedServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """Silent: a client that goes away, or refuses our certificate, is what some tests are about."""


@contextmanager
def serving(script: Script, tls: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that follows the script; gives its URL."""
    server = _ScriptedServer(("127.0.0.1", 0), type("Connection", (_ScriptedConnection,), {"script": script}))
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://127.0.0.1:{server.server_port}"
    finally:
        script.closing.set()
        server.shutdown()
        server.server_close()


@contextmanager
def scripted_api() -> Iterator[tuple[Script, Client]]:
    """A script to fill, and a client that talks to the server that follows it."""
    script = Script()
    with serving(script) as url:
        client = Client(Configuration(host=url), user_agent="test/1")
        try:
            yield script, client
        finally:
            client.close()
