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
from tests.builders.api import raw_namespace, raw_template, raw_workload
from tests.cluster.clustersetup import PLAIN, ClusterSetup, cluster_setup
from tests.cluster.namespaceuser import wait_for
from tests.cluster.podobserver import PodObserver, observing_pods
from tests.cluster.tenant import answer, empty, noted, on_spot, required, tenant
from tests.timing import timed, within

pytestmark = pytest.mark.cluster

HOSTS = 6
PROFILE = Profile(
    tuple(
        NodePool(f"{of}-{zone}", f"zone-{zone}", "m5.2xlarge", 1, "8", "32Gi", of)
        for of in ("on-demand", "spot")
        for zone in "abc"
    )
)
COOL_DOWN_SECONDS = 120.0  # who waits for that is slowed
CONFIGURATION = "moves: {minAge: 1s, coolDown: 2m, timeout: 10s, afterRollout: 0s}\n"
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
def shared_setup(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClusterSetup]:
    """Three on-demand and three spot nodes. A move is undone after ten seconds."""
    with cluster_setup(tmp_path_factory.mktemp("config"), 1, PROFILE, CONFIGURATION) as made:
        yield made


@pytest.fixture(scope="module")
def observer(shared_setup: ClusterSetup) -> Iterator[PodObserver]:
    with observing_pods(shared_setup.user.client) as made:
        yield made


@pytest.fixture
def tight(shared_setup: ClusterSetup) -> Iterator[ClusterSetup]:
    made = tenant(shared_setup, "tight")
    yield made
    empty(made.user)


@pytest.fixture
def flawed(shared_setup: ClusterSetup) -> Iterator[ClusterSetup]:
    made = tenant(shared_setup, "flawed")
    yield made
    empty(made.user)


# --- a pod that waits because of our own term ------------------------------------------------------------------------


