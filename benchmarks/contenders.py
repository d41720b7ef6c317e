"""Three namespaces of one cluster: none (no admission), ours, and policy.

`policy` is the in-tree alternative, a MutatingAdmissionPolicy (CEL). It is generated from a pod that our webhook
placed, so both make the same patch. But it is static: it counts nothing, and every pod gets the same patch. Workloads
are all on spot, the larger of our two patches: label, annotations, node affinity with a preferred pool, spread,
toleration.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from demo.supervisor import Installed, running
from kube.client import Client
from kube.errors import NotFound
from localcluster.profile import NodePool, Profile
from placement import names

NONE, OURS, POLICY = "none", "ours", "policy"
CONTENDERS = (NONE, OURS, POLICY)
PAIRS = ((OURS, POLICY), (OURS, NONE), (POLICY, NONE))
ALL_ON_SPOT = {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}
PROFILE = Profile(  # either class has room for a thousand pods
    tuple(
        NodePool(f"{kind}-{zone}", zone, "m5.large", 4, "64", "256Gi", kind)
        for kind in ("on-demand", "spot")
        for zone in ("zone-a", "zone-b", "zone-c")
    )
)
_POLICIES = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
_BINDINGS = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"
_NAME = "benchmark"
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PLAIN_MAPS = ("annotations", "matchLabels")  # from text to text; all others are objects whose fields the schema names
_PATIENCE_SECONDS = 60.0


@contextmanager
def present(which: str, kubeconfig: Path) -> Iterator[Installed | None]:
    """Ours runs only while it is measured: its watches cost the API server something in other turns, too."""
    if which != OURS:
        yield None
        return
    with running(kubeconfig, 1, log_level="warning") as installed:
        yield installed


def turns(number: int) -> tuple[str, ...]:
    """The contenders, in a different order in each round."""
    start = number % len(CONTENDERS)
    return CONTENDERS[start:] + CONTENDERS[:start]


def create_namespaces(client: Client) -> None:
    for which in CONTENDERS:
        labels = {OURS: {names.PLACEMENT: names.ENABLED}}.get(which, {})
        metadata = {"name": which, "labels": labels}
        client.post("/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})
        wait_for(f"{which}'s ServiceAccount", lambda which=which: _has_account(client, which))  # type: ignore[misc]


def _has_account(client: Client, namespace: str) -> bool:
    try:
        client.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default")
    except NotFound:
        return False
    return True


def wait_for(what: str, condition: Callable[[], bool], seconds: float = _PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited in vain for {what}")
        time.sleep(0.05)


def pods_path(which: str) -> str:
    return f"/api/v1/namespaces/{which}/pods"


def check(client: Client, which: str, expected: int) -> dict[str, Any]:
    """One of the pods. Raises unless the number is as expected and all carry the patch (with `none`, no pod does)."""
    pods = client.get_json(pods_path(which))["items"]
    placed = sum(map(is_placed, pods))
    if (len(pods), placed) != (expected, 0 if which == NONE else expected):
        raise AssertionError(f"{which}: {len(pods)} pods, {placed} of them placed; expected {expected}")
    one: dict[str, Any] = pods[0]
    return one


def is_placed(raw_pod: Mapping[str, Any]) -> bool:
    """Whether every part of the patch is there."""
    metadata, spec = raw_pod["metadata"], raw_pod["spec"]
    affinity = spec.get("affinity", {}).get("nodeAffinity", {})
    return (
        metadata["labels"].get(names.CLASS) == "spot"
        and {names.DECISION, names.SLOT, names.REASON, names.DELETION_COST} <= set(metadata.get("annotations", ()))
        and _REQUIRED in affinity
        and len(spec.get("topologySpreadConstraints", ())) == 2
        and any(_is_ours(toleration) for toleration in spec["tolerations"])
    )


def _is_ours(toleration: Mapping[str, Any]) -> bool:
    """Not one of the two that the API server gives to every pod."""
    return not toleration["key"].startswith("node.kubernetes.io/") or toleration["key"] == names.CAPACITY


def empty(client: Client, which: str) -> None:
    """Deletes all pods, including those created meanwhile."""

    def is_empty() -> bool:
        if not client.get_json(pods_path(which), {"limit": 1})["items"]:
            return True
        client.delete(pods_path(which), query={"gracePeriodSeconds": 0})
        return False

    wait_for(f"{which} to be empty", is_empty)


# --- the in-tree policy ----------------------------------------------------------------------------------------------


def install_policy(client: Client, placed: Mapping[str, Any], trial: Mapping[str, Any]) -> None:
    """Creates a policy that applies the patch of this pod to all pods; returns when it patches the trial pod."""
    pods = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    namespace = {"matchLabels": {"kubernetes.io/metadata.name": POLICY}}
    spec = {
        "matchConstraints": {"namespaceSelector": namespace, "resourceRules": [pods]},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression(placed)}}],
    }
    for path, kind, content in (
        (_POLICIES, "MutatingAdmissionPolicy", spec),
        (_BINDINGS, "MutatingAdmissionPolicyBinding", {"policyName": _NAME}),
    ):
        raw = {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": _NAME}}
        client.post(path, {**raw, "spec": content})

    def is_used() -> bool:
        made = client.post(pods_path(POLICY), trial, {"dryRun": "All"})
        return is_placed(made) and _patched(made) == _patched(placed)

    wait_for("the policy to make the same patch", is_used)


def _patched(raw_pod: Mapping[str, Any]) -> tuple[Any, ...]:
    metadata, spec = raw_pod["metadata"], raw_pod["spec"]
    parts = (spec[key] for key in ("affinity", "topologySpreadConstraints", "tolerations"))
    return (metadata["labels"][names.CLASS], metadata["annotations"], *parts)


def expression(placed: Mapping[str, Any]) -> str:
    """The JSON patch in CEL. Lists that are atomic in the schema exclude the other kind, an apply configuration.

    Objects are added to a list one by one: the API server (1.36) panics if a list of them is the value.
    """
    metadata, spec = placed["metadata"], placed["spec"]
    spread, tolerations = (f"Object.spec.{key}" for key in ("topologySpreadConstraints", "tolerations"))
    operations = [
        (f"/metadata/labels/{names.CLASS.replace('/', '~1')}", json.dumps(metadata["labels"][names.CLASS])),
        ("/metadata/annotations", _cel(metadata["annotations"], "annotations")),
        ("/spec/affinity", _cel(spec["affinity"], "Object.spec.affinity")),
        ("/spec/topologySpreadConstraints", "[]"),
        *(("/spec/topologySpreadConstraints/-", _cel(each, spread)) for each in spec["topologySpreadConstraints"]),
        *(("/spec/tolerations/-", _cel(each, tolerations)) for each in spec["tolerations"] if _is_ours(each)),
    ]
    patches = (f'JSONPatch{{op: "add", path: "{path}", value: {value}}}' for path, value in operations)
    return f"[{', '.join(patches)}]"


def _cel(value: Any, kind: str) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_cel(each, kind) for each in value)}]"
    if not isinstance(value, dict):
        return json.dumps(value)
    if kind.rpartition(".")[2] in _PLAIN_MAPS:
        return json.dumps(value)
    fields = (f"{key}: {_cel(each, f'{kind}.{key}')}" for key, each in value.items())
    return f"{kind}{{{', '.join(fields)}}}"
