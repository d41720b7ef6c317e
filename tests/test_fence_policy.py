"""The fence: whom it binds, and that it holds when in doubt. What it lets through is proven on a real API server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from placement import names

BASE = Path(__file__).parent.parent / "manifests" / "base"
POLICY, BINDING = yaml.safe_load_all((BASE / "fence.yaml").read_text())
SYSTEM_POLICY, SYSTEM_BINDING, *OF_CONFIGURATION = yaml.safe_load_all((BASE / "system-fence.yaml").read_text())
FENCES = {
    names.FENCE_POLICY: (POLICY, BINDING),
    names.SYSTEM_FENCE_POLICY: (SYSTEM_POLICY, SYSTEM_BINDING),
    names.CONFIGURATION_FENCE_POLICY: tuple(OF_CONFIGURATION),
}
fences = pytest.mark.parametrize(("name", "fence"), FENCES.items(), ids=FENCES.keys())
Fence = tuple[dict[str, Any], dict[str, Any]]


def variables() -> dict[str, str]:
    return {each["name"]: each["expression"] for each in POLICY["spec"]["variables"]}


def quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def objects(kind: str) -> list[dict[str, Any]]:
    texts = (path.read_text() for path in sorted(BASE.glob("*.yaml")))
    return [each for text in texts for each in yaml.safe_load_all(text) if each and each["kind"] == kind]


@fences
def test_it_binds_every_account_of_ours_and_nobody_else(name: str, fence: Fence) -> None:
    """A new ServiceAccount has to be named there."""
    (condition,) = fence[0]["spec"]["matchConditions"]
    accounts = {each["metadata"]["name"] for each in objects("ServiceAccount")}
    assert accounts == {names.WEBHOOK_ACCOUNT, names.REBALANCER_ACCOUNT}
    expected = {f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{account}" for account in accounts}
    assert set(quoted(condition["expression"])) == expected


@fences
def test_it_denies_also_when_it_fails(name: str, fence: Fence) -> None:
    """In doubt nothing is written: the next pass of the rebalancer tries again."""
    policy, binding = fence
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert binding["spec"] == {"policyName": name, "validationActions": ["Deny"]}
    assert policy["metadata"]["name"] == binding["metadata"]["name"] == name


def test_it_stands_around_everything_that_can_be_done_to_pods() -> None:
    """Subresources too, so that a role that grows by mistake gives nothing away."""
    (rule,) = POLICY["spec"]["matchConstraints"]["resourceRules"]
    assert (rule["resources"], rule["operations"]) == (["pods", "pods/*"], ["*"])


def test_it_uses_our_names() -> None:
    """Opted in means the same here as in the programs."""
    opted_in = quoted(variables()["optedIn"])
    assert opted_in == [names.PLACEMENT, "", names.ENABLED, *names.EXCLUDED_NAMESPACES]
    for when in ("old", "new"):
        assert quoted(variables()[f"{when}Note"])[0] == names.RELEASED
        assert quoted(variables()[f"{when}Hash"])[0] == names.POD_TEMPLATE_HASH
    assert quoted(variables()["decision"])[0] == names.DECISION
    assert all(names.RELEASED_HASH in quoted(variables()[each]) for each in ("releases", "putsBack", "isReleased"))
    text = str(POLICY["spec"]["validations"])
    marks = (names.SAFE_TO_EVICT, names.RELEASED_SAFE, names.DO_NOT_DISRUPT, names.RELEASED_SPARED)
    written = (names.DELETION_COST, *marks, names.DISRUPTION_TARGET)
    assert all(f"'{name}'" in text for name in (*written, names.PREFIX))


def test_the_fence_of_our_namespace_uses_our_names() -> None:
    """Else our own programs would be refused."""
    text = str(SYSTEM_POLICY["spec"]["validations"])
    lease = f"{names.WEBHOOK_SERVICE}-"  # the beginning of each replica's
    for name in (names.SYSTEM_NAMESPACE, names.TLS_SECRET, names.STATE_MAP, names.LEASE, lease):
        assert f"'{name}'" in text


def test_only_one_role_writes_webhook_configurations_and_it_stands_alone() -> None:
    """So that an overlay can leave it out."""
    writing = {
        role["metadata"]["name"]
        for role in objects("ClusterRole")
        for rule in role["rules"]
        if "mutatingwebhookconfigurations" in rule["resources"] and set(rule["verbs"]) - {"get", "list", "watch"}
    }
    assert writing == {"spotweave-webhook-publish"}


def test_the_rebalancer_may_do_what_guarded_owner_references_ask_for() -> None:
    """To change a pod's owner takes the right to delete it; to give it back, the right to block its deletion."""
    (role,) = [each for each in objects("ClusterRole") if each["metadata"]["name"] == names.REBALANCER_ACCOUNT]
    rules = {
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }
    assert {("", "pods", "patch"), ("", "pods", "delete"), ("apps", "replicasets/finalizers", "update")} <= rules
