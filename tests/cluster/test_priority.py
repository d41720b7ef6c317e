"""Priority classes: injected where the configuration or an outage says so, and accepted by the API server each time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from demo.supervisor import running
from kube.client import Client, connect
from localcluster import LocalCluster, demo_profile
from placement import names
from placement.slots import Mix
from tests.cluster.lead import leading
from tests.cluster.world import World, is_exact, label, template, wait_for, workload

pytestmark = pytest.mark.cluster

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"
STATE = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/configmaps"
CONFIGURATION = """
priorityClasses:
  onDemand: team-on-demand
  spot: team-spot
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A cluster of its own, since it changes the configuration and the default priority of everything."""
    config = tmp_path_factory.mktemp("config") / "config.yaml"
    config.write_text(CONFIGURATION)
    with LocalCluster.start(demo_profile()) as cluster, running(cluster.kubeconfig, config=config, log_level="warning"):
        admin = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
        with leading(admin):
            yield admin
        admin.close()


@pytest.fixture
def world(client: Client, request: pytest.FixtureRequest) -> World:
    name = f"p{abs(hash(request.node.name)) % 100_000}"
    client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    label(client, name)
    return World(client, Path(), name)


@pytest.fixture
def classes(client: Client) -> Iterator[Client]:
    """The two configured classes: one ordinary, one that never preempts."""
    for name, value, policy in (("team-on-demand", 1000, "PreemptLowerPriority"), ("team-spot", 10, "Never")):
        client.post(CLASSES, priority_class(name, value, preemptionPolicy=policy))
    yield client
    for name in ("team-on-demand", "team-spot"):
        client.delete(f"{CLASSES}/{name}")


def priority_class(name: str, value: int, **fields: Any) -> dict[str, Any]:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": name},
        "value": value,
        **fields,
    }


def priorities(world: World) -> set[tuple[str, str, int, str]]:
    """What the pods ended up with: class of capacity, class of priority, its value and preemption policy."""
    return {
        (
            pod["metadata"]["labels"].get(names.CLASS, ""),
            pod["spec"].get("priorityClassName", ""),
            pod["spec"]["priority"],
            pod["spec"]["preemptionPolicy"],
        )
        for pod in world.pods("web")
    }


BY_ROLE = {
    ("on-demand", "team-on-demand", 1000, "PreemptLowerPriority"),
    ("spot", "team-spot", 10, "Never"),
}
PLAIN = {("on-demand", "", 0, "PreemptLowerPriority"), ("spot", "", 0, "PreemptLowerPriority")}


def place(world: World, **spec: Any) -> None:
    """Places ten pods; none is refused."""
    world.create(workload("Deployment", "web", 10, template=template("web", **spec)))
    assert is_exact(world.rest("web"), 7, 3)
    assert world.events("FailedCreate") == []


def replace_until(world: World, expected: set[tuple[str, str, int, str]]) -> None:
    """Rolls out until the pods are as expected: the webhook's cache is milliseconds behind the API server."""

    def as_expected() -> bool:
        world.roll_out("web")
        world.rest("web")
        return priorities(world) == expected

    wait_for(f"priorities {expected}", as_expected, 30)


def test_a_class_per_role_is_injected_and_accepted(world: World, classes: Client) -> None:
    """An ordinary class and one with `preemptionPolicy: Never`; both with the values that the API server computes."""
    place(world)
    replace_until(world, BY_ROLE)


def test_a_global_default_does_not_hide_that_the_user_chose_nothing(world: World, classes: Client) -> None:
    """The pod arrives with a class name that nobody wrote into its template: the role's class replaces it."""
    classes.post(CLASSES, priority_class("everyone", 5, globalDefault=True))
    try:
        place(world)
        replace_until(world, BY_ROLE)
    finally:
        classes.delete(f"{CLASSES}/everyone")


def test_a_class_that_does_not_exist_is_never_injected(world: World) -> None:
    """It would cost the pod its life; so its priority is left alone."""
    place(world)
    replace_until(world, PLAIN)


def test_a_users_own_class_wins(world: World, classes: Client) -> None:
    """What the template names is kept."""
    classes.post(CLASSES, priority_class("mine", 77))
    try:
        place(world, priorityClassName="mine")
        assert {(name, value) for _, name, value, _ in priorities(world)} == {("mine", 77)}
    finally:
        classes.delete(f"{CLASSES}/mine")


