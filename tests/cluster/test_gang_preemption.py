"""Gangs of lower priority make room on the unmodified scheduler: whole, and for nobody else."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from kube.crashpoints import Moment
from localcluster.parts import APISERVER, SCHEDULER
from placement import names
from tests.builders.api import raw_budget, raw_workload
from tests.cluster.gangsetup import CONFIGURATION, CPU, MEMBERS, GangSetup, gang_setup, pod_spec
from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster
URGENT, PATIENT = "urgent", "patient"  # of the same value; the second preempts nobody by itself
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
WITH_SHORT_RUNS = CONFIGURATION.replace("enabled: true", "enabled: true, minimumRunTime: 1s")


@pytest.fixture(scope="module")
def shared_gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangSetup]:
    with gang_setup(tmp_path_factory.mktemp("config"), configuration=WITH_SHORT_RUNS) as made:
        made.client.post(CLASSES, {"metadata": {"name": URGENT}, "value": 100})
        patient = {"metadata": {"name": PATIENT}, "value": 100, "preemptionPolicy": "Never"}
        made.client.post(CLASSES, patient)
        yield made


@pytest.fixture
def gangs(shared_gangs: GangSetup) -> Iterator[GangSetup]:
    if not shared_gangs.setup.rebalancers:
        shared_gangs.setup.start()
    shared_gangs.create("low")
    wait_for("the gang of low priority to start", lambda: shared_gangs.is_whole("low"))
    time.sleep(2)  # its minimum run time, in whole seconds
    yield shared_gangs
    shared_gangs.check_starts()
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


THIEVES = {"of the victims' priority": {}, "of the gang's priority": {"priorityClassName": PATIENT}}


@pytest.mark.parametrize("thieves", [pytest.param(each, id=name) for name, each in THIEVES.items()])
def test_a_gang_of_higher_priority_gets_the_room(gangs: GangSetup, thieves: dict[str, str]) -> None:
    """Eight of eight victims go, eight of eight members start, and six thieves that waited before it get nothing."""
    victims, evicted = _uids(gangs, "low"), gangs.setup.evictions()
    gangs.fill("thief", 6, **thieves)
    began = time.monotonic()
    gangs.create("high", priorityClassName=URGENT)
    _gets_the_room(gangs, victims)
    print(f"preempted: {MEMBERS} victims gone and {MEMBERS} members bound after {time.monotonic() - began:.2f} s")
    assert gangs.setup.evictions() - evicted == MEMBERS
    wait_for("both sides to be told", lambda: _told(gangs))


def test_a_gang_that_would_not_fit_evicts_nobody(gangs: GangSetup) -> None:
    """There is room for eight if all of lower priority goes, and it has nine members."""
    victims, evicted = _uids(gangs, "low"), gangs.setup.evictions()
    gangs.create("high", MEMBERS + 1, priorityClassName=URGENT)
    waiting = names.EVENT_GANG_WAITING
    wait_for("the reason", lambda: any("does not fit" in each["message"] for each in gangs.setup.user.events(waiting)))
    time.sleep(2)
    assert (_uids(gangs, "low"), gangs.setup.evictions(), gangs.reserved("high")) == (victims, evicted, 0)
    assert gangs.is_whole("low")


@pytest.mark.parametrize("thieves", [pytest.param(each, id=name) for name, each in THIEVES.items()])
def test_the_scheduler_restarts_in_the_middle(gangs: GangSetup, thieves: dict[str, str]) -> None:
    """All room is reserved when the leader dies and the scheduler is restarted: it has forgotten what it keeps free.

    The next leader writes it again before the first victim goes. Six thieves that waited before the gang get nothing.
    """
    victims, evicted = _uids(gangs, "low"), gangs.setup.evictions()
    gangs.setup.stop_all()
    gangs.fill("thief", 6, **thieves)
    gangs.create("high", priorityClassName=URGENT)
    wait_for("all members to exist", lambda: gangs.gated("high") == MEMBERS)
    _dies(gangs, "before:evict:1")
    assert gangs.reserved("high") == MEMBERS
    gangs.setup.cluster.kill(SCHEDULER)
    gangs.setup.cluster.start_part(SCHEDULER)
    gangs.setup.start()
    _gets_the_room(gangs, victims)
    assert gangs.setup.evictions() - evicted == MEMBERS


@pytest.mark.soak
@pytest.mark.parametrize("part", [SCHEDULER, APISERVER])
@pytest.mark.parametrize("fault", ["after:annotate:8", "after:reserve:3", "after:evict:1", "after:evict:8"])
def test_a_part_of_the_control_plane_restarts_in_the_middle(gangs: GangSetup, fault: str, part: str) -> None:
    """Wherever the leader dies meanwhile: the gang starts whole in the end, or nobody was evicted for nothing."""
    victims = _uids(gangs, "low")
    gangs.setup.stop_all()
    gangs.create("high", priorityClassName=URGENT)
    wait_for("all members to exist", lambda: gangs.gated("high") == MEMBERS)
    _dies(gangs, fault)
    gangs.setup.cluster.kill(part)
    gangs.setup.cluster.start_part(part)
    gangs.setup.start()
    _gets_the_room(gangs, victims)


def _dies(gangs: GangSetup, fault: str) -> None:
    dying = gangs.setup.start(fault)
    wait_for("the rebalancer to die", lambda: dying.process.poll() is not None)
    assert dying.process.returncode == -9


def _told(gangs: GangSetup) -> bool:
    preempting = gangs.setup.user.events(names.EVENT_GANG_PREEMPTING)
    preempted = gangs.setup.user.events(names.EVENT_GANG_PREEMPTED)
    return any("/low" in each["message"] for each in preempting) and any(
        "/high" in each["message"] for each in preempted
    )


# Each call of the protocol, the first, one in the middle and the last of its kind: marks, reservations, evictions,
# reservations that are plain (nine to sixteen), starts.
CALLS = {"annotate": (1, 5, 8), "reserve": (1, 4, 8, 9, 16), "evict": (1, 4, 8), "start": (1, 4, 8)}
EVERY = [f"{moment}:{call}:{number}" for call, all_of in CALLS.items() for number in all_of for moment in Moment]
DRAWN = random.Random(3).sample(EVERY, 1)


@pytest.mark.parametrize(
    "fault", [pytest.param(each, marks=[pytest.mark.soak] * (each not in DRAWN)) for each in EVERY]
)
def test_the_rebalancer_dies_in_the_middle(gangs: GangSetup, fault: str) -> None:
    """The next leader goes on from the pods: the gang starts whole, and thieves get nothing."""
    victims, evicted = _uids(gangs, "low"), gangs.setup.evictions()
    gangs.setup.stop_all()
    gangs.fill("thief", 6)
    gangs.create("high", priorityClassName=URGENT)
    wait_for("all members to exist", lambda: gangs.gated("high") == MEMBERS)
    _dies(gangs, fault)
    gangs.setup.start()
    _gets_the_room(gangs, victims)
    assert gangs.setup.evictions() - evicted <= MEMBERS  # one whose caller died may not be counted
    assert gangs.marked() == []


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


def test_a_service_makes_room_above_what_must_serve(gangs: GangSetup) -> None:
    """Six of eight replicas must serve: two go for a gang of two, and none for a gang of three."""
    gangs.delete("low")
    user, client = gangs.setup.user, gangs.client
    web = raw_workload("Deployment", "web", MEMBERS, {names.SPOT_RATIO: "0%", names.MIN_AVAILABLE: "6"})
    web["spec"]["template"]["spec"] = pod_spec(CPU)
    user.create(web)
    wait_for("the service to serve", lambda: gangs.bound("web") == MEMBERS)
    time.sleep(3)  # its minimum run time, in whole seconds
    evicted = gangs.setup.evictions()
    gangs.create("wide", 3, priorityClassName=URGENT)
    waiting = names.EVENT_GANG_WAITING
    wait_for(
        "the reason",
        lambda: any("Deployment shop/web" in each["message"] for each in user.events(waiting)),
    )
    assert gangs.setup.evictions() == evicted
    gangs.delete("wide")
    gangs.create("high", 2, priorityClassName=URGENT)
    wait_for("the urgent gang to start", lambda: gangs.is_whole("high", 2))
    assert gangs.setup.evictions() - evicted == 2
    assert gangs.bound("web") == 6
    client.delete(user.path("Deployment", "web"))
