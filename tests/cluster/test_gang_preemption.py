"""Gangs of lower priority make room on the unmodified scheduler: whole, and for nobody else."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from placement import names
from tests.builders.api import raw_budget
from tests.cluster.gangsetup import CONFIGURATION, MEMBERS, GangSetup, gang_setup
from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster
URGENT = "urgent"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
WITH_SHORT_RUNS = CONFIGURATION.replace("enabled: true", "enabled: true, minimumRunTime: 1s")


@pytest.fixture(scope="module")
def shared_gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangSetup]:
    with gang_setup(tmp_path_factory.mktemp("config"), configuration=WITH_SHORT_RUNS) as made:
        made.client.post(CLASSES, {"metadata": {"name": URGENT}, "value": 100})
        yield made


@pytest.fixture
def gangs(shared_gangs: GangSetup) -> Iterator[GangSetup]:
    if not shared_gangs.setup.rebalancers:
        shared_gangs.setup.start()
    shared_gangs.create("low")
    wait_for("the gang of low priority to start", lambda: shared_gangs.is_whole("low"))
    time.sleep(2)  # its minimum run time, in whole seconds
    yield shared_gangs
    shared_gangs.clear()


def _uids(gangs: GangSetup, name: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in gangs.all_of(name)}


def _gets_the_room(gangs: GangSetup, victims: set[str]) -> None:
    """The urgent gang is whole, all victims have gone, and no thief got a node before."""
    placed: list[int] = []

    def is_whole() -> bool:
        placed.append(gangs.bound("thief"))
        return gangs.is_whole("high")

    wait_for("the urgent gang to start", is_whole)
    assert max(placed) == 0
    assert not victims & _uids(gangs, "low")
    assert gangs.bound("low") == 0


def test_a_gang_of_higher_priority_gets_the_room(gangs: GangSetup) -> None:
    """Eight of eight victims go, eight of eight members start, and six thieves of the victims' priority get nothing."""
    victims = _uids(gangs, "low")
    gangs.fill("thief", 6)
    began = time.monotonic()
    gangs.create("high", priorityClassName=URGENT)
    _gets_the_room(gangs, victims)
    print(f"preempted: {MEMBERS} victims gone and {MEMBERS} members bound after {time.monotonic() - began:.2f} s")
    wait_for("both sides to be told", lambda: _told(gangs))


def _told(gangs: GangSetup) -> bool:
    preempting = gangs.setup.user.events(names.EVENT_GANG_PREEMPTING)
    preempted = gangs.setup.user.events(names.EVENT_GANG_PREEMPTED)
    return any("/low" in each["message"] for each in preempting) and any(
        "/high" in each["message"] for each in preempted
    )


@pytest.mark.soak
@pytest.mark.parametrize("fault", ["after:reserve:3", "after:evict:3", "before:start:1"])
def test_the_rebalancer_dies_in_the_middle(gangs: GangSetup, fault: str) -> None:
    """The next leader goes on from the pods: the gang starts whole, and thieves get nothing."""
    victims = _uids(gangs, "low")
    gangs.setup.stop_all()
    gangs.fill("thief", 6)
    gangs.create("high", priorityClassName=URGENT)
    wait_for("all members to exist", lambda: gangs.gated("high") == MEMBERS)
    dying = gangs.setup.start(fault)
    wait_for("the rebalancer to die", lambda: dying.process.poll() is not None)
    gangs.setup.start()
    _gets_the_room(gangs, victims)


def test_a_budget_forbids_it(gangs: GangSetup) -> None:
    """It allows seven of eight evictions: none is asked for, and an Event names the budget."""
    path = f"/apis/policy/v1/namespaces/{gangs.setup.user.namespace}/poddisruptionbudgets"
    gangs.client.post(path, raw_budget("low", minAvailable=1))
    wait_for("the budget to count", lambda: gangs.client.get_json(f"{path}/low")["status"].get("expectedPods") == 8)
    victims = _uids(gangs, "low")
    gangs.create("high", priorityClassName=URGENT)
    waiting = names.EVENT_GANG_WAITING
    wait_for(
        "the reason", lambda: any("PodDisruptionBudget" in each["message"] for each in gangs.setup.user.events(waiting))
    )
    time.sleep(2)
    assert (_uids(gangs, "low"), gangs.is_whole("low"), gangs.reserved("high")) == (victims, True, 0)
    gangs.client.delete(f"{path}/low")
