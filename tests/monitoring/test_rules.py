"""Rules and alerts: Prometheus' own tool finds no fault, every alert has a case, a runbook and somebody who may ask."""

from __future__ import annotations

import re
import subprocess
from typing import Any

import pytest
import yaml

from generators.files import ROOT
from placement.plan.actions import Blocked

RULES = ROOT / "manifests/monitoring/rules.yaml"
CASES = ROOT / "tests/monitoring/rules.yaml"
ALERTS: dict[str, dict[str, Any]] = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
}


def fired_in_cases() -> set[str]:
    """The alerts that some case expects to fire."""
    found: set[str] = set()
    for case in yaml.safe_load(CASES.read_text())["tests"]:
        found.update(each["alertname"] for each in case.get("alert_rule_test", ()) if each.get("exp_alerts"))
        for each in case.get("promql_expr_test", ()):
            if 'alertstate="firing"' in each["expr"] and (samples := each.get("exp_samples")):
                texts = [each["expr"], *(sample["labels"] for sample in samples)]
                found.update(name for text in texts for name in re.findall(r'alertname="(\w+)"', text))
    return found


def promtool(*arguments: str) -> str:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.prometheus
def test_prometheus_understands_the_rules() -> None:
    """`promtool check rules`, and its lints."""
    assert "SUCCESS" in promtool("check", "rules", "--lint=all", "--lint-fatal", str(RULES))


@pytest.mark.prometheus
def test_alerts_fire_when_they_should_and_only_then() -> None:
    """`promtool test rules` with the cases of tests/monitoring/rules.yaml."""
    assert "SUCCESS" in promtool("test", "rules", str(CASES))


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_case_and_a_runbook(alert: str) -> None:
    """Under the heading that its annotation names, and listed among the alerts."""
    rule = ALERTS[alert]
    path, _, anchor = rule["annotations"]["runbook"].partition("#")
    headings = {
        line.removeprefix("## ").lower() for line in (ROOT / path).read_text().splitlines() if line[:3] == "## "
    }
    assert (path, anchor) == ("docs/runbooks.md", alert.lower())
    assert anchor in headings
    assert alert in fired_in_cases()
    assert f"`{alert}`" in (ROOT / "docs/monitoring.md").read_text()
    assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert {"summary", "description"} < set(rule["annotations"])


def test_runbooks_are_about_alerts_that_exist() -> None:
    """An alert that was renamed leaves none behind."""
    headings = re.findall(r"^## (\w+)$", (ROOT / "docs/runbooks.md").read_text(), re.MULTILINE)
    assert headings == [*ALERTS]


def test_reasons_that_block_nobody_are_reasons_that_exist() -> None:
    """The alert on blocked moves leaves them out by name."""
    (left_out,) = re.findall(r'reason!~"([^"]+)"', ALERTS["SpotweaveMovesBlocked"]["expr"])
    assert set(left_out.split("|")) <= {each.label for each in Blocked}
