"""Other tools beside Spotweave: drains end well, and every pod has a controller at every moment of its moves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from localcluster import kubectl
from localcluster.reclaim import TERMINATION_TAINT
from placement import names
from placement.slots import Mix
from tests.builders.api import raw_template
from tests.cluster.clustersetup import PATIENCE_SECONDS, ClusterSetup, cluster_setup
from tests.cluster.longreleases import (
    has_none_released,
    has_pods,
    have_two_rebalancers,
    kill_leader,
    make_ready,
    serve_with_slow_replacements,
    start_releases,
)
from tests.cluster.namespaceuser import wait_for, wait_within
from tests.cluster.podhistory import Meta, PodHistory, is_released, others_part, recording_pods
from tests.timing import timed

pytestmark = pytest.mark.cluster

UNDO_SECONDS = 15
CONFIGURATION = f"moves: {{minAge: 1s, coolDown: 2m, timeout: {UNDO_SECONDS}s, afterRollout: 0s}}\n"
SCRATCH = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
THEIRS = "example.com/theirs"


@pytest.fixture(scope="module")
def shared_setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    with cluster_setup(tmp_path_factory.mktemp("config"), rebalancers=2, configuration=CONFIGURATION) as made:
        yield made


@pytest.fixture(autouse=True)
def two_rebalancers(setup: ClusterSetup) -> None:
    have_two_rebalancers(setup)


@pytest.fixture
def pod_history(setup: ClusterSetup) -> Iterator[PodHistory]:
    with recording_pods(setup.user) as pod_history:
        yield pod_history


def typed(setup: ClusterSetup, *arguments: str) -> str:
    """What kubectl prints. It raises with the complaint where the exit code is not 0."""
    return kubectl.call(*arguments, kubeconfig=setup.user.kubeconfig)


# --- drains ----------------------------------------------------------------------------------------------------------


@contextmanager
def cordoned(setup: ClusterSetup, *nodes: str) -> Iterator[None]:
    typed(setup, "cordon", *nodes)
    try:
        yield
    finally:
        typed(setup, "uncordon", *nodes)


def drain(setup: ClusterSetup, *nodes: str) -> None:
    typed(setup, "drain", *nodes, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s")
    assert [pods_on(setup, node) for node in nodes] == [{}] * len(nodes)


def pods_on(setup: ClusterSetup, node: str) -> dict[str, list[dict[str, Any]]]:
    """A node's pods by their app."""
    found: dict[str, list[dict[str, Any]]] = {}
    for pod in setup.user.client.get_json(setup.user.pods_path, {"fieldSelector": f"spec.nodeName={node}"})["items"]:
        found.setdefault(pod["metadata"]["labels"]["app"], []).append(pod)
    return found


def with_scratch(name: str) -> dict[str, Any]:
    """The spec of a workload whose pods have an emptyDir."""
    return {"template": raw_template(name, **SCRATCH)}


def test_a_drain_some_seconds_after_a_cordon_ends_well(setup: ClusterSetup) -> None:
    """With and without emptyDir, with and without a budget that allows no loss, of which no replica goes early."""
    half = {names.SPOT_RATIO: "50%"}
    setup.create("web", 24, half)
    setup.create("cache", 24, half, spec=with_scratch("cache"))
    setup.create("strict", 12, half, spec=with_scratch("strict"), maxUnavailable=0)
    setup.create("lone", 1, maxUnavailable=0)
    setup.settles("web", "cache", "strict", "lone")
    (lone,) = setup.user.pods("lone")
    node = lone["spec"]["nodeName"]
    assert {"web", "cache", "strict"} <= set(pods_on(setup, node))
    setup.history.forget()
    with cordoned(setup, node):
        time.sleep(5)  # what it is about: time enough to release what should stay
        drain(setup, node)
        for name, replicas in (("web", 24), ("cache", 24), ("strict", 12), ("lone", 1)):
            wait_for(f"{name} to serve in full", partial(setup.serves_in_full, name, replicas))
    assert {name: setup.history.worst(name) for name in ("strict", "lone")} == {"strict": 12, "lone": 1}


def announce(setup: ClusterSetup) -> None:
    """A node of both is about to go: a termination taint."""
    nodes = [{pod["spec"]["nodeName"] for pod in setup.user.pods(name)} for name in ("web", "strict")]
    typed(setup, "taint", "node", min(nodes[0] & nodes[1]), f"{TERMINATION_TAINT}=soon:NoSchedule")


def change_ratio(setup: ClusterSetup) -> None:
    for name in ("web", "strict"):
        setup.annotate(name, spot_ratio="0%")


@pytest.mark.parametrize("begin", [announce, change_ratio])
def test_a_drain_ends_well_while_pods_of_the_node_are_released(
    setup: ClusterSetup, begin: Callable[[ClusterSetup], None]
) -> None:
    """Their replacements take ten seconds: at first the budget refuses, and the drain waits for them."""
    serve_with_slow_replacements(setup, {"web": 8}, ready_after=10, spec=with_scratch("web"))
    serve_with_slow_replacements(setup, {"strict": 8}, ready_after=10, minAvailable="100%")
    setup.history.forget()
    begin(setup)
    for name in ("web", "strict"):
        wait_for(f"pods of {name} to be released", partial(released_nodes, setup, name))
    nodes = sorted({min(released_nodes(setup, name)) for name in ("web", "strict")})
    with cordoned(setup, *nodes):
        drain(setup, *nodes)
        for name in ("web", "strict"):
            wait_for(f"{name} to serve in full", partial(setup.serves_in_full, name, 8))
    assert setup.history.worst("strict") == 8


