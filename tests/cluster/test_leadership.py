"""Rebalancers as processes: one leads, the next follows, and none goes without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest

from demo.supervisor import Installed, Process, running
from kube.client import Client, connect
from kube.crashpoints import VARIABLE
from kube.lease import PATH
from localcluster import LocalCluster, demo_profile
from placement import names
from tests.cluster.namespaceuser import wait_for
from tests.timing import timed, within

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[LocalCluster]:
    with LocalCluster.start(demo_profile()) as cluster:
        yield cluster


@pytest.fixture
def installed(own_cluster: LocalCluster) -> Iterator[Installed]:
    """Three rebalancers and no webhook."""
    with running(own_cluster.kubeconfig, 0, log_level="warning", rebalancers=3) as spotweave:
        yield spotweave


@pytest.fixture
def client(own_cluster: LocalCluster) -> Iterator[Client]:
    connected = connect(Path(own_cluster.kubeconfig), user_agent="spotweave-tests")
    yield connected
    connected.close()


def leads(process: Process) -> bool:
    if process.process.poll() is not None:
        return False
    with urllib.request.urlopen(f"{process.url}/metrics", timeout=5) as answer:
        return f"{names.METRIC_LEADING} 1.0" in answer.read().decode().splitlines()


def leaders(installed: Installed) -> list[Process]:
    return [each for each in installed.processes if leads(each)]


@timed
def test_one_leads_and_the_next_follows(installed: Installed, client: Client) -> None:
    """At once when it is told to end, within its duration when it is killed; what was reported is where it is."""
    report = installed.report()
    assert sorted(report["pids"]) == sorted(report["metrics"]) == ["rebalancer-0", "rebalancer-1", "rebalancer-2"]
    wait_for("one to lead", lambda: leaders(installed))
    (first,) = leaders(installed)
    os.kill(report["pids"][first.name], signal.SIGTERM)
    assert first.process.wait(10) == 0
    ended = time.monotonic()
    wait_for("the next to lead", lambda: leaders(installed))
    within("the next leads without waiting for the Lease to run out", time.monotonic() - ended, 10)
    (second,) = leaders(installed)
    second.process.kill()
    second.process.wait()
    killed, held = time.monotonic(), client.get_json(PATH)["spec"]
    wait_for("the last to lead", lambda: leaders(installed))
    within("the last leads", time.monotonic() - killed, 25)
    taken = client.get_json(PATH)["spec"]
    silence = datetime.fromisoformat(taken["acquireTime"]) - datetime.fromisoformat(held["renewTime"])
    assert silence.total_seconds() > held["leaseDurationSeconds"]
    assert taken["leaseTransitions"] == 3
    installed.stop()
    assert client.get_json(PATH)["spec"]["holderIdentity"] == ""


def test_a_fault_that_makes_no_sense_is_told(own_cluster: LocalCluster) -> None:
    """Before anything is done."""
    command = [sys.executable, "-m", "cli.main", "rebalancer", "--kubeconfig", str(own_cluster.kubeconfig)]
    environment = {**os.environ, VARIABLE: "before:lunch:1"}
    ended = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 2
    assert f"{VARIABLE}: expected before|after:annotate|" in ended.stderr
