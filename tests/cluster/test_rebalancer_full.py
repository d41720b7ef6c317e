"""A class that is full: pods that wait for it in vain get the other one, in time, and return when there is room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from localcluster import Profile
from localcluster.profile import NodePool
from placement import names
from placement.slots import Mix
from tests.cluster.clustersetup import ClusterSetup, cluster_setup
from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster

ON_DEMAND = NodePool("on-demand", "zone-a", "m5.large", 1, "8", "32Gi", "on-demand", pods=2)
SPOT = NodePool("spot", "zone-a", "m5.large", 1, "8", "32Gi", "spot", pods=10)


@pytest.fixture(scope="module")
def shared_setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    """On-demand has two places, spot ten."""
    with cluster_setup(tmp_path_factory.mktemp("config"), 1, Profile((ON_DEMAND, SPOT))) as made:
        yield made


def actual(setup: ClusterSetup, name: str) -> Mix:
    return setup.user.status(name).actual


def test_spot_pods_that_wait_in_vain_fall_back_as_soon_as_their_policy_says(setup: ClusterSetup) -> None:
    """A stranger has taken nine of the ten places on spot: of two spot pods one comes out on on-demand."""
    stranger = {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0", names.REBALANCE: "off"}
    setup.serves("stranger", 9, stranger)
    settings = {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0", names.SPOT_FALLBACK_AFTER: "5s"}
    setup.create("web", 2, settings)
    wait_for("one to wait for spot", lambda: setup.user.status("web").pending.spot)
    wait_for("it to fall back", lambda: actual(setup, "web") == Mix(1, 1))
    assert setup.user.status("web").soft == 1
    setup.user.scale("stranger", 3)
    setup.history.forget()
    wait_for("its return", lambda: actual(setup, "web") == Mix(2, 0), 120)
    assert setup.history.worst("web") == 2


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_rollout_with_on_demand_exactly_full_finishes(setup: ClusterSetup) -> None:
    """Its first pod belongs on on-demand, where the old one is: after two minutes it may run on spot."""
    setup.serves("other", 1)
    setup.serves("web", 3)
    setup.settles("web")
    setup.history.forget()
    setup.user.roll_out("web")
    wait_for("the new pod to wait", lambda: setup.user.status("web").pending.on_demand)
    wait_for("status to tell", lambda: "1 pod unschedulable" in setup.user.status("web").reason)
    wait_for("the rollout to go on", lambda: setup.user.status("web").soft, 240)
    setup.user.rest("web")
    assert setup.history.worst("web") == 3
    wait_for("the mix to be exact again", lambda: actual(setup, "web") == Mix(2, 1), 600)
    assert setup.history.worst("web") == 3
