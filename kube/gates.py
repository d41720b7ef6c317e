"""The gate of gangs: the policy that members get it from, who has it, and how both go.

Uninstalling needs it, and `spotweave run`; the rebalancer takes gates off as actions of its plan.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kube import wire
from kube.client import STRATEGIC_PATCH, Client
from kube.convert import shared_labels
from kube.decode import Decoder
from kube.errors import ApiError, NotFound
from kube.paths import path_of
from kube.resources import PODS, Resource, pages
from placement import names
from placement.gang.belonging import SOLO, group_name
from placement.model import Key

API = "/apis/admissionregistration.k8s.io/v1"
POLICIES = "mutatingadmissionpolicies"
POLICY = f"{API}/{POLICIES}/{names.GANG_POLICY}"
WEBHOOKS = f"{API}/mutatingwebhookconfigurations/{names.WEBHOOK_CONFIGURATION}"
BINDING = f"{API}/mutatingadmissionpolicybindings/{names.GANG_POLICY}"
BARE_POLICY = f"{API}/{POLICIES}/{names.GANG_BARE_POLICY}"
BARE_BINDING = f"{API}/mutatingadmissionpolicybindings/{names.GANG_BARE_POLICY}"


def can_gate(client: Client) -> bool:
    """Whether the API server serves MutatingAdmissionPolicy v1, as it does from 1.36 on."""
    return any(each["name"] == POLICIES for each in client.get_json(API)["resources"])


def has_gate(client: Client) -> bool:
    """Whether new members get a gate, as far as the policy says."""
    try:
        client.get(POLICY)
    except NotFound:
        return False
    return True


def gates_new_members(client: Client) -> bool:
    """Whether something gives new members their gate: the policy, or before Kubernetes 1.36 a webhook."""
    if has_gate(client):
        return True
    try:
        found = client.get_json(WEBHOOKS)
    except NotFound:
        return False
    return any(each["name"] == names.GATE_ENTRY for each in found.get("webhooks") or ())


def remove_gate(client: Client) -> bool:
    """No new member gets a gate. Whether there was anything to remove."""
    removed = [client.remove(path) for path in (BINDING, BARE_BINDING, POLICY, BARE_POLICY)]
    return any(removed)


# --- pods that have it -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GatedPod:
    """A pod, and its scheduling gates by name."""

    namespace: str
    name: str
    uid: str
    gates: tuple[str, ...]
    group: str = ""  # the gang that it says it is a member of

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)

    @property
    def gang(self) -> Key:
        """A pod without a group is a gang of one."""
        return Key(self.namespace, self.group or SOLO + self.name)


class _PodGate(wire.Wire):
    name: str | None = None


class _GatesSpec(wire.Wire):
    scheduling_gates: list[_PodGate] | None = None


class _GatesObject(wire.AnyObject):
    spec: _GatesSpec | None = None


def _gated_pod(raw: _GatesObject) -> GatedPod:
    gates = (raw.spec.scheduling_gates or []) if raw.spec is not None else []
    meta = raw.metadata
    group = group_name(meta.annotations or {}, shared_labels(meta.labels))
    gates_named = tuple(each.name or "" for each in gates)
    return GatedPod(meta.namespace or "", meta.name or "", meta.uid or "", gates_named, group)


_PODS: Resource[GatedPod] = Resource(PODS.name, PODS.path, Decoder(_GatesObject, _gated_pod))


def gated_pods(client: Client) -> Iterator[GatedPod]:
    """Those that have our gate, in any namespace: members of gangs that wait."""
    found = (pod for page in pages(client, _PODS) for pod in page.items)
    return (pod for pod in found if names.GANG_GATE in pod.gates)


def ungate(client: Client, pod: GatedPod) -> bool:
    """Takes our gate off, by its name, and no other. Whether it is off, or the pod gone; no ApiError is raised."""
    patch = {
        "metadata": {"uid": pod.uid, "annotations": {names.GANG_PLAN: None}},
        "spec": {"schedulingGates": [{"$patch": "delete", "name": names.GANG_GATE}]},
    }
    try:
        client.patch(path_of(PODS.path, pod.name, pod.namespace), patch, content_type=STRATEGIC_PATCH)
    except NotFound:
        return True
    except ApiError:
        return False
    return True
