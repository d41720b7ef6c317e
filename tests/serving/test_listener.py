"""Connections on loopback, in plain text: who is answered, with what, whatever the others do."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest
import uvloop

from serving.listener import MOST_AT_ONCE, Listener, bind
from serving.messages import Answer, Request, Response
from serving.parser import Limits
from tests.jumpingclock import run_at_once
from tests.webhook.test_server import AUTHORITY, LEAF
from webhook.server import TlsIdentity

CROWD = 2 * MOST_AT_ONCE + 3
LIMITS = Limits(body_bytes=1024)
GET = b"GET /1 HTTP/1.1\r\n\r\n"
LAST = b"GET /1 HTTP/1.1\r\nconnection: close\r\n\r\n"
Scenario = Callable[[Listener, int], Coroutine[Any, Any, None]]
SECONDS = 10.0


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
    request = f"GET /{number} HTTP/1.1\r\n\r\n".encode()
    return await sent(port, request * (times - 1) + request[:-2] + b"connection: close\r\n\r\n")


async def sent(port: int, packet: bytes, *, is_all: bool = False) -> bytes:
    """All that is answered to a packet until the connection ends; `is_all`: we say that nothing more comes."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(packet)
    if is_all:
        writer.write_eof()
    everything = await reader.read()
    writer.close()
    return everything


async def until(is_so: Callable[[], bool]) -> None:
    while not is_so():
        await asyncio.sleep(0.005)


def served(scenario: Scenario, answer: Answer = answer, limits: Limits = LIMITS) -> None:
    """Serves for as long as the scenario lasts."""

    async def serve() -> None:
        with bind("127.0.0.1:0") as sock:
            listener = Listener(answer, limits)
            await listener.start(sock)
            await asyncio.wait_for(scenario(listener, sock.getsockname()[1]), 30)
            await listener.stop(0.0)

    uvloop.run(serve())


@pytest.mark.parametrize("times", [1, 3])
def test_each_of_a_crowd_gets_its_own_answer(times: int) -> None:
    """However many are ready at once; and an answer that fails costs nobody else's."""

    async def scenario(_listener: Listener, port: int) -> None:
        answers = await asyncio.gather(*(told(port, number, times) for number in range(CROWD)))
        for number, everything in enumerate(answers):
            if number == 5:
                assert everything.startswith(b"HTTP/1.1 500 ")
            else:
                assert everything.count(b"HTTP/1.1 200 OK") == times
                assert everything.endswith(f"\r\n\r\n{number}".encode())

    served(scenario)


