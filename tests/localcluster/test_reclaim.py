"""Reclaim and the command line, as far as they are pure."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cli import cluster as command
from localcluster.nodes import raw_nodes
from localcluster.parts import DEAD_KUBELET_LABEL
from localcluster.profile import NodePool, Profile
from localcluster.reclaim import TERMINATION_TAINT, Choice, Way, deleting_node_event, is_taken
from tests.builders.api import raw_node

PROFILE = Profile(
    (
        NodePool("od-a", "a", "m5", 1, "1", "1Gi", "on-demand"),
        NodePool("spot-a", "a", "m5", 1, "1", "1Gi", "spot"),
        NodePool("spot-b", "b", "m5", 1, "1", "1Gi", "spot"),
        NodePool("plain", "b", "m5", 1, "1", "1Gi"),
    )
)

CHOICES = {
    "a pool": (Choice(pool="spot-a"), ["spot-a-0"]),
    "a zone, of every class": (Choice(zone="a"), ["od-a-0", "spot-a-0"]),
    "all spot": (Choice(all_spot=True), ["spot-a-0", "spot-b-0"]),
    "nothing named": (Choice(), ["od-a-0", "spot-a-0", "spot-b-0", "plain-0"]),
    "a pool that is not there": (Choice(pool="x"), []),
}


@pytest.mark.parametrize(("choice", "names"), CHOICES.values(), ids=CHOICES.keys())
def test_choice_means_the_same_for_nodes_and_pools(choice: Choice, names: list[str]) -> None:
    """What `reclaim` finds among nodes is what `restore` finds in the profile."""
    assert [node["metadata"]["name"] for node in raw_nodes(PROFILE) if choice.has_node(node)] == names
    assert [name for pool in PROFILE.pools if choice.has_pool(pool) for name in pool.node_names] == names


def test_only_marked_nodes_count_as_taken() -> None:
    """A node that a person cordoned, or that is tainted by its profile, is left alone by `restore`."""
    assert is_taken(raw_node("n", {DEAD_KUBELET_LABEL: "true"}))
    assert is_taken(raw_node("n", {}, TERMINATION_TAINT))
    assert not is_taken(raw_node("n", {}, "spot", cordoned=True))


def test_event_is_that_of_the_cloud_controller() -> None:
    """Whoever takes this Event as proof that the machine is gone must find every field as on a cloud."""
    event = deleting_node_event(raw_node("n"), datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    assert event["involvedObject"] == {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "uid-n"}
    assert event["source"] == {"component": "cloud-node-lifecycle-controller"}
    assert (event["type"], event["reason"]) == ("Normal", "DeletingNode")
    assert event["message"] == "Deleting node n because it does not exist in the cloud provider"
    assert event["lastTimestamp"] == "2026-01-02T03:04:05Z"
    assert event["metadata"]["namespace"] == "default"


@pytest.fixture
def parse() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser()
    command.add_parser(top.add_subparsers(dest="command"))
    return top


DURATIONS = {"120s": 120.0, "2m": 120.0, "1m30s": 90.0, "5": 5.0, "0.5s": 0.5}


@pytest.mark.parametrize(("text", "expected"), DURATIONS.items())
def test_notice_is_a_duration(parse: argparse.ArgumentParser, text: str, expected: float) -> None:
    """Seconds, minutes, or both."""
    args = parse.parse_args(["cluster", "reclaim", "p", "--notice", text])
    assert (args.notice, args.way, args.pool) == (expected, Way.CLOUD, "p")


WRONG = {
    "no nodes named": ["reclaim"],
    "two ways of naming nodes": ["reclaim", "p", "--zone", "a"],
    "two ways to go": ["reclaim", "p", "--bare", "--not-ready"],
    "a notice that is no duration": ["reclaim", "p", "--notice", "soon"],
    "a part that there is not": ["kill", "kubelet"],
    "a Service range that is none": ["up", "--service-range", "127.96.0.1/16"],
    "a version that there is not": ["up", "--kubernetes", "1.2"],
}


@pytest.mark.parametrize("arguments", WRONG.values(), ids=WRONG.keys())
def test_bad_usage_ends_with_2(parse: argparse.ArgumentParser, arguments: list[str]) -> None:
    """Exit code 2 is for bad usage, before anything is touched."""
    with pytest.raises(SystemExit) as caught:
        parse.parse_args(["cluster", *arguments])
    assert caught.value.code == 2


def test_default_directory_is_the_users_state_directory(parse: argparse.ArgumentParser) -> None:
    """One well-known place for each user, so that `down` needs no arguments; `--dir` names another."""
    args = parse.parse_args(["cluster", "down"])
    assert command.directory_of(args, {"XDG_STATE_HOME": "/s"}) == Path("/s/spotweave/cluster")
    assert command.directory_of(args, {}) == Path.home() / ".local/state/spotweave/cluster"
    assert command.directory_of(parse.parse_args(["cluster", "down", "--dir", "/x"]), {}) == Path("/x")


def test_status_text_shows_a_dead_part_with_its_last_words() -> None:
    """The table names parts, versions and pids; where the nodes are unknown, it says why."""
    dead = {"name": "kwok", "version": "0.8.0", "state": "died", "pid": None, "log": "/l", "detail": "  exit code 1"}
    told = {
        "kubernetes": "1.36",
        "server": "https://s",
        "serviceRange": "127.96.0.0/16",
        "daemon": {"pid": 7},
        "directory": "/d",
        "kubeconfig": "/d/kubeconfig",
        "parts": [dead],
        "nodes": None,
    }
    lines = command.status_text(told).splitlines()
    assert lines[lines.index("") + 1 : lines.index("") + 3] == [
        f"{'kwok':<24} 0.8.0    died     -        /l",
        "  exit code 1",
    ]
    assert lines[-1] == "nodes: unknown, the API server does not answer"
