"""Bytes in, requests out; a response in, bytes out. No socket, no clock."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.messages import Request, Response, text, written
from serving.parser import BEGINNING_BYTES, Ask, Event, Limits, Parser, Rejection

LIMITS = Limits(head_bytes=1000, fields=5, body_bytes=100)
GET = b"GET /a?b=c HTTP/1.1\r\nHost: x\r\n\r\n"
GOT = Request("GET", "/a?b=c", {b"host": b"x"})
POST = b"POST /p HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"
POSTED = Request("POST", "/p", {b"content-length": b"3"}, b"abc")
CHUNKED = b"POST /p HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
DECLARED = b"POST /p HTTP/1.1\r\nContent-Length: 9000\r\n\r\n"
EXPECTING = b"POST /p HTTP/1.1\r\nContent-Length: 3\r\nExpect: 100-continue\r\n\r\n"
MANY_FIELDS = b"".join(b"a%d: b\r\n" % number for number in range(6))
TOO_LARGE_A_HEAD = Rejection(431, "the request's head is too large")
TOO_LARGE_A_BODY = Rejection(413, "the body is too large")


def parsed(*pieces: bytes, room: int = 8, limits: Limits = LIMITS) -> list[Event]:
    parser = Parser(limits)
    events: list[Event] = []
    for piece in pieces:
        events += parser.feed(piece, room - len(events))
    return events


COMPLETE: dict[str, tuple[bytes, list[Event]]] = {
    "a request without a body": (GET, [GOT]),
    "a body with a length": (POST, [POSTED]),
    "a body in chunks": (
        CHUNKED + b"2\r\nab\r\n1\r\nc\r\n0\r\n\r\n",
        [Request("POST", "/p", {b"transfer-encoding": b"chunked"}, b"abc")],
    ),
    "fields behind the body are dropped": (
        CHUNKED + b"1\r\na\r\n0\r\n" + MANY_FIELDS + b"\r\n",
        [Request("POST", "/p", {b"transfer-encoding": b"chunked"}, b"a")],
    ),
    "two requests at once": (POST + GET, [POSTED, GOT]),
    "the last one of its connection": (
        b"GET / HTTP/1.1\r\nConnection: close\r\n\r\n",
        [Request("GET", "/", {b"connection": b"close"}, b"", is_last=True)],
    ),
    "an old client": (b"GET / HTTP/1.0\r\n\r\n", [Request("GET", "/", {}, b"", is_last=True)]),
    "a client that waits before it sends": (
        EXPECTING + b"abc",
        [Ask.CONTINUE, POSTED._replace(headers={b"content-length": b"3", b"expect": b"100-continue"})],
    ),
    "a path that is encoded stays as it was sent": (
        b"GET /%6dutate HTTP/1.1\r\n\r\n",
        [Request("GET", "/%6dutate")],
    ),
    "a query may hold what browsers leave in it": (
        b"GET /?q=[a|b] HTTP/1.1\r\n\r\n",
        [Request("GET", "/?q=[a|b]")],
    ),
    "a beginning": (GET[:-1], []),
}


@pytest.mark.parametrize(("sent", "events"), COMPLETE.values(), ids=COMPLETE.keys())
def test_what_is_complete_comes_out(sent: bytes, events: list[Event]) -> None:
    """In one piece, and byte by byte."""
    assert parsed(sent) == events
    assert parsed(*(sent[at : at + 1] for at in range(len(sent)))) == events


REJECTED: dict[str, tuple[bytes, Rejection]] = {
    "a body that is too large": (b"POST / HTTP/1.1\r\nContent-Length: 101\r\n\r\n" + b"x" * 101, TOO_LARGE_A_BODY),
    "chunks that are too much together": (
        CHUNKED + b"33\r\n" + b"x" * 51 + b"\r\n32\r\n" + b"x" * 50,
        TOO_LARGE_A_BODY,
    ),
    "a field without end": (b"GET / HTTP/1.1\r\na: " + b"x" * 1000, TOO_LARGE_A_HEAD),
    "a URL without end": (b"GET /" + b"x" * 1000 + b" HTTP/1.1\r\n\r\n", TOO_LARGE_A_HEAD),
    "fields that are too large together": (
        b"GET / HTTP/1.1\r\n" + b"".join(b"a%d: %s\r\n" % (each, b"x" * 300) for each in range(4)) + b"\r\n",
        TOO_LARGE_A_HEAD,
    ),
    "too many fields": (
        b"GET / HTTP/1.1\r\n" + MANY_FIELDS + b"\r\n",
        Rejection(431, "too many header fields"),
    ),
    "another protocol": (
        b"GET / HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
        Rejection(400, "this server speaks HTTP/1.1 only"),
    ),
}


@pytest.mark.parametrize(("sent", "rejection"), REJECTED.values(), ids=REJECTED.keys())
def test_what_is_too_much_is_rejected(sent: bytes, rejection: Rejection) -> None:
    """At once or byte by byte; what came before it comes out, what comes behind it does not, and nothing is kept."""
    pieces = [sent[at : at + 1] for at in range(len(sent))]
    assert parsed(GET + sent + GET)[-1] == rejection
    assert next(each for each in parsed(GET, *pieces, GET) if each not in (GOT, Ask.CONTINUE)) == rejection
    parser = Parser(LIMITS)
    parser.feed(sent, 8)
    parser.feed(b"x" * 1001, 8)
    assert (len(parser.body), parser.feed(GET, 8)) == (0, [])


def test_a_size_of_a_chunk_without_end_is_rejected() -> None:
    """Nothing of it is ever complete."""
    assert parsed(CHUNKED, b"1;", *[b"x" * 100] * 10) == [TOO_LARGE_A_HEAD]


@pytest.mark.parametrize("sent", [b"nonsense\r\n\r\n", b"\0\1", b"GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n"])
def test_what_is_no_http_is_rejected(sent: bytes) -> None:
    """With a sentence."""
    (rejection,) = parsed(sent)
    assert isinstance(rejection, Rejection)
    assert (rejection.status, rejection.why[:18]) == (400, "malformed request:")


def test_there_is_room_for_so_many_requests() -> None:
    """What comes before the first is answered: one more is rejected, and those before it are not."""
    too_many = Rejection(429, "too many requests before the first was answered")
    assert parsed(GET * 3, room=2) == [GOT, GOT, too_many]
    assert parsed(GET, GET, GET, room=2) == [GOT, GOT, too_many]
    assert parsed(REJECTED["another protocol"][0], room=0) == [too_many]


@pytest.mark.parametrize(
    "sent", [b"POST /p HTTP/1.1\r\nContent-Length: 9000\r\n\r\n", CHUNKED], ids=["length", "chunks"]
)
def test_of_a_body_that_nobody_reads_only_the_beginning_is_kept(sent: bytes) -> None:
    """With a length, from its first byte on; in chunks, once it is too large."""
    is_chunked = sent == CHUNKED
    parser = Parser(replace(LIMITS, body_bytes=10_000, kept_bytes=6000))
    most, events = 0, parser.feed(sent, 8)
    for _ in range(9):
        events += parser.feed(b"3e8\r\n" + b"x" * 1000 + b"\r\n" if is_chunked else b"x" * 1000, 8)
        most = max(most, len(parser.body))
    events += parser.feed(b"0\r\n\r\n" + POST if is_chunked else POST, 8)
    unread, following = events
    assert isinstance(unread, Request)
    assert (unread.body, unread.dropped, unread.size) == (b"x" * BEGINNING_BYTES, 9000 - BEGINNING_BYTES, 9000)
    assert most == (6000 if is_chunked else BEGINNING_BYTES)
    assert following == POSTED


def test_bytes_are_held_until_the_body_is_complete() -> None:
    """From then on they are the request's."""
    parser = Parser(LIMITS)
    held = [(parser.feed(piece, 8), len(parser.body)) for piece in (POST[:-2], POST[-2:-1], POST[-1:])]
    assert held == [([], 1), ([], 2), ([POSTED], 0)]


