"""When Spotweave fails, pods are created all the same, status tells which it missed, and nothing is left behind."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from kube.client import Client, connect
from localcluster import LocalCluster, Options, demo_profile
from tests.builders.api import raw_namespace, raw_workload
from tests.cluster.killing import forget_webhooks
from tests.cluster.namespaceuser import NamespaceUser, is_exact, label, wait_for

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[LocalCluster]:
    """A cluster whose webhook may be killed."""
    with LocalCluster.start(demo_profile(), options=Options(controller_qps=200, controller_burst=400)) as cluster:
        yield cluster


@pytest.fixture
def user(own_cluster: LocalCluster, request: pytest.FixtureRequest) -> Iterator[NamespaceUser]:
    client: Client = connect(Path(own_cluster.kubeconfig), user_agent="spotweave-tests")
    name = f"f{len(request.node.name)}"
    client.post("/api/v1/namespaces", raw_namespace(name))
    label(client, name)
    yield NamespaceUser(client, Path(own_cluster.kubeconfig), name)
    forget_webhooks(client)
    client.delete(f"/api/v1/namespaces/{name}")
    client.close()


@contextmanager
def spotweave_run(
    kubeconfig: Path, environment: dict[str, str] | None = None, rebalancers: int = 0
) -> Iterator[tuple[Any, dict[str, Any]]]:
    """`spotweave run` as a user starts it; gives the process and the line that says it is ready.

    Without a rebalancer, which would repair what is to be seen. What still runs at the end is killed, and its programs
    with it: an orderly end takes ten seconds.
    """
    options = ("--rebalancers", str(rebalancers), "--log-level", "warning")
    command = [sys.executable, "-m", "cli.main", "run", "--kubeconfig", str(kubeconfig), *options]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, env={**os.environ, **(environment or {})})
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        yield process, ready
        process.kill()
        wait_for("its programs to end", lambda: not any(map(is_running, ready["pids"].values())))
    finally:
        process.kill()
        process.wait()
        process.stdout.close() if process.stdout else None


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_webhook_killed_in_a_burst_costs_no_pod_and_status_names_the_missed(user: NamespaceUser) -> None:
    """All 300 pods are created and serve; status lists exactly those that carry no decision."""
    with spotweave_run(user.kubeconfig) as (_, ready):
        user.create(raw_workload("Deployment", "web", 300))
        wait_for("the burst to begin", lambda: len(user.pods("web")) > 20)
        os.kill(ready["pids"]["webhook-0"], signal.SIGKILL)
        wait_for("all pods", lambda: len(user.pods("web")) == 300)
        user.rest("web")
        assert user.events("FailedCreate") == []
        unmarked = {
            pod["metadata"]["name"]
            for pod in user.pods("web")
            if "spotweave.dev/decision" not in pod["metadata"].get("annotations", {})
        }
        assert unmarked, "the webhook was killed too late to miss a pod"
        status = command("status", "-o", "json", "--kubeconfig", str(user.kubeconfig))
        (web,) = [each for each in json.loads(status.stdout)["workloads"] if each["namespace"] == user.namespace]
        assert set(web["missed"]) == unmarked
        assert "missed by admission" in web["reason"]


def test_pods_that_were_missed_count_when_the_webhook_is_back(user: NamespaceUser) -> None:
    """Ten pods come while the webhook is away; scaled to 30 with it back, newcomers complete the mix."""
    user.create(raw_workload("Deployment", "web", 10))
    before = user.rest("web")
    assert len(before.missed) == 10
    with spotweave_run(user.kubeconfig):
        user.scale("web", 30)
        status = user.rest("web")
        assert status.actual == status.wanted


def test_a_hung_webhook_delays_pods_and_refuses_none(user: NamespaceUser) -> None:
    """Stopped in its tracks (SIGSTOP): the API server waits for its time-out, then creates the pods without us."""
    with spotweave_run(user.kubeconfig) as (_, ready):
        pid = ready["pids"]["webhook-0"]
        os.kill(pid, signal.SIGSTOP)
        try:
            user.create(raw_workload("Deployment", "web", 3))
            wait_for("the pods", lambda: len(user.pods("web")) == 3)
            assert user.events("FailedCreate") == []
        finally:
            os.kill(pid, signal.SIGCONT)


def test_a_stopped_run_leaves_nothing_and_can_be_started_again(user: NamespaceUser) -> None:
    """SIGTERM ends all programs; a second run on the same cluster places pods again."""
    with spotweave_run(user.kubeconfig, rebalancers=1) as (process, ready):
        pids = list(ready["pids"].values())
        process.terminate()
        assert process.wait(30) == 0
        assert not any(map(is_running, pids))
    with spotweave_run(user.kubeconfig):
        user.create(raw_workload("Deployment", "web", 10))
        assert is_exact(user.rest("web"), 7, 3)


def test_kill_9_of_run_leaves_no_process_port_or_file(user: NamespaceUser, tmp_path: Path) -> None:
    """Its programs die with it, and it never wrote a file."""
    with spotweave_run(user.kubeconfig, {"TMPDIR": str(tmp_path), "HOME": str(tmp_path)}, 1) as (process, ready):
        pids = list(ready["pids"].values())
        addresses = listening(pids)
        assert addresses
        process.kill()
        process.wait()
        wait_for("its programs to end", lambda: not any(map(is_running, pids)))
    wait_for("its ports to be free", lambda: listening_addresses().isdisjoint(addresses))
    assert list(tmp_path.iterdir()) == []


def test_kill_9_of_the_demo_leaves_no_process_port_or_file(tmp_path: Path) -> None:
    """The control plane, its directory and Spotweave are gone a moment after the demo was killed."""
    marks = {"TMPDIR": str(tmp_path), "SPOTWEAVE_DEMO_MARK": str(tmp_path)}
    demo = [sys.executable, "-m", "cli.main", "demo"]
    process = subprocess.Popen(demo, cwd=ROOT, stdout=subprocess.PIPE, env={**os.environ, **marks}, text=True)
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        assert any("web scales to 25" in line for line in lines)
        family = marked(str(tmp_path))
        addresses, directories = listening(family), directories_of(family)
        assert directories
        assert len(family) >= 7  # demo, webhook, etcd, three of Kubernetes, KWOK
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
    wait_for("the family to end", lambda: marked(str(tmp_path)) == [])
    wait_for("its ports to be free", lambda: listening_addresses().isdisjoint(addresses))
    wait_for("its directory to go", lambda: not any(directory.exists() for directory in directories))
    assert list(tmp_path.iterdir()) == []


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cli.main", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )


def directories_of(pids: list[int]) -> set[Path]:
    """The clusters' directories that stand in these processes' arguments."""
    arguments = " ".join(map(arguments_of, pids))
    return {Path(found) for found in re.findall(r"/[\w/.-]*/spotweave-cluster-\w+", arguments)}


def arguments_of(pid: int) -> str:
    """Those of a process; none if it has ended meanwhile, as a `kubectl` does."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def marked(mark: str) -> list[int]:
    """The processes that have this mark in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"SPOTWEAVE_DEMO_MARK={mark}".encode() in path.read_bytes() and is_running(int(path.parent.name)):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def listening(pids: list[int]) -> set[str]:
    """The addresses that these processes listen on, if they have not ended meanwhile."""
    sockets = set()
    for pid in pids:
        with suppress(OSError):
            for descriptor in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    sockets.add(os.readlink(descriptor))
    return {address for address, inode in _listeners() if f"socket:[{inode}]" in sockets}


def listening_addresses() -> set[str]:
    return {address for address, _ in _listeners()}


def _listeners() -> Iterator[tuple[str, str]]:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                yield fields[1], fields[9]
