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
from tests.cluster.company import (
    Diary,
    Meta,
    has_none_released,
    has_pods,
    have_two,
    hurry,
    is_released,
    kill_leader,
    others_part,
    released_from,
    slow,
    written,
)
from tests.cluster.scene import PATIENCE_SECONDS, Scene, staged
from tests.cluster.world import template, wait_for

pytestmark = pytest.mark.cluster

UNDO_SECONDS = 15
CONFIGURATION = f"moves: {{minAge: 1s, coolDown: 2m, timeout: {UNDO_SECONDS}s}}\n"
SCRATCH = {"volumes": [{"name": "scratch", "emptyDir": {}}]}
THEIRS = "example.com/theirs"


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with staged(tmp_path_factory.mktemp("config"), rebalancers=2, configuration=CONFIGURATION) as made:
        yield made


@pytest.fixture(autouse=True)
def two_rebalancers(scene: Scene) -> None:
    have_two(scene)


@pytest.fixture
def diary(scene: Scene) -> Iterator[Diary]:
    with written(scene.world) as diary:
        yield diary


def typed(scene: Scene, *arguments: str) -> str:
    """What kubectl prints. It raises with the complaint where the exit code is not 0."""
    return kubectl.call(*arguments, kubeconfig=scene.world.kubeconfig)


# --- drains ----------------------------------------------------------------------------------------------------------


@contextmanager
def cordoned(scene: Scene, *nodes: str) -> Iterator[None]:
    typed(scene, "cordon", *nodes)
    try:
        yield
    finally:
        typed(scene, "uncordon", *nodes)


def drain(scene: Scene, *nodes: str) -> None:
    typed(scene, "drain", *nodes, "--ignore-daemonsets", "--delete-emptydir-data", "--timeout=90s")
    assert [pods_on(scene, node) for node in nodes] == [{}] * len(nodes)


def pods_on(scene: Scene, node: str) -> dict[str, list[dict[str, Any]]]:
    """A node's pods by their app."""
    found: dict[str, list[dict[str, Any]]] = {}
    for pod in scene.world.client.get_json(scene.world.pods_path, {"fieldSelector": f"spec.nodeName={node}"})["items"]:
        found.setdefault(pod["metadata"]["labels"]["app"], []).append(pod)
    return found


def with_scratch(name: str) -> dict[str, Any]:
    """The spec of a workload whose pods have an emptyDir."""
    return {"template": template(name, **SCRATCH)}


def test_a_drain_some_seconds_after_a_cordon_ends_well(scene: Scene) -> None:
    """With and without emptyDir, with and without a budget that allows no loss, of which no replica goes early."""
    half = {names.SPOT_RATIO: "50%"}
    scene.create("web", 24, half)
    scene.create("cache", 24, half, spec=with_scratch("cache"))
    scene.create("strict", 12, half, spec=with_scratch("strict"), maxUnavailable=0)
    scene.create("lone", 1, maxUnavailable=0)
    scene.settles("web", "cache", "strict", "lone")
    (lone,) = scene.world.pods("lone")
    node = lone["spec"]["nodeName"]
    assert {"web", "cache", "strict"} <= set(pods_on(scene, node))
    scene.watcher.forget()
    with cordoned(scene, node):
        time.sleep(5)  # what it is about: time enough to release what should stay
        drain(scene, node)
        for name, replicas in (("web", 24), ("cache", 24), ("strict", 12), ("lone", 1)):
            wait_for(f"{name} to serve in full", partial(scene.serves_in_full, name, replicas))
    assert {name: scene.watcher.worst(name) for name in ("strict", "lone")} == {"strict": 12, "lone": 1}


def announce(scene: Scene) -> None:
    """A node of both is about to go: a termination taint."""
    nodes = [{pod["spec"]["nodeName"] for pod in scene.world.pods(name)} for name in ("web", "strict")]
    typed(scene, "taint", "node", min(nodes[0] & nodes[1]), f"{TERMINATION_TAINT}=soon:NoSchedule")


def change_ratio(scene: Scene) -> None:
    for name in ("web", "strict"):
        scene.annotate(name, spot_ratio="0%")


@pytest.mark.parametrize("begin", [announce, change_ratio])
def test_a_drain_ends_well_while_pods_of_the_node_are_released(scene: Scene, begin: Callable[[Scene], None]) -> None:
    """Their replacements take ten seconds: at first the budget refuses, and the drain waits for them."""
    slow(scene, {"web": 8}, ready_after=10, spec=with_scratch("web"))
    slow(scene, {"strict": 8}, ready_after=10, minAvailable="100%")
    scene.watcher.forget()
    begin(scene)
    for name in ("web", "strict"):
        wait_for(f"pods of {name} to be released", partial(released_nodes, scene, name), 20)
    nodes = sorted({min(released_nodes(scene, name)) for name in ("web", "strict")})
    with cordoned(scene, *nodes):
        drain(scene, *nodes)
        for name in ("web", "strict"):
            wait_for(f"{name} to serve in full", partial(scene.serves_in_full, name, 8))
    assert scene.watcher.worst("strict") == 8


