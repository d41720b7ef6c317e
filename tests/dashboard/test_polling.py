"""Who asks again costs next to nothing: nothing is worked out or encoded twice; connections stay open."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dashboard.answercache import (
    LARGEST_QUICK,
    MOST_QUESTIONS,
    PACE_SECONDS,
    SAME_SECONDS,
    SOONEST_SECONDS,
    STATE,
    encoded,
)
from dashboard.server import LARGEST_HEAD, serving_page
from placement import names
from tests.builders.snapshots import SHOP, deployment, snapshot
from tests.dashboard.dashboardharness import DashboardHarness, dashboard_of, drained, with_token
from tests.localcluster.awaiting import until

OVERVIEW = "/api/v1/overview?with=pools"


@contextmanager
def served(page: DashboardHarness) -> Iterator[http.client.HTTPConnection]:
    with serving_page(page.cache, page.guard, "127.0.0.1:0") as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        yield connection
        connection.close()


def ask(connection: http.client.HTTPConnection, path: str = OVERVIEW, **headers: str) -> tuple[int, Any, bytes]:
    connection.request("GET", path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    return answer.status, answer.headers, answer.read()


def wait(connection: http.client.HTTPConnection) -> float:
    return float(json.loads(ask(connection)[1][STATE])["askAgainSeconds"])


def test_what_is_known_is_not_told_again() -> None:
    """A hundred polls of two questions at rest: two answers are worked out, the rest is a line about their worth."""
    page = dashboard_of()
    with served(page) as connection:
        tags = {path: ask(connection, path)[1]["ETag"] for path in (OVERVIEW, "/api/v1/workloads?limit=100")}
        for number in range(50):
            page.now += 1
            page.passes() if number % 2 else None
            for path, tag in tags.items():
                status, headers, body = ask(connection, path, If_None_Match=tag)
                state = json.loads(headers[STATE])
                if page.cache.worked_out == len(tags):
                    assert (status, body) == (304, b"")
                assert state["ageSeconds"] <= PACE_SECONDS
                assert (state["leading"], state["synced"]) == (True, True)
        samples = 50 // 15 + 1  # the history goes on, which the overview tells
        assert page.cache.worked_out <= len(tags) * (1 + samples)


def test_a_change_is_told_to_who_knows_the_old() -> None:
    """Under another tag, and only of what has changed."""
    page = dashboard_of()
    with served(page) as connection:
        old, pools = ask(connection)[1]["ETag"], ask(connection, "/api/v1/pools")[1]["ETag"]
        page.index.observe(SHOP.workloads[0], replace(SHOP.workloads[0], annotations={names.SPOT_RATIO: "20%"}))
        page.now += 2
        page.passes()
        status, headers, body = ask(connection, If_None_Match=old)
        assert (status, json.loads(body)["spotShare"]["wanted"]["spot"]) == (200, 2)
        assert headers["ETag"] != old
        assert ask(connection, "/api/v1/pools", If_None_Match=pools)[0] == 304


def test_bodies_are_packed_once_and_read_by_everybody() -> None:
    """Compressed answers are what the others are; how old they are is told anew each time."""
    page = dashboard_of(snapshot(*(deployment(f"w{number:03}", ("od-a", "spot-a")) for number in range(40))))
    with served(page) as connection:
        plain = json.loads(ask(connection)[2])
        for age in (0.0, 3.5, 123.0):
            page.now += age - plain["ageSeconds"]
            _, headers, body = ask(connection, Accept_Encoding="gzip, deflate")
            plain = json.loads(ask(connection)[2])
            assert headers["Content-Encoding"] == "gzip"
            assert json.loads(gzip.decompress(body)) == plain
            assert plain["ageSeconds"] == age
        assert page.cache.worked_out == 1


def test_what_has_not_changed_keeps_its_tag() -> None:
    """A client that has the body is not sent it again."""
    body = encoded(b'{"a":1}')
    assert body.plain == b'"a":1}'
    assert encoded(b'{"a":1}') == body
    assert encoded(b'{"a":2}').etag != body.etag


def test_a_large_answer_is_compressed_on_another_thread_and_once_for_all_who_ask() -> None:
    """Within the same moment the event loop hands out what was compressed; a moment later it compresses nothing."""
    page = dashboard_of(snapshot(*(deployment(f"w{number:03}", ("od-a", "spot-a")) for number in range(400))))
    path = "/api/v1/workloads"
    with served(page) as connection:
        answer = ask(connection, path, Accept_Encoding="gzip")[2]
        assert len(gzip.decompress(answer)) > LARGEST_QUICK
        once = page.cache.quick(path, takes_gzip=True, known="")
        assert once is not None
        assert once.body == answer
        page.now += 2 * SAME_SECONDS
        assert page.cache.quick(path, takes_gzip=True, known="") is None
        assert page.cache.quick(path, takes_gzip=True, known=dict(once.headers)["ETag"]) is not None
        assert ask(connection, path, Accept_Encoding="gzip")[0] == 200
        assert page.cache.worked_out == 1


def test_the_more_look_the_rarer_each_asks() -> None:
    """One page every two seconds; a hundred of them every eight, so that all ask no more than 15 times a second."""
    page = dashboard_of()
    with served(page) as connection:
        ask(connection)
        assert page.cache.pace_seconds == PACE_SECONDS
        many = [socket.create_connection((connection.host, connection.port)) for _ in range(99)]
        until(lambda: page.cache.pace_seconds == 4 * PACE_SECONDS, "all are counted")
        assert len(many) / page.cache.pace_seconds <= MOST_QUESTIONS
        for each in many:
            each.close()
        until(lambda: page.cache.pace_seconds == PACE_SECONDS, "all are gone")


def test_pages_are_told_to_ask_at_the_same_moment() -> None:
    """Whenever they ask first: the server is woken once for all of them. None is told to ask again at once."""
    page = dashboard_of()
    began = page.now
    with served(page) as connection:
        for seconds in (0.0, 0.3, 0.9, 1.4, 1.6, 1.99):
            page.now = began + seconds
            told = wait(connection)
            assert (page.now + told) % PACE_SECONDS == pytest.approx(0.0, abs=0.01)
            assert SOONEST_SECONDS <= told <= PACE_SECONDS + SOONEST_SECONDS


def test_who_asks_at_the_same_moment_is_told_the_same() -> None:
    """Byte for byte, written once; a moment later they hear another age."""
    page = dashboard_of()
    with served(page) as connection:
        ask(connection)
        once = page.cache.quick(OVERVIEW, takes_gzip=True, known="")
        assert once is not None
        page.now += SAME_SECONDS / 2
        assert page.cache.quick(OVERVIEW, takes_gzip=True, known="") is once
        assert page.cache.quick(OVERVIEW, takes_gzip=True, known=dict(once.headers)["ETag"]) is not once
        page.now += SAME_SECONDS
        assert json.loads(ask(connection)[2])["ageSeconds"] == pytest.approx(1.5 * SAME_SECONDS, abs=0.1)


def test_questions_without_number_are_all_answered() -> None:
    """More than a few at once: none is forgotten."""
    page = dashboard_of()
    with served(page) as connection:
        ask(connection)
        many = [socket.create_connection((connection.host, connection.port), timeout=10) for _ in range(45)]
        for _ in range(3):
            for each in many:
                each.sendall(f"GET {OVERVIEW} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
            for each in many:
                assert each.recv(1 << 16).startswith(b"HTTP/1.1 200 OK")
        for each in many:
            each.close()


def test_the_quick_way_lets_nobody_in_whom_the_other_keeps_out(tmp_path: Path) -> None:
    """Though the answer is there already: a wrong host, another origin, no token, a wrong one."""
    file = tmp_path / "token"
    file.write_text("secret")
    page = dashboard_of(guard=with_token(file))
    with served(page) as connection:
        right = {"Authorization": "Bearer secret"}
        _, headers, _ = ask(connection, **right)
        assert ask(connection, **right, If_None_Match=headers["ETag"])[0] == 304
        worked_out = page.cache.worked_out
        for wrong, status in (
            ({"Authorization": "Bearer wrong"}, 401),
            ({}, 401),
            ({**right, "Host": "evil.example"}, 403),
            ({**right, "Origin": "http://evil.example"}, 403),
            ({**right, "Sec_Fetch_Site": "cross-site"}, 403),
        ):
            answer, found, body = ask(connection, **wrong, If_None_Match=headers["ETag"])
            assert answer == status
            assert "default-src 'none'" in found["Content-Security-Policy"]
            assert b"spotShare" not in body
        assert page.cache.worked_out == worked_out


def test_both_ways_have_the_same_headers() -> None:
    """The first answer goes the long way, the second does not."""
    with served(dashboard_of()) as connection:
        first, second = (dict(ask(connection)[1]) for _ in range(2))
        assert first == second
        assert first["Cache-Control"] == "no-store"


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * LARGEST_HEAD, 431),
        (b"POST /api/v1/overview HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 405),
        (b"GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 404),
        (b"GET / HTTP/1.1\r\n\r\n", 403),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20, 429),
        (b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n", 200),
    ],
    ids=["no request", "too long", "a write", "nowhere", "no host", "too many at once", "an old client"],
)
def test_whatever_is_sent_gets_an_answer(sent: bytes, status: int) -> None:
    """And the next one is answered all the same."""
    page = dashboard_of()
    with served(page) as connection:
        with socket.create_connection((connection.host, connection.port), timeout=10) as odd:
            odd.sendall(sent)
            odd.shutdown(socket.SHUT_WR)
            told = b"".join(iter(lambda: odd.recv(65536), b""))
        assert f"HTTP/1.1 {status} ".encode() in told
        assert ask(connection)[0] == 200


def test_who_waits_for_the_same_is_answered_with_the_first() -> None:
    """Thirty ask what nobody has asked before, and have no more to say: each is answered, and its connection ends."""
    page = dashboard_of()
    with served(page) as connection:
        many = [socket.create_connection((connection.host, connection.port), timeout=10) for _ in range(30)]
        for each in many:
            each.sendall(b"GET /api/v1/drill?spot=1 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            each.shutdown(socket.SHUT_WR)
        for each in many:
            told = b"".join(iter(lambda one=each: one.recv(65536), b""))  # type: ignore[misc]
            assert told.startswith(b"HTTP/1.1 200 OK")
            assert b'"fallBelow"' in told
            each.close()
        assert page.cache.worked_out == 1


def test_requests_of_one_connection_are_answered_in_their_order() -> None:
    """Quick ones do not overtake slow ones."""
    page = dashboard_of()
    paths = ("/api/v1/drill?spot=1", OVERVIEW, "/static/style.css", OVERVIEW)
    with served(page) as connection:
        ask(connection)
        with socket.create_connection((connection.host, connection.port), timeout=10) as one:
            one.sendall(b"".join(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode() for path in paths))
            one.shutdown(socket.SHUT_WR)
            told = b"".join(iter(lambda: one.recv(65536), b""))
    marks = [told.index(mark) for mark in (b'"fallBelow"', b'"spotShare"', b"color-scheme: light")]
    assert all(one < other for one, other in pairwise(marks))
    assert told.count(b"HTTP/1.1 200") == len(paths)


def test_who_does_not_read_is_not_heard() -> None:
    """Requests without end, and nobody takes the answers: they are not piled up in memory, and others are answered."""
    many = snapshot(*(deployment(f"w{number:03}", ("od-a", "spot-a")) for number in range(100)))
    with served(dashboard_of(many)) as connection:
        ask(connection)
        with socket.create_connection((connection.host, connection.port), timeout=1.0) as deaf:
            request = f"GET {OVERVIEW} HTTP/1.1\r\nHost: localhost\r\nX: {'x' * 16_000}\r\n\r\n".encode()
            with pytest.raises(TimeoutError):
                deaf.sendall(request * 5_000)
        assert ask(connection)[0] == 200


def test_small_requests_without_end_do_not_pile_up_answers_either() -> None:
    """Many fit into one packet: answers wait for who takes them, and no more than a few questions wait for those."""
    many = snapshot(*(deployment(f"w{number:03}", ("od-a", "spot-a")) for number in range(100)))
    with served(dashboard_of(many)) as connection:
        ask(connection, "/api/v1/workloads")
        with socket.create_connection((connection.host, connection.port), timeout=10) as deaf:
            deaf.sendall(b"GET /api/v1/workloads HTTP/1.1\r\nHost: localhost\r\n\r\n" * 2_000)
            told = b"".join(iter(lambda: deaf.recv(1 << 20), b""))
    assert told.count(b"HTTP/1.1 200 OK") < 500
    assert b"HTTP/1.1 429 " in told


@pytest.mark.parametrize("address", ["127.0.0.1:0", "[::1]:0", "[::]:0"])
def test_it_listens_where_it_is_told_to(address: str) -> None:
    """On either kind of address, and on both."""
    page = dashboard_of()
    hosts = {"127.0.0.1:0": ["127.0.0.1"], "[::1]:0": ["::1"], "[::]:0": ["::1", "127.0.0.1"]}[address]
    with serving_page(page.cache, page.guard, address) as port:
        for host in hosts:
            connection = http.client.HTTPConnection(host, port, timeout=10)
            assert ask(connection)[0] == 200
            connection.close()


def test_where_many_look_what_happens_to_nodes_is_told_at_once() -> None:
    """Fifty pages: another ratio may wait for the next question but one, a node that leaves does not."""
    page = dashboard_of()
    page.cache.watchers = 50
    assert len(page.get("overview")["nodes"]["leaving"]) == 0
    page.index.observe(SHOP.workloads[0], replace(SHOP.workloads[0], annotations={names.SPOT_RATIO: "20%"}))
    page.now += page.cache.pace_seconds
    page.passes()
    answer = page.get("overview")
    assert (answer["spotShare"]["wanted"]["spot"], answer["ageSeconds"]) == (6, page.cache.pace_seconds)
    page.index.observe(page.index.ground.sites["spot-b"].node, drained("spot-b"))
    page.now += 1
    page.passes()
    answer = page.get("overview")
    assert (answer["nodes"]["leaving"], answer["ageSeconds"]) == (["spot-b"], 0.0)
    assert answer["spotShare"]["wanted"]["spot"] == 2
