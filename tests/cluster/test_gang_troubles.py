"""The API server answers badly, the leader dies, hangs or changes: gangs start whole all the same, or not at all."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from demo.supervisor import access_for, wait_until_ready
from kube.crashpoints import Moment
from placement import names
from tests.cluster.clustersetup import give_up_lease
from tests.cluster.gangsetup import CONFIGURATION, MEMBERS, GangSetup, gang_setup
from tests.cluster.namespaceuser import wait_for
from tests.cluster.proxy import Proxy, access_through, proxied
from tests.cluster.test_gang_preemption import CLASSES, URGENT
from tests.cluster.test_rebalancer_answers import _rebalancer, drawn_by_lot

pytestmark = pytest.mark.cluster
WITH_SHORT_RUNS = CONFIGURATION.replace("enabled: true", "enabled: true, minimumRunTime: 1s")
TIMES = 8
LONG_SECONDS = 300.0


@pytest.fixture(scope="module")
def shared_gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangSetup]:
    with gang_setup(tmp_path_factory.mktemp("config"), 0, WITH_SHORT_RUNS) as made:
        made.client.post(CLASSES, {"metadata": {"name": URGENT}, "value": 100})
        yield made


@pytest.fixture
def gangs(shared_gangs: GangSetup) -> Iterator[GangSetup]:
    yield shared_gangs
    shared_gangs.starts.check()
    shared_gangs.setup.stop_all()
    shared_gangs.clear()
    shared_gangs.starts.forget()


@pytest.fixture
def proxy(gangs: GangSetup, tmp_path: Path) -> Iterator[Proxy]:
    """In front of the one rebalancer that there is."""
    setup = gangs.setup
    access = access_for(setup.user.kubeconfig, setup.user.client, names.REBALANCER_ACCOUNT)
    with proxied(access) as made:
        file = tmp_path / "kubeconfig"
        file.write_bytes(access_through(made, access))
        give_up_lease(setup.user.client)
        process = _rebalancer(file)
        setup.installed.processes.append(process)
        wait_until_ready([process])
        wait_for("a leader", partial(setup.leads, process))
        yield made
        made.trouble = lambda _method, _path: None


def _nothing_is_left(gangs: GangSetup) -> bool:
    """No gate beside a start, no nomination of a pod that has no node, no mark."""
    pods = gangs.client.get_json(gangs.setup.user.pods_path)["items"]
    waits = [pod for pod in pods if "nodeName" not in pod["spec"]]
    return not gangs.marked() and not any("nominatedNodeName" in pod["status"] for pod in waits)


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_gangs_start_whole_though_half_of_the_writes_fail(gangs: GangSetup, proxy: Proxy) -> None:
    """409, 429, 500, no answer, and an answer that was lost."""
    for number in range(TIMES):
        proxy.trouble = drawn_by_lot(0.5)
        gangs.create(f"g{number}")
        wait_for("the gang to start", partial(gangs.is_whole, f"g{number}"), LONG_SECONDS)
        proxy.trouble = lambda _method, _path: None
        wait_for("nothing to be left", partial(_nothing_is_left, gangs))
        gangs.delete(f"g{number}")
    print(f"met on the way: {dict(proxy.met())}")
    assert len(proxy.met()) >= 3


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_room_is_made_though_half_of_the_writes_fail(gangs: GangSetup, proxy: Proxy) -> None:
    """The gang starts whole in the end, and the one that made room for it waits whole."""
    for number in range(TIMES):
        gangs.create(f"low{number}")
        wait_for("the gang of low priority to start", partial(gangs.is_whole, f"low{number}"))
        time.sleep(2)  # its minimum run time
        proxy.trouble = drawn_by_lot(0.5)
        gangs.create(f"high{number}", priorityClassName=URGENT)
        wait_for("the urgent gang to start", partial(gangs.is_whole, f"high{number}"), LONG_SECONDS)
        proxy.trouble = lambda _method, _path: None
        wait_for("the other to wait", partial(gangs.waits_whole, f"low{number}"), LONG_SECONDS)
        wait_for("nothing to be left", partial(_nothing_is_left, gangs))
        for name in (f"low{number}", f"high{number}"):
            gangs.delete(name)


# The first, one in the middle and the last reservation and start.
EVERY = [f"{moment}:{call}:{number}" for call in ("reserve", "start") for number in (1, 4, 8) for moment in Moment]
DRAWN = random.Random(2).sample(EVERY, 1)


@pytest.mark.parametrize(
    "fault", [pytest.param(each, marks=[pytest.mark.soak] * (each not in DRAWN)) for each in EVERY]
)
def test_killed_at_a_call(gangs: GangSetup, fault: str) -> None:
    """The next leader goes on from the pods."""
    gangs.create("train")
    wait_for("all members to exist", lambda: gangs.gated("train") == MEMBERS)
    dying = gangs.setup.start(fault)
    wait_for("the rebalancer to die", lambda: dying.process.poll() is not None)
    gangs.setup.start()
    wait_for("the gang to start", partial(gangs.is_whole, "train"))
    assert _nothing_is_left(gangs)


def test_killed_while_it_gives_room_back(gangs: GangSetup) -> None:
    """All is reserved when a node goes and the leader dies; the next one dies while it gives the room back."""
    gangs.create("train")
    wait_for("all members to exist", lambda: gangs.gated("train") == MEMBERS)
    for fault in (f"after:reserve:{MEMBERS}", "after:unreserve:3"):
        dying = gangs.setup.start(fault)
        wait_for("the rebalancer to die", partial(_is_dead, dying))
        gangs.client.patch("/api/v1/nodes/od-0", {"spec": {"unschedulable": True}})
    try:
        gangs.setup.start()
        wait_for("all room to be given back", partial(gangs.waits_whole, "train"))
    finally:
        gangs.client.patch("/api/v1/nodes/od-0", {"spec": {"unschedulable": None}})
    wait_for("the gang to start", partial(gangs.is_whole, "train"))


def _is_dead(process: object) -> bool:
    return process.process.poll() is not None  # type: ignore[attr-defined]


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_leaders_that_hang_or_die_while_gangs_start(gangs: GangSetup) -> None:
    """Ten rounds: the leader is stopped at any moment and goes on when another leads, or it is killed."""
    chance = random.Random(7)
    setup = gangs.setup
    for _ in range(2):
        setup.start()
    for number in range(10):
        wait_for("a leader", lambda: any(map(setup.leads, setup.rebalancers)))
        leader = next(each for each in setup.rebalancers if setup.leads(each))
        gangs.create(f"g{number}")
        time.sleep(chance.random() / 2)  # what it is about: at any moment
        if number % 2:
            leader.process.kill()
            leader.process.wait()
            setup.start()
        else:
            leader.process.send_signal(signal.SIGSTOP)
        wait_for("the gang to start", partial(gangs.is_whole, f"g{number}"))
        if not number % 2:
            leader.process.send_signal(signal.SIGCONT)
        wait_for("nothing to be left", partial(_nothing_is_left, gangs))
        gangs.delete(f"g{number}")