def released_nodes(scene: Scene, name: str) -> set[str]:
    return {pod["spec"]["nodeName"] for pod in scene.world.pods(name) if is_released(pod["metadata"])}


# --- a controller at every moment ------------------------------------------------------------------------------------


def test_every_pod_has_a_controller_through_moves_and_a_rollout_in_their_midst(scene: Scene, diary: Diary) -> None:
    scene.serves("web", 8, minAvailable="100%")
    scene.settles("web")
    scene.annotate("web", spot_ratio="30%")
    assert scene.settles("web")["web"].actual == Mix(2, 6)
    assert len(diary.releases()) == 3
    scene.annotate("web", spot_ratio="70%")
    wait_for("moves to be under way", lambda: scene.released("web"))
    scene.world.roll_out("web")
    assert scene.settles("web")["web"].actual == Mix(5, 3)
    assert len(diary.releases()) > 3
    assert diary.complaints() == []


def test_every_pod_has_a_controller_when_the_leader_is_killed_in_the_midst_of_moves(scene: Scene, diary: Diary) -> None:
    """The next leader finishes them; all serve all the while."""
    scene.serves("web", 8, minAvailable="100%")
    scene.settles("web")
    scene.watcher.forget()
    scene.annotate("web", spot_ratio="30%")
    wait_for("moves to be under way", lambda: scene.released("web"))
    kill_leader(scene)
    assert scene.settles("web")["web"].actual == Mix(2, 6)
    assert scene.watcher.worst("web") == 8
    assert len(diary.releases()) >= 3
    assert diary.complaints() == []


def metas(scene: Scene, name: str) -> dict[str, Meta]:
    """By UID."""
    return {pod["metadata"]["uid"]: pod["metadata"] for pod in scene.world.pods(name)}


def annotate_pods(scene: Scene, name: str, annotations: dict[str, str]) -> None:
    for meta in metas(scene, name).values():
        scene.world.client.patch(f"{scene.world.pods_path}/{meta['name']}", {"metadata": {"annotations": annotations}})


def test_an_undone_move_leaves_a_pod_as_it_was(scene: Scene, diary: Diary) -> None:
    """Replacements never become ready. Labels, owners and others' annotations are the same afterwards."""
    slow(scene, {"web": 4, "marked": 4}, minAvailable="100%")
    annotate_pods(scene, "marked", {names.SAFE_TO_EVICT: "true", THEIRS: "1"})
    before = {name: metas(scene, name) for name in ("web", "marked")}
    scene.watcher.forget()
    released = {name: released_from(scene, name, 4) for name in before}
    for name in before:
        patience = UNDO_SECONDS + 10
        wait_for(f"the move of {name} to be undone", partial(has_none_released, scene, name), patience)
        wait_for(f"the newcomer of {name} to go", partial(has_pods, scene, name, 4))
    assert diary.complaints() == []
    for name, those in before.items():
        after = metas(scene, name)
        assert released[name].keys() <= after.keys(), "the old pod stays, the newcomer goes"
        assert {uid: others_part(meta) for uid, meta in after.items()} == {
            uid: others_part(meta) for uid, meta in those.items()
        }
        assert scene.watcher.worst(name) == 4


# --- budgets ---------------------------------------------------------------------------------------------------------


def budget(scene: Scene, name: str) -> dict[str, Any]:
    path = f"/apis/policy/v1/namespaces/{scene.world.namespace}/poddisruptionbudgets/{name}"
    found: dict[str, Any] = scene.world.client.get_json(path)
    return found


def allows(scene: Scene, name: str, expected: int, healthy: int, allowed: int) -> bool:
    """What a budget says: pods that it expects, pods that are healthy, disruptions that it allows."""
    status = budget(scene, name)["status"]
    found = status["expectedPods"], status["currentHealthy"], status["disruptionsAllowed"]
    return found == (expected, healthy, allowed)


def test_budgets_count_a_released_pod_once_and_warn_of_none(scene: Scene) -> None:
    """The rebalancers are stopped while the old pod and its replacement serve: their budgets allow one to go."""
    slow(scene, {"four": 4}, minAvailable="100%")
    slow(scene, {"lone": 1}, annotations={names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}, maxUnavailable=0)
    scene.watcher.forget()
    budgets = {budget(scene, name)["metadata"]["uid"] for name in ("four", "lone")}
    released_from(scene, "four", 4)
    released_from(scene, "lone", 1, spot_ratio=None, min_on_demand=None)
    scene.stop_all()
    for name, replicas in (("four", 4), ("lone", 1)):
        hurry(scene, name)
        counts = (replicas, replicas + 1, 1)
        wait_for(f"the budget of {name} to say {counts}", partial(allows, scene, name, *counts))
    have_two(scene)
    scene.settles("four", "lone", patience=PATIENCE_SECONDS)
    assert {name: scene.watcher.worst(name) for name in ("four", "lone")} == {"four": 4, "lone": 1}
    warnings = [each for each in scene.world.events("UnmanagedPods") if each["involvedObject"]["uid"] in budgets]
    assert [each["message"] for each in warnings] == []
