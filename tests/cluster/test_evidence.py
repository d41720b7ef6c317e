"""Outages have evidence, scope and a name; what one namespace's pods wait for neither softens nor slows another's."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pytest

from localcluster import Profile
from localcluster.profile import NodePool
from placement import names
from placement.slots import Mix
from tests.cluster.scene import PLAIN, Scene, staged
from tests.cluster.tenant import answer, empty, noted, on_spot, required, tenant
from tests.cluster.witness import Witness, witnessing
from tests.cluster.world import template, wait_for, workload

pytestmark = pytest.mark.cluster

HOSTS = 6
PROFILE = Profile(
    tuple(
        NodePool(f"{of}-{zone}", f"zone-{zone}", "m5.2xlarge", 1, "8", "32Gi", of)
        for of in ("on-demand", "spot")
        for zone in "abc"
    )
)
CONFIGURATION = "moves: {minAge: 1s, coolDown: 2m, timeout: 10s}\n"
REPLICAS = 20
FALLBACK_SECONDS = 5
SOON = {names.SPOT_FALLBACK_AFTER: f"{FALLBACK_SECONDS}s"}
EVERY_SLOT_SPOT = {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}
PORT = 8080


def container(cpu: str = "10m", **more: Any) -> dict[str, Any]:
    return {"name": "app", "image": "example/app:1.0", "resources": {"requests": {"cpu": cpu}}, **more}


def volume(claim: str) -> dict[str, Any]:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": claim}}]}


AT_PORT = {"containers": [container(ports=[{"containerPort": PORT, "hostPort": PORT}])]}
OF_DEVICE = {
    "containers": [container(resources={"requests": {"cpu": "10m"}, "claims": [{"name": "gpu"}]})],
    "resourceClaims": [{"name": "gpu", "resourceClaimName": "absent"}],
}


def apart(app: str) -> dict[str, Any]:
    """No two on one host."""
    term = {"topologyKey": names.HOSTNAME, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


# What no capacity of any class could help: replicas, how many of them must stay without a node, and their spec.
BROKEN: dict[str, tuple[int, int, dict[str, Any]]] = {
    "gated": (4, 4, {"schedulingGates": [{"name": "example.com/hold"}]}),
    "typo": (4, 4, {"nodeSelector": {"disktype": "sdd"}}),
    "unbound": (4, 4, volume("unbound")),
    "volumeless": (4, 4, volume("absent")),
    "deviceless": (4, 4, OF_DEVICE),
    "port": (4, 4, AT_PORT),
    "apart": (HOSTS + 2, 2, apart("apart")),
}
STUCK = {name: stuck for name, (_, stuck, _) in BROKEN.items()}
UNBOUND = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "unbound"},
    "spec": {
        "accessModes": ["ReadWriteMany"],
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
    },
}


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Three on-demand and three spot nodes. A move is undone after ten seconds."""
    with staged(tmp_path_factory.mktemp("config"), 1, PROFILE, CONFIGURATION) as made:
        yield made


@pytest.fixture(scope="module")
def witness(stage: Scene) -> Iterator[Witness]:
    with witnessing(stage.world.client) as made:
        yield made


@pytest.fixture
def tight(stage: Scene) -> Iterator[Scene]:
    made = tenant(stage, "tight")
    yield made
    empty(made.world)


@pytest.fixture
def flawed(stage: Scene) -> Iterator[Scene]:
    made = tenant(stage, "flawed")
    yield made
    empty(made.world)


# --- a pod that waits because of our own term ------------------------------------------------------------------------


