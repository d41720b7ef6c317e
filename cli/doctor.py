"""`spotweave doctor`: checks a live installation from outside, and says how to repair what is wrong."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import yaml
from rich.text import Text

from certs import publish
from certs.renewal import expiry, has_its_key
from cli import access, output
from generators.files import ROOT
from kube.client import Client
from kube.configmaps import parse_configuration_text, read_outages
from kube.installation import BETWEEN_LOOKS_SECONDS, Reader, granted
from kube.snapshot import read_snapshot
from placement import names
from placement.configuration import Configuration, ConfigurationError
from placement.installation import GrantedRight, Identity, Installation, Raw, ServedCertificate
from placement.model import Snapshot
from report.ailments import ailments
from report.doctor import Ailment

MANIFESTS = ROOT / "manifests"
CERT_MANAGER = "--certificates=secret"  # an argument of the webhook that manages no certificates


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "doctor",
        parents=[common],
        help="check the installation, and say how to repair it",
        description="Check a live installation from outside, and say how to repair what is wrong. It changes nothing: "
        "pods are created as dry runs.",
    )
    access.add_options(parser)
    output.add_option(parser, "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 if anything is wrong."""
    return output.show(args, lambda: look(args))


def look(args: argparse.Namespace) -> output.Result:
    with access.client_for(args) as client:
        seen = examined(client)
    found = ailments(seen)
    raw = {
        "fine": not found,
        "findings": [each.raw for each in found],
        "facts": facts(seen),
        "unchecked": list(seen.unchecked),
    }
    return output.Result(raw, lambda: Text(text_of(seen, found)), 1 if found else 0)


def examined(client: Client, between_seconds: float = BETWEEN_LOOKS_SECONDS) -> Installation:
    """Everything is read once, Leases twice."""
    reader, server = Reader(client), str(client.get_json("/version")["gitVersion"])
    plain = tuple(manifests("base"))
    live = reader.live(plain)
    configuration, mistakes = _configuration(live)
    component = tuple(manifests("components/gangs")) if configuration.gangs.enabled else ()
    live |= reader.live(each for each in component if each["kind"].startswith(("MutatingAdm", "ValidatingAdm")))
    seen = Installation(time.time(), server, plain, live, configuration=configuration, mistakes=mistakes)
    seen = replace(seen, unread=frozenset(reader.unread), unchecked=tuple(reader.unchecked))
    if not seen.is_installed:
        return seen
    nothing: tuple[Raw, ...] = ()
    offset = reader.server_offset()
    outages = reader.may("outages", lambda: read_outages(client)[0].version, 0)
    beats = reader.heartbeats(offset or 0.0, between_seconds)
    webhooks, leader = beats or ((), None)
    no_snapshot: Snapshot | None = None
    snapshot = reader.may("nodes, namespaces and pods", lambda: read_snapshot(client), no_snapshot)
    is_managed = ("Deployment", names.WEBHOOK_ACCOUNT) in reader.unread or any(
        CERT_MANAGER in (each.get("args") or ()) for each in _containers(live)
    )
    return replace(
        seen,
        now=time.time() + (offset or 0.0),
        are_leases_read=beats is not None,
        is_clock_read=offset is not None,
        pods=reader.ours("pods of Spotweave", "/api/v1/pods") or nothing,
        endpoints=reader.endpoints(),
        policies=reader.ours("network policies", "/apis/networking.k8s.io/v1/networkpolicies") or nothing,
        webhooks=webhooks,
        leader=leader,
        lacking=reader.lacking([each for each in granted((*plain, *component)) if not _is_spared(each, is_managed)]),
        certificate=reader.may("the certificate", lambda: _certificate(client, live), None),
        answer=seen.answer if snapshot is None else reader.answer(_opted_in(snapshot)),
        outage_version=outages,
        priority_classes=reader.priority_classes(),
        snapshot=snapshot or Snapshot(),
        unchecked=tuple(reader.unchecked),
    )


