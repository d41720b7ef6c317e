"""The share over time from Prometheus: what it said, and what is shown where it says nothing."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cli.main import main
from dashboard.prometheus import FRESH_SECONDS, GOOD_SECONDS, PrometheusArchive, checked_url, read
from placement import names
from report.history import History
from tests.builders.model import NOW
from tests.dashboard.dashboardharness import dashboard_of
from tests.localcluster.awaiting import until

LOW = [[NOW - 600, "0.7"], [NOW - 480, "0.1"], [NOW - 360, "NaN"]]
HIGH = [[NOW - 600, "0.7"], [NOW - 480, "0.6"], [NOW - 360, "NaN"]]


def answered(values: list[list[Any]]) -> bytes:
    return json.dumps({"status": "success", "data": {"result": [{"metric": {}, "values": values}]}}).encode()


@dataclass
class Fake:
    """A Prometheus that says what it is told to, at once or never."""

    says: dict[str, tuple[int, bytes]] = field(
        default_factory=lambda: {"min": (200, answered(LOW)), "max": (200, answered(HIGH))}
    )
    asked: list[dict[str, list[str]]] = field(default_factory=list)
    goes_on: Event = field(default_factory=Event)
    url: str = ""


@contextmanager
def prometheus() -> Iterator[Fake]:
    fake = Fake()
    fake.goes_on.set()

    class FakePrometheusHandler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            asked = parse_qs(parts.query)
            fake.asked.append(asked)
            fake.goes_on.wait(20)
            status, body = fake.says[asked["query"][0][:3]] if parts.path == "/prom/api/v1/query_range" else (404, b"")
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), FakePrometheusHandler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        fake.url = f"http://127.0.0.1:{server.server_port}/prom"
        yield fake
        fake.goes_on.set()
        server.shutdown()
        thread.join()


def test_prometheus_is_asked_for_a_day_and_its_dips() -> None:
    """The lowest and the highest of every two minutes, of the rule that we ship."""
    with prometheus() as fake:
        archive = PrometheusArchive(fake.url)
        archive.fetch()
        assert archive.points() == [(NOW - 600, 0.7), (NOW - 480, 0.1), (NOW - 480, 0.6)]
    low, high = fake.asked
    assert low["query"] == [f"min_over_time({names.RULE_SPOT_SHARE}[120s])"]
    assert high["query"] == [f"max_over_time({names.RULE_SPOT_SHARE}[120s])"]
    assert int(low["end"][0]) - int(low["start"][0]) == 86_400
    assert abs(int(low["end"][0]) - time.time()) < 60


def test_the_page_says_whose_memory_it_shows() -> None:
    """Prometheus' where there is one; what came later is added from here."""
    with prometheus() as fake:
        archive = PrometheusArchive(fake.url)
        page = dashboard_of(history=History(archive))
        told = page.get("overview")["spotShare"]
        assert (told["historySource"], told["history"]) == ("memory", [[NOW, 0.5455]])
        archive.fetch()
        page.now += 2
        page.passes()
        told = page.get("overview")["spotShare"]
        assert told["historySource"] == "prometheus"
        assert told["history"] == [[NOW - 600, 0.7], [NOW - 480, 0.1], [NOW - 480, 0.6], [NOW, 0.5455]]


def test_no_answer_waits_for_prometheus() -> None:
    """It hangs: the page is answered from memory meanwhile, and goes over when it answers at last."""
    with prometheus() as fake:
        fake.goes_on.clear()
        archive = PrometheusArchive(fake.url)
        archive.start()
        page = dashboard_of(history=History(archive))
        assert page.get("overview")["spotShare"]["historySource"] == "memory"
        until(lambda: fake.asked, "Prometheus is asked")
        page.now += 2
        page.passes()
        assert page.get("overview")["spotShare"]["historySource"] == "memory"
        fake.goes_on.set()
        until(lambda: archive.version, "Prometheus has answered")
        page.now += 2
        page.passes()
        assert page.get("overview")["spotShare"]["historySource"] == "prometheus"
        assert len(fake.asked) == 2


@pytest.mark.parametrize(
    "says",
    [
        (503, b"no"),
        (200, b"<html>sign in</html>"),
        (200, b"[]"),
        (200, b'{"status": "error", "error": "no"}'),
        (200, b'{"status": "success", "data": {"result": [{"values": [["x", "y"]]}]}}'),
        (200, b'{"status": "success", "data": {"result": [{"values": []}, {"values": []}]}}'),
        (200, b'{"status": "success", "data": {"result": [{"values": [[1e999, "1"]]}]}}'),
    ],
    ids=["an error", "a page", "a list", "a failed query", "nonsense", "two clusters", "no moment"],
)
def test_what_prometheus_said_is_shown_for_a_while_after_it_fails(says: tuple[int, bytes]) -> None:
    """Five minutes; then memory is nearer the truth. It is not asked more than once a minute."""
    clock = [0.0]
    with prometheus() as fake:
        archive = PrometheusArchive(fake.url, timer=lambda: clock[0])
        archive.fetch()
        good = archive.points()
        assert good
        fake.says["min"] = says
        clock[0] += FRESH_SECONDS
        archive.fetch()
        assert archive.points() == good
        clock[0] += GOOD_SECONDS - FRESH_SECONDS
        assert archive.points() is None


def test_a_rule_that_recorded_nothing_yet_is_no_history() -> None:
    """Prometheus is there, our rules are not."""
    assert read(b'{"status": "success", "data": {"result": []}}') == []
    archive = PrometheusArchive("http://nowhere", lambda _url: b'{"status": "success", "data": {"result": []}}')
    archive.fetch()
    assert archive.points() is None


@pytest.mark.parametrize("wrong", ["prometheus:9090", "ftp://a", "http://", "http://a?b", "file:///etc/passwd"])
def test_an_address_is_checked_at_the_start(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    """And said what it should be."""
    with pytest.raises(ValueError, match="such as http://"):
        checked_url(wrong)
    with pytest.raises(SystemExit) as ended:
        main(["rebalancer", "--prometheus-url", wrong])
    assert ended.value.code == 2
    assert "such as http://" in capsys.readouterr().err
    assert checked_url("https://a.example/prom/") == "https://a.example/prom"


def test_who_speaks_no_http_does_not_end_the_program() -> None:
    """A port of something else, such as TLS: the chart shows memory."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak() -> None:
            with suppress(OSError):  # nobody may come a second time, before the listener is closed
                for _ in range(2):
                    connection, _address = listener.accept()
                    with connection:
                        connection.recv(65536)
                        connection.sendall(b"\x15\x03\x01\x00\x02\x02\x46")

        Thread(target=speak, daemon=True).start()
        archive = PrometheusArchive(f"http://127.0.0.1:{listener.getsockname()[1]}")
        archive.fetch()
        assert archive.points() is None
