"""Serves the Flask application over TLS, on one event loop in one process.

Not a thread per connection: Go's transport dials ahead and leaves connections silent, which starves such servers.
One process: decisions are serial, so the ledger needs no partner, a certificate is exchanged by loading it into the
live context, and no worker outlives its parent. Connections are kept longer than the API server keeps them idle (90 s),
since it does not repeat a POST on a closed one.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn
from flask import Flask
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Response

from placement import names
from webhook.app import LARGEST_BODY, Door
from webhook.review import MalformedReview

KEEP_ALIVE_SECONDS = 120
GRACE_SECONDS = 10

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]


class Gateway:
    """The ASGI side of the application. Admission goes straight to the door; all else through Flask's WSGI callable.

    Flask's machinery costs more than the decision itself, and WSGI cannot wait for the caches without a thread.
    """

    def __init__(self, app: Flask, door: Door) -> None:
        self._app = app
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = dict(scope["headers"])
        body = await _read(receive)
        if body is None:
            await _send(send, 413, "text/plain", b"the body is too large\n")
        elif self._is_admission(scope, headers):
            await self._admit(body, send)
        else:
            response = self._through_flask(scope, headers, body)
            await _send(send, response.status_code, response.content_type or "text/plain", response.get_data())

    @staticmethod
    def _is_admission(scope: Scope, headers: dict[bytes, bytes]) -> bool:
        return (
            scope["path"] == names.WEBHOOK_PATH
            and scope["method"] == "POST"
            and headers.get(b"content-type", b"").startswith(b"application/json")
        )

    async def _admit(self, body: bytes, send: Send) -> None:
        try:
            await _send(send, 200, "application/json", await self._door.answer_patiently(body))
        except MalformedReview as error:
            await _send(send, 400, "text/plain", f"{error}\n".encode())

    def _through_flask(self, scope: Scope, headers: dict[bytes, bytes], body: bytes) -> Response:
        builder = EnvironBuilder(
            path=scope["path"],
            query_string=scope["query_string"].decode("latin-1"),
            method=scope["method"],
            content_type=headers.get(b"content-type", b"").decode("latin-1") or None,
            data=body,
        )
        return Response.from_app(self._app, builder.get_environ(), buffered=True)


async def _read(receive: Receive) -> bytes | None:
    """The whole body; None where it is larger than we take."""
    pieces: list[bytes] = []
    size, more = 0, True
    while more:
        message = await receive()
        pieces.append(message.get("body", b""))
        size += len(pieces[-1])
        more = message.get("more_body", False)
        if size > LARGEST_BODY:
            return None
    return b"".join(pieces)


async def _send(send: Send, status: int, content_type: str, body: bytes) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


class Identity:
    """The served certificate. It is exchanged in the live context: new connections get the new one."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2

    def load(self, certificate: bytes, key: bytes) -> None:
        """Through memory: the ssl module reads files only, and a key does not belong on a disk."""
        with _memory_file(certificate) as certificate_path, _memory_file(key) as key_path:
            self.context.load_cert_chain(certificate_path, key_path)


@contextmanager
def _memory_file(content: bytes) -> Iterator[str]:
    descriptor = os.memfd_create("certificate")
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


class _Server(uvicorn.Server):
    """Leaves signals to `serve`, which stops all servers together."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def bind(address: str, *, shared: bool = False) -> socket.socket:
    """A listening socket at HOST:PORT; `shared` lets several processes listen there (SO_REUSEPORT)."""
    host, _, port = address.rpartition(":")
    listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if shared:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind((host.strip("[]"), int(port)))
    return listener


async def serve(
    gateway: Gateway,
    identity: Identity,
    tls: socket.socket,
    plain: socket.socket,
    *,
    background: Callable[[], Awaitable[None]],
) -> None:
    """Serves until SIGTERM or SIGINT: admission over TLS, and probes and metrics in plain text beside it."""
    servers = [_server(gateway, identity.context), _server(gateway, None)]
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, servers)
    chore = asyncio.ensure_future(background())
    await asyncio.gather(servers[0].serve([tls]), servers[1].serve([plain]))
    chore.cancel()
    with suppress(asyncio.CancelledError):
        await chore


def _stop(servers: list[_Server]) -> None:
    for server in servers:
        server.should_exit = True


def _server(gateway: Gateway, context: ssl.SSLContext | None) -> _Server:
    factory = None if context is None else (lambda _config, _default: context)
    config = uvicorn.Config(
        gateway,
        loop="uvloop",
        http="httptools",
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ssl_context_factory=factory,
    )
    return _Server(config)
