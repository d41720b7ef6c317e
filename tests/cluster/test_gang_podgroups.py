"""Members that name a PodGroup by a label, while its CRD is missing, installed and removed again. In this order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from demo.supervisor import access_for
from kube.client import Client, connect
from kube.errors import ApiError, Forbidden, NotFound, TooManyRequests
from placement import names
from tests.builders.api import raw_workload
from tests.cluster.gangsetup import GangSetup, gang_setup, pod_spec
from tests.cluster.namespaceuser import wait_for
from tests.cluster.podgroupcrd import install_crd, path_in, pod_group, remove_crd

pytestmark = pytest.mark.cluster
FENCE = names.POD_GROUP_FENCE_POLICY


@pytest.fixture(scope="module")
def shared_gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangSetup]:
    with gang_setup(tmp_path_factory.mktemp("config")) as made:
        yield made


@pytest.fixture
def gangs(shared_gangs: GangSetup) -> Iterator[GangSetup]:
    yield shared_gangs
    shared_gangs.clear()


@pytest.fixture(scope="module")
def rebalancer(shared_gangs: GangSetup, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """Who has the rebalancer's token, and no other."""
    setup, path = shared_gangs.setup, tmp_path_factory.mktemp("access") / "kubeconfig"
    path.write_bytes(access_for(Path(setup.cluster.kubeconfig), setup.user.client, names.REBALANCER_ACCOUNT))
    client = connect(path, user_agent="spotweave-tests")
    yield client
    client.close()


def create(gangs: GangSetup, name: str, members: int) -> None:
    """A Deployment whose pods name a PodGroup, and nothing of ours."""
    raw = raw_workload("Deployment", name, members)
    labels = {"app": name, names.POD_GROUP_LABEL: name}
    raw["spec"]["template"] = {"metadata": {"labels": labels}, "spec": pod_spec("3")}
    gangs.setup.user.create(raw)


def groups(gangs: GangSetup) -> str:
    return path_in(gangs.setup.user.namespace)


def shown(gangs: GangSetup, name: str) -> tuple[str, int]:
    found = gangs.client.get_json(f"{groups(gangs)}/{name}").get("status", {})
    return found.get("phase", ""), found.get("running", 0)


def test_without_the_crd_the_label_alone_makes_a_gang(gangs: GangSetup) -> None:
    """Its owner says how many start together."""
    create(gangs, "alone", 4)
    wait_for("the gang to start", lambda: gangs.is_whole("alone", 4))
    labels = {each["metadata"]["labels"][names.GANG_LABEL] for each in gangs.all_of("alone")}
    assert labels == {names.GANG_MEMBER}


def test_once_it_is_installed_the_pod_group_says_how_many(gangs: GangSetup) -> None:
    """Members wait for their PodGroup. It says six of eight, and there is room for six: six start. It shows that."""
    install_crd(gangs.client)
    wait_for("the CRD to be served", lambda: is_served(gangs))
    gangs.setup.stop_all()
    gangs.setup.start()  # it would look again within half a minute
    gangs.fill("filler", 2)
    wait_for("the fillers to run", lambda: gangs.bound("filler") == 2)
    create(gangs, "train", 8)
    wait_for("all members to exist", lambda: gangs.gated("train") == 8)
    assert gangs.bound("train") == 0
    gangs.client.post(groups(gangs), pod_group("train", minMember=6, scheduleTimeoutSeconds=600))
    wait_for("six to start", lambda: gangs.bound("train") == 6)
    wait_for("its status", lambda: shown(gangs, "train") == ("Running", 6))
    assert gangs.gated("train") == 2
    version = gangs.client.get_json(f"{groups(gangs)}/train")["metadata"]["resourceVersion"]
    gangs.setup.user.delete("Deployment", "train")
    wait_for("its end to be shown", lambda: shown(gangs, "train") == ("Pending", 0))
    assert version != gangs.client.get_json(f"{groups(gangs)}/train")["metadata"]["resourceVersion"]


def is_served(gangs: GangSetup) -> bool:
    try:
        gangs.client.get(groups(gangs))
    except (NotFound, TooManyRequests):  # the latter: its storage is being set up
        return False
    return True


def test_the_rebalancer_writes_nothing_but_the_status(gangs: GangSetup, rebalancer: Client) -> None:
    """By RBAC; and by the fence only where a namespace is opted in."""
    gangs.client.post(groups(gangs), pod_group("own", minMember=1))
    status = {"status": {"phase": "Pending"}}
    rebalancer.patch(f"{groups(gangs)}/own/status", status)
    rebalancer.patch(f"{groups(gangs)}/own/status", {"spec": {"minMember": 9}, **status})
    assert gangs.client.get_json(f"{groups(gangs)}/own")["spec"]["minMember"] == 1
    with pytest.raises(Forbidden):
        rebalancer.patch(f"{groups(gangs)}/own", {"spec": {"minMember": 9}})
    with pytest.raises(Forbidden):
        rebalancer.delete(f"{groups(gangs)}/own")
    gangs.client.post(path_in("default"), pod_group("theirs", minMember=1))
    wait_for("the fence", lambda: is_fenced(rebalancer))


def is_fenced(rebalancer: Client) -> bool:
    try:
        rebalancer.patch(f"{path_in('default')}/theirs/status", {"status": {"phase": "Pending"}})
    except ApiError as error:
        return isinstance(error, Forbidden) and FENCE in error.message
    return False


def test_once_it_is_removed_the_label_alone_makes_a_gang_again(gangs: GangSetup) -> None:
    """While the rebalancer runs: it notices by itself."""
    remove_crd(gangs.client)
    create(gangs, "later", 4)
    wait_for("the gang to start", lambda: gangs.is_whole("later", 4))
