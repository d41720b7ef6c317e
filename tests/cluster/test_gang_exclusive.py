"""Gangs with nodes of their own on the unmodified scheduler: nobody else gets in, and no taint is left behind."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from demo.supervisor import access_for
from kube.client import JSON_PATCH, Client, connect
from kube.errors import Forbidden
from placement import names
from placement.gang.exclusive import taint_of
from placement.model import Key
from tests.cluster.gangsetup import GangSetup, gang_setup, pod_spec
from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster
NODES = "/api/v1/nodes"
TAINT = names.EXCLUSIVE_TAINT


@pytest.fixture(scope="module")
def shared_gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangSetup]:
    with gang_setup(tmp_path_factory.mktemp("config")) as made:
        yield made


@pytest.fixture
def gangs(shared_gangs: GangSetup) -> Iterator[GangSetup]:
    if not shared_gangs.setup.rebalancers:
        shared_gangs.setup.start()
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


def tainted(gangs: GangSetup) -> dict[str, str]:
    """The nodes with such a taint, and its value."""
    found = gangs.client.get_json(NODES)["items"]
    return {
        node["metadata"]["name"]: taint["value"]
        for node in found
        for taint in node["spec"].get("taints", [])
        if taint["key"] == TAINT
    }


def sharing(gangs: GangSetup, name: str) -> set[str]:
    """Pods beside members that have a node, as of one moment."""
    pods = gangs.client.get_json(gangs.setup.user.pods_path)["items"]
    where = {pod["metadata"]["name"]: (pod["metadata"]["labels"]["app"], pod["spec"].get("nodeName")) for pod in pods}
    nodes = {node for app, node in where.values() if app == name and node}
    return {pod for pod, (app, node) in where.items() if node in nodes and app != name}


@contextmanager
def flood(gangs: GangSetup, name: str) -> Iterator[list[int]]:
    """Small pods of equal priority, as fast as one client creates them. Gives how many there are."""
    stop, count = threading.Event(), [0]

    def pour() -> None:
        while not stop.is_set() and count[0] < 150:
            meta = {"name": f"{name}-{count[0]}", "labels": {"app": name}}
            gangs.client.post(gangs.setup.user.pods_path, {"metadata": meta, "spec": pod_spec("10m")})
            count[0] += 1

    thread = threading.Thread(target=pour, daemon=True)
    thread.start()
    try:
        yield count
    finally:
        stop.set()
        thread.join()


def exclusive(gangs: GangSetup, name: str, members: int, kind: str, cpu: str = "1") -> None:
    gangs.create(name, members, cpu, {names.EXCLUSIVE_NODE: kind})


def delete_all(gangs: GangSetup, name: str) -> None:
    gangs.client.delete(gangs.setup.user.pods_path, query={"labelSelector": f"app={name}", "gracePeriodSeconds": 0})
    wait_for("they are gone", lambda: not gangs.all_of(name))


def test_a_flood_of_small_pods_gets_no_place_beside_members(gangs: GangSetup) -> None:
    """While it is reserved, while it starts, and while it runs. When the gang ends, its nodes are free for all."""
    seen: set[str] = set()

    def is_seen() -> bool:
        seen.update(sharing(gangs, "train"))
        return True

    with flood(gangs, "early") as poured:
        exclusive(gangs, "train", 2, "pod")
        wait_for("the flood", lambda: is_seen() and poured[0] > 20)
    is_first = gangs.bound("train") == 2
    print(f"the gang was {'before' if is_first else 'behind'} {poured[0]} small pods")
    if not is_first:
        delete_all(gangs, "early")
    wait_for("the gang to start", lambda: is_seen() and gangs.bound("train") == 2)
    nodes = {pod["spec"]["nodeName"] for pod in gangs.all_of("train")}
    assert tainted(gangs) == dict.fromkeys(nodes, taint_of(Key(gangs.setup.user.namespace, "train")).value)
    assert len(nodes) == 2
    with flood(gangs, "late") as poured:
        wait_for("the flood", lambda: is_seen() and poured[0] > 50)
    wait_for("the flood to be placed", lambda: gangs.bound("late") == poured[0])
    assert seen | sharing(gangs, "train") == set()
    gangs.delete("train")
    wait_for("the taints to go", lambda: not tainted(gangs))


def test_members_of_one_gang_share_their_nodes(gangs: GangSetup) -> None:
    """Three members, of which a node holds two: two nodes. Another gang that would fit beside them waits."""
    exclusive(gangs, "train", 3, "gang", "3")
    wait_for("the gang to start", lambda: gangs.bound("train") == 3)
    assert len({pod["spec"]["nodeName"] for pod in gangs.all_of("train")}) == len(tainted(gangs)) == 2
    gangs.create("other", 5, "3")
    wait_for("its members", lambda: gangs.gated("other") == 5)
    reported = gangs.setup.user.events
    wait_for("the reason", lambda: any("other" in each["message"] for each in reported(names.EVENT_GANG_WAITING)))
    assert (gangs.bound("other"), gangs.reserved("other")) == (0, 0)
    gangs.delete("train")
    wait_for("the other to start", lambda: gangs.bound("other") == 5)


@pytest.mark.parametrize("fault", ["after:reserve:2", "before:start:1", "after:start:1"])
def test_the_rebalancer_dies_in_the_middle(gangs: GangSetup, fault: str) -> None:
    """The next leader goes on from the pods and the taints; at the end none is left."""
    gangs.setup.stop_all()
    exclusive(gangs, "train", 2, "pod")
    wait_for("all members to exist", lambda: gangs.gated("train") == 2)
    dying = gangs.setup.start(fault)
    wait_for("the rebalancer to die", lambda: dying.process.poll() is not None)
    gangs.setup.start()
    wait_for("the gang to start", lambda: gangs.bound("train") == 2)
    assert len(tainted(gangs)) == 2
    gangs.delete("train")
    wait_for("the taints to go", lambda: not tainted(gangs))


# --- what the rebalancer may do to nodes -----------------------------------------------------------------------------

OURS = {"key": TAINT, "value": "a", "effect": "NoSchedule"}
REFUSED: dict[str, list[dict[str, Any]]] = {
    "another taint": [{"op": "add", "path": "/spec/taints", "value": [{"key": "x", "effect": "NoSchedule"}]}],
    "ours, and another": [{"op": "add", "path": "/spec/taints", "value": [OURS, {"key": "x", "effect": "NoSchedule"}]}],
    "one that evicts": [{"op": "add", "path": "/spec/taints", "value": [{**OURS, "effect": "NoExecute"}]}],
    "a cordon": [{"op": "add", "path": "/spec/unschedulable", "value": True}],
    "a label": [{"op": "add", "path": "/metadata/labels/x", "value": "y"}],
    "an annotation": [{"op": "add", "path": "/metadata/annotations/x", "value": "y"}],
    "a finalizer": [{"op": "add", "path": "/metadata/finalizers", "value": ["example.com/x"]}],
}  # fmt: skip


@pytest.mark.parametrize("patch", REFUSED.values(), ids=REFUSED.keys())
def test_it_writes_nothing_of_nodes_but_its_taint(
    gangs: GangSetup, rebalancer: Client, patch: list[dict[str, Any]]
) -> None:
    """By the fence; RBAC cannot say so."""
    wait_for("the fence", lambda: is_fenced(rebalancer))
    gangs.client.patch(f"{NODES}/od-3", {"metadata": {"annotations": {"seen": "yes"}}})
    with pytest.raises(Forbidden, match=names.NODE_FENCE_POLICY):
        rebalancer.patch(f"{NODES}/od-3", patch, content_type=JSON_PATCH)


def is_fenced(client: Client) -> bool:
    try:
        client.patch(f"{NODES}/od-3", {"spec": {"unschedulable": True}}, {"dryRun": "All"})
    except Forbidden as error:
        return names.NODE_FENCE_POLICY in error.message
    return False


def test_it_neither_removes_others_taints_nor_deletes_nodes(gangs: GangSetup, rebalancer: Client) -> None:
    """Its own it writes and removes. RBAC refuses the rest, the status among it."""
    gangs.setup.stop_all()  # it would remove a taint of no gang
    theirs = {"key": "team", "value": "a", "effect": "NoSchedule"}
    path = f"{NODES}/od-3"
    gangs.client.patch(path, {"spec": {"taints": [theirs]}})
    try:
        rebalancer.patch(path, {"spec": {"taints": [theirs, OURS]}})
        with pytest.raises(Forbidden, match=names.NODE_FENCE_POLICY):
            rebalancer.patch(path, {"spec": {"taints": [OURS]}})
        rebalancer.patch(path, {"spec": {"taints": [theirs]}})
    finally:
        gangs.client.patch(path, {"spec": {"taints": None}})
    with pytest.raises(Forbidden):
        rebalancer.delete(path)
    with pytest.raises(Forbidden):
        rebalancer.patch(f"{path}/status", {"status": {"phase": "x"}})
    with pytest.raises(Forbidden):
        rebalancer.post(NODES, {"metadata": {"name": "new"}})


def test_uninstalling_removes_the_taints(gangs: GangSetup, capsys: pytest.CaptureFixture[str]) -> None:
    """Members run on. It comes last."""
    exclusive(gangs, "train", 2, "pod")
    wait_for("the gang to start", lambda: gangs.bound("train") == 2)
    gangs.setup.stop_all()
    assert len(tainted(gangs)) == 2
    assert gangs.setup.spotweave("uninstall") == 0
    assert "Removed the taint of exclusive gangs from 2 nodes." in capsys.readouterr().out
    assert (tainted(gangs), gangs.bound("train")) == ({}, 2)
