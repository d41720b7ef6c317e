"""The rebalancer dies at any line, twice it starts, the API server goes: the same end, and nobody is evicted twice."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

import pytest

from demo.supervisor import Process
from kube.crashpoints import Call, Moment
from kube.lease import PATH as LEASE
from localcluster import Choice, Way
from placement import names
from placement.slots import Mix
from tests.cluster.clustersetup import PATIENCE_SECONDS, ClusterSetup, cluster_setup
from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster

REPLICAS, AT_FIRST, THEN = 10, Mix(7, 3), Mix(3, 7)
MOVES = 4
LOST = 7
CHANGE_CALLS = (Call.ANNOTATE, Call.EVICT, Call.LEASE)
OF_GANGS = (Call.RESERVE, Call.UNRESERVE, Call.START, Call.UNGATE)
LOSS_CALLS = tuple(call for call in Call if call not in OF_GANGS)
NUMBERS = (1, 2, 3)
# The API server notes an eviction in the budget before it deletes the pod. Where its caller dies in between, or the API
# server itself, the pod counts as gone for two minutes, and is not evicted as long as the budget allows none less.
FORGOTTEN_SECONDS = 240.0
ONCE = (Call.OUTAGE,)  # it is noted once


def faults_at(calls: tuple[Call, ...], sample: int) -> list[object]:
    """Before and after each of the first calls of these kinds; a few of them, drawn by lot once, if it is no soak."""
    numbers = {call: NUMBERS[:1] if call in ONCE else NUMBERS for call in calls}
    every = [f"{moment}:{call}:{number}" for call in calls for moment in Moment for number in numbers[call]]
    drawn = set(random.Random(5).sample(every, sample))
    return [fault if fault in drawn else pytest.param(fault, marks=pytest.mark.soak) for fault in every]


@pytest.fixture(scope="module")
def shared_setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    with cluster_setup(
        tmp_path_factory.mktemp("config"), configuration="moves: {minAge: 1s, afterRollout: 0s}\n"
    ) as made:
        yield made


@pytest.fixture(autouse=True)
def nobody_left(setup: ClusterSetup) -> Iterator[None]:
    yield
    setup.stop_all()


def is_dead(process: Process) -> bool:
    return process.process.poll() is not None


def dies(process: Process) -> None:
    wait_for("the rebalancer to die", partial(is_dead, process))
    assert process.process.returncode == -9


@pytest.mark.parametrize("fault", faults_at(CHANGE_CALLS, 4))
def test_killed_while_the_ratio_changes(setup: ClusterSetup, fault: str) -> None:
    """Four pods change their class, each evicted once; ten serve all the while, whoever carried it out."""
    setup.serves("web", REPLICAS, minAvailable="100%")
    before = setup.evictions()
    setup.history.forget()
    setup.annotate("web", spot_ratio="30%")
    dies(setup.start(fault))
    setup.start()
    assert setup.settles("web", patience=FORGOTTEN_SECONDS)["web"].actual == THEN
    assert setup.history.worst("web") == REPLICAS
    assert setup.evictions() - before <= MOVES  # one whose caller died may not be counted
    assert len({pod.uid for pod in setup.deleted(MOVES)}) == len(setup.history.deleted) == MOVES


@pytest.mark.parametrize("fault", faults_at(LOSS_CALLS, 3))
def test_killed_while_all_spot_is_lost_and_back(setup: ClusterSetup, fault: str) -> None:
    """Never fewer than the loss itself left; each lost pod is replaced once, and each moved back once."""
    setup.serves("web", REPLICAS, minAvailable=9)
    before = setup.evictions()
    faulty = setup.start(fault)
    wait_for("the rebalancer to be there", lambda: is_dead(faulty) or setup.leads(faulty))
    setup.history.forget()
    setup.cluster.reclaim(Choice(all_spot=True), Way.CLOUD)
    wait_for("its end, or all to serve", lambda: is_dead(faulty) or setup.serves_in_full("web", REPLICAS))
    died_early = is_dead(faulty)
    if died_early:
        setup.start()
    wait_for("all to serve again", partial(setup.serves_in_full, "web", REPLICAS))
    assert setup.history.worst("web") == REPLICAS - LOST
    assert setup.evictions() == before
    wait_for("what was lost to be gone", lambda: len(setup.user.pods("web")) == REPLICAS)
    soft = [pod["metadata"]["name"] for pod in setup.user.pods("web") if names.SOFT in pod["metadata"]["annotations"]]
    assert len(soft) == LOST
    setup.history.forget()
    setup.cluster.restore()
    setup.spotweave("outage", "clear")
    if not died_early:
        dies(faulty)
        setup.start()
    assert setup.settles("web", patience=FORGOTTEN_SECONDS)["web"].actual == AT_FIRST
    assert setup.history.worst("web") == REPLICAS
    assert setup.evictions() - before <= LOST
    assert sorted(pod.name for pod in setup.deleted(len(soft))) == sorted(soft)


def test_two_start_with_a_lease_that_nobody_alive_holds(setup: ClusterSetup) -> None:
    """They wait until it has run out; then one leads, and nobody is evicted twice."""
    setup.serves("web", REPLICAS, minAvailable="100%")
    before = setup.evictions()
    setup.history.forget()
    first = setup.start()
    wait_for("a leader", partial(setup.leads, first))
    first.process.kill()
    first.process.wait()
    holder = setup.user.client.get_json(LEASE)["spec"]["holderIdentity"]
    assert holder
    setup.annotate("web", spot_ratio="30%")
    both = [setup.installed.add(names.REBALANCER_COMPONENT) for _ in range(2)]
    most = 0

    def is_done() -> bool:
        nonlocal most
        most = max(most, sum(map(setup.leads, both)))
        return setup.evictions() - before >= MOVES

    wait_for("the moves", is_done, PATIENCE_SECONDS)
    assert most == 1
    assert setup.settles("web")["web"].actual == THEN
    assert setup.evictions() - before == len(setup.deleted(MOVES)) == MOVES
    assert setup.history.worst("web") == REPLICAS


def test_the_api_server_goes_and_comes_back(setup: ClusterSetup) -> None:
    """In the midst of moves: they are finished, all serve, and nobody asks without end meanwhile."""
    setup.serves("web", 30, minAvailable="100%")
    rebalancer = setup.start()
    wait_for("a leader", partial(setup.leads, rebalancer))
    setup.history.forget()
    setup.annotate("web", spot_ratio="30%")
    wait_for("moves to be under way", lambda: setup.released("web"))
    passes, writes = setup.passes(), setup.writes()
    setup.cluster.kill("kube-apiserver")
    wait_for("nobody to lead, since none can renew", lambda: not setup.leads(rebalancer))
    assert setup.passes() - passes < 40  # one a second, and one for each change that was on its way
    assert setup.writes() - writes < 60
    setup.cluster.start_part("kube-apiserver")
    assert setup.settles("web", patience=FORGOTTEN_SECONDS)["web"].actual == Mix(9, 21)
    assert setup.history.worst("web") == 30
    setup.falls_silent()
