"""Three webhooks and a rebalancer: whatever several webhooks got wrong is right ten seconds after everything rests."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from placement import names
from tests.cluster.scene import Scene, staged
from tests.timing import timed, within

pytestmark = pytest.mark.cluster

SECONDS = 10.0
SIZES = {"large": 300, "small": 150, "rolling": 60, "shrinking": 20}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with staged(tmp_path_factory.mktemp("config"), rebalancers=1, webhooks=3) as made:
        yield made


def slots(scene: Scene, name: str) -> list[int]:
    return sorted(int(pod["metadata"]["annotations"].get(names.SLOT, -1)) for pod in scene.world.pods(name))


@timed
@pytest.mark.timeout(600)
def test_bursts_rollouts_and_scale_downs_are_exact_ten_seconds_later(scene: Scene) -> None:
    """Bursts of 300 and 150, a rollout of 60 and a scale-down from 100 to 20, at once: no slot doubled, each mix exact.

    Ten seconds are as many times more as this machine takes longer than it should to start as many pods.
    """
    scene.create("rolling", SIZES["rolling"])
    scene.create("shrinking", 100)
    for name in ("rolling", "shrinking"):
        scene.world.rest(name)
    began = scene.begin_control(50)
    pace = scene.pace(began, 50)
    scene.create("large", SIZES["large"])
    scene.create("small", SIZES["small"])
    scene.world.roll_out("rolling")
    scene.world.scale("shrinking", SIZES["shrinking"])
    for name in SIZES:
        scene.world.rest(name)
    rested = time.monotonic()
    scene.settles(*SIZES)
    seconds = time.monotonic() - rested
    print(f"exact {seconds:.1f} s after all was at rest; 50 other pods took {pace.seconds:.1f} s to start")
    within("exact after all was at rest", seconds, SECONDS * pace.slowness)
    assert {name: slots(scene, name) for name in SIZES} == {name: list(range(size)) for name, size in SIZES.items()}
