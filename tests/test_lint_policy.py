"""The Warn policies: made from the parser's table, installed, and unable to refuse anything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from generators.lintpolicy import policy_text
from placement import names
from placement.gang.terms import ROWS
from placement.lint import policies
from placement.policy import SETTINGS

BASE = Path(__file__).parent.parent / "manifests" / "base"
LINT = BASE / "lint.yaml"
OBJECTS: list[dict[str, Any]] = list(yaml.safe_load_all(LINT.read_text()))
POLICIES = [each for each in OBJECTS if each["kind"] == "ValidatingAdmissionPolicy"]
BINDINGS = [each for each in OBJECTS if each["kind"] == "ValidatingAdmissionPolicyBinding"]


def named(raw: dict[str, Any]) -> str:
    return str(raw["metadata"]["name"])


def test_the_manifest_is_what_the_table_makes() -> None:
    """If this fails: .venv/bin/spotweave lint --policy > manifests/base/lint.yaml"""
    assert LINT.read_text() == policy_text()
    assert policies() == OBJECTS  # folding long lines has not changed an expression


def test_the_manifest_is_installed() -> None:
    """It is part of the base that every overlay stands on."""
    assert "lint.yaml" in yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]


def test_each_policy_has_its_binding() -> None:
    """A policy without one does nothing."""
    linting = {names.LINT_POLICY, names.LINT_NAMESPACES_POLICY, names.LINT_GANGS_POLICY}
    assert {named(each) for each in POLICIES} == linting
    assert {each["spec"]["policyName"] for each in BINDINGS} == {named(each) for each in POLICIES}


@pytest.mark.parametrize("binding", BINDINGS, ids=named)
def test_a_binding_warns_and_never_refuses(binding: dict[str, Any]) -> None:
    """And only about namespaces that carry our label."""
    assert binding["spec"]["validationActions"] == ["Warn"]
    (selected,) = binding["spec"]["matchResources"]["namespaceSelector"]["matchExpressions"]
    assert selected["key"] == names.PLACEMENT


@pytest.mark.parametrize("policy", POLICIES, ids=named)
def test_an_error_in_a_policy_stops_nothing(policy: dict[str, Any]) -> None:
    """failurePolicy Ignore, and status and scale, which controllers write, are not looked at."""
    assert policy["spec"]["failurePolicy"] == "Ignore"
    for rule in policy["spec"]["matchConstraints"]["resourceRules"]:
        assert rule["operations"] == ["CREATE", "UPDATE"]
        assert not any("/" in resource for resource in rule["resources"])


@pytest.mark.parametrize("policy", POLICIES, ids=named)
def test_every_setting_has_a_sentence(policy: dict[str, Any]) -> None:
    """Which names the annotation and what would be valid."""
    messages = [each["message"] for each in policy["spec"]["validations"]]
    if named(policy) == names.LINT_GANGS_POLICY:
        expected = [f"{annotation} is invalid; expected {row.expected}" for annotation, row in ROWS.items()]
    else:
        expected = [f"{setting.annotation} is ignored; expected {setting.expected}" for setting in SETTINGS]
    assert set(expected) <= set(messages)
