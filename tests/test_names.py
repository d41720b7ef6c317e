"""The manifests and the documents use the names of placement/names.py, to the letter."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from placement import names
from placement.classes import PRESETS
from placement.policy import SETTINGS

ROOT = Path(__file__).parent.parent
OURS = re.compile(r"spotweave\.dev/([a-z][a-z-]+)")
KNOWN = {value for key, value in vars(names).items() if key.isupper() and isinstance(value, str)}
DOCUMENTS = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("manifests/**/*.yaml")]
PROGRAMS = ("placement", "report", "kube", "certs", "dashboard", "webhook", "rebalancer", "demo", "cli")
WORDS = {"spotweave", "webhook", "rebalancer", "metadata.name", "enabled", "priority"}  # stand for other things, too


def base() -> list[dict[str, Any]]:
    files = sorted((ROOT / "manifests" / "base").glob("*.yaml"))
    return [each for path in files for each in yaml.safe_load_all(path.read_text()) if each]


def names_of(kind: str) -> set[str]:
    return {each["metadata"]["name"] for each in base() if each["kind"] == kind}


def test_our_objects_have_the_names_that_the_programs_look_for() -> None:
    """A Secret or Service under another name would be written, or called, in vain."""
    assert names_of("Namespace") == {names.SYSTEM_NAMESPACE}
    assert names_of("MutatingWebhookConfiguration") == {names.WEBHOOK_CONFIGURATION}
    assert names_of("Service") == {names.WEBHOOK_SERVICE, names.DASHBOARD_SERVICE}
    assert names_of("Secret") == {names.TLS_SECRET}
    assert names_of("ConfigMap") == {names.CONFIG_MAP}
    assert names_of("PriorityClass") == {names.OVERFLOW_PRIORITY}
    assert names_of("ServiceAccount") == {names.WEBHOOK_ACCOUNT, names.REBALANCER_ACCOUNT}


def test_the_webhook_configuration_calls_the_path_that_is_served() -> None:
    """One entry, our path, our Service, never blocking a pod."""
    (configuration,) = [each for each in base() if each["kind"] == "MutatingWebhookConfiguration"]
    (entry,) = configuration["webhooks"]
    service = entry["clientConfig"]["service"]
    assert entry["name"] == names.WEBHOOK_ENTRY
    assert (service["name"], service["namespace"], service["path"]) == (
        names.WEBHOOK_SERVICE,
        names.SYSTEM_NAMESPACE,
        names.WEBHOOK_PATH,
    )
    assert entry["failurePolicy"] == "Ignore"
    assert entry["sideEffects"] == "NoneOnDryRun"


def test_our_own_pods_stay_off_spot_of_every_preset() -> None:
    """Who repairs the loss of spot must not be lost with it."""
    kept_off = [(label.key, "NotIn", list(label.spot)) for label in PRESETS.values()]
    for deployment in (each for each in base() if each["kind"] == "Deployment"):
        affinity = deployment["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
        (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        assert [(each["key"], each["operator"], each["values"]) for each in term["matchExpressions"]] == kept_off


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_and_manifests_name_nothing_that_does_not_exist(path: Path) -> None:
    """Every label and annotation of our prefix that is written down anywhere is one that the code knows."""
    written = {match[1] for match in OURS.finditer(path.read_text())}
    assert {names.PREFIX + name for name in written} <= KNOWN


@pytest.mark.parametrize("package", PROGRAMS)
def test_names_are_not_typed_a_second_time(package: str) -> None:
    """A name that is spelt in two places will be changed in one. The local cluster may not import us."""
    typed = [
        f"{path.relative_to(ROOT)}:{node.lineno} {node.value}"
        for path in sorted((ROOT / package).rglob("*.py"))
        if path != ROOT / "placement" / "names.py"
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value in KNOWN - WORDS
    ]
    assert typed == []


def test_the_list_of_changes_names_files_that_exist() -> None:
    """A newcomer who follows CONTRIBUTING finds each place; NAME stands for a new module."""
    listed = (ROOT / "CONTRIBUTING.md").read_text().partition("## Where a change goes")[2].partition("\n## ")[0]
    places = {place for place in re.findall(r"`([\w./-]+/[\w.-]+\.\w+)`", listed) if "NAME" not in place}
    assert len(places) > 15
    assert [place for place in sorted(places) if not (ROOT / place).is_file()] == []


def test_every_setting_is_documented_with_its_name() -> None:
    """docs/policy.md lists each annotation of the parser's table."""
    text = (ROOT / "docs" / "policy.md").read_text()
    assert [setting.name for setting in SETTINGS if f"`{setting.name}`" not in text] == []


def test_a_page_stays_with_one_replica() -> None:
    """Replicas remember different things; a page that alternates between them would show now this, now that."""
    services = {each["metadata"]["name"]: each for each in base() if each["kind"] == "Service"}
    assert services[names.DASHBOARD_SERVICE]["spec"]["sessionAffinity"] == "ClientIP"
