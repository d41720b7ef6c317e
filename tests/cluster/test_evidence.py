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
from localcluster.profile import Pool
from placement import names
from placement.slots import Mix
from tests.cluster.scene import PLAIN, Scene, staged
from tests.cluster.tenant import answer, noted, on_spot, required, tenant
from tests.cluster.witness import Witness, witnessing
from tests.cluster.world import template, wait_for, workload

pytestmark = pytest.mark.cluster

HOSTS = 6
PROFILE = Profile(
    tuple(
        Pool(f"{of}-{zone}", f"zone-{zone}", "m5.2xlarge", 1, "8", "32Gi", of)
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


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Three on-demand and three spot nodes. A move is undone after ten seconds."""
    with staged(tmp_path_factory.mktemp("config"), 1, PROFILE, CONFIGURATION) as made:
        yield made


@pytest.fixture(scope="module")
def witness(stage: Scene) -> Iterator[Witness]:
    with witnessing(stage.world.client) as made:
        yield made


@pytest.fixture(scope="module")
def tight(stage: Scene) -> Scene:
    return tenant(stage, "tight")


@pytest.fixture(scope="module")
def flawed(stage: Scene) -> Scene:
    return tenant(stage, "flawed")


# --- a pod that waits because of our own term ------------------------------------------------------------------------


def fill_spot(scene: Scene) -> None:
    """Somebody who is none of ours takes nearly all of every spot node."""
    strangers = replace(scene.world, namespace=PLAIN)
    spec = template("large", containers=[container("7")], nodeSelector={names.CAPACITY: "spot"})
    strangers.create(workload("Deployment", "large", HOSTS // 2, template=spec))
    wait_for("spot to be full", partial(scene.serves_in_full, "large", HOSTS // 2))


def of_two_cpus(app: str) -> dict[str, Any]:
    return {"template": template(app, containers=[container("2")])}


def notes_of(scene: Scene, namespace: str) -> list[dict[str, Any]]:
    """What stands for one namespace alone."""
    return [each for each in noted(scene)[1] if each.get("namespace") == namespace]


def test_an_outage_names_its_evidence_covers_its_namespace_and_ends_with_it(
    scene: Scene, tight: Scene, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spot is full, on-demand is free: the pods fall back, and pods of the same shape elsewhere still require spot."""
    monkeypatch.setenv("COLUMNS", "250")
    fill_spot(scene)
    tight.create("big", 4, SOON | EVERY_SLOT_SPOT, spec=of_two_cpus("big"))
    wait_for("pods to wait for spot", lambda: required(tight.world, "big") == 4)
    wait_for("all to serve", partial(scene.serves_in_full, "big", 4))
    _, standing = noted(scene)
    (note,) = standing
    print(note)
    assert (note["class"], note.get("namespace")) == ("spot", "tight")
    assert note["evidence"]["workload"] == "Deployment tight/big"
    assert note["evidence"]["pod"].startswith("tight/big-")
    assert isinstance(note["terms"], list)
    assert note["evidence"]["pod"] in answer(scene, capsys, "outage", "list")
    shown = json.loads(answer(scene, capsys, "outage", "list", "-o", "json"))["outages"]
    assert [each["evidence"] for each in shown if each["until"] == note["until"]] == [note["evidence"]]
    wait_for("an Event that names the pod", lambda: is_named(tight, note["evidence"]["pod"].partition("/")[2]))
    scene.create("twin", 4, EVERY_SLOT_SPOT, spec=of_two_cpus("twin"))
    wait_for("pods of the other namespace", lambda: on_spot(scene.world, "twin") == 4)
    assert required(scene.world, "twin") == 4
    scene.world.delete("Deployment", "twin")
    tight.world.delete("Deployment", "big")
    wait_for("the outage to end with its evidence", lambda: not noted(scene)[1])


def is_named(scene: Scene, pod: str) -> bool:
    query = {"fieldSelector": "involvedObject.kind=Deployment"}
    found = scene.world.client.get_json(f"/api/v1/namespaces/{scene.world.namespace}/events", query)["items"]
    return any(pod in each["message"] for each in found)


# --- moves that fail, and how long a change takes --------------------------------------------------------------------


def seconds_to_change(scene: Scene, patience: float = 120.0) -> float:
    """Until the ratio of `web` has gone from 70 % to 30 % and back; each time 8 of its 20 pods move."""
    began = time.monotonic()
    for ratio, mix in (("30%", Mix(6, 14)), ("70%", Mix(14, 6))):
        scene.annotate("web", spot_ratio=ratio)
        assert scene.settles("web", patience=patience)["web"].actual == mix
    return time.monotonic() - began


@dataclass(frozen=True)
class Alone:
    """How long a change takes while nothing else is wrong."""

    seconds: float

    @property
    def allowed(self) -> float:
        """As fast, but for what a machine with other work does to it. One move after the other would take longer."""
        return 1.5 * self.seconds + 5.0


@pytest.fixture(scope="module")
def alone(stage: Scene) -> Alone:
    stage.serves("web", REPLICAS)
    stage.settles("web")
    found = Alone(seconds_to_change(stage))
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


def undone(scene: Scene, apps: list[str]) -> int:
    """How many workloads have a move that was undone."""
    return sum(any(names.UNDONE in pod["metadata"]["annotations"] for pod in scene.world.pods(app)) for app in apps)


def test_moves_that_fail_in_one_namespace_slow_no_other(scene: Scene, flawed: Scene, alone: Alone) -> None:
    """Five workloads whose replacements never become ready: changes and below-floor repairs elsewhere go on as ever."""
    flaws = [f"flaw-{number}" for number in range(5)]
    for app in flaws:
        flawed.create(app, 2, EVERY_SLOT_SPOT, ready_after=3600)
    for app in flaws:
        wait_for("pods to have a node", lambda: all_have_nodes(flawed, flaws))
        make_ready(flawed, app)
    scene.serves("web", REPLICAS)
    scene.settles("web")
    flawed.settles(*flaws)
    for app in flaws:
        flawed.annotate(app, spot_ratio="50%")
    wait_for("a move of each to be undone", lambda: undone(flawed, flaws) == len(flaws))
    scene.watcher.forget()
    seconds = seconds_to_change(scene)
    print(f"the change took {seconds:.1f} s, and {alone.seconds:.1f} s alone")
    assert seconds <= alone.allowed
    is_repaired(scene, 8)
    assert scene.watcher.worst("web") == REPLICAS
    flawed.clear()


def all_have_nodes(scene: Scene, apps: list[str]) -> bool:
    pods = [pod for app in apps for pod in scene.world.pods(app)]
    return len(pods) == 2 * len(apps) and all(pod["spec"].get("nodeName") for pod in pods)


# --- pods that nothing helps -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Broken:
    """A namespace of workloads that no capacity could help: since when, and which version of outages was noted then."""

    scene: Scene
    since: float
    version: int


@pytest.fixture(scope="module")
def broken(stage: Scene, witness: Witness, alone: Alone) -> Broken:
    """It comes after what is measured alone, and stays."""
    client = stage.world.client
    client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "ports"}})
    holders = replace(stage.world, namespace="ports")
    holders.create(workload("Deployment", "holder", HOSTS, template=template("holder", **AT_PORT)))
    wait_for("the port to be taken everywhere", partial(stage.serves_in_full, "holder", HOSTS))
    made = tenant(stage, "broken")
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "unbound"},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    client.post("/api/v1/namespaces/broken/persistentvolumeclaims", claim)
    version, _ = noted(stage)
    witness.forget()
    for name, (replicas, _, spec) in BROKEN.items():
        made.create(name, replicas, SOON, spec={"template": template(name, **spec)})
    wait_for("them to wait", lambda: waiting(made) == {name: stuck for name, (_, stuck, _) in BROKEN.items()})
    return Broken(made, time.monotonic(), version)