class Held:
    """Answers nobody before it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.may_answer = asyncio.Event()

    async def answer(self, _request: Request) -> Response:
        self.asked += 1
        await self.may_answer.wait()
        return Response(200, b"at last")


def test_bodies_count_until_they_are_answered() -> None:
    """Not only until they are complete: who sends large requests that take a while must not fill the memory."""
    held = Held()
    body = b"x" * 1000
    post = b"POST / HTTP/1.1\r\ncontent-length: 1000\r\n\r\n" + body

    async def scenario(listener: Listener, port: int) -> None:
        first = asyncio.create_task(sent(port, post, is_all=True))
        second = asyncio.create_task(sent(port, post, is_all=True))
        await until(lambda: held.asked == 2)
        assert listener.held_bytes == 2000
        assert (await sent(port, post)).startswith(b"HTTP/1.1 503 ")
        assert listener.held_bytes == 2000
        held.may_answer.set()
        assert (await first).endswith(b"at last")
        assert (await second).endswith(b"at last")
        assert listener.held_bytes == 0

    served(scenario, held.answer, replace(LIMITS, held_bytes=2500))


def test_bodies_of_clients_that_are_gone_do_not_count() -> None:
    """Half a body at once; a whole one when its answer, which nobody reads, is written."""
    held = Held()

    async def scenario(listener: Listener, port: int) -> None:
        for length in (500, 1000):
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(b"POST / HTTP/1.1\r\ncontent-length: 1000\r\n\r\n" + b"x" * length)
            await until(lambda length=length: listener.held_bytes == length)  # type: ignore[misc]
            writer.close()
            if length == 1000:
                held.may_answer.set()
            await until(lambda: listener.held_bytes == 0)

    served(scenario, held.answer)


def test_one_that_is_idle_makes_room_and_one_that_is_answered_does_not() -> None:
    """A caller that is new is let in while there is anybody who waits for nothing; else it is turned away."""
    held = Held()

    async def scenario(_listener: Listener, port: int) -> None:
        idle, unused = await asyncio.open_connection("127.0.0.1", port)
        busy, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        assert await idle.read() == b""
        unused.close()
        await until(lambda: held.asked == 1)
        assert await sent(port, b"") == b""
        held.may_answer.set()
        await busy.readuntil(b"at last")
        assert (await sent(port, LAST)).endswith(b"at last")
        assert await busy.read() == b""
        writer.close()

    served(scenario, held.answer, replace(LIMITS, connections=1))


def test_more_requests_than_may_wait_are_rejected_after_the_others_are_answered() -> None:
    """In their order, and the connection ends."""

    async def scenario(_listener: Listener, port: int) -> None:
        everything = await sent(port, GET * (LIMITS.waiting + 1))
        assert everything.count(b"HTTP/1.1 200 OK") == LIMITS.waiting
        assert everything.index(b"HTTP/1.1 429 ") > everything.rindex(b"HTTP/1.1 200 OK")

    served(scenario)


def test_a_client_that_has_said_all_still_gets_its_answers() -> None:
    """Slow ones too; the last one says that the connection ends."""

    async def scenario(_listener: Listener, port: int) -> None:
        everything = await sent(port, GET + b"GET /7 HTTP/1.1\r\n\r\n", is_all=True)
        assert everything.count(b"HTTP/1.1 200 OK") == 2
        assert everything.count(b"connection: close") == 1
        assert everything.endswith(b"7")

    served(scenario)


def test_a_client_that_does_not_read_is_not_read_from() -> None:
    """Its requests are not answered into memory; when it reads, it gets every answer."""
    count, size = 400, 256 * 1024
    answers = 0

    def large(_request: Request) -> Response:
        nonlocal answers
        answers += 1
        return Response(200, b"x" * size)

    async def scenario(_listener: Listener, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
        for _ in range(count):
            writer.write(GET)
            await asyncio.sleep(0.001)
        assert answers < count / 2
        writer.write(LAST)
        total = 0
        while data := await reader.read(1 << 20):
            total += len(data)
        assert answers == count + 1
        assert total > answers * size
        writer.close()

    served(scenario, large, replace(LIMITS, waiting=1000))


def test_a_client_may_ask_whether_to_send_the_body() -> None:
    """It is invited to, and then answered."""

    async def scenario(_listener: Listener, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /1 HTTP/1.1\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n")
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(b"{}")
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")
        writer.close()

    served(scenario)


def test_when_it_stops_each_connection_gets_one_answer_more() -> None:
    """With `connection: close`: nobody is cut off, and nobody new comes."""

    async def scenario(listener: Listener, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(GET)
        assert b"connection: keep-alive" in await reader.readuntil(b"\r\n\r\n1")
        stopping = asyncio.create_task(listener.stop(20.0))
        await until(lambda: listener.is_stopping)
        with pytest.raises(OSError):
            await asyncio.open_connection("127.0.0.1", port)
        assert not stopping.done()
        writer.write(GET)
        assert b"connection: close" in await reader.read()
        writer.close()
        await stopping

    served(scenario)


SLOW = {
    "a client that says nothing": (b"", LIMITS.idle_seconds, b""),
    "a head that drips in": (b"GET / HTTP/1.1\r\na: ", LIMITS.request_seconds, b"HTTP/1.1 408 "),
    "a body that drips in": (
        b"POST / HTTP/1.1\r\ncontent-length: 900\r\n\r\n",
        LIMITS.request_seconds,
        b"HTTP/1.1 408 ",
    ),
}


@pytest.mark.parametrize(("beginning", "seconds", "says"), SLOW.values(), ids=SLOW.keys())
def test_what_takes_too_long_is_closed(beginning: bytes, seconds: float, says: bytes) -> None:
    """A byte now and then does not keep a connection open. No time passes here."""

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        with bind("127.0.0.1:0") as sock:
            listener = Listener(answer, LIMITS)
            await listener.start(sock)
            reader, writer = await asyncio.open_connection("127.0.0.1", sock.getsockname()[1])
            writer.write(beginning)
            began, ended = loop.time(), asyncio.create_task(reader.read())
            while not ended.done():
                await asyncio.sleep(1.0)
                if beginning and not ended.done():
                    writer.write(b"x")
            assert ended.result()[:13] == says
            assert seconds < loop.time() - began < seconds + 10
            writer.close()
            await listener.stop(0.0)

    run_at_once(scenario())


# --- when we stop ----------------------------------------------------------------------------------------------------


def dialled(sock: socket.socket) -> socket.socket:
    """A connection that the kernel has accepted, and the event loop has not seen yet."""
    return socket.create_connection(sock.getsockname(), timeout=SECONDS)


async def stopped_behind_the_loops_back() -> bytes:
    with bind("127.0.0.1:0") as sock:
        listener = Listener(answer, LIMITS)
        await listener.start(sock)
        with dialled(sock) as caller:
            caller.sendall(GET)
            await listener.stop(SECONDS)
            return caller.recv(4096)


def test_a_caller_that_has_just_dialled_is_answered_before_we_stop() -> None:
    """The API server does not dial again: with a connection that is cut, a pod is missed."""
    heard = uvloop.run(stopped_behind_the_loops_back())
    assert heard.startswith(b"HTTP/1.1 200 OK")
    assert b"connection: close" in heard


async def stopped_before_tls_is_through(number: int) -> tuple[bytes, bool]:
    """What so many callers are told that begin with TLS when we stop already; and whether we stopped without them."""
    identity, context = TlsIdentity(), ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    identity.load(LEAF.certificate, LEAF.key)
    with bind("127.0.0.1:0") as sock:
        listener = Listener(answer, LIMITS)
        await listener.start(sock, identity.context)
        caller = dialled(sock)
        while len(listener.arriving) < number:
            await asyncio.sleep(0)
        stopping = asyncio.ensure_future(listener.stop(SECONDS))
        await asyncio.sleep(0.1)
        without = stopping.done()
        reader, writer = await asyncio.open_connection(sock=caller, ssl=context, server_hostname="localhost")
        writer.write(GET)
        everything = await reader.read()
        writer.close()
        await stopping
    return everything, without


@pytest.mark.parametrize("number", [0, 1], ids=["not seen yet", "accepted"])
def test_a_caller_that_is_not_through_with_tls_is_waited_for(number: int) -> None:
    """It will send a request as soon as it is."""
    heard, without = uvloop.run(stopped_before_tls_is_through(number))
    assert not without
    assert heard.startswith(b"HTTP/1.1 200 OK")
