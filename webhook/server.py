"""Serves admission over TLS, and probes in plain text beside it, on one event loop in one process.

One process: decisions are serial, a certificate is exchanged by loading it into the live context, and no worker
outlives its parent. How connections are treated, and why, is in `serving.listener`.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from serving.listener import Listener
from serving.memory import fitted, memory_limit, open_files_limit
from serving.parser import KIB, MIB, Limits
from webhook.review import LARGEST_POD
from webhook.routes import PortAnswers

log = logging.getLogger(__name__)

GRACE_SECONDS = 10.0
LARGEST_BODY = 7 * MIB  # a 3 MiB object, its old version and the review around them
# As many connections as there is memory for. A pod that is too large to be patched is not worth keeping.
ADMISSION = Limits(head_bytes=16 * KIB, body_bytes=LARGEST_BODY, kept_bytes=LARGEST_POD)
PROBES = Limits(body_bytes=64 * KIB, connections=100)


class TlsIdentity:
    """The served certificate. It is exchanged in the live context: new connections get the new one."""

    def __init__(self) -> None:
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.minimum_version = ssl.TLSVersion.TLSv1_2
        self.context.num_tickets = 0  # API servers resume no session, and a handshake costs a sixth less without

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


async def serve(
    ports: PortAnswers,
    identity: TlsIdentity,
    tls: Sequence[socket.socket],
    plain: socket.socket,
    *,
    background: Callable[[], Awaitable[None]],
    enter: Callable[[], Awaitable[None]] | None = None,
    listening: asyncio.Event | None = None,
    leave: Callable[[], Awaitable[None]] | None = None,
    memory: Callable[[], int] = memory_limit,
) -> None:
    """Serves until SIGTERM or SIGINT: admission over TLS, and probes and metrics in plain text beside it.

    Admission is listened for once `enter` is done, and then `listening` is set. `leave` is called first when it ends,
    while calls are still answered. `background` goes on for as long as it serves; if it fails, so does this. `memory`
    is how many bytes the container may use, which limits how much is taken from callers.
    """
    limits = fitted(ADMISSION, memory() // max(1, len(tls)), open_files_limit())
    log.info("admission: up to %d connections, %d MiB of bodies", limits.connections, limits.held_bytes // MIB)
    admission = [Listener(ports.tls, limits) for _ in tls]
    probes = Listener(ports.plain, PROBES)
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    chore = asyncio.ensure_future(background())
    chore.add_done_callback(lambda _: stopping.set())  # what should never end has failed: end, and say why
    await probes.start(plain)
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
