"""The fence: whom it binds, and that it holds when in doubt. What it lets through is proven on a real API server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

from placement import names

BASE = Path(__file__).parent.parent / "manifests" / "base"
POLICY, BINDING = (each for each in yaml.safe_load_all((BASE / "fence.yaml").read_text()))


def variables() -> dict[str, str]:
    return {each["name"]: each["expression"] for each in POLICY["spec"]["variables"]}


def quoted(text: str) -> list[str]:
    return re.findall(r"'([^']*)'", text)


def objects(kind: str) -> list[dict[str, Any]]:
    texts = (path.read_text() for path in sorted(BASE.glob("*.yaml")))
    return [each for text in texts for each in yaml.safe_load_all(text) if each and each["kind"] == kind]


def test_it_binds_every_account_of_ours_and_nobody_else() -> None:
    """A new ServiceAccount has to be named there."""
    (condition,) = POLICY["spec"]["matchConditions"]
    accounts = {each["metadata"]["name"] for each in objects("ServiceAccount")}
    assert accounts == {names.WEBHOOK_ACCOUNT, names.REBALANCER_ACCOUNT}
    expected = {f"system:serviceaccount:{names.SYSTEM_NAMESPACE}:{account}" for account in accounts}
    assert set(quoted(condition["expression"])) == expected


def test_it_denies_also_when_it_fails() -> None:
    """In doubt nothing is written: the next pass of the rebalancer tries again."""
    assert POLICY["spec"]["failurePolicy"] == "Fail"
    assert BINDING["spec"] == {"policyName": names.FENCE_POLICY, "validationActions": ["Deny"]}
    assert POLICY["metadata"]["name"] == BINDING["metadata"]["name"] == names.FENCE_POLICY


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
    assert all(names.RELEASED_HASH in quoted(variables()[each]) for each in ("releases", "putsBack", "tidiesUp"))
    text = str(POLICY["spec"]["validations"])
    written = (names.DELETION_COST, names.SAFE_TO_EVICT, names.RELEASED_SAFE, names.DISRUPTION_TARGET)
    assert all(f"'{name}'" in text for name in (*written, names.PREFIX))


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
