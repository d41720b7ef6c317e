"""Connections on loopback, in plain text: who is answered, with what, whatever the others do."""

import asyncio
from collections.abc import Awaitable

import pytest
import uvloop

from webhook.connections import MOST_AT_ONCE, Listener, Request, Response
from webhook.server import bind

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
