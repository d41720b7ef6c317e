"""Gangs on the unmodified scheduler: whole or not at all, whoever competes and whatever dies."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from kube.podwriter import PodWriter
from kube.resources import PODS_IN_FULL
from placement import names
from placement.outcome import Outcome
from tests.cluster.gangsetup import MEMBERS, GangSetup, gang_setup, pod_spec
from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


@pytest.fixture(scope="module")
def shared_gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangSetup]:
    with gang_setup(tmp_path_factory.mktemp("config")) as made:
        yield made


@pytest.fixture
def gangs(shared_gangs: GangSetup) -> Iterator[GangSetup]:
    if not shared_gangs.setup.rebalancers:
        shared_gangs.setup.start()
    yield shared_gangs
    shared_gangs.check_starts()
    shared_gangs.clear()


def _any_is_whole(gangs: GangSetup, pair: tuple[str, str]) -> bool:
    return any(map(gangs.is_whole, pair))


def test_a_gang_starts_whole(gangs: GangSetup) -> None:
    """Its members are created with a gate, and start together."""
    began = time.monotonic()
    gangs.create("train", annotations={names.POD_GROUP_MIN_MEMBER: str(MEMBERS)})
    wait_for("the gang to start", lambda: gangs.is_whole("train"))
    print(f"a gang of {MEMBERS}: all bound after {time.monotonic() - began:.2f} s")
    plans = {pod["metadata"]["annotations"][names.GANG_PLAN].partition("/")[0] for pod in gangs.all_of("train")}
    assert len(plans) == 1
    labels = {pod["metadata"]["labels"][names.GANG_LABEL] for pod in gangs.all_of("train")}
    assert labels == {names.GANG_MEMBER}


def test_a_job_starts_whole(gangs: GangSetup) -> None:
    """Its parallelism says how many start together. Its pods end, and none is left with a gate."""
    gangs.create_job("batch")
    path = f"{gangs.jobs_path}/batch"
    wait_for("the Job to end", lambda: gangs.client.get_json(path)["status"].get("succeeded") == MEMBERS)
    assert gangs.client.get_json(path)["status"].get("failed", 0) == 0


def test_a_gang_that_does_not_fit_waits_without_a_write(gangs: GangSetup) -> None:
    """Room for seven of eight: nothing starts, nothing is reserved; when the last room is free, all start."""
    gangs.fill("filler")
    wait_for("the filler to run", lambda: gangs.bound("filler") == 1)
    gangs.create("train")
    wait_for("all members to exist", lambda: gangs.gated("train") == MEMBERS)
    versions = {pod["metadata"]["resourceVersion"] for pod in gangs.all_of("train")}
    time.sleep(3)
    assert {pod["metadata"]["resourceVersion"] for pod in gangs.all_of("train")} == versions
    gangs.setup.user.delete_pod("filler-0")
    wait_for("the gang to start", lambda: gangs.is_whole("train"))


def test_a_start_narrows_every_term_and_leaves_the_rest(gangs: GangSetup) -> None:
    """Its gate goes by its name, another one stays; each of its terms names the nodes, and nothing else changes."""
    gangs.setup.stop_all()
    expression = {"key": "a", "operator": "NotIn", "values": ["b", "c"]}
    field = {"key": "metadata.name", "operator": "NotIn", "values": ["x"]}
    terms: list[dict[str, Any]] = [
        {"matchExpressions": [expression, {"key": "d", "operator": "DoesNotExist"}]},
        {"matchFields": [field]},
    ]
    apart = {"labelSelector": {"matchLabels": {"e": "f"}}, "topologyKey": names.HOSTNAME}
    affinity = {
        "nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}},
        "podAntiAffinity": {REQUIRED: [apart]},
    }
    spec = {**pod_spec("1"), "affinity": affinity, "schedulingGates": [{"name": "other/gate"}]}
    meta = {"name": "one", "annotations": {names.POD_GROUP: "one"}}
    path = f"{gangs.setup.user.pods_path}/one"
    created = gangs.client.post(gangs.setup.user.pods_path, {"metadata": meta, "spec": spec})
    pod = PODS_IN_FULL.shape.single(gangs.client.get(path))
    assert pod.gates == ("other/gate", names.GANG_GATE)
    writer = PodWriter(gangs.client)
    assert writer.start_member(replace(pod, uid="another"), ("od-1",)) is Outcome.GONE
    assert writer.reserve(pod.key, pod.uid, "od-1", {names.GANG_PLAN: "p/1.000/od-1"}) is Outcome.DONE
    reserved = PODS_IN_FULL.shape.single(gangs.client.get(path))
    assert (reserved.nominated, reserved.gang_plan) == ("od-1", "p/1.000/od-1")
    assert writer.start_member(pod, ("od-0", "od-1")) is Outcome.DONE
    started = gangs.client.get_json(path)["spec"]
    assert started["schedulingGates"] == [{"name": "other/gate"}]
    only = {"key": names.HOSTNAME, "operator": "In", "values": ["od-0", "od-1"]}
    narrowed = [{"matchExpressions": [*terms[0]["matchExpressions"], only]}, {**terms[1], "matchExpressions": [only]}]
    assert started["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"] == narrowed
    assert {**started, "affinity": 0, "schedulingGates": 0} == {**created["spec"], "affinity": 0, "schedulingGates": 0}
    assert started["affinity"]["podAntiAffinity"] == affinity["podAntiAffinity"]
    assert writer.unreserve(pod.key, pod.uid, {names.GANG_PLAN: None}) is Outcome.DONE
    assert PODS_IN_FULL.shape.single(gangs.client.get(path)).nominated == ""


@pytest.mark.soak
def test_half_a_start_that_cannot_go_on_is_undone(gangs: GangSetup) -> None:
    """The rebalancer dies after three starts, and a node goes. After a minute all members wait with their gate."""
    gangs.setup.stop_all()
    gangs.create("train")
    wait_for("all members to exist", lambda: gangs.gated("train") == MEMBERS)
    dying = gangs.setup.start("after:start:3")
    wait_for("the rebalancer to die", lambda: dying.process.poll() is not None)
    nodes = {pod["spec"].get("nodeName") for pod in gangs.setup.user.pods("train")}
    free = next(node for node in ("od-0", "od-1", "od-2", "od-3") if node not in nodes or len(nodes) > 4)
    gangs.client.patch(f"/api/v1/nodes/{free}", {"spec": {"unschedulable": True}})
    try:
        gangs.setup.start()
        wait_for("the start to be undone", lambda: gangs.waits_whole("train"))
    finally:
        gangs.client.patch(f"/api/v1/nodes/{free}", {"spec": {"unschedulable": None}})
    wait_for("the gang to start", lambda: gangs.is_whole("train"))


@pytest.mark.timed
@pytest.mark.parametrize("rounds", [3, pytest.param(50, marks=[pytest.mark.soak, pytest.mark.timeout(3600)])])
def test_two_gangs_on_room_for_one(gangs: GangSetup, rounds: int) -> None:
    """Exactly one starts whole, and the other starts whole after it: never a part of either.

    They are created in any order, and at any distance from each other.
    """
    chance, before = random.Random(14), gangs.starts.whole
    for number in range(rounds):
        pair = [f"a{number}", f"b{number}"]
        chance.shuffle(pair)
        gangs.create(pair[0])
        time.sleep(chance.choice([0.0, 0.0, chance.random() / 4, chance.random()]))  # what it is about: their timing
        gangs.create(pair[1])
        wait_for("one to start", partial(_any_is_whole, gangs, (pair[0], pair[1])))
        first, second = pair if gangs.is_whole(pair[0]) else pair[::-1]
        wait_for("the other to wait", partial(gangs.waits_whole, second))
        assert gangs.is_whole(first)
        gangs.delete(first)
        wait_for("the other to start", partial(gangs.is_whole, second))
        gangs.delete(second)
    gangs.check_starts()
    assert gangs.starts.whole - before == 2 * rounds
    print(f"bound by {dict(gangs.binders())}")


@pytest.mark.parametrize("fault", ["after:reserve:3", "before:start:1", "after:start:3"])
def test_the_rebalancer_dies_in_the_middle(gangs: GangSetup, fault: str) -> None:
    """The next leader goes on from the pods. Where all have reserved room, thieves of the same priority get none."""
    gangs.setup.stop_all()
    gangs.create("train")
    wait_for("all members to exist", lambda: gangs.gated("train") == MEMBERS)
    dying = gangs.setup.start(fault)
    wait_for("the rebalancer to die", lambda: dying.process.poll() is not None)
    if fault == "before:start:1":
        gangs.fill("thief", 6)
    gangs.setup.start()
    wait_for("the gang to start", lambda: gangs.is_whole("train"))
    assert gangs.bound("thief") == 0


@pytest.mark.soak
@pytest.mark.parametrize(("number", "members"), [(1, 64), (50, 8)])
def test_how_long_gangs_take(gangs: GangSetup, number: int, members: int) -> None:
    """Room for all: from their creation until all are bound. Printed; machines differ."""
    began = time.monotonic()
    for each in range(number):
        gangs.create(f"g{each}", members, "10m")
    wait_for("all to exist", lambda: gangs.count(exists=True) == number * members)
    created = time.monotonic() - began
    wait_for("all to start", lambda: gangs.count() == number * members)
    print(f"{number} gangs of {members}: created {created:.2f} s, all bound {time.monotonic() - began:.2f} s")
