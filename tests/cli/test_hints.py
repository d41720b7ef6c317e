"""Errors that say what to do next: which right is missing, where to look, what may have been meant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from cli.hints import MAPS, VIEWED, Right, meant, right_of, told
from cli.main import main
from generators.files import ROOT
from kube.errors import ApiError, Forbidden, NotFound, ServerError, Unauthorized, Unreachable
from kube.kubeconfig import namespace_of
from placement import names

RIGHTS: dict[str, tuple[str, str, str]] = {
    "GET /api/v1/nodes": ("list", "kubectl auth can-i list nodes -A", names.VIEW_ROLE),
    "GET /apis/apps/v1/deployments?limit=500": (
        "list",
        "kubectl auth can-i list deployments.apps -A",
        names.VIEW_ROLE,
    ),
    "GET /api/v1/namespaces/spotweave-system/configmaps/spotweave-state": (
        "get",
        "kubectl auth can-i get configmaps/spotweave-state -n spotweave-system",
        names.VIEW_ROLE,
    ),
    "PUT /api/v1/namespaces/spotweave-system/configmaps/spotweave-state": (
        "update",
        "kubectl auth can-i update configmaps/spotweave-state -n spotweave-system",
        names.OPERATE_ROLE,
    ),
    "POST /api/v1/namespaces/spotweave-system/configmaps": (
        "create",
        "kubectl auth can-i create configmaps -n spotweave-system",
        names.OPERATE_ROLE,
    ),
    "GET /api/v1/namespaces": ("list", "kubectl auth can-i list namespaces -A", names.VIEW_ROLE),
    "PATCH /api/v1/namespaces/spotweave-system/secrets/spotweave-webhook-tls": (
        "patch",
        "kubectl auth can-i patch secrets/spotweave-webhook-tls -n spotweave-system",
        "",
    ),
}


@pytest.mark.parametrize(("asked", "expected"), RIGHTS.items())
def test_a_missing_right_is_named_with_how_to_ask_and_who_gives_it(asked: str, expected: tuple[str, str, str]) -> None:
    """One of our roles, where one does."""
    verb, question, role = expected
    right = right_of(asked)
    assert right is not None
    assert (right.verb, right.question, right.role) == expected
    text = told(Forbidden(asked, 403, "Forbidden", "no"))
    assert text.startswith(f"you are not allowed to {verb} ")
    assert question in text
    assert (f"role={role} " in text) == bool(role)
    assert ("-n spotweave-system create rolebinding" in text) == (role == names.OPERATE_ROLE)


def test_the_roles_give_what_is_said_of_them() -> None:
    """As the manifests have them."""
    objects = [*yaml.safe_load_all((ROOT / "manifests/base/people-rbac.yaml").read_text())]
    view, operate = objects
    assert [each["metadata"]["name"] for each in objects] == [names.VIEW_ROLE, names.OPERATE_ROLE]
    assert (view["kind"], operate["kind"]) == ("ClusterRole", "Role")
    assert operate["metadata"]["namespace"] == names.SYSTEM_NAMESPACE
    whole = [rule for rule in view["rules"] if "resourceNames" not in rule]
    given = {
        f"{resource}.{group}" if group else resource
        for rule in whole
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert given == VIEWED
    assert all({"get", "list"} == set(rule["verbs"]) for rule in whole)
    (maps,) = [rule for rule in view["rules"] if "resourceNames" in rule]
    assert tuple(maps["resourceNames"]) == MAPS
    assert Right("update", "configmaps", names.STATE_MAP).role == operate["metadata"]["name"]


ERRORS: dict[str, tuple[ApiError, str, str]] = {
    "no answer": (Unreachable("GET /x", "refused"), "cannot reach the cluster", "kubectl cluster-info"),
    "unknown here": (Unauthorized("GET /x", 401, "Unauthorized", ""), "rejects your credentials", "log in again"),
    "not installed": (
        NotFound("GET /api/v1/namespaces/spotweave-system/secrets/x", 404, "NotFound", ""),
        "not found",
        "kubectl apply -k manifests/base",
    ),
    "something else": (ServerError("GET /x", 500, "", ""), "the API server failed", "kubectl get --raw /readyz"),
    "a right that cannot be told": (
        Forbidden("GET /metrics", 403, "", "no"),
        "you are not allowed to do that",
        "GET /metrics",
    ),
}


@pytest.mark.parametrize(("error", "what", "hint"), ERRORS.values(), ids=ERRORS.keys())
def test_whatever_the_cluster_says_there_is_something_to_do(error: ApiError, what: str, hint: str) -> None:
    """What went wrong comes first."""
    text = told(error)
    assert what in text.splitlines()[0]
    assert hint in text


MEANT: dict[str, tuple[str, list[str], str]] = {
    "one that is close": ("shop/wbe", ["shop/web", "bank/ledger"], "did you mean shop/web?"),
    "several": ("web-1", ["web-2", "web-3", "x"], "did you mean web-3 or web-2?"),
    "none is close, but there are few": ("zzz", ["shop", "bank"], "choose from bank, shop"),
    "none is close": ("zzz", [*"abcdef"], ""),
    "there is none": ("zzz", [], ""),
}


@pytest.mark.parametrize(("name", "known", "text"), MEANT.values(), ids=MEANT.keys())
def test_names_that_may_be_meant_are_told(name: str, known: list[str], text: str) -> None:
    """The closest first."""
    assert meant(name, known) == text


def config(path: Path, server: str = "http://127.0.0.1:9", **context: str) -> Path:
    content = {
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [
            {"name": "x", "context": {"cluster": "c", "user": "u", **context}},
            {"name": "other", "context": {"cluster": "c", "user": "u", "namespace": "bank"}},
        ],
        "current-context": "x",
    }
    path.write_text(json.dumps(content))
    return path


@pytest.mark.parametrize("command", [["status"], ["plan"], ["explain", "web"], ["drill", "spot"], ["outage", "list"]])
def test_a_cluster_that_does_not_answer_is_exit_code_3(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With what to try; nothing on standard output, which a script may read."""
    assert main([*command, "--kubeconfig", str(config(tmp_path / "k"))]) == 3
    told_to_them = capsys.readouterr()
    assert told_to_them.out == ""
    assert "cannot reach the cluster" in told_to_them.err
    assert "--context" in told_to_them.err


def test_the_namespace_is_kubectls(tmp_path: Path) -> None:
    """The context's, the chosen context's, else `default`; also from several files."""
    plain, own = config(tmp_path / "plain"), config(tmp_path / "own", namespace="shop")
    assert namespace_of(plain, None) == "default"
    assert namespace_of(own, None) == "shop"
    assert namespace_of(own, "other") == "bank"
    assert namespace_of(None, None, {"KUBECONFIG": f"{own}:{plain}"}) == "shop"
    assert namespace_of(None, None, {"HOME": str(tmp_path)}) == "default"
