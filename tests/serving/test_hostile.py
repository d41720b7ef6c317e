"""Callers that mean harm, on loopback: what they cost others, and what is kept of them."""

from __future__ import annotations

import asyncio
import socket
import ssl
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
import uvloop

from serving.listener import Listener, bind
from serving.messages import Request, Response
from serving.parser import KIB, Limits, Parser, Rejection
from tests.serving.test_listener import GET, LAST, LIMITS, Held, answer, sent, served, until
from tests.webhook.test_server import AUTHORITY, LEAF
from webhook.server import TlsIdentity

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
LARGE = replace(LIMITS, body_bytes=1000 * KIB, large_bytes=KIB, large_at_once=1, held_bytes=10_000 * KIB)


async def opened(port: int, count: int, source: str = "127.0.0.1") -> list[Streams]:
    return [await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0)) for _ in range(count)]


def close(all_of: list[Streams]) -> None:
    for _, writer in all_of:
        writer.close()


def test_silent_connections_displace_each_other_and_nobody_else() -> None:
    """A connection that is kept answers on; a new one is let in; however many are silent."""

    async def scenario(_listener: Listener, port: int) -> None:
        kept = await asyncio.open_connection("127.0.0.1", port)
        kept[1].write(GET)
        await kept[0].readuntil(b"\r\n\r\n1")
        silent = await opened(port, 200)
        assert (await sent(port, LAST)).endswith(b"1")
        kept[1].write(LAST)
        assert (await kept[0].read()).endswith(b"1")
        ended = [each for each in silent if each[0].at_eof() or await _is_cut(each)]
        assert 150 <= len(ended) <= 195  # there is room for 50, less what was made for the next ones
        close([*silent, kept])

    served(scenario, limits=replace(LIMITS, connections=50))


async def _is_cut(streams: Streams) -> bool:
    try:
        return await asyncio.wait_for(streams[0].read(1), 0.01) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_one_source_that_keeps_connections_does_not_lock_out_another() -> None:
    """It answers to everything and stays: then its own go, not those of others, which are older."""

    async def scenario(_listener: Listener, port: int) -> None:
        others = await opened(port, 5, "127.0.0.2")
        flood = await opened(port, 45, "127.0.0.3")
        for reader, writer in (*others, *flood):
            writer.write(GET)
            await reader.readuntil(b"\r\n\r\n1")
        more = await opened(port, 20, "127.0.0.3")
        for reader, writer in (*others, *more[-1:]):
            writer.write(LAST)
            assert (await reader.read()).endswith(b"1")
        close([*others, *flood, *more])

    served(scenario, limits=replace(LIMITS, connections=50))


def test_large_bodies_are_read_one_after_the_other() -> None:
    """Those that wait are not read further, small requests are answered meanwhile, and all are answered in the end."""
    size = 900 * KIB
    head = f"POST /1 HTTP/1.1\r\ncontent-length: {size}\r\n\r\n".encode()

    async def scenario(listener: Listener, port: int) -> None:
        several = await opened(port, 5)
        for _, writer in several:
            writer.write(head + b"x" * (size - 1))
        await until(lambda: listener.held_bytes >= size - 1)
        assert (await sent(port, LAST)).endswith(b"1")
        assert listener.held_bytes < 2 * size  # of each of the others there is what was read at once
        for _, writer in several:
            writer.write(b"x")
        for reader, writer in several:
            assert b"connection: close" in await reader.readuntil(b"\r\n\r\n")  # its buffers are large now
            writer.close()
        await until(lambda: listener.held_bytes == 0)

    served(scenario, limits=LARGE)


def test_a_large_body_is_read_slowly() -> None:
    """It rests after each piece, however fast it is sent, and others are answered meanwhile."""
    size = 900 * KIB
    head = f"POST /1 HTTP/1.1\r\ncontent-length: {size}\r\n\r\n".encode()

    async def scenario(listener: Listener, port: int) -> None:
        (large,) = await opened(port, 1)
        began = asyncio.get_running_loop().time()
        large[1].write(head + b"x" * size)
        await until(lambda: listener.held_bytes > 0)
        assert (await sent(port, LAST)).endswith(b"1")
        assert 0 < listener.held_bytes < size
        assert (await large[0].read()).endswith(b"1")
        assert asyncio.get_running_loop().time() - began > 0.5  # the last piece is not waited for
        close([large])

    served(scenario, limits=replace(LARGE, large_bytes_per_second=900 * KIB))


def test_a_large_body_that_does_not_come_loses_its_turn() -> None:
    """To the next one; where nobody waits it has all the time of a request."""
    head = b"POST /1 HTTP/1.1\r\ncontent-length: 4000\r\n\r\n"

    async def scenario(listener: Listener, port: int) -> None:
        (slow,) = await opened(port, 1)
        slow[1].write(head + b"x" * 2000)
        await until(lambda: listener.held_bytes == 2000)
        await asyncio.sleep(0.3)
        assert not slow[0].at_eof()
        assert (await sent(port, head.replace(b"4000\r\n", b"4000\r\nconnection: close\r\n") + b"x" * 4000)).endswith(
            b"1"
        )
        assert (await slow[0].read()).startswith(b"HTTP/1.1 408 ")
        close([slow])

    served(scenario, limits=replace(LARGE, large_seconds=0.1))