def fill_spot(setup: ClusterSetup) -> None:
    """A workload that is not ours takes nearly all of every spot node."""
    strangers = replace(setup.user, namespace=PLAIN)
    spec = raw_template("large", containers=[container("7")], nodeSelector={names.CAPACITY: "spot"})
    strangers.create(raw_workload("Deployment", "large", HOSTS // 2, template=spec))
    wait_for("spot to be full", partial(setup.serves_in_full, "large", HOSTS // 2))


def of_two_cpus(app: str) -> dict[str, Any]:
    return {"template": raw_template(app, containers=[container("2")])}


def test_an_outage_names_its_evidence_covers_its_namespace_and_ends_with_it(
    setup: ClusterSetup, tight: ClusterSetup, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spot is full, on-demand is free: the pods fall back, and pods of the same shape elsewhere still require spot."""
    monkeypatch.setenv("COLUMNS", "250")
    fill_spot(setup)
    tight.create("big", 4, SOON | EVERY_SLOT_SPOT, spec=of_two_cpus("big"))
    wait_for("pods to wait for spot", lambda: required(tight.user, "big") == 4)
    wait_for("an outage to be noted", lambda: noted(setup)[1])
    (note,) = noted(setup)[1]
    assert (note["class"], note.get("namespace")) == ("spot", "tight")
    assert note["evidence"]["workload"] == "Deployment tight/big"
    assert note["evidence"]["pod"].startswith("tight/big-")
    assert isinstance(note["terms"], list)
    wait_for("an Event that names the pod", lambda: is_named(tight, note["evidence"]["pod"].partition("/")[2]))
    wait_for("all to serve", partial(setup.serves_in_full, "big", 4))
    shown = json.loads(answer(setup, capsys, "outage", "list", "-o", "json"))["outages"]
    (standing,) = [each for each in shown if each["evidence"]["workload"] == "Deployment tight/big"]
    assert standing["evidence"]["pod"] in answer(setup, capsys, "outage", "list")
    setup.create("twin", 4, EVERY_SLOT_SPOT, spec=of_two_cpus("twin"))
    wait_for("pods of the other namespace", lambda: on_spot(setup.user, "twin") == 4)
    assert required(setup.user, "twin") == 4
    assert [each["namespace"] for each in noted(setup)[1]] == ["tight"]
    setup.user.delete("Deployment", "twin")
    tight.user.delete("Deployment", "big")
    wait_for("the outage to end with its evidence", lambda: not noted(setup)[1])


def is_named(setup: ClusterSetup, pod: str) -> bool:
    query = {"fieldSelector": "involvedObject.kind=Deployment"}
    found = setup.user.client.get_json(f"/api/v1/namespaces/{setup.user.namespace}/events", query)["items"]
    return any(pod in each["message"] for each in found)


# --- moves that fail, and how long a change takes --------------------------------------------------------------------


@dataclass(frozen=True)
class RatioChange:
    """The ratio of `web` from 70 % to 30 % and back, 8 of 20 pods each time: how long, and how many moved at once."""

    seconds: float
    at_once: int

    def is_slowed(self, other: RatioChange) -> bool:
        """Fewer moves at once than in another change. How long both took is judged by `make soak`."""
        within("the ratio was changed", self.seconds, 2 * other.seconds + 10.0)
        return self.at_once < other.at_once


def change(setup: ClusterSetup, observer: PodObserver, name: str = "web") -> RatioChange:
    observer.forget()
    setup.history.forget()
    began = time.monotonic()
    for ratio, mix in (("30%", Mix(6, 14)), ("70%", Mix(14, 6))):
        setup.annotate(name, spot_ratio=ratio)
        assert setup.settles(name, patience=COOL_DOWN_SECONDS)[name].actual == mix
    assert setup.history.worst(name) == REPLICAS
    return RatioChange(time.monotonic() - began, observer.most_released(name))


@pytest.fixture(scope="module")
def alone(shared_setup: ClusterSetup, observer: PodObserver) -> RatioChange:
    """What it is while nothing else is wrong."""
    shared_setup.serves("web", REPLICAS)
    shared_setup.settles("web")
    found = change(shared_setup, observer)
    shared_setup.clear()
    return found


def is_repaired(setup: ClusterSetup, floor: int) -> None:
    """With a floor above the mix, pods move to on-demand until it holds."""
    setup.annotate("web", min_on_demand=str(floor))
    found = setup.settles("web", patience=COOL_DOWN_SECONDS)["web"]
    assert found.actual == Mix(found.workload.replicas - floor, floor)


def make_ready(setup: ClusterSetup, app: str) -> None:
    """As a kubelet would, for the pods that are there now and no others."""
    ready = [{"type": of, "status": "True"} for of in ("Ready", "ContainersReady")]
    for pod in setup.user.pods(app):
        path = f"{setup.user.pods_path}/{pod['metadata']['name']}/status"
        setup.cluster.api.patch(path, {"status": {"phase": "Running", "conditions": ready}})


def have_nodes(setup: ClusterSetup, apps: list[str], replicas: int) -> bool:
    pods = [pod for app in apps for pod in setup.user.pods(app)]
    return len(pods) == replicas * len(apps) and all(pod["spec"].get("nodeName") for pod in pods)


def undone(setup: ClusterSetup, apps: list[str]) -> int:
    """How many workloads have a move that was undone."""
    return sum(any(names.UNDONE in pod["metadata"]["annotations"] for pod in setup.user.pods(app)) for app in apps)


@timed
def test_moves_that_fail_in_one_namespace_slow_no_other(
    setup: ClusterSetup, flawed: ClusterSetup, alone: RatioChange, observer: PodObserver
) -> None:
    """Five workloads whose replacements never become ready: changes and below-floor repairs elsewhere go on as ever."""
    flaws = [f"flaw-{number}" for number in range(5)]
    for app in flaws:
        flawed.create(app, 2, EVERY_SLOT_SPOT, ready_after=3600)
    wait_for("pods to have a node", partial(have_nodes, flawed, flaws, 2))
    for app in flaws:
        make_ready(flawed, app)
    setup.serves("web", REPLICAS)
    setup.settles("web")
    flawed.settles(*flaws)
    for app in flaws:
        flawed.annotate(app, spot_ratio="50%")
    wait_for("a move of each to be undone", lambda: undone(flawed, flaws) == len(flaws))
    found = change(setup, observer)
    print(f"{found}; alone {alone}")
    assert not found.is_slowed(alone)
    is_repaired(setup, 8)
    assert setup.history.worst("web") == REPLICAS


# --- pods that nothing helps -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class HopelessWorkloads:
    """A namespace of workloads that no capacity could help: since when, and which version of outages was noted then."""

    setup: ClusterSetup
    since: float
    version: int
    uids: set[str]


@pytest.fixture(scope="module")
def broken(shared_setup: ClusterSetup, observer: PodObserver, alone: RatioChange) -> HopelessWorkloads:
    """It comes after what is measured alone, and stays. Tests that use it clear no outages."""
    client = shared_setup.user.client
    client.post("/api/v1/namespaces", raw_namespace("ports"))
    holders = replace(shared_setup.user, namespace="ports")
    holders.create(raw_workload("Deployment", "holder", HOSTS, template=raw_template("holder", **AT_PORT)))
    wait_for("the port to be taken everywhere", partial(shared_setup.serves_in_full, "holder", HOSTS))
    made = tenant(shared_setup, "broken")
    client.post("/api/v1/namespaces/broken/persistentvolumeclaims", UNBOUND)
    version, _ = noted(shared_setup)
    for name, (replicas, _, spec) in BROKEN.items():
        made.create(name, replicas, SOON, spec={"template": raw_template(name, **spec)})
    wait_for("them to wait", lambda: waiting(made) == STUCK)
    return HopelessWorkloads(made, time.monotonic(), version, uids_of(made))


def uids_of(setup: ClusterSetup) -> set[str]:
    return {uid for app in BROKEN for uid in setup.uids(app)}


def waiting(setup: ClusterSetup) -> dict[str, int]:
    """How many pods of each have no node."""
    return {app: sum(not pod["spec"].get("nodeName") for pod in setup.user.pods(app)) for app in BROKEN}


@timed
def test_pods_that_nothing_helps_slow_no_other(
    shared_setup: ClusterSetup, broken: HopelessWorkloads, alone: RatioChange, observer: PodObserver
) -> None:
    """A ratio change takes no longer than alone, new pods require spot, and a below-floor repair goes through."""
    shared_setup.serves("web", REPLICAS)
    try:
        shared_setup.settles("web")
        found = change(shared_setup, observer)
        print(f"{found}; alone {alone}")
        assert not found.is_slowed(alone)
        shared_setup.user.scale("web", REPLICAS + 4)
        assert shared_setup.settles("web")["web"].soft == 0
        assert required(shared_setup.user, "web") == on_spot(shared_setup.user, "web") == 16
        is_repaired(shared_setup, 10)
    finally:
        empty(shared_setup.user)


@timed
def test_pods_that_nothing_helps_slow_none_beside_them(
    broken: HopelessWorkloads, alone: RatioChange, observer: PodObserver
) -> None:
    """Nor in their own namespace."""
    broken.setup.serves("beside", REPLICAS)
    broken.setup.settles("beside")
    found = change(broken.setup, observer, "beside")
    print(f"{found}; alone {alone}")
    assert not found.is_slowed(alone)
    assert required(broken.setup.user, "beside") == on_spot(broken.setup.user, "beside") == 14


def test_pods_that_nothing_helps_are_no_evidence_and_are_left_alone(
    broken: HopelessWorkloads, shared_setup: ClusterSetup
) -> None:
    """Gated, with a typo, waiting for a volume or a device, for a taken port, apart: no outage, and no eviction.

    What fits nowhere used to count as evidence after five times its fallback time.
    """
    over = broken.since + 5 * FALLBACK_SECONDS + 5
    time.sleep(max(0.0, over - time.monotonic()))  # what it is about: nothing happens meanwhile
    version, standing = noted(shared_setup)
    assert standing == []
    assert version == broken.version
    assert waiting(broken.setup) == STUCK
    assert uids_of(broken.setup) == broken.uids, "none was evicted"
