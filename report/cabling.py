"""Which ports of our pods the network policies of our namespace close, for callers that need them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from placement.selector import matches

Raw = Mapping[str, Any]
# What calls which named port. API servers are no pods: only an address, or anybody, lets them in.
CALLERS = {"admission": "admission", "metrics": "probes and Prometheus", "dashboard": "the page"}


def cut_ports(expected: Sequence[Raw], policies: Sequence[Raw]) -> Iterator[tuple[str, int, str]]:
    """Deployment, port and who needs it. A policy closes all ports that none of those that select a pod opens."""
    for deployment in (each for each in expected if each["kind"] == "Deployment"):
        template = deployment["spec"]["template"]
        chosen = [
            each for each in policies if matches(each["spec"].get("podSelector") or {}, template["metadata"]["labels"])
        ]
        (container,) = template["spec"]["containers"]
        ingress = [each for each in chosen if "Ingress" in _types(each)]
        for port in container["ports"]:
            if port["name"] == "dashboard":  # port-forward passes by all policies
                continue
            rules = [rule for each in ingress for rule in each["spec"].get("ingress") or ()]
            open_rules = [rule for rule in rules if _opens(rule, port["containerPort"], port["name"])]
            if ingress and not open_rules:
                yield deployment["metadata"]["name"], port["containerPort"], CALLERS[port["name"]]
        egress = [each for each in chosen if "Egress" in _types(each)]
        out = [rule for each in egress for rule in each["spec"].get("egress") or ()]
        if egress and not any(_opens(rule, port, "") for rule in out for port in (443, 6443)):
            yield deployment["metadata"]["name"], 443, "the way to the API server"


def _types(policy: Raw) -> Sequence[str]:
    spec = policy["spec"]
    types: Sequence[str] = spec.get("policyTypes") or ["Ingress", *(["Egress"] if "egress" in spec else [])]
    return types


def _opens(rule: Raw, number: int, name: str) -> bool:
    """Whom it lets in is not judged: an address may be right or wrong, which the dry run shows."""
    ports = rule.get("ports") or ()
    return not ports or any(_covers(each, number, name) for each in ports)


def _covers(port: Raw, number: int, name: str) -> bool:
    if port.get("protocol", "TCP") != "TCP":
        return False
    wanted = port.get("port")
    if wanted is None or wanted == name:
        return True
    return isinstance(wanted, int) and wanted <= number <= int(port.get("endPort", wanted))