def fill_spot(scene: Scene) -> None:
    """A workload that is not ours takes nearly all of every spot node."""
    strangers = replace(scene.world, namespace=PLAIN)
    spec = template("large", containers=[container("7")], nodeSelector={names.CAPACITY: "spot"})
    strangers.create(workload("Deployment", "large", HOSTS // 2, template=spec))
    wait_for("spot to be full", partial(scene.serves_in_full, "large", HOSTS // 2))


def of_two_cpus(app: str) -> dict[str, Any]:
    return {"template": template(app, containers=[container("2")])}


def test_an_outage_names_its_evidence_covers_its_namespace_and_ends_with_it(
    scene: Scene, tight: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spot is full, on-demand is free: the pods fall back, and pods of the same shape elsewhere still require spot."""
    monkeypatch.setenv("COLUMNS", "250")
    fill_spot(scene)
    tight.create("big", 4, SOON | EVERY_SLOT_SPOT, spec=of_two_cpus("big"))
    wait_for("pods to wait for spot", lambda: required(tight.world, "big") == 4)
    wait_for("an outage to be noted", lambda: noted(scene)[1])
    (note,) = noted(scene)[1]
    assert (note["class"], note.get("namespace")) == ("spot", "tight")
    assert note["evidence"]["workload"] == "Deployment tight/big"
    assert note["evidence"]["pod"].startswith("tight/big-")
    assert isinstance(note["terms"], list)
    wait_for("an Event that names the pod", lambda: is_named(tight, note["evidence"]["pod"].partition("/")[2]))
    wait_for("all to serve", partial(scene.serves_in_full, "big", 4))
    shown = json.loads(answer(scene, capsys, "outage", "list", "-o", "json"))["outages"]
    (standing,) = [each for each in shown if each["evidence"]["workload"] == "Deployment tight/big"]
    assert standing["evidence"]["pod"] in answer(scene, capsys, "outage", "list")
    scene.create("twin", 4, EVERY_SLOT_SPOT, spec=of_two_cpus("twin"))
    wait_for("pods of the other namespace", lambda: on_spot(scene.world, "twin") == 4)
    assert required(scene.world, "twin") == 4
    assert [each["namespace"] for each in noted(scene)[1]] == ["tight"]
    scene.world.delete("Deployment", "twin")
    tight.world.delete("Deployment", "big")
    wait_for("the outage to end with its evidence", lambda: not noted(scene)[1])


def is_named(scene: Scene, pod: str) -> bool:
    query = {"fieldSelector": "involvedObject.kind=Deployment"}
    found = scene.world.client.get_json(f"/api/v1/namespaces/{scene.world.namespace}/events", query)["items"]
    return any(pod in each["message"] for each in found)


# --- moves that fail, and how long a change takes --------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """The ratio of `web` from 70 % to 30 % and back, 8 of 20 pods each time: how long, and how many moved at once."""

    seconds: float
    at_once: int

    def is_as_fast_as(self, other: Change) -> bool:
        """As many moves at once, and as long but for what a machine with other work does to it."""
        return self.at_once >= other.at_once and self.seconds <= 2 * other.seconds + 10.0


def change(scene: Scene, witness: Witness, name: str = "web") -> Change:
    witness.forget()
    scene.watcher.forget()
    began = time.monotonic()
    for ratio, mix in (("30%", Mix(6, 14)), ("70%", Mix(14, 6))):
        scene.annotate(name, spot_ratio=ratio)
        assert scene.settles(name, patience=60.0)[name].actual == mix
    assert scene.watcher.worst(name) == REPLICAS
    return Change(time.monotonic() - began, witness.most_released(name))


@pytest.fixture(scope="module")
def alone(stage: Scene, witness: Witness) -> Change:
    """What it is while nothing else is wrong."""
    stage.serves("web", REPLICAS)
    stage.settles("web")
    found = change(stage, witness)
    stage.clear()
    return found


def is_repaired(scene: Scene, floor: int) -> None:
    """With a floor above the mix, pods move to on-demand until it holds."""
    scene.annotate("web", min_on_demand=str(floor))
    found = scene.settles("web", patience=30.0)["web"]
    assert found.actual == Mix(found.workload.replicas - floor, floor)


def make_ready(scene: Scene, app: str) -> None:
    """As a kubelet would, for the pods that are there now and no others."""
    ready = [{"type": of, "status": "True"} for of in ("Ready", "ContainersReady")]
    for pod in scene.world.pods(app):
        path = f"{scene.world.pods_path}/{pod['metadata']['name']}/status"
        scene.cluster.api.patch(path, {"status": {"phase": "Running", "conditions": ready}})


def have_nodes(scene: Scene, apps: list[str], replicas: int) -> bool:
    pods = [pod for app in apps for pod in scene.world.pods(app)]
    return len(pods) == replicas * len(apps) and all(pod["spec"].get("nodeName") for pod in pods)


def undone(scene: Scene, apps: list[str]) -> int:
    """How many workloads have a move that was undone."""
    return sum(any(names.UNDONE in pod["metadata"]["annotations"] for pod in scene.world.pods(app)) for app in apps)


def test_moves_that_fail_in_one_namespace_slow_no_other(
    scene: Scene, flawed: Scene, alone: Change, witness: Witness
) -> None:
    """Five workloads whose replacements never become ready: changes and below-floor repairs elsewhere go on as ever."""
    flaws = [f"flaw-{number}" for number in range(5)]
    for app in flaws:
        flawed.create(app, 2, EVERY_SLOT_SPOT, ready_after=3600)
    wait_for("pods to have a node", partial(have_nodes, flawed, flaws, 2))
    for app in flaws:
        make_ready(flawed, app)
    scene.serves("web", REPLICAS)
    scene.settles("web")
    flawed.settles(*flaws)
    for app in flaws:
        flawed.annotate(app, spot_ratio="50%")
    wait_for("a move of each to be undone", lambda: undone(flawed, flaws) == len(flaws))
    found = change(scene, witness)
    print(f"{found}; alone {alone}")
    assert found.is_as_fast_as(alone)
    is_repaired(scene, 8)
    assert scene.watcher.worst("web") == REPLICAS


# --- pods that nothing helps -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broken:
    """A namespace of workloads that no capacity could help: since when, and which version of outages was noted then."""

    scene: Scene
    since: float
    version: int
    uids: set[str]


@pytest.fixture(scope="module")
def broken(stage: Scene, witness: Witness, alone: Change) -> Broken:
    """It comes after what is measured alone, and stays. Tests that use it clear no outages."""
    client = stage.world.client
    client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ports"}})
    holders = replace(stage.world, namespace="ports")
    holders.create(workload("Deployment", "holder", HOSTS, template=template("holder", **AT_PORT)))
    wait_for("the port to be taken everywhere", partial(stage.serves_in_full, "holder", HOSTS))
    made = tenant(stage, "broken")
    client.post("/api/v1/namespaces/broken/persistentvolumeclaims", UNBOUND)
    version, _ = noted(stage)
    for name, (replicas, _, spec) in BROKEN.items():
        made.create(name, replicas, SOON, spec={"template": template(name, **spec)})
    wait_for("them to wait", lambda: waiting(made) == STUCK)
    return Broken(made, time.monotonic(), version, uids_of(made))


def uids_of(scene: Scene) -> set[str]:
    return {uid for app in BROKEN for uid in scene.uids(app)}


def waiting(scene: Scene) -> dict[str, int]:
    """How many pods of each have no node."""
    return {app: sum(not pod["spec"].get("nodeName") for pod in scene.world.pods(app)) for app in BROKEN}


def test_pods_that_nothing_helps_slow_no_other(stage: Scene, broken: Broken, alone: Change, witness: Witness) -> None:
    """A ratio change takes no longer than alone, new pods require spot, and a below-floor repair goes through."""
    stage.serves("web", REPLICAS)
    try:
        stage.settles("web")
        found = change(stage, witness)
        print(f"{found}; alone {alone}")
        assert found.is_as_fast_as(alone)
        stage.world.scale("web", REPLICAS + 4)
        assert stage.settles("web")["web"].soft == 0
        assert required(stage.world, "web") == on_spot(stage.world, "web") == 16
        is_repaired(stage, 10)
    finally:
        empty(stage.world)


def test_pods_that_nothing_helps_slow_none_beside_them(broken: Broken, alone: Change, witness: Witness) -> None:
    """Nor in their own namespace."""
    broken.scene.serves("beside", REPLICAS)
    broken.scene.settles("beside")
    found = change(broken.scene, witness, "beside")
    print(f"{found}; alone {alone}")
    assert found.is_as_fast_as(alone)
    assert required(broken.scene.world, "beside") == on_spot(broken.scene.world, "beside") == 14


def test_pods_that_nothing_helps_are_no_evidence_and_are_left_alone(broken: Broken, stage: Scene) -> None:
    """Gated, with a typo, waiting for a volume or a device, for a taken port, apart: no outage, and no eviction.

    What fits nowhere used to count as evidence after five times its fallback time.
    """
    over = broken.since + 5 * FALLBACK_SECONDS + 5
    time.sleep(max(0.0, over - time.monotonic()))  # what it is about: nothing happens meanwhile
    version, standing = noted(stage)
    assert standing == []
    assert version == broken.version
    assert waiting(broken.scene) == STUCK
    assert uids_of(broken.scene) == broken.uids, "none was evicted"
