"""Requests as they go over the wire, and what comes of the answers."""

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from kubernetes.client import Configuration

from kube.client import ANSWER_BYTES, APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Client
from kube.errors import AnswerTooLarge, ApiError, Conflict, Garbled, NotFound, TooManyRequests, Unreachable
from tests.builders.api import status
from tests.kube.scripted import Answer, Endless, Script, WatchLines
from tests.timing import timed, within

Call = Callable[[Client], Any]

WRITES: dict[str, tuple[Call, str, str, object]] = {
    "post": (lambda client: client.post("/x", {"a": 1}), "POST", "application/json", {"a": 1}),
    "put": (lambda client: client.put("/x", {"a": 1}), "PUT", "application/json", {"a": 1}),
    "merge patch": (lambda client: client.patch("/x", {"a": None}), "PATCH", MERGE_PATCH, {"a": None}),
    "json patch": (
        lambda client: client.patch("/x", [{"op": "remove", "path": "/a"}], content_type=JSON_PATCH),
        "PATCH",
        JSON_PATCH,
        [{"op": "remove", "path": "/a"}],
    ),
    "apply": (lambda client: client.patch("/x", {"a": 1}, content_type=APPLY_PATCH), "PATCH", APPLY_PATCH, {"a": 1}),
    "delete with a precondition": (
        lambda client: client.delete("/x", {"preconditions": {"uid": "u"}}),
        "DELETE",
        "application/json",
        {"preconditions": {"uid": "u"}},
    ),
}


@pytest.mark.parametrize(("call", "method", "content_type", "body"), WRITES.values(), ids=WRITES.keys())
def test_writes(script: Script, client: Client, call: Call, method: str, content_type: str, body: object) -> None:
    """Verb, content type and body are what the API expects; the answer comes back decoded."""
    script.answer(b'{"kind": "Pod"}')
    assert call(client) == {"kind": "Pod"}
    request = script.next_request()
    assert (request.method, request.headers["content-type"], json.loads(request.body)) == (method, content_type, body)


def test_a_read_says_who_asks(script: Script, client: Client) -> None:
    """The user agent is what an audit log shows; the query is encoded."""
    script.answer(b"ok")
    assert client.get("/readyz", {"labelSelector": "a in (b,c)", "limit": 5}) == b"ok"
    request = script.next_request()
    assert (request.path, request.query) == ("/readyz", {"labelSelector": "a in (b,c)", "limit": "5"})
    assert request.headers["user-agent"] == "test/1"


def test_an_error_is_typed_and_says_what_was_asked(script: Script, client: Client) -> None:
    """Also for writes."""
    script.answer(
        Answer(status(404, "NotFound", "no such pod"), status=404), Answer(status(409, "Conflict"), status=409)
    )
    with pytest.raises(NotFound, match="GET /x: 404 NotFound: no such pod"):
        client.get("/x")
    with pytest.raises(Conflict, match="DELETE /y: 409"):
        client.delete("/y")


def test_the_wish_to_wait_is_passed_on(script: Script, client: Client) -> None:
    """And the request is not repeated here: only the caller knows whether it may be."""
    script.answer(Answer(status(429, "TooManyRequests"), status=429, retry_after="7"))
    with pytest.raises(TooManyRequests) as caught:
        client.post("/x", {})
    assert caught.value.retry_after_seconds == 7
    assert script.asked.qsize() == 1


def test_a_redirect_is_not_followed(script: Script, client: Client) -> None:
    """It would carry our token somewhere else."""
    script.answer(Answer(b"", status=302, location="/elsewhere"), Answer(b"followed"))
    with pytest.raises(ApiError, match="302"):
        client.get("/x")
    assert [script.next_request().path, script.asked.qsize()] == ["/x", 0]


def test_an_answer_that_is_no_json_is_garbled(script: Script, client: Client) -> None:
    """Where JSON was asked for."""
    script.answer(b"<html>")
    with pytest.raises(Garbled, match="GET /x"):
        client.get_json("/x")


def free_port() -> int:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        return int(server.getsockname()[1])


def test_a_server_that_is_down_is_unreachable() -> None:
    """Refused connections are typed like all else."""
    with closing(Client(Configuration(host=f"http://127.0.0.1:{free_port()}"), user_agent="test/1")) as client:
        with pytest.raises(Unreachable, match="refused"):
            client.get("/x")
        with pytest.raises(Unreachable, match="refused"):
            client.stream("/x", read_timeout_seconds=1)