def manifests(folder: str) -> Iterator[Raw]:
    """The objects of a folder, as they come with this program. Patches of a component are none."""
    for file in sorted((MANIFESTS / folder).glob("*.yaml")):
        if file.name not in ("kustomization.yaml", *(["webhook.yaml"] if folder != "base" else [])):
            yield from (each for each in yaml.safe_load_all(file.read_text()) if each)


def _configuration(live: dict[Identity, Raw]) -> tuple[Configuration, tuple[str, ...]]:
    raw = live.get(("ConfigMap", names.CONFIG_MAP)) or {}
    try:
        return parse_configuration_text((raw.get("data") or {}).get(names.CONFIG_KEY, "")), ()
    except ConfigurationError as error:
        return Configuration(), tuple(error.mistakes)


def _opted_in(snapshot: Snapshot) -> list[str]:
    return sorted(each.name for each in snapshot.namespaces.values() if each.is_opted_in)


def _containers(live: dict[Identity, Raw]) -> list[Raw]:
    raw = live.get(("Deployment", names.WEBHOOK_ACCOUNT))
    return [] if raw is None else list(raw["spec"]["template"]["spec"]["containers"])


def _is_spared(right: GrantedRight, is_managed: bool) -> bool:
    """With cert-manager the webhook writes neither its Secret nor caBundles."""
    return (
        is_managed
        and right.account == names.WEBHOOK_ACCOUNT
        and (
            (right.resource == "secrets" and right.verb != "get")
            or (right.resource.endswith("webhookconfigurations") and right.verb == "patch")
        )
    )


def _certificate(client: Client, live: dict[Identity, Raw]) -> ServedCertificate | None:
    bundle = publish.bundle_of(publish.read_secret(client))
    if not has_its_key(bundle):
        return ServedCertificate(is_readable=False)
    unpublished = tuple(
        f"{kind} {names.WEBHOOK_CONFIGURATION}"
        for kind, path in (
            ("MutatingWebhookConfiguration", publish.CONFIGURATION),
            ("ValidatingWebhookConfiguration", publish.EVICTION_CONFIGURATION),
        )
        if (kind, names.WEBHOOK_CONFIGURATION) in live
        and {*publish.read_entries(client, path).published} != {bundle.trusted}
    )
    return ServedCertificate(True, expiry(bundle.leaf).timestamp(), unpublished)


# --- text ------------------------------------------------------------------------------------------------------------


def facts(seen: Installation) -> dict[str, Any]:
    """What is worth knowing even if all is well."""
    leader = seen.leader if seen.has_leader else None
    return {
        "kubernetes": seen.server,
        "webhooks": sum(each.is_renewed for each in seen.webhooks) if seen.are_leases_read else None,
        "webhookAnswers": str(seen.answer),
        "leader": None if leader is None else leader.holder,
        "leaderSeconds": None if leader is None else round(seen.now - leader.acquired),
        "optedIn": _opted_in(seen.snapshot),
        "certificateSeconds": None if seen.certificate is None else round(seen.certificate.expires - seen.now),
    }


def text_of(seen: Installation, found: tuple[Ailment, ...]) -> str:
    lines = [
        line
        for number, each in enumerate(found, 1)
        for line in (f"{number}. {each.what}", f"   effect: {each.effect}", f"   repair: {each.repair}", "")
    ]
    lines += [f"not checked: {each}" for each in seen.unchecked]
    known = facts(seen)
    if seen.is_installed:
        led = f"led by {known['leader']}" if known["leader"] else "without a leader"
        alive = f"{known['webhooks']} webhooks alive; rebalancer {led}"
        unknown = "which webhooks are alive and which rebalancer leads is not known"
        lines.append(f"Kubernetes {seen.server}; {alive if seen.are_leases_read else unknown}.")
    fine = "Nothing is wrong in what was checked." if seen.unchecked else "Nothing is wrong."
    lines.append(f"{len(found)} found." if found else fine)
    return "\n".join(lines)
