"""With a real kubectl: the plugin, the namespace of a context, rights, and what kustomize makes of the manifests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.main import main
from demo.supervisor import access_for
from generators.files import ROOT
from localcluster import kubectl
from placement import names
from tests.builders.api import raw_workload
from tests.cluster.namespaceuser import NamespaceUser, wait_for

pytestmark = pytest.mark.cluster

MONITORING = ROOT / "manifests/monitoring"


def typed(user: NamespaceUser, *arguments: str, context: str = "") -> subprocess.CompletedProcess[str]:
    """As on a person's machine: kubectl and our programs are on PATH."""
    path = os.pathsep.join((str(kubectl.find().parent), str(Path(sys.executable).parent), os.environ["PATH"]))
    variables = {**os.environ, "PATH": path, "KUBECONFIG": str(context or user.kubeconfig), "COLUMNS": "80"}
    command = ["kubectl", *arguments]
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


def test_kubectl_finds_the_plugin_and_it_finds_the_cluster(user: NamespaceUser) -> None:
    """`kubectl spotweave status` is `spotweave status`, exit code included."""
    user.create(raw_workload("Deployment", "web", 10))
    user.rest("web")
    assert "kubectl-spotweave" in typed(user, "plugin", "list").stdout
    done = typed(user, "spotweave", "status", "-n", user.namespace)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"{user.namespace}/web (deploy)" in done.stdout
    raw = json.loads(typed(user, "spotweave", "status", "-n", user.namespace, "-o", "json").stdout)
    assert [each["actual"] for each in raw["workloads"]] == [{"spot": 7, "onDemand": 3}]
    assert raw["savings"]["sources"] == {"default": 7}
    wrong = typed(user, "spotweave", "status", "-n", f"{user.namespace}x")
    assert wrong.returncode != 0
    assert "did you mean" in wrong.stderr


def test_the_plugin_looks_where_kubectl_would(user: NamespaceUser, tmp_path: Path) -> None:
    """In the namespace of the context."""
    user.create(raw_workload("Deployment", "web", 1))
    user.rest("web")
    raw = yaml.safe_load(user.kubeconfig.read_text())
    for each in raw["contexts"]:
        each["context"]["namespace"] = user.namespace
    own = tmp_path / "config"
    own.write_text(yaml.safe_dump(raw))
    done = typed(user, "spotweave", "explain", "web", context=str(own))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"Deployment {user.namespace}/web: ")
    assert "no such" in typed(user, "spotweave", "explain", "web").stderr  # in `default`, where it is not


@pytest.fixture
def stranger(user: NamespaceUser, tmp_path: Path) -> Path:
    """Access of an account that may do nothing yet."""
    account = f"stranger-{user.namespace}"
    path = f"/api/v1/namespaces/{names.SYSTEM_NAMESPACE}/serviceaccounts"
    user.client.post(path, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}})
    file = tmp_path / "stranger"
    file.write_bytes(access_for(user.kubeconfig, user.client, account))
    return file


def bind(user: NamespaceUser, stranger: Path, role: str) -> None:
    account = json.loads(stranger.read_text())["current-context"]
    subject = f"--serviceaccount={names.SYSTEM_NAMESPACE}:{account}"
    kind = "role" if role == names.OPERATE_ROLE else "clusterrole"
    made = ("create", f"{kind}binding", f"{role}-{account}", f"--{kind}={role}", subject)
    kubectl.call("-n", names.SYSTEM_NAMESPACE, *made, kubeconfig=user.kubeconfig)


def test_who_may_not_look_is_told_which_role_is_missing_and_it_suffices(
    user: NamespaceUser, stranger: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Then all that look work without a complaint; to pause takes the other role, which is told, too."""

    def run(*arguments: str) -> tuple[int, str]:
        code = main([*arguments, "--kubeconfig", str(stranger), "--log-level", "warning"])
        return code, capsys.readouterr().err

    code, told = run("status")
    assert code == 3
    assert "you are not allowed to list namespaces" in told
    assert "kubectl auth can-i list namespaces -A" in told
    assert "--clusterrole=spotweave-view" in told
    bind(user, stranger, names.VIEW_ROLE)
    wait_for("the right", lambda: run("status")[0] != 3)
    for command in (["status"], ["plan"], ["drill", "spot"], ["outage", "list"]):
        code, told = run(*command)
        assert code in (0, 1), command
        assert told == "", command
    code, told = run("pause")
    assert code == 3
    assert "-n spotweave-system create rolebinding NAME --role=spotweave-operate" in told
    bind(user, stranger, names.OPERATE_ROLE)
    wait_for("the right", lambda: run("pause", "--for", "1s")[0] == 0)
    assert run("resume") == (0, "")


@pytest.mark.parametrize("folder", ["grafana", "operator"])
def test_kustomize_renders_what_is_for_monitoring(folder: str) -> None:
    """Every file that is beside the kustomization is in it."""
    rendered = [each for each in yaml.safe_load_all(kubectl.call("kustomize", str(MONITORING / folder))) if each]
    assert rendered
    text = yaml.safe_dump_all(rendered)
    for file in (MONITORING / folder).iterdir():
        if file.name != "kustomization.yaml":
            assert all(part in text for part in marks(file)), file


def marks(file: Path) -> list[str]:
    """What tells a file's content: a dashboard's UID and its name, an object's kind and name."""
    if file.suffix == ".json":
        return [file.name, json.loads(file.read_text())["uid"]]
    raw: Any = yaml.safe_load(file.read_text())
    return [raw["kind"], raw["metadata"]["name"]]
