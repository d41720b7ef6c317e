"""Gangs on a local control plane: their component is installed where the configuration asks for it, else removed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kube.client import Client
from kube.configmaps import parse_configuration_text
from kube.gates import can_gate, has_gate, remove_gate
from localcluster import kubectl
from placement import names
from placement.gang.settings import Gangs
from placement.model import DEFAULT_SCHEDULER

OVERLAYS = Path(__file__).parent.parent / "manifests" / "overlays"
OVERLAY = OVERLAYS / "local"
OVERLAY_WITH_GANGS = OVERLAYS / "local-gangs"
OVERLAY_WITHOUT_POLICY = OVERLAYS / "local-gangs-before-1.36"
OVERLAY_WITH_BARE = OVERLAYS / "local-gangs-bare"
OVERLAY_WITH_BARE_WITHOUT_POLICY = OVERLAYS / "local-gangs-bare-before-1.36"
LISTED = "of-a-listed-scheduler"  # the condition that names schedulers


def gangs_of(configuration: str | None) -> Gangs:
    return Gangs() if configuration is None else parse_configuration_text(configuration).gangs


def wants_gangs(configuration: str | None) -> bool:
    return gangs_of(configuration).enabled


def overlay_for(admin: Client, configuration: str | None) -> Path:
    """What is installed: with gangs, members get their gate from the API server if it can give it."""
    if not wants_gangs(configuration):
        return OVERLAY
    if gangs_of(configuration).bare_annotations:
        return OVERLAY_WITH_BARE if can_gate(admin) else OVERLAY_WITH_BARE_WITHOUT_POLICY
    return OVERLAY_WITH_GANGS if can_gate(admin) else OVERLAY_WITHOUT_POLICY


def list_schedulers(objects: list[dict[str, Any]], configuration: str | None) -> None:
    """Those of the configuration stand in the conditions, in place of those of the component."""
    listed = ", ".join(f"'{each}'" for each in ("", DEFAULT_SCHEDULER, *gangs_of(configuration).scheduler_names))
    for raw in objects:
        for holder in (raw.get("spec"), *raw.get("webhooks", ())):
            for condition in (holder or {}).get("matchConditions", ()):
                if condition["name"] == LISTED:
                    condition["expression"] = f"object.?spec.?schedulerName.orValue('') in [{listed}]"


def guard_solo(objects: list[dict[str, Any]], configuration: str | None) -> None:
    """As the component gangs-guard-solo does, whatever other components there are."""
    if not gangs_of(configuration).guard_solo:
        return
    for raw in objects:
        if (raw["kind"], raw["metadata"]["name"]) == ("ValidatingAdmissionPolicy", names.FENCE_POLICY):
            (variable,) = (each for each in raw["spec"]["variables"] if each["name"] == "guardsSolo")
            variable["expression"] = "true"


def remove_gangs(kubeconfig: Path, admin: Client) -> None:
    """What an earlier run with gangs has installed, the gate's policy first."""
    if not has_gate(admin):
        return
    remove_gate(admin)
    plain = {_identity(each) for each in rendered(OVERLAY)}
    more = [each for each in rendered(OVERLAY_WITH_BARE) if _identity(each) not in plain]
    text = yaml.safe_dump_all(more)
    kubectl.call("delete", "--ignore-not-found", "-f", "-", kubeconfig=kubeconfig, stdin=text)


def rendered(overlay: Path) -> list[dict[str, Any]]:
    return [each for each in yaml.safe_load_all(kubectl.call("kustomize", str(overlay))) if each]


def _identity(raw: dict[str, Any]) -> tuple[str, str]:
    return raw["kind"], raw["metadata"]["name"]
