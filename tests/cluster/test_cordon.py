"""A bare cordon moves nothing; what leaves is released as far as there is room; `cordon: move` moves within limits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial

import pytest

from kube.configmaps import PATH as CONFIG_MAPS
from localcluster import Profile
from localcluster.nodes import create_nodes, raw_node
from localcluster.profile import NodePool
from localcluster.reclaim import TERMINATION_TAINT
from placement import names
from tests.cluster.scene import CONFIGURATION, Scene, staged
from tests.cluster.tenant import answer, noted
from tests.cluster.witness import Witness, witnessing
from tests.cluster.world import wait_for

pytestmark = pytest.mark.cluster

REPLICAS, NODES, ROOM = 40, 20, 10
ON_DEMAND = NodePool("on-demand", "zone-a", "m5.2xlarge", 2, "8", "32Gi", "on-demand", pods=ROOM // 2)
SPOT = NodePool("spot", "zone-a", "m5.2xlarge", NODES, "8", "32Gi", "spot", pods=REPLICAS // NODES)
EVERY_SLOT_SPOT = {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}
NOTICE = {"key": TERMINATION_TAINT, "value": "spot-interruption", "effect": "NoSchedule"}
AT_ONCE = 2
CORDON_MOVES = f"""
cordon: move
moves: {{minAge: 1s, coolDown: 2m, timeout: 60s, perNode: 1, atOnce: {AT_ONCE}}}
"""


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Twenty spot nodes with exactly as many places as there are pods, and room for ten pods elsewhere."""
    with staged(tmp_path_factory.mktemp("config"), 1, Profile((ON_DEMAND, SPOT))) as made:
        yield made


@pytest.fixture(scope="module")
def witness(stage: Scene) -> Iterator[Witness]:
    with witnessing(stage.world.client) as made:
        yield made


@pytest.fixture
def scene(stage: Scene, witness: Witness) -> Iterator[Scene]:
    """Forty pods, two on each spot node."""
    stage.serves("web", REPLICAS, EVERY_SLOT_SPOT)
    stage.settles("web")
    stage.falls_silent(1)
    stage.watcher.forget()
    witness.forget()
    yield stage
    cordon(stage, SPOT.node_names, False)
    stage.clear()


def cordon(scene: Scene, nodes: Sequence[str], is_cordoned: bool = True) -> None:
    for name in nodes:
        scene.world.client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": is_cordoned or None}})


def left_on(scene: Scene, nodes: Sequence[str]) -> int:
    """How many pods are on these nodes."""
    return sum(pod["spec"].get("nodeName") in nodes for pod in scene.world.pods("web"))


def bring(scene: Scene, pool: NodePool, places: int) -> None:
    """One more node of a pool, as an autoscaler brings it."""
    more = raw_node(replace(pool, pods=places), f"more-{pool.name}", scene.cluster.profile.region)
    create_nodes(scene.cluster.api, [more])


def test_a_bare_cordon_of_twenty_nodes_moves_nothing(
    scene: Scene, witness: Witness, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is room for ten elsewhere, and nothing is planned, written or noted."""
    before = scene.uids("web")
    cordon(scene, SPOT.node_names)
    scene.falls_silent()
    assert (witness.most_released("web"), witness.written, witness.ended) == (0, [], [])
    assert scene.uids("web") == before
    assert noted(scene)[1] == []
    assert answer(scene, capsys, "plan").startswith("Nothing to do.\n")
    planned = json.loads(answer(scene, capsys, "plan", "-o", "json"))
    assert (planned["actions"], planned["skipped"]) == ([], [])


def test_twenty_nodes_with_a_notice_release_no_more_than_there_is_room_for(scene: Scene, witness: Witness) -> None:
    """Never more than ten released pods, or pods without a node, at once; the rest follows when there is room."""
    for name in SPOT.node_names:
        scene.world.client.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [NOTICE]}})
    wait_for("the room to be used", lambda: left_on(scene, ON_DEMAND.node_names) == ROOM)
    scene.falls_silent(3)
    print(f"at most {witness.most_released('web')} released, {witness.most_waiting('web')} without a node")
    assert witness.most_released("web") <= ROOM
    assert witness.most_waiting("web") <= ROOM
    assert left_on(scene, SPOT.node_names) == REPLICAS - ROOM
    bring(scene, ON_DEMAND, REPLICAS)
    wait_for("the rest to leave", lambda: not left_on(scene, SPOT.node_names))
    assert scene.watcher.worst("web") == REPLICAS


@pytest.fixture
def cordon_moves(stage: Scene) -> Iterator[None]:
    """The rebalancer reads its configuration when it starts."""
    try:
        configure(stage, CORDON_MOVES)
        yield
    finally:
        configure(stage, CONFIGURATION)


def configure(scene: Scene, text: str) -> None:
    scene.world.client.patch(f"{CONFIG_MAPS}/{names.CONFIG_MAP}", {"data": {names.CONFIG_KEY: text}})
    scene.stop_all()
    wait_for("a leader", partial(scene.leads, scene.start()))


@pytest.mark.usefixtures("cordon_moves")
def test_with_cordon_move_cordoned_nodes_are_emptied_within_the_limits(scene: Scene, witness: Witness) -> None:
    """Six pods of three nodes: no more at once than `atOnce` allows, and all serve all the while."""
    chosen = SPOT.node_names[:3]
    bring(scene, SPOT, ROOM)
    cordon(scene, chosen)
    wait_for("the nodes to be empty", lambda: not left_on(scene, chosen))
    print(f"at most {witness.most_released('web')} released")
    assert 1 <= witness.most_released("web") <= AT_ONCE
    assert scene.watcher.worst("web") == REPLICAS
    scene.settles("web")