@given(st.lists(st.sampled_from([GET, POST, EXPECTING + b"abc"]), max_size=6), st.data())
def test_however_it_is_cut_the_same_comes_out(sent: list[bytes], data: st.DataObject) -> None:
    """Packets are the network's business."""
    whole = b"".join(sent)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=5)))
    pieces = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert parsed(*pieces, room=99) == parsed(whole, room=99)


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_nothing_makes_it_fail(pieces: list[bytes]) -> None:
    """Whatever is sent."""
    for event in parsed(*pieces):
        assert isinstance(event, Request | Rejection | Ask)


WRITTEN: dict[str, tuple[bytes, bytes]] = {
    "an answer": (
        written(Response(200, b"{}"), is_last=False),
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\n{}",
    ),
    "the last one": (
        written(text(404, "no"), is_last=True),
        b"HTTP/1.1 404 Not Found\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 3\r\n"
        b"connection: close\r\n\r\nno\n",
    ),
    "with fields": (
        written(Response(405, b"", "text/plain", (("allow", "GET"),)), is_last=False),
        b"HTTP/1.1 405 Method Not Allowed\r\ncontent-type: text/plain\r\ncontent-length: 0\r\nallow: GET\r\n"
        b"connection: keep-alive\r\n\r\n",
    ),
    "to HEAD": (
        written(Response(200, b"{}"), is_last=False, is_head=True),
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\n",
    ),
    "nothing new": (
        written(Response(304, b"", headers=(("etag", "x"),)), is_last=False),
        b"HTTP/1.1 304 Not Modified\r\netag: x\r\nconnection: keep-alive\r\n\r\n",
    ),
}


@pytest.mark.parametrize(("found", "expected"), WRITTEN.values(), ids=WRITTEN.keys())
def test_answers_as_they_go_over_the_wire(found: bytes, expected: bytes) -> None:
    """Length and connection are always told; a 304 and the answer to HEAD have no body."""
    assert found == expected
