"""`spotweave cluster`, as a person uses it: a daemon that outlives the terminal."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from localcluster.owner import read_owner
from tests.localcluster.awaiting import until

pytestmark = pytest.mark.cluster

CODE = """
import argparse, sys
from cli import cluster
from localcluster import ClusterError
top = argparse.ArgumentParser(prog="spotweave")
cluster.add_parser(top.add_subparsers(required=True))
args = top.parse_args()
try:
    sys.exit(args.run(args))
except ClusterError as error:
    print(error.message, file=sys.stderr)
    sys.exit(error.exit_code)
"""


class ClusterCommand:
    """Calls the command as a process of its own, always with the same directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-c", CODE, "cluster", *arguments, "--dir", str(self.directory)]

    def __call__(self, *arguments: str, code: int = 0) -> str:
        done = subprocess.run(self.command(*arguments), capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def status(self, code: int = 0) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self("status", "-o", "json", code=code))
        return told

    def states(self, code: int = 0) -> dict[str, str]:
        return {part["name"]: part["state"] for part in self.status(code)["parts"]}


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[ClusterCommand]:
    """The directory's path is too long for a Unix socket on purpose."""
    directory = tmp_path / ("d" * 80) / "cluster"
    yield ClusterCommand(directory)
    owner = read_owner(directory)
    if owner is not None and owner.is_alive:
        os.kill(owner.pid, signal.SIGKILL)


def test_life_of_a_cluster(terminal: ClusterCommand) -> None:
    """From up to down, each command does what it says and ends with the exit code of the design."""
    assert "no cluster is running" in terminal("status", code=3)
    told = terminal("up", "--kubernetes", "1.36", "--controller-qps", "200", "--controller-burst", "400")
    assert f"export KUBECONFIG={terminal.directory}/kubeconfig" in told
    assert "starting the control plane (Kubernetes 1.36): done" in told
    assert "is already running" in terminal("up")
    status = terminal.status()
    assert (len(status["nodes"]), status["serviceRange"], status["kubernetes"]) == (12, "127.96.0.0/16", "1.36")
    assert {part["version"] for part in status["parts"]} == {"1.36.4", "3.6.14", "0.8.0"}
    assert "kube-scheduler" in terminal("status")

    terminal("kill", "kube-scheduler")
    assert terminal.states(code=1)["kube-scheduler"] == "killed"
    terminal("start", "kube-scheduler")
    assert "is running" in terminal("start", "kube-scheduler", code=2)
    terminal("pause", "kwok")
    assert terminal.states(code=1)["kwok"] == "paused"
    terminal("resume", "kwok")

    assert "Removed 6 node(s)" in terminal("reclaim", "--all-spot", "--not-ready")
    assert [node["ready"] for node in terminal.status(code=1)["nodes"]].count(False) == 6
    assert "Created 0 node(s), revived 6" in terminal("restore")
    assert "Removed 1 node(s)" in terminal("reclaim", "spot-c-r5", "--notice", "5s")
    assert "Created 1 node(s), revived 0" in terminal("restore", "spot-c-r5")

    assert terminal("kubeconfig") == f"{terminal.directory}/kubeconfig\n"
    assert "client-certificate:" in terminal("kubeconfig", "--raw")
    assert "a cluster is running" in terminal("clean", code=2)
    pids = [part["pid"] for part in terminal.status()["parts"]]
    terminal("down")
    assert not terminal.directory.exists()
    assert not [pid for pid in pids if Path("/proc", str(pid)).exists()]
    assert "No cluster is running" in terminal("down")


def test_interrupted_up_leaves_nothing(terminal: ClusterCommand) -> None:
    """Ctrl-C while the cluster comes up stops the daemon as well, though it is in a session of its own."""
    with subprocess.Popen(terminal.command("up"), stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        until(lambda: (terminal.directory / "logs" / "kube-apiserver.log").exists(), "the API server to be started")
        owner = read_owner(terminal.directory)
        process.send_signal(signal.SIGINT)
        process.wait(timeout=30)
    assert owner is not None
    assert not owner.is_alive
    until(lambda: not terminal.directory.exists(), "the directory to go", 1.0)


def test_bad_profile_starts_nothing(terminal: ClusterCommand, tmp_path: Path) -> None:
    """The mistakes are told with exit code 2, and no directory is made."""
    (tmp_path / "bad.yaml").write_text("pools: [{name: X}]")
    assert "6 mistake(s)" in terminal("up", "--profile", str(tmp_path / "bad.yaml"), code=2)
    assert not terminal.directory.exists()


def test_failed_up_tells_why_and_leaves_nothing(terminal: ClusterCommand) -> None:
    """An error inside the daemon reaches the terminal: here a Service range that the API server refuses."""
    told = terminal("up", "--service-range", "127.96.0.0/31", code=3)
    assert "kube-apiserver died" in told
    assert "at least 8 IP addresses" in told
    assert not terminal.directory.exists()