def waiting(scene: Scene) -> dict[str, int]:
    """How many pods of each have no node."""
    return {app: sum(not pod["spec"].get("nodeName") for pod in scene.world.pods(app)) for app in BROKEN}


def test_pods_that_nothing_helps_are_no_evidence_and_are_left_alone(broken: Broken, witness: Witness) -> None:
    """Gated, with a typo, waiting for a volume or a device, for a taken port, apart: no outage, and no eviction.

    A pod that fits nowhere was evicted after five times its fallback time.
    """
    over = broken.since + 5 * FALLBACK_SECONDS + 5
    time.sleep(max(0.0, over - time.monotonic()))  # what it is about: nothing happens meanwhile
    version, standing = noted(broken.scene)
    assert standing == []
    assert version == broken.version
    assert [str(pod.key) for pod in witness.ended if pod.namespace == "broken"] == []
    assert waiting(broken.scene) == {name: stuck for name, (_, stuck, _) in BROKEN.items()}


def test_pods_that_nothing_helps_slow_no_other(scene: Scene, broken: Broken, alone: Alone) -> None:
    """A ratio change takes no longer than alone, new pods require spot, and a below-floor repair goes through."""
    scene.serves("web", REPLICAS)
    scene.settles("web")
    scene.watcher.forget()
    seconds = seconds_to_change(scene, patience=45.0)
    print(f"the change took {seconds:.1f} s, and {alone.seconds:.1f} s alone")
    assert seconds <= alone.allowed
    assert scene.watcher.worst("web") == REPLICAS
    scene.world.scale("web", REPLICAS + 4)
    assert scene.settles("web")["web"].soft == 0
    assert required(scene.world, "web") == on_spot(scene.world, "web") == 16
    is_repaired(scene, 10)


def test_pods_that_nothing_helps_stop_no_move_beside_them(broken: Broken) -> None:
    """Nor in their own namespace."""
    scene = broken.scene
    scene.serves("beside", REPLICAS)
    scene.settles("beside")
    scene.annotate("beside", spot_ratio="30%")
    assert scene.settles("beside", patience=45.0)["beside"].actual == Mix(6, 14)
    assert required(scene.world, "beside") == on_spot(scene.world, "beside") == 6
