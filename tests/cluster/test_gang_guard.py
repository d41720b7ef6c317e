"""Pods without a gang under the same rule (`guardSolo`): nobody takes a node from a single member of a gang."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.supervisor import access_for
from kube.client import Client, connect
from kube.errors import Forbidden
from placement import names
from placement.gang.twins import twin_name
from tests.cluster.gangs import create, raw_member
from tests.cluster.gangsetup import CONFIGURATION, CPU, MEMBERS, GangSetup, gang_setup, pod_spec
from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster
URGENT = "urgent"
CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
GUARDING = CONFIGURATION.replace("enabled: true", "enabled: true, minimumRunTime: 1s, guardSolo: true")


@pytest.fixture(scope="module")
def shared_gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangSetup]:
    with gang_setup(tmp_path_factory.mktemp("config"), configuration=GUARDING) as made:
        made.client.post(CLASSES, {"metadata": {"name": URGENT}, "value": 100})
        create(made.setup.user, raw_member("first", {}, priorityClassName=URGENT))
        wait_for("the twin to be given", lambda: asked(made) == (twin_name(URGENT), "Never"))
        made.setup.user.delete_pod("first")
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


def asked(gangs: GangSetup) -> tuple[str, str]:
    spec = create(gangs.setup.user, raw_member("asks", {}, priorityClassName=URGENT), dry=True)["spec"]
    return spec["priorityClassName"], spec["preemptionPolicy"]


def uids(gangs: GangSetup) -> set[str]:
    return {pod["metadata"]["uid"] for pod in gangs.all_of("low")}


def urgent(gangs: GangSetup) -> None:
    meta = {"name": "solo", "labels": {"app": "solo"}}
    spec = {**pod_spec(CPU), "priorityClassName": URGENT}
    made = gangs.client.post(gangs.setup.user.pods_path, {"metadata": meta, "spec": spec})
    assert "schedulingGates" not in made["spec"]


def test_a_gang_goes_whole_for_a_single_pod(gangs: GangSetup) -> None:
    """The scheduler takes no member's node. The rebalancer makes room: all eight go, and come back with their gate."""
    before = uids(gangs)
    urgent(gangs)
    wait_for("the pod to run", lambda: gangs.bound("solo") == 1)
    wait_for("all members to wait again", lambda: gangs.gated("low") == MEMBERS)
    assert not before & uids(gangs)
    assert gangs.setup.user.events(names.EVENT_GANG_PREEMPTED)


def test_without_a_rebalancer_it_evicts_nobody_and_waits_for_no_gate(gangs: GangSetup) -> None:
    """As soon as there is room it runs."""
    gangs.setup.stop_all()
    before = uids(gangs)
    urgent(gangs)
    time.sleep(3)
    assert (gangs.bound("solo"), uids(gangs), gangs.bound("low")) == (0, before, MEMBERS)
    gangs.setup.user.delete_pod(gangs.all_of("low")[0]["metadata"]["name"])
    wait_for("the pod to run", lambda: gangs.bound("solo") == 1)


def test_no_other_pod_is_nominated(gangs: GangSetup, tmp_path: Path) -> None:
    """The fence lets the rebalancer nominate nodes for pods that preempt nobody, and for no others."""
    setup, path = gangs.setup, tmp_path / "kubeconfig"
    setup.stop_all()
    path.write_bytes(access_for(Path(setup.cluster.kubeconfig), setup.user.client, names.REBALANCER_ACCOUNT))
    client = connect(path, user_agent="spotweave-tests")
    user = setup.user
    no_node = {"nodeSelector": {"no": "such"}}
    create(user, raw_member("guarded", {}, **no_node, priorityClassName=URGENT))
    plain = {"metadata": {"name": "plain", "labels": {names.PLACEMENT: names.DISABLED}}}
    create(user, {**raw_member("plain", {}, **no_node), **plain})
    try:
        assert nominated(client, user.pods_path, "guarded")
        with pytest.raises(Forbidden, match="nominates nodes only"):
            nominated(client, user.pods_path, "plain")
        note = {"metadata": {"annotations": {names.GANG_PLAN: None}}, "status": {"nominatedNodeName": None}}
        client.patch(f"{user.pods_path}/guarded/status", note)
    finally:
        client.close()


def nominated(client: Client, path: str, name: str) -> bool:
    note = {"metadata": {"annotations": {names.GANG_PLAN: "p/1.000/od-0"}}, "status": {"nominatedNodeName": "od-0"}}
    return bool(client.patch(f"{path}/{name}/status", note)["status"]["nominatedNodeName"] == "od-0")
