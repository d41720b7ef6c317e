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
from tests.cluster.clustersetup import CONFIGURATION, ClusterSetup, cluster_setup
from tests.cluster.namespaceuser import wait_for
from tests.cluster.podobserver import PodObserver, observing_pods
from tests.cluster.tenant import answer, noted

pytestmark = pytest.mark.cluster

REPLICAS, NODES, ROOM = 40, 20, 10
ON_DEMAND = NodePool("on-demand", "zone-a", "m5.2xlarge", 2, "8", "32Gi", "on-demand", pods=ROOM // 2)
SPOT = NodePool("spot", "zone-a", "m5.2xlarge", NODES, "8", "32Gi", "spot", pods=REPLICAS // NODES)
EVERY_SLOT_SPOT = {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}
NOTICE = {"key": TERMINATION_TAINT, "value": "spot-interruption", "effect": "NoSchedule"}
AT_ONCE = 2
CORDON_MOVES = f"""
cordon: move
moves: {{minAge: 1s, coolDown: 2m, timeout: 60s, perNode: 1, atOnce: {AT_ONCE}, afterRollout: 0s}}
"""


@pytest.fixture(scope="module")
def shared_setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    """Twenty spot nodes with exactly as many places as there are pods, and room for ten pods elsewhere."""
    with cluster_setup(tmp_path_factory.mktemp("config"), 1, Profile((ON_DEMAND, SPOT))) as made:
        yield made


@pytest.fixture(scope="module")
def observer(shared_setup: ClusterSetup) -> Iterator[PodObserver]:
    with observing_pods(shared_setup.user.client) as made:
        yield made


@pytest.fixture
def setup(shared_setup: ClusterSetup, observer: PodObserver) -> Iterator[ClusterSetup]:
    """Forty pods, two on each spot node."""
    shared_setup.serves("web", REPLICAS, EVERY_SLOT_SPOT)
    shared_setup.settles("web")
    shared_setup.falls_silent(1)
    shared_setup.history.forget()
    observer.forget()
    yield shared_setup
    cordon(shared_setup, SPOT.node_names, False)
    shared_setup.clear()


def cordon(setup: ClusterSetup, nodes: Sequence[str], is_cordoned: bool = True) -> None:
    for name in nodes:
        setup.user.client.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": is_cordoned or None}})


def left_on(setup: ClusterSetup, nodes: Sequence[str]) -> int:
    """How many pods are on these nodes."""
    return sum(pod["spec"].get("nodeName") in nodes for pod in setup.user.pods("web"))


def bring(setup: ClusterSetup, pool: NodePool, places: int) -> None:
    """One more node of a pool, as an autoscaler brings it."""
    more = raw_node(replace(pool, pods=places), f"more-{pool.name}", setup.cluster.profile.region)
    create_nodes(setup.cluster.api, [more])


def test_a_bare_cordon_of_twenty_nodes_moves_nothing(
    setup: ClusterSetup, observer: PodObserver, capsys: pytest.CaptureFixture[str]
) -> None:
    """There is room for ten elsewhere, and nothing is planned, written or noted."""
    before = setup.uids("web")
    cordon(setup, SPOT.node_names)
    setup.falls_silent()
    assert (observer.most_released("web"), observer.written, observer.ended) == (0, [], [])
    assert setup.uids("web") == before
    assert noted(setup)[1] == []
    assert answer(setup, capsys, "plan").startswith("Nothing to do.\n")
    planned = json.loads(answer(setup, capsys, "plan", "-o", "json"))
    assert (planned["actions"], planned["skipped"]) == ([], [])


def test_twenty_nodes_with_a_notice_release_no_more_than_there_is_room_for(
    setup: ClusterSetup, observer: PodObserver
) -> None:
    """Never more than ten released pods, or pods without a node, at once; the rest follows when there is room."""
    for name in SPOT.node_names:
        setup.user.client.patch(f"/api/v1/nodes/{name}", {"spec": {"taints": [NOTICE]}})
    wait_for("the room to be used", lambda: left_on(setup, ON_DEMAND.node_names) == ROOM)
    setup.falls_silent(3)
    print(f"at most {observer.most_released('web')} released, {observer.most_waiting('web')} without a node")
    assert observer.most_released("web") <= ROOM
    assert observer.most_waiting("web") <= ROOM
    assert left_on(setup, SPOT.node_names) == REPLICAS - ROOM
    bring(setup, ON_DEMAND, REPLICAS)
    wait_for("the rest to leave", lambda: not left_on(setup, SPOT.node_names))
    assert setup.history.worst("web") == REPLICAS


@pytest.fixture
def cordon_moves(shared_setup: ClusterSetup) -> Iterator[None]:
    """The rebalancer reads its configuration when it starts."""
    try:
        configure(shared_setup, CORDON_MOVES)
        yield
    finally:
        configure(shared_setup, CONFIGURATION)


def configure(setup: ClusterSetup, text: str) -> None:
    setup.user.client.patch(f"{CONFIG_MAPS}/{names.CONFIG_MAP}", {"data": {names.CONFIG_KEY: text}})
    setup.stop_all()
    wait_for("a leader", partial(setup.leads, setup.start()))


@pytest.mark.usefixtures("cordon_moves")
def test_with_cordon_move_cordoned_nodes_are_emptied_within_the_limits(
    setup: ClusterSetup, observer: PodObserver
) -> None:
    """Six pods of three nodes: no more at once than `atOnce` allows, and all serve all the while."""
    chosen = SPOT.node_names[:3]
    bring(setup, SPOT, ROOM)
    cordon(setup, chosen)
    wait_for("the nodes to be empty", lambda: not left_on(setup, chosen))
    print(f"at most {observer.most_released('web')} released")
    assert 1 <= observer.most_released("web") <= AT_ONCE
    assert setup.history.worst("web") == REPLICAS
    setup.settles("web")
