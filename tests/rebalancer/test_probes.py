"""The rebalancer's probes and metrics, as a kubelet and Prometheus see them."""

from __future__ import annotations

import urllib.error
import urllib.request

import pytest

from rebalancer.metrics import RebalancerMetrics
from rebalancer.probes import probes, serving_probes
from tests.serving.client import Visitor

METRICS = RebalancerMetrics(lambda: None, lambda: True)


def test_it_is_ready_when_nothing_is_missing() -> None:
    """Until then it says what is; it is alive all along."""
    lacks: list[str] = ["the Lease has not been read yet"]
    client = Visitor(probes(METRICS, lambda: lacks[0] if lacks else None))
    answer = client.get("/readyz")
    assert (answer.status_code, answer.text) == (503, "not ready: the Lease has not been read yet\n")
    assert client.get("/healthz").text == "ok\n"
    lacks.clear()
    answer = client.get("/readyz")
    assert (answer.status_code, answer.text) == (200, "ok\n")


def test_it_is_unhealthy_when_its_loop_hangs() -> None:
    """The kubelet restarts it then."""
    wrong: list[str] = []
    client = Visitor(probes(METRICS, lambda: None, lambda: wrong[0] if wrong else None))
    assert client.get("/healthz").status_code == 200
    wrong.append("no pass has ended for 61 s")
    answer = client.get("/healthz")
    assert (answer.status_code, answer.text) == (503, "unhealthy: no pass has ended for 61 s\n")
    assert client.get("/readyz").status_code == 200


def test_it_is_served_on_a_thread_and_ends_with_it() -> None:
    """Metrics say who leads."""
    with (
        serving_probes(probes(METRICS, lambda: None), "127.0.0.1:0") as port,
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer,
    ):
        assert "spotweave_rebalancer_leading 1.0" in answer.read().decode()
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5)
