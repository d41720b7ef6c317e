"""Priority classes: injected where the configuration or an outage says so, and accepted by the API server each time."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kube.client import Client, connect
from localcluster import LocalCluster, demo_profile
from placement import names
from placement.slots import Mix
from tests.builders.api import raw_budget, raw_namespace, raw_template, raw_workload
from tests.cluster.idleleader import holding_lease
from tests.cluster.killing import running
from tests.cluster.namespaceuser import NamespaceUser, is_exact, label, wait_for

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
        with holding_lease(admin):
            yield admin
        admin.close()


@pytest.fixture
def user(client: Client, request: pytest.FixtureRequest) -> NamespaceUser:
    name = f"p{abs(hash(request.node.name)) % 100_000}"
    client.post("/api/v1/namespaces", raw_namespace(name))
    label(client, name)
    return NamespaceUser(client, Path(), name)


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


def priorities(user: NamespaceUser) -> set[tuple[str, str, int, str]]:
    """What the pods ended up with: class of capacity, class of priority, its value and preemption policy."""
    return {
        (
            pod["metadata"]["labels"].get(names.CLASS, ""),
            pod["spec"].get("priorityClassName", ""),
            pod["spec"]["priority"],
            pod["spec"]["preemptionPolicy"],
        )
        for pod in user.pods("web")
    }


BY_ROLE = {
    ("on-demand", "team-on-demand", 1000, "PreemptLowerPriority"),
    ("spot", "team-spot", 10, "Never"),
}
PLAIN = {("on-demand", "", 0, "PreemptLowerPriority"), ("spot", "", 0, "PreemptLowerPriority")}


def place(user: NamespaceUser, **spec: Any) -> None:
    """Places ten pods; none is refused."""
    user.create(raw_workload("Deployment", "web", 10, template=raw_template("web", **spec)))
    assert is_exact(user.rest("web"), 7, 3)
    assert user.events("FailedCreate") == []


def replace_until(user: NamespaceUser, expected: set[tuple[str, str, int, str]]) -> None:
    """Rolls out until the pods are as expected: the webhook's cache is milliseconds behind the API server."""

    def as_expected() -> bool:
        user.roll_out("web")
        user.rest("web")
        return priorities(user) == expected

    wait_for(f"priorities {expected}", as_expected)


def test_a_class_per_role_is_injected_and_accepted(user: NamespaceUser, classes: Client) -> None:
    """An ordinary class and one with `preemptionPolicy: Never`; both with the values that the API server computes."""
    place(user)
    replace_until(user, BY_ROLE)


def test_a_global_default_does_not_hide_that_the_user_chose_nothing(user: NamespaceUser, classes: Client) -> None:
    """The pod arrives with a class name that nobody wrote into its template: the role's class replaces it."""
    classes.post(CLASSES, priority_class("everyone", 5, globalDefault=True))
    try:
        place(user)
        replace_until(user, BY_ROLE)
    finally:
        classes.delete(f"{CLASSES}/everyone")


def test_a_class_that_does_not_exist_is_never_injected(user: NamespaceUser) -> None:
    """It would cost the pod its life; so its priority is left alone."""
    place(user)
    replace_until(user, PLAIN)


def test_a_users_own_class_wins(user: NamespaceUser, classes: Client) -> None:
    """What the template names is kept."""
    classes.post(CLASSES, priority_class("mine", 77))
    try:
        place(user, priorityClassName="mine")
        assert {(name, value) for _, name, value, _ in priorities(user)} == {("mine", 77)}
    finally:
        classes.delete(f"{CLASSES}/mine")


def test_a_stranger_of_priority_0_evicts_none_of_ours(user: NamespaceUser) -> None:
    """Our pods fill the spot nodes; somebody else's that wants to go there waits. One of a higher class would not."""
    ours = {"spotweave.dev/spot-ratio": "1", "spotweave.dev/min-on-demand": "0"}
    spot = user.client.get_json("/api/v1/nodes", {"labelSelector": f"{names.CAPACITY}=spot"})["items"]
    user.create(
        raw_workload("Deployment", "web", len(spot), ours, template=raw_template("web", containers=[large("5")]))
    )
    assert is_exact(user.rest("web"), len(spot), 0)
    before = {pod["metadata"]["uid"] for pod in user.pods("web")}
    raw = raw_namespace(f"{user.namespace}-strangers")
    user.client.post("/api/v1/namespaces", raw)
    strangers = NamespaceUser(user.client, Path(), f"{user.namespace}-strangers")
    wishes: dict[str, Any] = {"containers": [large("4")], "nodeSelector": {names.CAPACITY: "spot"}}
    strangers.create(raw_workload("Deployment", "plain", 1, template=raw_template("plain", **wishes)))
    wait_for("the stranger to be turned away", lambda: "No preemption victims found" in told(strangers, "plain"))
    assert {pod["metadata"]["uid"] for pod in user.pods("web")} == before
    user.client.post(CLASSES, priority_class("urgent", 1000))
    try:
        urgent = raw_template("urgent", priorityClassName="urgent", **wishes)
        strangers.create(raw_workload("Deployment", "urgent", 1, template=urgent))
        wait_for("one of ours to give way", lambda: {pod["metadata"]["uid"] for pod in user.pods("web")} != before)
    finally:
        user.client.delete(f"{CLASSES}/urgent")
        user.client.delete(f"/api/v1/namespaces/{strangers.namespace}")
        user.delete("Deployment", "web")


def large(cpu: str) -> dict[str, Any]:
    return {"name": "app", "image": "example/app:1.0", "resources": {"requests": {"cpu": cpu}}}


def told(user: NamespaceUser, app: str) -> str:
    """What the scheduler says about pods that it cannot place."""
    conditions = (each for pod in user.pods(app) for each in pod["status"].get("conditions", []))
    return " ".join(each.get("message", "") for each in conditions if each["type"] == "PodScheduled")


def test_while_spot_is_out_spot_pods_are_soft_and_the_surplus_gives_way(user: NamespaceUser) -> None:
    """Spot is noted out and its nodes are full: all ten run on on-demand, those above its budget as overflow."""
    state = {"version": 1, "outages": [{"class": "spot", "until": time.time() + 600}]}
    raw = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": names.STATE_MAP}}
    user.client.post(STATE, {**raw, "data": {"outages.json": json.dumps(state)}})
    spot = user.client.get_json("/api/v1/nodes", {"labelSelector": f"{names.CAPACITY}=spot"})["items"]
    cordon(user, spot, True)
    try:
        budgets = f"/apis/policy/v1/namespaces/{user.namespace}/poddisruptionbudgets"
        user.client.post(budgets, raw_budget("web", minAvailable=6))
        user.create(raw_workload("Deployment", "web", 10))
        wait_for("ten serving pods", lambda: user.status("web").actual == Mix(0, 10))
        status = user.status("web")
        assert status.soft == 7
        by_slot = {
            int(pod["metadata"]["annotations"][names.SLOT]): pod["spec"].get("priorityClassName", "")
            for pod in user.pods("web")
        }
        overflow = {slot for slot, name in by_slot.items() if name == names.OVERFLOW_PRIORITY}
        assert overflow == {7, 8, 9}  # of the soft slots 1 2 4 5 7 8 9, those at or above 6
        assert {pod["spec"]["priority"] for pod in user.pods("web")} == {0, -5}
    finally:
        cordon(user, spot, False)
        user.client.delete(f"{STATE}/{names.STATE_MAP}")


def cordon(user: NamespaceUser, nodes: list[dict[str, Any]], unschedulable: bool) -> None:
    for node in nodes:
        user.client.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": unschedulable}})
