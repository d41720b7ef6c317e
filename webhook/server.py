"""Serves the Flask application over TLS, on one event loop in one process.

One process: decisions are serial, a certificate is exchanged by loading it into the live context, and no worker
outlives its parent. How connections are treated, and why, is in `connections`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from flask import Flask
from werkzeug.test import EnvironBuilder
from werkzeug.wrappers import Response as FlaskResponse

from placement import names
from webhook import peers
from webhook.app import LARGEST_BODY, Door
from webhook.connections import Listener, Request, Response
from webhook.review import MalformedReview

GRACE_SECONDS = 10.0
LARGEST_PROBE = 64 * 1024
FORWARDED = peers.FORWARDED.encode()


class Gateway:
    """Answers requests. Admission and hand-overs go straight to the door; all else through Flask's WSGI callable.

    Flask's machinery costs more than the decision itself, and WSGI cannot wait for the caches without a thread.
    """

    def __init__(self, app: Flask, door: Door) -> None:
        self._app = app
        self._door = door

    def probe(self, request: Request) -> Response:
        """Everything but admission: in plain text, anybody's review could use up slots."""
        if request.target.partition("?")[0] == names.WEBHOOK_PATH:
            return Response(404, b"admission is served over TLS only\n", "text/plain")
        return self._through_flask(request)

    def answer(self, request: Request) -> Response | Awaitable[Response]:
        if _is_json(request, names.HAND_OVER_PATH):
            return self._hand_over(request)
        if not _is_json(request, names.WEBHOOK_PATH):
            return self._through_flask(request)
        passed = request.headers.get(FORWARDED, b"").decode("latin-1")
        try:
            answer = self._door.answer_or_wait(request.body, passed.split(",") if passed else ())
        except MalformedReview as error:
            return _malformed(error)
        return Response(200, answer) if isinstance(answer, bytes) else _later(answer)

    async def _hand_over(self, request: Request) -> Response:
        try:
            answer = await self._door.hand_over(request.body)
        except MalformedReview as error:
            return _malformed(error)
        return Response(409, b"this replica decides\n", "text/plain") if answer is None else Response(200, answer)

    def _through_flask(self, request: Request) -> Response:
        path, _, query = request.target.partition("?")
        content_type = request.headers.get(b"content-type", b"").decode("latin-1") or None
        try:
            builder = EnvironBuilder(
                path=path, query_string=query, method=request.method, content_type=content_type, data=request.body
            )
        except ValueError as error:
            return Response(400, f"malformed request: {error}\n".encode(), "text/plain")
        answer = FlaskResponse.from_app(self._app, builder.get_environ(), buffered=True)
        return Response(answer.status_code, answer.get_data(), answer.content_type or "text/plain")


def _malformed(error: MalformedReview) -> Response:
    return Response(400, f"{error}\n".encode(), "text/plain")


def _is_json(request: Request, path: str) -> bool:
    """A POST of JSON to this path."""
    return (
        request.method == "POST"
        and request.target.partition("?")[0] == path
        and request.headers.get(b"content-type", b"").startswith(b"application/json")
    )


async def _later(answer: Awaitable[bytes]) -> Response:
    return Response(200, await answer)


class TlsIdentity:
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
    identity: TlsIdentity,
    tls: Sequence[socket.socket],
    plain: socket.socket,
    *,
    background: Callable[[], Awaitable[None]],
    enter: Callable[[], Awaitable[None]] | None = None,
    listening: asyncio.Event | None = None,
    leave: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Serves until SIGTERM or SIGINT: admission over TLS, and probes and metrics in plain text beside it.

    Admission is listened for once `enter` is done, and then `listening` is set. `leave` is called first when it ends,
    while calls are still answered. `background` goes on for as long as it serves; if it fails, so does this.
    """
    admission = [Listener(gateway.answer, LARGEST_BODY) for _ in tls]
    probes = Listener(gateway.probe, LARGEST_PROBE)
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    chore = asyncio.ensure_future(background())
    chore.add_done_callback(lambda _: stopping.set())  # what should never end has failed: end, and say why
    await probes.start(plain, None)
    if enter is None or await _before(stopping, enter()):
        for listener, sock in zip(admission, tls, strict=True):
            await listener.start(sock, identity.context)
        if listening is not None:
            listening.set()
        await stopping.wait()
        if leave is not None:
            await leave()
        await asyncio.gather(*(listener.stop(GRACE_SECONDS) for listener in admission))
    await probes.stop(0.0)
    chore.cancel()
    with suppress(asyncio.CancelledError):
        await chore


async def _before(stopping: asyncio.Event, entering: Awaitable[None]) -> bool:
    """Whether we have entered before we were to stop."""
    entered, stopped = asyncio.ensure_future(entering), asyncio.ensure_future(stopping.wait())
    await asyncio.wait((entered, stopped), return_when=asyncio.FIRST_COMPLETED)
    entered.cancel()
    stopped.cancel()
    return not stopping.is_set()
