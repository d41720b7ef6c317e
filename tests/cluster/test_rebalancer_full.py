"""A class that is full: pods that wait for it in vain get the other one, in time, and return when there is room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localcluster import Profile
from localcluster.profile import NodePool
from placement import names
from placement.slots import Mix
from tests.cluster.scene import Scene, staged
from tests.cluster.world import wait_for

pytestmark = pytest.mark.cluster

ON_DEMAND = NodePool("on-demand", "zone-a", "m5.large", 1, "8", "32Gi", "on-demand", pods=2)
SPOT = NodePool("spot", "zone-a", "m5.large", 1, "8", "32Gi", "spot", pods=10)


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """On-demand has two places, spot ten."""
    with staged(tmp_path_factory.mktemp("config"), 1, Profile((ON_DEMAND, SPOT))) as made:
        yield made


def actual(scene: Scene, name: str) -> Mix:
    return scene.world.status(name).actual


def test_spot_pods_that_wait_in_vain_fall_back_as_soon_as_their_policy_says(scene: Scene) -> None:
    """A stranger has taken nine of the ten places on spot: of two spot pods one comes out on on-demand."""
    stranger = {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0", names.REBALANCE: "off"}
    scene.serves("stranger", 9, stranger)
    settings = {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0", names.SPOT_FALLBACK_AFTER: "5s"}
    scene.create("web", 2, settings)
    wait_for("one to wait for spot", lambda: scene.world.status("web").pending.spot)
    wait_for("it to fall back", lambda: actual(scene, "web") == Mix(1, 1))
    assert scene.world.status("web").soft == 1
    scene.world.scale("stranger", 3)
    scene.watcher.forget()
    wait_for("its return", lambda: actual(scene, "web") == Mix(2, 0), 120)
    assert scene.watcher.worst("web") == 2


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_rollout_with_on_demand_exactly_full_finishes(scene: Scene) -> None:
    """Its first pod belongs on on-demand, where the old one is: after two minutes it may run on spot."""
    scene.serves("other", 1)
    scene.serves("web", 3)
    scene.settles("web")
    scene.watcher.forget()
    scene.world.roll_out("web")
    wait_for("the new pod to wait", lambda: scene.world.status("web").pending.on_demand)
    wait_for("status to tell", lambda: "1 pod unschedulable" in scene.world.status("web").reason)
    wait_for("the rollout to go on", lambda: scene.world.status("web").soft, 240)
    scene.world.rest("web")
    assert scene.watcher.worst("web") == 3
    wait_for("the mix to be exact again", lambda: actual(scene, "web") == Mix(2, 1), 600)
    assert scene.watcher.worst("web") == 3