def test_who_holds_the_most_gives_up_and_not_who_comes_last() -> None:
    """One source fills the memory with bodies; a small request of another is answered."""
    post = b"POST /1 HTTP/1.1\r\ncontent-length: 1000\r\n\r\n"

    async def scenario(listener: Listener, port: int) -> None:
        flood = await opened(port, 10, "127.0.0.3")
        for _, writer in flood[:5]:
            writer.write(post + b"x" * 900)
        await until(lambda: listener.held_bytes == 4500)
        (small,) = await opened(port, 1, "127.0.0.2")
        small[1].write(post + b"x" * 600)
        assert any([await _says(each, b"HTTP/1.1 503 ") for each in flood[:5]])
        small[1].write(b"x" * 400)
        assert (await small[0].readuntil(b"\r\n\r\n1")).startswith(b"HTTP/1.1 200 ")
        assert listener.held_bytes <= 5000
        close([*flood, small])

    served(scenario, limits=replace(LIMITS, held_bytes=5000))


async def _says(streams: Streams, what: bytes) -> bool:
    try:
        return (await asyncio.wait_for(streams[0].read(13), 0.2)) == what
    except TimeoutError:
        return False


def test_bodies_that_are_worked_on_are_given_up_where_nothing_else_helps() -> None:
    """Else as many slow answers as fill the memory would turn everybody away."""
    held = Held()
    post = b"POST /1 HTTP/1.1\r\ncontent-length: 1000\r\n\r\n" + b"x" * 1000

    async def scenario(listener: Listener, port: int) -> None:
        flood = await opened(port, 5, "127.0.0.3")
        for _, writer in flood:
            writer.write(post)
        await until(lambda: held.asked == 5)
        (small,) = await opened(port, 1, "127.0.0.2")
        small[1].write(post)
        await until(lambda: held.asked == 6)
        assert listener.held_bytes == 5000
        held.may_answer.set()
        assert (await small[0].readuntil(b"at last")).startswith(b"HTTP/1.1 200 ")
        cut = [each for each in flood if b"at last" not in await each[0].read(500)]
        assert len(cut) == 1
        close([*flood, small])

    served(scenario, held.answer, replace(LIMITS, held_bytes=5000))


def test_callers_that_do_not_take_their_answers_are_few() -> None:
    """The one that has not for longest is cut off when there are more."""

    def large(_request: Request) -> Response:
        return Response(200, b"x" * 20_000 * KIB)

    async def scenario(listener: Listener, port: int) -> None:
        many = [socket.create_connection(("127.0.0.1", port)) for _ in range(6)]
        for each in many:
            each.sendall(GET)
        await until(lambda: len(listener.unread) == 3)
        await asyncio.sleep(0.1)
        assert len(listener.unread) == 3
        for each in many:
            each.close()
        await until(lambda: not listener.unread)

    served(scenario, large, replace(LIMITS, unread=3))


def test_a_body_in_very_many_chunks_is_rejected() -> None:
    """One byte each would cost a call of ours for every byte."""
    begin = b"POST /1 HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n"
    few, many = (Parser(Limits(chunks=100)).feed(begin + b"1\r\nx\r\n" * n + b"0\r\n\r\n", 1) for n in (99, 101))
    assert [type(each) for each in few] == [Request]
    assert many == [Rejection(413, "the body comes in too many chunks")]


def test_too_many_fields_are_rejected_before_the_head_is_complete() -> None:
    """Nobody waits for the end of a head that has none."""
    begin = b"GET /1 HTTP/1.1\r\n" + b"".join(b"a%d: b\r\n" % n for n in range(202))
    assert Parser(Limits()).feed(begin, 1) == [Rejection(431, "too many header fields")]


def test_nothing_of_a_request_is_kept_after_its_answer() -> None:
    """A body of 7 MiB on each of a thousand connections that stay would fill any memory."""
    parser = Parser(Limits())
    (request,) = parser.feed(b"POST /1 HTTP/1.1\r\ncontent-length: 5\r\n\r\nhello", 1)
    assert isinstance(request, Request)
    assert sys.getrefcount(request) == 2  # ours, and the one that asks
    assert not parser.is_within


HELLO = bytes.fromhex("16030102000100")


@pytest.mark.parametrize("says", [b"", HELLO], ids=["nothing", "a part"])
def test_a_handshake_that_does_not_end_is_cut_off(says: bytes) -> None:
    """And it counts as a connection from the first moment."""

    async def scenario(listener: Listener, port: int) -> None:
        (slow,) = await opened(port, 1)
        slow[1].write(says)
        await until(lambda: len(listener.arriving) == 1)
        assert await _until_cut(slow) == b""
        assert not listener.arriving
        close([slow])

    secured(scenario, replace(LIMITS, handshake_seconds=0.2))


async def _until_cut(streams: Streams) -> bytes:
    try:
        return await streams[0].read()
    except ConnectionError:
        return b""


def test_handshakes_that_do_not_end_lock_nobody_out() -> None:
    """They go first when there is no room."""
    context = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())

    async def scenario(listener: Listener, port: int) -> None:
        slow = await opened(port, 60)
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname="localhost")
        writer.write(GET)
        await reader.readuntil(b"\r\n\r\n1")
        slow += await opened(port, 60)
        writer.write(LAST)
        assert (await reader.read()).endswith(b"1")
        assert len(listener.arriving) <= 50
        writer.close()
        close(slow)

    secured(scenario, replace(LIMITS, connections=50, handshake_seconds=60.0))


def secured(scenario: Callable[[Listener, int], Awaitable[None]], limits: Limits) -> None:
    """Serves over TLS for as long as the scene lasts."""

    async def serve() -> None:
        identity = TlsIdentity()
        identity.load(LEAF.certificate, LEAF.key)
        with bind("127.0.0.1:0") as sock:
            listener = Listener(answer, limits)
            await listener.start(sock, identity.context)
            await asyncio.wait_for(scenario(listener, sock.getsockname()[1]), 30)
            await listener.stop(0.0)

    uvloop.run(serve())
