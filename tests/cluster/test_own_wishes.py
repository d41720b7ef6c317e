"""What users write into their templates is kept; what contradicts the class is left alone, and told."""

from __future__ import annotations

from typing import Any

import pytest

from placement import names
from tests.builders.api import raw_template, raw_workload
from tests.cluster.namespaceuser import NamespaceUser, is_exact, wait_for

pytestmark = pytest.mark.cluster

ZONE = "topology.kubernetes.io/zone"
CAPACITY = "node.kubernetes.io/capacity"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def in_zones(*zones: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]} for zone in zones]}


def node_affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": list(terms)}}}


def test_ored_node_terms_survive_and_each_gets_the_class(user: NamespaceUser) -> None:
    """Zone a or zone b: every pod is in one of them, on its slot's class, and both terms are still there."""
    spec = raw_template("web", affinity=node_affinity(in_zones("zone-a"), in_zones("zone-b")))
    user.create(raw_workload("Deployment", "web", 10, template=spec))
    assert is_exact(user.rest("web"), 7, 3)
    for pod in user.pods("web"):
        assert pod["metadata"]["labels"][ZONE] in ("zone-a", "zone-b")
        terms = pod["spec"]["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
        assert [term["matchExpressions"][0]["values"] for term in terms] == [["zone-a"], ["zone-b"]]
        assert all(term["matchExpressions"][1]["key"] == CAPACITY for term in terms)


def test_tolerations_spread_and_pod_affinity_are_kept(user: NamespaceUser) -> None:
    """Users' own come first and unchanged; a topology that they spread over is theirs alone."""
    toleration = {"key": "team", "operator": "Equal", "value": "shop", "effect": "NoSchedule"}
    constraint = {
        "maxSkew": 3,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    term = {"weight": 1, "podAffinityTerm": {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "db"}}}}
    affinity = {"podAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
    spec = raw_template("web", tolerations=[toleration], topologySpreadConstraints=[constraint], affinity=affinity)
    user.create(raw_workload("Deployment", "web", 4, template=spec))
    assert is_exact(user.rest("web"), 2, 2)
    for pod in user.pods("web"):
        assert pod["spec"]["tolerations"][0] == toleration
        assert pod["spec"]["topologySpreadConstraints"][0] == constraint
        keys = [each["topologyKey"] for each in pod["spec"]["topologySpreadConstraints"]]
        assert sorted(keys) == ["kubernetes.io/hostname", ZONE]
        assert pod["spec"]["affinity"]["podAffinity"] == affinity["podAffinity"]


def test_a_users_own_priority_class_and_deletion_cost_are_kept(user: NamespaceUser) -> None:
    """We never take what somebody chose."""
    spec = raw_template("web", priorityClassName="system-node-critical")
    spec["metadata"]["annotations"] = {"controller.kubernetes.io/pod-deletion-cost": "42"}
    user.create(raw_workload("Deployment", "web", 3, template=spec))
    user.rest("web")
    for pod in user.pods("web"):
        assert pod["spec"]["priorityClassName"] == "system-node-critical"
        assert pod["metadata"]["annotations"]["controller.kubernetes.io/pod-deletion-cost"] == "42"


def test_a_pod_whose_own_selector_excludes_its_class_is_left_alone_and_told(user: NamespaceUser) -> None:
    """All pods want spot nodes; those of on-demand slots are left alone, run on spot, and status says why."""
    spec = raw_template("web", nodeSelector={CAPACITY: "spot"})
    user.create(raw_workload("Deployment", "web", 3, template=spec))
    wait_for("all to serve", lambda: user.status("web").actual.spot == 3)
    status = user.status("web")
    assert "left alone" in status.reason
    alone = [each for each in status.pods if names.LEFT_ALONE in each.pod.annotations]
    assert len(alone) == 1
    assert "excludes on-demand nodes" in alone[0].reason
    assert status.missed == ()


def test_spot_taints_are_tolerated_by_spot_pods_only(user: NamespaceUser) -> None:
    """With every spot node tainted, spot pods still get there; on-demand pods tolerate nothing of it."""
    nodes = user.client.get_json("/api/v1/nodes", {"labelSelector": f"{CAPACITY}=spot"})["items"]
    taint = {"key": CAPACITY, "value": "spot", "effect": "NoSchedule"}
    try:
        for node in nodes:
            user.client.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": [taint]}})
        user.create(raw_workload("Deployment", "web", 10))
        assert is_exact(user.rest("web"), 7, 3)
        for pod in user.pods("web"):
            tolerated = any(each.get("key") == CAPACITY for each in pod["spec"]["tolerations"])
            assert tolerated == (pod["metadata"]["labels"]["spotweave.dev/class"] == "spot")
    finally:
        for node in nodes:
            user.client.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"taints": None}})


def test_spot_pods_are_spread_over_the_pools(user: NamespaceUser) -> None:
    """Thirty spot pods over five pools: no pool holds more than its even share and one."""
    user.create(raw_workload("Deployment", "web", 43))
    status = user.rest("web")
    assert is_exact(status, 30, 13)
    nodes = {
        node["metadata"]["name"]: node["metadata"]["labels"] for node in user.client.get_json("/api/v1/nodes")["items"]
    }
    pools: dict[tuple[str, str], int] = {}
    for each in status.pods:
        if each.pod.labels["spotweave.dev/class"] == "spot":
            labels = nodes[each.pod.node]
            pool = (labels[ZONE], labels["node.kubernetes.io/instance-type"])
            pools[pool] = pools.get(pool, 0) + 1
    assert len(pools) == 5
    assert max(pools.values()) <= 7
