"""Connections on loopback: who is answered, with what, whatever the others do, and when we stop."""

import asyncio
import socket
import ssl
from collections.abc import Awaitable

import pytest
import uvloop

from tests.webhook.test_server import AUTHORITY, LEAF
from webhook.connections import MOST_AT_ONCE, Listener, Request, Response
from webhook.server import TlsIdentity, bind

SECONDS = 10.0
REQUEST = b"GET /1 HTTP/1.1\r\n\r\n"
CROWD = 2 * MOST_AT_ONCE + 3


def answer(request: Request) -> Response | Awaitable[Response]:
    """The target as it came; one is too much for us, and every seventh takes a while."""
    number = int(request.target.strip("/"))
    if number == 5:
        raise ValueError("an error of ours")
    response = Response(200, str(number).encode())
    return response if number % 7 else _later(response)


async def _later(response: Response) -> Response:
    await asyncio.sleep(0)
    return response


async def told(port: int, number: int, times: int) -> bytes:
    """All that is answered to so many requests in one packet, the last of which ends the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    request = f"GET /{number} HTTP/1.1\r\n\r\n".encode()
    writer.write(request * (times - 1) + request[:-2] + b"connection: close\r\n\r\n")
    everything = await reader.read()
    writer.close()
    return everything


async def crowd(times: int) -> list[bytes]:
    with bind("127.0.0.1:0") as sock:
        listener = Listener(answer, 1024)
        await listener.start(sock, None)
        port = sock.getsockname()[1]
        answers = await asyncio.gather(*(told(port, number, times) for number in range(CROWD)))
        await listener.stop(0.0)
    return answers


@pytest.mark.parametrize("times", [1, 3])
def test_each_of_a_crowd_gets_its_own_answer(times: int) -> None:
    """However many are ready at once; and an answer that fails costs nobody else's."""
    for number, everything in enumerate(uvloop.run(crowd(times))):
        if number == 5:
            assert everything.startswith(b"HTTP/1.1 500 ")
        else:
            assert everything.count(b"HTTP/1.1 200 OK") == times
            assert everything.endswith(f"\r\n\r\n{number}".encode())


# --- when we stop ----------------------------------------------------------------------------------------------------


def dialled(sock: socket.socket) -> socket.socket:
    """A connection that the kernel has accepted, and the event loop has not seen yet."""
    return socket.create_connection(sock.getsockname(), timeout=SECONDS)


async def stopped_behind_the_loops_back() -> bytes:
    with bind("127.0.0.1:0") as sock:
        listener = Listener(answer, 1024)
        await listener.start(sock, None)
        with dialled(sock) as caller:
            caller.sendall(REQUEST)
            await listener.stop(SECONDS)
            return caller.recv(4096)


def test_a_caller_that_has_just_dialled_is_answered_before_we_stop() -> None:
    """The API server does not dial again: with a connection that is cut, a pod is missed."""
    told = uvloop.run(stopped_behind_the_loops_back())
    assert told.startswith(b"HTTP/1.1 200 OK")
    assert b"connection: close" in told


async def stopped_before_tls_is_through(number: int) -> tuple[bytes, bool]:
    """What so many callers are told that begin with TLS when we stop already; and whether we stopped without them."""
    identity, context = TlsIdentity(), ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    identity.load(LEAF.certificate, LEAF.key)
    with bind("127.0.0.1:0") as sock:
        listener = Listener(answer, 1024)
        await listener.start(sock, identity.context)
        caller = dialled(sock)
        while len(listener.arriving) < number:
            await asyncio.sleep(0)
        stopping = asyncio.ensure_future(listener.stop(SECONDS))
        await asyncio.sleep(0.1)
        without = stopping.done()
        reader, writer = await asyncio.open_connection(sock=caller, ssl=context, server_hostname="localhost")
        writer.write(REQUEST)
        everything = await reader.read()
        writer.close()
        await stopping
    return everything, without


@pytest.mark.parametrize("number", [0, 1], ids=["not seen yet", "accepted"])
def test_a_caller_that_is_not_through_with_tls_is_waited_for(number: int) -> None:
    """It will send a request as soon as it is."""
    told, without = uvloop.run(stopped_before_tls_is_through(number))
    assert not without
    assert told.startswith(b"HTTP/1.1 200 OK")
