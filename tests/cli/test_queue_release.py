"""`spotweave queue release`: the way out by hand, and what `queue` says where nothing would start a gang."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Collection
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from cli import access, queuerelease
from cli.errors import UsageError
from cli.gangmachinery import UNGATED, UNLED, Machinery, leader_of, machinery
from cli.queue import shown_queue
from kube.client import Client
from kube.errors import ApiError, Conflict, Forbidden, NotFound
from kube.gates import POLICY, WEBHOOKS
from kube.lease import PATH
from placement import names
from placement.configuration import Configuration
from placement.gang.settings import Gangs
from report.queue import GANGS_OFF

ON = Configuration(gangs=Gangs(enabled=True))


def raw_pod(
    name: str, gang: str = "train", namespace: str = "shop", gates: Collection[str] = (names.GANG_GATE,)
) -> Any:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name, "annotations": {names.POD_GROUP: gang}},
        "spec": {"schedulingGates": [{"name": gate} for gate in gates]},
    }


@dataclass
class GatesApi:
    """Pods, and objects by path; `refuses` are paths and pods that answer with an error."""

    pods: list[Any] = field(default_factory=list)
    objects: dict[str, Any] = field(default_factory=dict)
    refuses: dict[str, list[ApiError]] = field(default_factory=dict)
    patched: list[str] = field(default_factory=list)

    def get(self, path: str, _query: Any = None, **_rest: Any) -> bytes:
        self._refuse(path)
        if path == "/api/v1/pods":
            return json.dumps({"metadata": {"resourceVersion": "1"}, "items": self.pods}).encode()
        if path not in self.objects:
            raise NotFound(f"GET {path}", 404, "NotFound", "not found")
        return json.dumps(self.objects[path]).encode()

    def get_json(self, path: str, query: Any = None, **_rest: Any) -> Any:
        return json.loads(self.get(path, query))

    def patch(self, path: str, patch: Any, **_rest: Any) -> None:
        name = path.rpartition("/")[2]
        self._refuse(name)
        assert patch["spec"] == {"schedulingGates": [{"$patch": "delete", "name": names.GANG_GATE}]}
        assert patch["metadata"]["uid"] == name
        self.patched.append(name)

    def _refuse(self, what: str) -> None:
        if self.refuses.get(what):
            raise self.refuses[what].pop()

    @property
    def client(self) -> Client:
        return cast(Client, self)


def release(api: GatesApi, monkeypatch: pytest.MonkeyPatch, *words: str) -> Any:
    """Runs the command on this API."""

    @contextmanager
    def client_for(_args: argparse.Namespace) -> Any:
        yield api.client

    monkeypatch.setattr(access, "client_for", client_for)
    monkeypatch.setattr(access, "namespace_for", lambda args: args.namespace or "default")
    commands = argparse.ArgumentParser().add_subparsers()
    queuerelease.add_parser(commands, argparse.ArgumentParser(add_help=False))
    return queuerelease.look(commands.choices["release"].parse_args(words))


def test_the_gates_of_one_gang_go_and_the_loss_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of no other gang, and not of one of the same name elsewhere."""
    api = GatesApi([raw_pod("a"), raw_pod("b"), raw_pod("c", "other"), raw_pod("d", namespace="lab")])
    found = release(api, monkeypatch, "shop/train")
    assert (sorted(api.patched), found.code) == (["a", "b"], 0)
    text = str(found.shown())
    assert "Took the gate off 2 pods of gang shop/train" in text
    assert queuerelease.LOST in text
    assert "A rebalancer leads" not in text


def test_the_namespace_may_be_given_apart_and_names_may_have_slashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """As people write groups: team/job.1."""
    api = GatesApi([raw_pod("a", "team/job.1")])
    assert release(api, monkeypatch, "team/job.1", "-n", "shop").raw["gangs"][0]["name"] == "team/job.1"
    assert release(api, monkeypatch, "shop/team/job.1").raw["gangs"][0]["released"] == ["a"]


def test_all_gangs_are_released_or_those_of_a_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    """`--all` with nothing that waits is no error."""
    api = GatesApi([raw_pod("a"), raw_pod("b", "x"), raw_pod("d", namespace="lab"), raw_pod("e", gates=())])
    release(api, monkeypatch, "--all", "-n", "lab")
    assert api.patched == ["d"]
    release(api, monkeypatch, "--all")
    assert sorted(api.patched) == ["a", "b", "d", "d"]
    assert "nothing to release" in str(release(GatesApi(), monkeypatch, "--all").shown())