def released_nodes(setup: ClusterSetup, name: str) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in setup.user.pods(name) if is_released(pod["metadata"])}


# --- a controller at every moment ------------------------------------------------------------------------------------


def test_every_pod_has_a_controller_through_moves_and_a_rollout_in_their_midst(
    setup: ClusterSetup, pod_history: PodHistory
) -> None:
    setup.serves("web", 8, minAvailable="100%")
    setup.settles("web")
    setup.annotate("web", spot_ratio="30%")
    assert setup.settles("web")["web"].actual == Mix(2, 6)
    assert len(pod_history.releases()) == 3
    setup.annotate("web", spot_ratio="70%")
    wait_for("moves to be under way", lambda: setup.released("web"))
    setup.user.roll_out("web")
    assert setup.settles("web")["web"].actual == Mix(5, 3)
    assert len(pod_history.releases()) > 3
    assert pod_history.complaints() == []


def test_every_pod_has_a_controller_when_the_leader_is_killed_in_the_midst_of_moves(
    setup: ClusterSetup, pod_history: PodHistory
) -> None:
    """The next leader finishes them; all serve all the while."""
    setup.serves("web", 8, minAvailable="100%")
    setup.settles("web")
    setup.history.forget()
    setup.annotate("web", spot_ratio="30%")
    wait_for("moves to be under way", lambda: setup.released("web"))
    kill_leader(setup)
    assert setup.settles("web")["web"].actual == Mix(2, 6)
    assert setup.history.worst("web") == 8
    assert len(pod_history.releases()) >= 3
    assert pod_history.complaints() == []


def metas(setup: ClusterSetup, name: str) -> dict[str, Meta]:
    """By UID."""
    return {pod["metadata"]["uid"]: pod["metadata"] for pod in setup.user.pods(name)}


def annotate_pods(setup: ClusterSetup, name: str, annotations: dict[str, str]) -> None:
    for meta in metas(setup, name).values():
        setup.user.client.patch(f"{setup.user.pods_path}/{meta['name']}", {"metadata": {"annotations": annotations}})


@timed
def test_an_undone_move_leaves_a_pod_as_it_was(setup: ClusterSetup, pod_history: PodHistory) -> None:
    """Replacements never become ready. Labels, owners and others' annotations are the same afterwards."""
    serve_with_slow_replacements(setup, {"web": 4, "marked": 4}, minAvailable="100%")
    annotate_pods(setup, "marked", {names.SAFE_TO_EVICT: "true", THEIRS: "1"})
    before = {name: metas(setup, name) for name in ("web", "marked")}
    setup.history.forget()
    released = {name: start_releases(setup, name, 4) for name in before}
    for name in before:
        wait_within(f"the move of {name} to be undone", partial(has_none_released, setup, name), UNDO_SECONDS + 10)
        wait_for(f"the newcomer of {name} to go", partial(has_pods, setup, name, 4))
    assert pod_history.complaints() == []
    for name, those in before.items():
        after = metas(setup, name)
        assert released[name].keys() <= after.keys(), "the old pod stays, the newcomer goes"
        assert {uid: others_part(meta) for uid, meta in after.items()} == {
            uid: others_part(meta) for uid, meta in those.items()
        }
        assert setup.history.worst(name) == 4


# --- budgets ---------------------------------------------------------------------------------------------------------


def budget(setup: ClusterSetup, name: str) -> dict[str, Any]:
    path = f"/apis/policy/v1/namespaces/{setup.user.namespace}/poddisruptionbudgets/{name}"
    found: dict[str, Any] = setup.user.client.get_json(path)
    return found


def allows(setup: ClusterSetup, name: str, expected: int, healthy: int, allowed: int) -> bool:
    """What a budget says: pods that it expects, pods that are healthy, disruptions that it allows."""
    status = budget(setup, name)["status"]
    found = status["expectedPods"], status["currentHealthy"], status["disruptionsAllowed"]
    return found == (expected, healthy, allowed)


def test_budgets_count_a_released_pod_once_and_warn_of_none(setup: ClusterSetup) -> None:
    """The rebalancers are stopped while the old pod and its replacement serve: their budgets allow one to go."""
    serve_with_slow_replacements(setup, {"four": 4}, minAvailable="100%")
    serve_with_slow_replacements(
        setup, {"lone": 1}, annotations={names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}, maxUnavailable=0
    )
    setup.history.forget()
    budgets = {budget(setup, name)["metadata"]["uid"] for name in ("four", "lone")}
    start_releases(setup, "four", 4)
    start_releases(setup, "lone", 1, spot_ratio=None, min_on_demand=None)
    setup.stop_all()
    for name, replicas in (("four", 4), ("lone", 1)):
        make_ready(setup, name)
        counts = (replicas, replicas + 1, 1)
        wait_for(f"the budget of {name} to say {counts}", partial(allows, setup, name, *counts))
    have_two_rebalancers(setup)
    setup.settles("four", "lone", patience=PATIENCE_SECONDS)
    assert {name: setup.history.worst(name) for name in ("four", "lone")} == {"four": 4, "lone": 1}
    warnings = [each for each in setup.user.events("UnmanagedPods") if each["involvedObject"]["uid"] in budgets]
    assert [each["message"] for each in warnings] == []