def test_a_server_that_hangs_is_unreachable(client: Client) -> None:
    """The script is empty, so the server says nothing; the time-out counts for answers and for streams."""
    with pytest.raises(Unreachable, match="timed out"):
        client.get("/x", timeout_seconds=0.05)
    with pytest.raises(Unreachable, match="timed out"):
        client.stream("/x", read_timeout_seconds=0.05)


CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
DRIPPING: dict[str, Endless] = {
    "the body": Endless(every_seconds=0.01),
    "the body in chunks": Endless(CHUNKED, b"1\r\n \r\n", 0.01),
    "the size of a chunk": Endless(CHUNKED, b"0", 0.01),
    "the status": Endless(b"HTTP/1.1 200 ", b"O", 0.01),
    "the headers": Endless(b"HTTP/1.1 200 OK\r\n", b"x", 0.01),
    "a body that ends with the connection": Endless(b"HTTP/1.1 200 OK\r\n\r\n", b" ", 0.01),
    "an error": Endless(b"HTTP/1.1 500 Oops\r\ncontent-length: 1000000\r\n\r\n", b" ", 0.01),
}


@timed
@pytest.mark.parametrize("answer", DRIPPING.values(), ids=DRIPPING.keys())
def test_an_answer_that_comes_drop_by_drop_is_unreachable(script: Script, client: Client, answer: Endless) -> None:
    """Each drop comes in time, the whole does not: the deadline is for the answer, from its first byte to its last."""
    script.answer(answer, b"ok")
    began = time.monotonic()
    with pytest.raises(Unreachable, match=r"GET /x: no answer: .*timed out"):
        client.get("/x", timeout_seconds=0.3)
    assert time.monotonic() - began >= 0.3
    within("it gives up", time.monotonic() - began, 2)
    assert client.get("/y") == b"ok"  # over another connection


def test_a_refusal_of_a_stream_that_comes_drop_by_drop_is_unreachable(script: Script, client: Client) -> None:
    """Only a stream that was granted goes on for as long as it likes."""
    script.watch(DRIPPING["an error"])
    with pytest.raises(Unreachable, match="timed out"):
        client.stream("/x", {"watch": "true"}, read_timeout_seconds=0.3)


PIECE = b" " * 65536
HUGE: dict[str, Endless | bytes] = {
    "with its length": b" " * 200_000,
    "in chunks": Endless(CHUNKED, b"10000\r\n%s\r\n" % PIECE),
    "until the connection ends": Endless(b"HTTP/1.1 200 OK\r\n\r\n", PIECE),
    "an error": Endless(b"HTTP/1.1 500 Oops\r\ncontent-length: 1000000000\r\n\r\n", PIECE),
    "a length beyond all memory": Endless(b"HTTP/1.1 200 OK\r\ncontent-length: 1%s\r\n\r\n" % (b"0" * 18), PIECE),
    "a length beyond all numbers": Endless(b"HTTP/1.1 200 OK\r\ncontent-length: 1%s\r\n\r\n" % (b"0" * 40), PIECE),
    "a chunk beyond all memory": Endless(CHUNKED + b"fffffffffffffff\r\n", PIECE),
}


@pytest.mark.parametrize("answer", HUGE.values(), ids=HUGE.keys())
def test_an_answer_that_is_too_large_is_not_read_to_its_end(
    script: Script, client: Client, answer: Endless | bytes
) -> None:
    """However it is sent; the next request is answered, over another connection."""
    script.answer(answer, b"ok")
    with pytest.raises(AnswerTooLarge, match="GET /x: answer too large"):
        client.get("/x", most_bytes=100_000)
    assert client.get("/y") == b"ok"


def test_an_answer_is_as_large_as_its_reader_allows(script: Script, client: Client) -> None:
    """Single objects are small; pages of lists may be larger."""
    large = b" " * (ANSWER_BYTES + 1)
    script.answer(large, large)
    with pytest.raises(AnswerTooLarge):
        client.get("/x")
    assert client.get("/x", most_bytes=2 * ANSWER_BYTES) == large


