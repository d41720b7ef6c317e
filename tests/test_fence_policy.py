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
    assert quoted(variables()["releases"])[:2] == [names.POD_TEMPLATE_HASH, names.RELEASED]
    assert quoted(variables()["putsBack"])[:2] == [names.POD_TEMPLATE_HASH, names.RELEASED]
    text = str(POLICY["spec"]["validations"])
    assert all(name in text for name in (names.DELETION_COST, names.DISRUPTION_TARGET, f"'{names.PREFIX}'"))