def test_a_group_may_be_named_by_the_label_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """`scheduling.x-k8s.io/pod-group`; and a pod without a group is a gang of one, by the name that `queue` shows."""
    labelled, solo = raw_pod("a"), raw_pod("b")
    labelled["metadata"] |= {"annotations": {}, "labels": {names.POD_GROUP_LABEL: "theirs"}}
    solo["metadata"]["annotations"] = {}
    api = GatesApi([labelled, solo])
    release(api, monkeypatch, "shop/theirs")
    release(api, monkeypatch, "shop/pod/b")
    assert api.patched == ["a", "b"]


@pytest.mark.parametrize("pods", [[], [raw_pod("a")]], ids=["none waits", "another waits"])
def test_an_unknown_gang_is_refused_by_name(pods: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is written, and those that exist are named."""
    api = GatesApi(pods)
    with pytest.raises(UsageError) as raised:
        release(api, monkeypatch, "shop/trian")
    assert raised.value.exit_code == 2
    assert api.patched == []
    assert "shop/train" in str(raised.value) or not pods


def test_a_conflict_is_tried_again_and_a_refusal_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The exit code is 1 where a gate is left; gates of others are no fault, and are named."""
    refused: list[ApiError] = [Forbidden("PATCH", 403, "Forbidden", "no"), Forbidden("PATCH", 403, "Forbidden", "no")]
    pods = [raw_pod("a"), raw_pod("b"), raw_pod("c", gates=(names.GANG_GATE, "kueue.x-k8s.io/admission"))]
    api = GatesApi(pods, refuses={"a": [Conflict("PATCH", 409, "Conflict", "changed")], "b": refused})
    found = release(api, monkeypatch, "shop/train")
    assert found.code == 1
    (gang,) = found.raw["gangs"]
    assert (gang["released"], gang["failed"]) == (["a", "c"], ["b"])
    assert gang["otherGates"] == {"kueue.x-k8s.io/admission": 1}
    assert "still wait for the gate kueue.x-k8s.io/admission" in str(found.shown())


def lease(age: float, holder: str = "pod-1") -> Any:
    renewed = datetime.fromtimestamp(time.time() - age, UTC).isoformat()
    return {"metadata": {"name": names.LEASE}, "spec": {"holderIdentity": holder, "renewTime": renewed}}


def test_where_somebody_leads_new_pods_get_a_gate_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a release holds for the pods that are there."""
    api = GatesApi([raw_pod("a")], {PATH: lease(1)})
    assert "get a gate again" in str(release(api, monkeypatch, "--all").shown())


@pytest.mark.parametrize(
    ("found", "expected"),
    [(None, ""), ((5.0, "pod-1"), "pod-1"), ((90.0, "pod-1"), ""), ((1.0, ""), "")],
    ids=["no Lease", "renewed", "not renewed for long", "given up"],
)
def test_who_leads(found: tuple[float, str] | None, expected: str) -> None:
    """A Lease that is not renewed for a minute is nobody's."""
    objects = {} if found is None else {PATH: lease(*found)}
    assert leader_of(GatesApi(objects=objects).client, time.time()) == expected


def test_what_keeps_gangs_from_starting_is_said() -> None:
    """Gangs off; nobody leads; no policy and no webhook gives gates. What may not be read is not known."""
    off = machinery(GatesApi().client, Configuration())
    assert list(off.warnings) == [GANGS_OFF]
    assert list(machinery(GatesApi().client, ON).warnings) == [UNLED, UNGATED]
    at_work = GatesApi(objects={PATH: lease(1), POLICY: {}})
    assert list(machinery(at_work.client, ON).warnings) == []
    before = GatesApi(objects={PATH: lease(1), WEBHOOKS: {"webhooks": [{"name": names.GATE_ENTRY}]}})
    assert list(machinery(before.client, ON).warnings) == []
    kept: dict[str, list[ApiError]] = {path: [Forbidden("GET", 403, "Forbidden", "no")] for path in (PATH, POLICY)}
    assert machinery(GatesApi(refuses=kept).client, ON).raw == {
        "enabled": True,
        "leader": None,
        "gate": None,
        "warnings": [],
    }


@pytest.mark.parametrize(
    ("around", "code"),
    [(Machinery(False), 0), (Machinery(True, "a", True), 0), (Machinery(True, "", True), 1)],
    ids=["gangs are off", "all is well", "nobody leads"],
)
def test_the_exit_code_of_an_empty_queue(around: Machinery, code: int) -> None:
    """Where gangs are switched on and nothing would start one, that is a finding."""
    found = shown_queue([], around)
    assert (found.code, found.raw["gangs"]) == (code, [])
