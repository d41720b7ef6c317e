"""A real `kubectl drain`, without budgets: what can run twice serves no replica less, and the drain ends."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

from kube.errors import TooManyRequests
from localcluster import kubectl
from placement import names
from placement.plan.actions import Why
from tests.cluster.clustersetup import ClusterSetup, cluster_setup
from tests.cluster.namespaceuser import wait_for

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

CONFIGURATION = "moves: {minAge: 1s, coolDown: 2m, timeout: 60s, afterRollout: 0s}\n"
READY_AFTER = 3
WORKLOADS = {"lone": 1, "pair": 2, "web": 10}
MORE = {f"more-{replicas}": replicas for replicas in (1, 2, 3, 4, 5, 6, 8)}  # ten workloads, with those
SAMPLE = 3  # nodes that are drained, of twelve
DRAIN = ("--ignore-daemonsets", "--delete-emptydir-data", "--timeout=120s")


@pytest.fixture(scope="module")
def shared_setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    with cluster_setup(tmp_path_factory.mktemp("config"), rebalancers=1, configuration=CONFIGURATION) as made:
        yield made


@pytest.fixture
def served(setup: ClusterSetup) -> ClusterSetup:
    for name, replicas in WORKLOADS.items():
        setup.create(name, replicas, ready_after=READY_AFTER)
    for name in WORKLOADS:
        setup.user.rest(name)
    setup.falls_silent(2)
    setup.history.forget()
    return setup


def typed(setup: ClusterSetup, *arguments: str) -> str:
    return kubectl.call(*arguments, kubeconfig=setup.user.kubeconfig)


def busiest(setup: ClusterSetup) -> list[str]:
    """Nodes with our pods, the lone replica's first."""
    nodes = [pod["spec"]["nodeName"] for name in WORKLOADS for pod in setup.user.pods(name)]
    return list(dict.fromkeys(nodes))


def held(setup: ClusterSetup) -> list[str]:
    metas = [pod["metadata"] for name in WORKLOADS for pod in setup.user.pods(name)]
    return [meta["name"] for meta in metas if names.EVICTION_ASKED in meta.get("annotations", {})]


def told_of(setup: ClusterSetup, pod: str) -> list[str]:
    """The Events about a held eviction of this pod."""
    return [each["message"] for each in setup.user.events(names.EVENT_HELD) if pod in each["message"]]


def test_a_drain_costs_no_serving_replica(served: ClusterSetup) -> None:
    """Of nodes in turn, lone replicas included. `kubectl` ends with exit code 0, and the nodes are empty."""
    before = served.let_through()
    for node in busiest(served)[:SAMPLE]:
        began = time.monotonic()
        typed(served, "drain", node, *DRAIN)
        print(f"drained {node} in {time.monotonic() - began:.1f} s")
        pods = [pod for name in WORKLOADS for pod in served.user.pods(name)]
        assert [pod["metadata"]["name"] for pod in pods if pod["spec"]["nodeName"] == node] == []
        typed(served, "uncordon", node)
    missing = sum(replicas - served.history.worst(name) for name, replicas in WORKLOADS.items())
    assert missing <= served.let_through() - before


@pytest.mark.soak
def test_draining_every_node_in_turn_costs_no_serving_replica(setup: ClusterSetup) -> None:
    """Ten workloads whose pods take 5 s to start; every node takes no longer than that and 15 s."""
    workloads = {**WORKLOADS, **MORE}
    for name, replicas in workloads.items():
        setup.create(name, replicas, ready_after=5)
    for name in workloads:
        setup.user.rest(name)
    setup.falls_silent(5)
    setup.history.forget()
    seconds = {}
    for node in setup.cluster.profile.node_names:
        began = time.monotonic()
        typed(setup, "drain", node, *DRAIN)
        seconds[node] = time.monotonic() - began
        typed(setup, "uncordon", node)
    print({node: round(each, 1) for node, each in seconds.items()})
    assert {name: setup.history.worst(name) for name in workloads} == workloads
    assert max(seconds.values()) < 20


def test_a_dry_run_changes_nothing(served: ClusterSetup) -> None:
    before = {pod["metadata"]["uid"] for name in WORKLOADS for pod in served.user.pods(name)}
    for node in busiest(served)[:2]:
        typed(served, "drain", node, "--dry-run=server", *DRAIN)
    assert held(served) == []
    assert {pod["metadata"]["uid"] for name in WORKLOADS for pod in served.user.pods(name)} == before


@pytest.mark.parametrize("mode", ["off", "plan-only", "pause", "eviction-hold"])
def test_nothing_is_held_where_nothing_is_moved(served: ClusterSetup, mode: str) -> None:
    if mode == "pause":
        served.spotweave("pause", "--for", "5m")
    elif mode == "eviction-hold":
        served.annotate("lone", eviction_hold="off")
    else:
        served.annotate("lone", rebalance=mode)
    served.falls_silent(2)
    (lone,) = served.user.pods("lone")
    typed(served, "drain", lone["spec"]["nodeName"], "--pod-selector=app=lone", *DRAIN)
    assert held(served) == []
    wait_for("another one", lambda: served.history.worst("lone") == 0)
    typed(served, "uncordon", lone["spec"]["nodeName"])


def test_the_answer_says_who_holds_and_the_move_why(served: ClusterSetup, capsys: pytest.CaptureFixture[str]) -> None:
    """An eviction by hand: 429 with the reason. The pod is released because it was asked for, and then evicted.

    Meanwhile `status` shows it, and there is one Event about it.
    """
    (lone,) = served.user.pods("lone")
    meta = lone["metadata"]
    with pytest.raises(TooManyRequests, match="Spotweave holds the eviction of pod"):
        served.user.evict(meta["name"])
    served.spotweave("status", "-o", "json", "-n", served.user.namespace)
    status = json.loads(capsys.readouterr().out)
    (shown,) = [each["held"] for each in status["workloads"] if each["name"] == "lone"]
    assert [each["pod"] for each in shown] == [meta["name"]]
    wait_for("its end", lambda: meta["uid"] not in {pod["metadata"]["uid"] for pod in served.user.pods("lone")})
    assert served.history.worst("lone") == 1
    assert served.moves(Why.ASKED) >= 1
    wait_for("the Event", lambda: told_of(served, meta["name"]))
    assert len(told_of(served, meta["name"])) == 1
