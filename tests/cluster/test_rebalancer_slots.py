"""Three webhooks and a rebalancer: whatever several webhooks got wrong is right ten seconds after everything rests."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from placement import names
from tests.cluster.clustersetup import ClusterSetup, cluster_setup
from tests.timing import timed, within

pytestmark = pytest.mark.cluster

SECONDS = 10.0
SIZES = {"large": 300, "small": 150, "rolling": 60, "shrinking": 20}


@pytest.fixture(scope="module")
def shared_setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    with cluster_setup(tmp_path_factory.mktemp("config"), rebalancers=1, webhooks=3) as made:
        yield made


def slots(setup: ClusterSetup, name: str) -> list[int]:
    return sorted(int(pod["metadata"]["annotations"].get(names.SLOT, -1)) for pod in setup.user.pods(name))


@timed
@pytest.mark.timeout(600)
def test_bursts_rollouts_and_scale_downs_are_exact_ten_seconds_later(setup: ClusterSetup) -> None:
    """Bursts of 300 and 150, a rollout of 60 and a scale-down from 100 to 20, at once: no slot doubled, each mix exact.

    Ten seconds are as many times more as this machine takes longer than it should to start as many pods.
    """
    setup.create("rolling", SIZES["rolling"])
    setup.create("shrinking", 100)
    for name in ("rolling", "shrinking"):
        setup.user.rest(name)
    began = setup.begin_control(50)
    pace = setup.pace(began, 50)
    setup.create("large", SIZES["large"])
    setup.create("small", SIZES["small"])
    setup.user.roll_out("rolling")
    setup.user.scale("shrinking", SIZES["shrinking"])
    for name in SIZES:
        setup.user.rest(name)
    rested = time.monotonic()
    setup.settles(*SIZES)
    seconds = time.monotonic() - rested
    print(f"exact {seconds:.1f} s after all was at rest; 50 other pods took {pace.seconds:.1f} s to start")
    within("exact after all was at rest", seconds, SECONDS * pace.slowness)
    assert {name: slots(setup, name) for name in SIZES} == {name: list(range(size)) for name, size in SIZES.items()}
