"""`spotweave run` with gangs: it installs what this API server needs for them; without gangs it removes that."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from demo.gangs import (
    OVERLAY,
    OVERLAY_WITH_GANGS,
    OVERLAY_WITHOUT_POLICY,
    overlay_for,
    remove_gangs,
    wants_gangs,
)
from kube.gates import BARE_BINDING, BARE_POLICY, BINDING, POLICIES, POLICY
from tests.kube.scripted import Answer, scripted_api

OLD = json.dumps({"resources": [{"name": "validatingadmissionpolicies"}]}).encode()
NEW = json.dumps({"resources": [{"name": "validatingadmissionpolicies"}, {"name": POLICIES}]}).encode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [(None, False), ("", False), ("gangs: {}", False), ("gangs: {enabled: true}", True), ("cordon: move", False)],
)
def test_gangs_are_installed_where_the_configuration_asks_for_them(text: str | None, expected: bool) -> None:
    """And nowhere else."""
    assert wants_gangs(text) is expected


def test_where_the_api_server_can_give_no_gate_the_webhook_does() -> None:
    """Before 1.36. Nothing is asked where gangs are off."""
    with scripted_api() as (script, client):
        script.answer(OLD, NEW)
        assert overlay_for(client, "gangs: {enabled: true}") == OVERLAY_WITHOUT_POLICY
        assert overlay_for(client, "gangs: {enabled: true}") == OVERLAY_WITH_GANGS
        assert overlay_for(client, None) == OVERLAY


def test_without_gangs_what_an_earlier_run_has_installed_is_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The binding and the policy of the gate first; then all that the component has beyond the rest."""
    raw = "apiVersion: v1\nkind: {kind}\nmetadata: {{name: {name}}}\n---\n"
    both, more = raw.format(kind="ConfigMap", name="a"), raw.format(kind="ClusterRole", name="b")
    deleted: list[str] = []

    def call(*arguments: str, kubeconfig: Path | None = None, stdin: str | None = None) -> str:
        if arguments[0] == "kustomize":
            return both + more if arguments[1].endswith("local-gangs-bare") else both
        deleted.append(stdin or "")
        return ""

    monkeypatch.setattr("localcluster.kubectl.call", call)
    with scripted_api() as (script, client):
        script.answer(*[b"{}"] * 5, Answer(b"{}", 404))
        remove_gangs(Path("kubeconfig"), client)
        requests = [script.next_request() for _ in range(5)]
        assert [(each.method, each.path) for each in requests] == [
            ("GET", POLICY),
            ("DELETE", BINDING),
            ("DELETE", BARE_BINDING),
            ("DELETE", POLICY),
            ("DELETE", BARE_POLICY),
        ]
        assert len(deleted) == 1
        assert "name: b" in deleted[0]
        assert "name: a" not in deleted[0]
        remove_gangs(Path("kubeconfig"), client)
        assert len(deleted) == 1