def test_a_stranger_of_priority_0_evicts_none_of_ours(world: World) -> None:
    """Our pods fill the spot nodes; somebody else's that wants to go there waits. One of a higher class would not."""
    ours = {"spotweave.dev/spot-ratio": "1", "spotweave.dev/min-on-demand": "0"}
    spot = world.client.get_json("/api/v1/nodes", {"labelSelector": f"{names.CAPACITY}=spot"})["items"]
    world.create(workload("Deployment", "web", len(spot), ours, template=template("web", containers=[large("5")])))
    assert is_exact(world.rest("web"), len(spot), 0)
    before = {pod["metadata"]["uid"] for pod in world.pods("web")}
    raw = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"{world.namespace}-strangers"}}
    world.client.post("/api/v1/namespaces", raw)
    strangers = World(world.client, Path(), f"{world.namespace}-strangers")
    wishes: dict[str, Any] = {"containers": [large("4")], "nodeSelector": {names.CAPACITY: "spot"}}
    strangers.create(workload("Deployment", "plain", 1, template=template("plain", **wishes)))
    wait_for("the stranger to be turned away", lambda: "No preemption victims found" in told(strangers, "plain"))
    assert {pod["metadata"]["uid"] for pod in world.pods("web")} == before
    world.client.post(CLASSES, priority_class("urgent", 1000))
    try:
        urgent = template("urgent", priorityClassName="urgent", **wishes)
        strangers.create(workload("Deployment", "urgent", 1, template=urgent))
        wait_for("one of ours to give way", lambda: {pod["metadata"]["uid"] for pod in world.pods("web")} != before)
    finally:
        world.client.delete(f"{CLASSES}/urgent")
        world.client.delete(f"/api/v1/namespaces/{strangers.namespace}")
        world.delete("Deployment", "web")


def large(cpu: str) -> dict[str, Any]:
    return {"name": "app", "image": "example/app:1.0", "resources": {"requests": {"cpu": cpu}}}


def told(world: World, app: str) -> str:
    """What the scheduler says about pods that it cannot place."""
    conditions = (each for pod in world.pods(app) for each in pod["status"].get("conditions", []))
    return " ".join(each.get("message", "") for each in conditions if each["type"] == "PodScheduled")


def test_while_spot_is_out_spot_pods_are_soft_and_the_surplus_gives_way(world: World) -> None:
    """Spot is noted out and its nodes are full: all ten run on on-demand, those above its budget as overflow."""
    state = {"version": 1, "outages": [{"class": "spot", "until": time.time() + 600}]}
    raw = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": names.STATE_MAP}}
    world.client.post(STATE, {**raw, "data": {"outages.json": json.dumps(state)}})
    spot = world.client.get_json("/api/v1/nodes", {"labelSelector": f"{names.CAPACITY}=spot"})["items"]
    cordon(world, spot, True)
    try:
        budget = {"selector": {"matchLabels": {"app": "web"}}, "minAvailable": 6}
        world.client.post(
            f"/apis/policy/v1/namespaces/{world.namespace}/poddisruptionbudgets",
            {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": budget},
        )
        world.create(workload("Deployment", "web", 10))
        wait_for("ten serving pods", lambda: world.status("web").actual == Mix(0, 10))
        status = world.status("web")
        assert status.soft == 7
        by_slot = {
            int(pod["metadata"]["annotations"][names.SLOT]): pod["spec"].get("priorityClassName", "")
            for pod in world.pods("web")
        }
        overflow = {slot for slot, name in by_slot.items() if name == names.OVERFLOW_PRIORITY}
        assert overflow == {7, 8, 9}  # of the soft slots 1 2 4 5 7 8 9, those at or above 6
        assert {pod["spec"]["priority"] for pod in world.pods("web")} == {0, -5}
    finally:
        cordon(world, spot, False)
        world.client.delete(f"{STATE}/{names.STATE_MAP}")


def cordon(world: World, nodes: list[dict[str, Any]], unschedulable: bool) -> None:
    for node in nodes:
        world.client.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": unschedulable}})
