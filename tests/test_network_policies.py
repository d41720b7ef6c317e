"""Network policies: every port of ours has one, and none names a port that does not exist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from placement import names

BASE = Path(__file__).parent.parent / "manifests" / "base"
Raw = Mapping[str, Any]


def base() -> list[Raw]:
    texts = (path.read_text() for path in sorted(BASE.glob("*.yaml")))
    return [each for text in texts for each in yaml.safe_load_all(text) if each]


def open_ports(objects: list[Raw]) -> set[tuple[str, int]]:
    """Each Deployment's name with a port that its containers listen on."""
    return {
        (each["metadata"]["name"], port["containerPort"])
        for each in objects
        if each["kind"] == "Deployment"
        for container in each["spec"]["template"]["spec"]["containers"]
        for port in container["ports"]
    }


def policies(objects: list[Raw]) -> Iterator[tuple[Raw, str]]:
    """Each policy with each Deployment whose pods it selects."""
    for policy in (each for each in objects if each["kind"] == "NetworkPolicy"):
        wanted = policy["spec"]["podSelector"]["matchLabels"].items()
        for each in objects:
            if each["kind"] == "Deployment" and wanted <= each["spec"]["template"]["metadata"]["labels"].items():
                yield policy, each["metadata"]["name"]


def let_in(objects: list[Raw]) -> set[tuple[str, int]]:
    return {
        (deployment, port["port"])
        for policy, deployment in policies(objects)
        for rule in policy["spec"].get("ingress", ())
        for port in rule["ports"]
    }


def test_every_port_has_a_policy_and_no_policy_names_another() -> None:
    """A port without one would be closed to everybody, because its pod has others that do have one."""
    assert let_in(base()) == open_ports(base())
    assert len(open_ports(base())) == 4


def test_every_service_leads_to_a_port_that_is_open() -> None:
    """Else its callers would wait for a time-out."""
    ports = {
        port["name"]
        for each in base()
        if each["kind"] == "Deployment"
        for container in each["spec"]["template"]["spec"]["containers"]
        for port in container["ports"]
    }
    targets = {port["targetPort"] for each in base() if each["kind"] == "Service" for port in each["spec"]["ports"]}
    assert targets <= ports


def test_anybody_may_call_admission_and_only_our_namespace_the_page() -> None:
    """API servers cannot be selected; the page shows the whole cluster and is for port-forward."""
    rules = {each["metadata"]["name"]: each["spec"] for each in base() if each["kind"] == "NetworkPolicy"}
    (admission,) = rules["spotweave-admission"]["ingress"]
    assert "from" not in admission
    (page,) = rules["spotweave-dashboard"]["ingress"]
    assert page["from"] == [{"podSelector": {}}]


def test_both_programs_reach_the_api_server_wherever_it_listens() -> None:
    """At any unprivileged port or 443, and DNS; not at port 80, where clouds hand out credentials."""
    egress = [(policy, name) for policy, name in policies(base()) if "Egress" in policy["spec"]["policyTypes"]]
    assert {name for _, name in egress} == {names.WEBHOOK_ACCOUNT, names.REBALANCER_ACCOUNT}
    ((rule,),) = {id(policy): policy["spec"]["egress"] for policy, _ in egress}.values()
    assert "to" not in rule
    tcp = [
        range(each["port"], each.get("endPort", each["port"]) + 1)
        for each in rule["ports"]
        if each["protocol"] == "TCP"
    ]
    reached = {port for ports in tcp for port in ports}
    assert {53, 443, 6443, 8443, 16443, 40123} <= reached
    assert not {22, 25, 80} & reached
    assert {each["port"] for each in rule["ports"] if each["protocol"] == "UDP"} == {53, 5353}


def test_policies_select_only_our_own_pods() -> None:
    """Others may run in the namespace; and each policy is there for somebody."""
    selected = {policy["metadata"]["name"] for policy, _ in policies(base())}
    assert selected == {each["metadata"]["name"] for each in base() if each["kind"] == "NetworkPolicy"}
