"""Karpenter and the descheduler: what they are started with, and that they are parts like any other."""

import json
import os
import sys
from pathlib import Path

import pytest

from localcluster import ClusterError, LocalCluster, NodePool, Profile
from localcluster.descheduler import EVICTOR, SPREAD, UTILIZATION, descheduler_part, raw_policy
from localcluster.karpenter import (
    CAPACITY_TYPE_LABEL,
    INSTANCE_TYPES,
    InstanceType,
    hourly_price,
    karpenter_part,
    raw_node_class,
    raw_node_pool,
)
from localcluster.layout import Layout, Ports, free_port
from localcluster.neighbours import Neighbour
from localcluster.nodes import INSTANCE_TYPE_LABEL, ZONE_LABEL

LAYOUT = Layout(Path("/d"), Path("/data"), Ports(1, 2, 3, 4, 5, 6))


def port_of(part: Neighbour, flag: str) -> str:
    return next(argument for argument in part.arguments if argument.startswith(f"{flag}=")).partition("=")[2]


def test_karpenter_acts_as_its_own_user_and_reads_our_types() -> None:
    """It has no flag for the kubeconfig. Of the user's variables it sees none: LOG_LEVEL alone could stop it."""
    part = karpenter_part(Path("/cache"), LAYOUT, Path("/d/types.json"), ("--log-level=debug",))
    assert part.program == Path("/cache/karpenter")
    assert part.environment == {"KUBECONFIG": "/d/pki/karpenter.kubeconfig"}
    assert "--instance-types-file-path=/d/types.json" in part.arguments
    assert part.arguments[-1] == "--log-level=debug"
    assert part.health_url == f"http://127.0.0.1:{port_of(part, '--health-probe-port')}/readyz"
    assert port_of(part, "--metrics-port") != port_of(part, "--health-probe-port")


def test_descheduler_acts_as_its_own_user_on_loopback() -> None:
    """Every ten seconds, with the policy that we wrote."""
    part = descheduler_part(Path("/cache"), LAYOUT, Path("/d/policy.yaml"), 10)
    wanted = {
        "--kubeconfig=/d/pki/descheduler.kubeconfig",
        "--policy-config-file=/d/policy.yaml",
        "--descheduling-interval=10s",
        "--bind-address=127.0.0.1",
    }
    assert wanted <= set(part.arguments)
    assert part.health_url == f"https://127.0.0.1:{port_of(part, '--secure-port')}/healthz"


def test_descheduler_balances_spread_and_use() -> None:
    """Both plugins are switched on, and each has its settings. Whether a pod must fit elsewhere can be chosen."""
    profile = raw_policy()["profiles"][0]
    assert profile["plugins"]["balance"]["enabled"] == [SPREAD, UTILIZATION]
    assert [each["name"] for each in profile["pluginConfig"]] == [EVICTOR, SPREAD, UTILIZATION]
    assert profile["pluginConfig"][0]["args"] == {"nodeFit": False}
    assert raw_policy(node_fit=True)["profiles"][0]["pluginConfig"][0]["args"] == {"nodeFit": True}


def test_prices_follow_size_capacity_type_and_zone() -> None:
    """2 × 0.03 + 8 × 0.004 = 0.092 on on-demand; 0.35 of that on spot; 10 % more of that in zone-c."""
    small = InstanceType("general-2", 2, 8)
    assert small in INSTANCE_TYPES
    assert small.price("on-demand", "zone-c") == pytest.approx(0.092)
    assert small.price("spot", "zone-a") == pytest.approx(0.0322)
    assert small.price("spot", "zone-c") == pytest.approx(0.03542)


def test_every_type_can_be_bought_in_three_zones_on_spot_and_on_demand() -> None:
    """Six offerings each, as JSON that Karpenter's provider reads."""
    for each in INSTANCE_TYPES:
        raw = json.loads(json.dumps(each.raw()))
        offered = {
            tuple(requirement["values"][0] for requirement in offering["Requirements"]): offering["Price"]
            for offering in raw["offerings"]
        }
        assert len(offered) == 6
        assert all(offered["spot", zone] < offered["on-demand", zone] for zone in ("zone-a", "zone-b", "zone-c"))
        assert raw["resources"]["cpu"] == each.name.rpartition("-")[2]


def test_price_of_nodes_is_the_sum_of_what_was_bought() -> None:
    """By the labels that Karpenter gives to its nodes."""

    def node(instance_type: str, capacity_type: str, zone: str) -> dict[str, object]:
        labels = {INSTANCE_TYPE_LABEL: instance_type, CAPACITY_TYPE_LABEL: capacity_type, ZONE_LABEL: zone}
        return {"metadata": {"labels": labels}}

    bought = [node("general-2", "on-demand", "zone-b"), node("general-2", "spot", "zone-a")]
    assert hourly_price(bought) == pytest.approx(0.092 + 0.0322)
    assert hourly_price([]) == 0


def test_node_pool_names_its_class_and_what_may_be_bought() -> None:
    """Spot and on-demand, unless a test forbids one."""
    template = raw_node_pool("10s")["spec"]["template"]["spec"]
    node_class = raw_node_class(2)
    assert template["nodeClassRef"]["kind"] == node_class["kind"]
    assert template["nodeClassRef"]["name"] == node_class["metadata"]["name"]
    assert node_class["spec"] == {"nodeRegistrationDelay": "2s"}
    assert template["requirements"][1]["values"] == ["spot", "on-demand"]
    narrow = raw_node_pool("Never", ["on-demand"])["spec"]
    assert narrow["template"]["spec"]["requirements"][1]["values"] == ["on-demand"]
    assert narrow["disruption"]["consolidateAfter"] == "Never"


@pytest.mark.cluster
def test_neighbour_is_a_part_like_any_other() -> None:
    """It can be killed and started again, it has its own log and environment, and it stops with the cluster."""
    port = free_port()
    code = "import os, sys; from http.server import *; print(sorted(os.environ), flush=True); "
    code += "HTTPServer(('127.0.0.1', int(sys.argv[1])), SimpleHTTPRequestHandler).serve_forever()"
    arguments = ("-I", "-c", code, str(port))
    neighbour = Neighbour("friend", Path(sys.executable), arguments, {"OWN": "yes"}, f"http://127.0.0.1:{port}/")
    with LocalCluster.start(Profile((NodePool("one", "zone-a", "m5.large", 1, "8", "32Gi"),))) as cluster:
        with pytest.raises(ClusterError, match="no part is called `friend`"):
            cluster.kill("friend")
        cluster.add(neighbour)
        assert cluster.parts["friend"].state == "running"
        log = cluster.layout.log("friend").read_text()
        assert "'OWN'" in log
        assert not {"'HOME'", "'PATH'"} & set(log.split(", "))
        with pytest.raises(ClusterError, match="friend is a part already"):
            cluster.add(neighbour)
        cluster.kill("friend")
        assert cluster.parts["friend"].state == "killed"
        cluster.start_part("friend")
        pid = cluster.parts["friend"].pid
        assert pid is not None
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