def test_what_is_packed_is_not_unpacked(script: Script, client: Client) -> None:
    """Nobody asked for it, and a few bytes may hold gigabytes."""
    packed = gzip.compress(b"{}" + b" " * 1_000_000)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n" % len(packed)
    script.answer(Endless(head + packed, b"", 0.01))
    with pytest.raises(Garbled):
        client.get_json("/x", most_bytes=10_000)


def test_a_stream_may_take_as_long_as_it_likes(script: Script, client: Client) -> None:
    """Its time-out is for its silence, and there is no limit to all its lines together."""
    line = b"%x\r\n%s\n\r\n" % (len(PIECE) + 1, PIECE)
    script.watch(Endless(CHUNKED, line, 0.002))
    stream = client.stream("/x", {"watch": "true"}, read_timeout_seconds=0.5)
    began, received = time.monotonic(), 0
    for each in stream:
        received += len(each)
        if received > 2 * ANSWER_BYTES and time.monotonic() - began > 1:
            break
    stream.close()


def test_a_line_without_an_end_is_too_large(script: Script, client: Client) -> None:
    """No object is as large as that; lines before it are read."""
    script.watch(Endless(CHUNKED + b"4\r\none\n\r\n", b"10000\r\n%s\r\n" % PIECE))
    lines = iter(client.stream("/x", {"watch": "true"}, read_timeout_seconds=5))
    assert next(lines) == b"one"
    with pytest.raises(AnswerTooLarge, match="GET /x: answer too large: a line of more than"):
        next(lines)


def test_a_stream_gives_whole_lines(script: Script, client: Client) -> None:
    """Whether a chunk holds several lines or a line is larger than what is read at once."""
    long = b"x" * 200_000
    script.watch(WatchLines([b"one\ntwo", long, b"three"], then="end"))
    stream = client.stream("/x", {"watch": "true"}, read_timeout_seconds=5)
    assert list(stream) == [b"one", b"two", long, b"three"]


def test_a_line_comes_as_soon_as_it_is_complete(script: Script, client: Client) -> None:
    """Nothing is held back until a buffer is full: the server holds the stream open after it."""
    script.watch(WatchLines([b"one"]))
    assert next(iter(client.stream("/x", {"watch": "true"}, read_timeout_seconds=5))) == b"one"


@pytest.mark.parametrize("then", ["cut", "hold"])
def test_a_stream_that_breaks_is_unreachable(script: Script, client: Client, then: str) -> None:
    """Cut off, or silent for too long: after the lines that were whole, an error and not an end."""
    script.watch(WatchLines([b"one"], then=then))
    lines = iter(client.stream("/x", {"watch": "true"}, read_timeout_seconds=0.1))
    assert next(lines) == b"one"
    with pytest.raises(Unreachable, match="GET /x"):
        next(lines)


def test_a_stream_that_is_refused_raises_the_typed_error(script: Script, client: Client) -> None:
    """Before any line is read."""
    script.watch(Answer(status(404, "NotFound"), status=404))
    with pytest.raises(NotFound):
        client.stream("/x", {"watch": "true"}, read_timeout_seconds=5)


@timed
@pytest.mark.parametrize("says_close", [False, True], ids=["kept alive", "connection: close"])
def test_a_stream_is_closed_from_another_thread(script: Script, client: Client, says_close: bool) -> None:
    """The reader ends at once and without an error."""
    script.watch(WatchLines(says_close=says_close))
    stream = client.stream("/x", {"watch": "true"}, read_timeout_seconds=60)
    lines: list[bytes] = []
    reader = threading.Thread(target=lambda: lines.extend(stream))
    reader.start()
    started = time.monotonic()
    stream.close()
    reader.join(5)
    assert (reader.is_alive(), lines) == (False, [])
    within("it ends", time.monotonic() - started, 2)


def test_many_streams_leave_room_for_writes(script: Script, client: Client) -> None:
    """Ten open watches do not block a request, nor one another."""
    script.watch(*[WatchLines([b"one"])] * 10)
    streams = [client.stream("/x", {"watch": "true"}, read_timeout_seconds=5) for _ in range(10)]
    assert [next(iter(stream)) for stream in streams] == [b"one"] * 10
    script.answer(b"{}")
    assert client.post("/x", {}) == {}
    for stream in streams:
        stream.close()
