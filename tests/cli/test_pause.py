"""`spotweave pause` and `spotweave resume`, as an operator and the API server see them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cli.main import main
from cli.outage import outages_for_reading
from cli.pause import pause_for_reading
from kube.configmaps import PATH
from placement import names
from placement.pause import KEY, Pause
from report.sentences import pause_sentence
from tests.builders.api import page, raw_node, status
from tests.kube.scripted import Answer, Script, scripted_api, serving

STATE = f"{PATH}/{names.STATE_MAP}"
ABSENT = Answer(status(404, "NotFound"), status=404)
FORBIDDEN = Answer(status(403, "Forbidden"), status=403)
OVER = '{"since": 1, "until": 2}'
ENDLESS = '{"since": 1, "until": null, "by": "alice", "reason": "why"}'


class ScriptedOperator:
    """Runs commands against a scripted API server."""

    def __init__(self, script: Script, kubeconfig: Path) -> None:
        self.script = script
        self._kubeconfig = kubeconfig

    def run(self, *arguments: str, answers: list[Answer | bytes]) -> int:
        self.script.answer(*answers)
        return main([*arguments, "--kubeconfig", str(self._kubeconfig)])

    def written(self) -> tuple[str, str, dict[str, str]]:
        """How, where and what the ConfigMap was written, after it was read."""
        assert self.script.next_request().path == STATE
        request = self.script.next_request()
        return request.method, request.path, json.loads(request.body)["data"]


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[ScriptedOperator]:
    script, file = Script(), tmp_path / "kubeconfig"
    with serving(script) as url:
        content = {
            "clusters": [{"name": "c", "cluster": {"server": url}}],
            "users": [{"name": "u", "user": {}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file.write_text(json.dumps(content))
        yield ScriptedOperator(script, file)


def state(**data: str) -> bytes:
    return json.dumps({"metadata": {"name": names.STATE_MAP, "resourceVersion": "1"}, "data": data}).encode()


def test_a_pause_is_noted_with_who_why_and_until_when(
    operator: ScriptedOperator, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first note makes the ConfigMap."""
    assert operator.run("pause", "--for", "1h", "--reason", "black friday", answers=[ABSENT, b"{}"]) == 0
    method, path, data = operator.written()
    pause = json.loads(data[KEY])
    assert (method, path) == ("POST", PATH)
    assert (pause["until"], pause["reason"]) == (pause["since"] + 3600, "black friday")
    said = capsys.readouterr().out
    assert said.startswith("Paused since 20")
    assert said.endswith(f", by {pause['by']}: black friday\n")


def test_a_pause_without_a_duration_waits_for_resume(
    operator: ScriptedOperator, capsys: pytest.CaptureFixture[str]
) -> None:
    """It replaces the one that stands; what stands beside it stays."""
    before = state(**{KEY: ENDLESS, "outages.json": "…"})
    assert operator.run("pause", answers=[before, b"{}"]) == 0
    method, path, data = operator.written()
    assert (method, path, data["outages.json"]) == ("PUT", STATE, "…")
    assert json.loads(data[KEY])["until"] is None
    assert json.loads(data[KEY])["reason"] == ""
    assert "until `spotweave resume`" in capsys.readouterr().out


RESUMED: dict[str, tuple[str, str]] = {
    "one that stands": (ENDLESS, "Resumed.\n"),
    "one that is garbled": ("{", "Resumed.\n"),
    "one that is over": (OVER, "Moves were not paused.\n"),
}


@pytest.mark.parametrize(("text", "said"), RESUMED.values(), ids=RESUMED.keys())
def test_resuming_takes_the_note_away(
    operator: ScriptedOperator, capsys: pytest.CaptureFixture[str], text: str, said: str
) -> None:
    """Whatever it says."""
    assert operator.run("resume", answers=[state(**{KEY: text, "other": "kept"}), b"{}"]) == 0
    assert operator.written() == ("PUT", STATE, {"other": "kept"})
    assert capsys.readouterr().out == said


def test_resuming_what_is_not_paused_is_fine(operator: ScriptedOperator, capsys: pytest.CaptureFixture[str]) -> None:
    """What is asked for is so; nothing is written."""
    assert operator.run("resume", answers=[ABSENT]) == 0
    assert capsys.readouterr().out == "Moves were not paused.\n"


def test_scripts_are_told_what_was_done(operator: ScriptedOperator, capsys: pytest.CaptureFixture[str]) -> None:
    """The pause that stands now; whether one stood; what is noted as out."""

    def told_json(*arguments: str, answers: list[Answer | bytes]) -> Any:
        assert operator.run(*arguments, "-o", "json", answers=answers) == 0
        return json.loads(capsys.readouterr().out)

    paused = told_json("pause", "--for", "1h", "--reason", "why", answers=[ABSENT, b"{}"])["paused"]
    assert (paused["until"] - paused["since"], paused["reason"]) == (3600, "why")
    stood = told_json("resume", answers=[state(**{KEY: ENDLESS}), b"{}"])
    assert stood == {"paused": None, "resumed": True}
    assert told_json("resume", answers=[ABSENT]) == {"paused": None, "resumed": False}
    noted = told_json("outage", "set", "--zone", "a", "--for", "1h", answers=[ABSENT, b"{}", FORBIDDEN])
    assert [(each["class"], each["zones"]) for each in noted["outages"]] == [("spot", ["a"])]
    assert told_json("outage", "clear", answers=[ABSENT, b"{}"])["outages"] == []


# Namespaces, nodes, Deployments, StatefulSets, ReplicaSets, pods, budgets, quotas, claims, volumes, CSINodes.
LISTS = 11
EMPTY = json.dumps({"metadata": {"resourceVersion": "1"}, "items": []}).encode()


def test_where_nothing_is_installed_there_is_nothing_to_uninstall(
    operator: ScriptedOperator, capsys: pytest.CaptureFixture[str]
) -> None:
    """No pause can be noted, no webhook is configured, and no pod carries anything: what is asked for is so."""
    assert operator.run("uninstall", answers=[*[ABSENT] * 8, *[EMPTY] * LISTS, EMPTY]) == 0
    assert capsys.readouterr().out == "Spotweave is not installed, and no pod carries anything of it.\n"


def test_pods_that_are_still_released_are_told_though_the_namespace_is_gone(
    operator: ScriptedOperator, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whoever deleted the manifests first; its ReplicaSet is gone, too, so it cannot be put back."""
    metadata = {
        "name": "web-0",
        "namespace": "shop",
        "uid": "u",
        "labels": {names.POD_TEMPLATE_HASH: "released-h"},
        "annotations": {names.RELEASED: "2026-11-16T00:00:00Z/h"},
    }
    pods = json.dumps({"metadata": {"resourceVersion": "1"}, "items": [{"metadata": metadata}]}).encode()
    look: list[Answer | bytes] = [*[EMPTY] * 5, pods, *[EMPTY] * (LISTS - 6)]
    assert operator.run("uninstall", answers=[*[ABSENT] * 8, *look * 2, EMPTY, *look, EMPTY, EMPTY]) == 1
    assert "  kubectl delete pod -n shop web-0" in capsys.readouterr().out.splitlines()


def test_uninstalling_cleans_pods_up_after_admission_has_ended(
    operator: ScriptedOperator, capsys: pytest.CaptureFixture[str]
) -> None:
    """An adopted pod carries no affinity, and is not counted as one that does."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-h", "uid": "rs", "controller": True}
    annotations = {names.DECISION: "rs/adopted-u", names.SLOT: "0", names.REASON: "adopted", "theirs": "kept"}
    labels = {"app": "web", names.CLASS: "spot"}
    common: dict[str, Any] = {"namespace": "shop", "labels": labels, "ownerReferences": [owner]}
    adopted = {"metadata": {"name": "web-0", "uid": "u", "annotations": annotations, **common}}
    placed = {
        "metadata": {"name": "web-1", "uid": "v", "annotations": {**annotations, names.DECISION: "rs/id"}, **common},
        "spec": {"nodeName": "n"},
    }
    pods = json.dumps({"metadata": {"resourceVersion": "1"}, "items": [adopted, placed]}).encode()
    look: list[Answer | bytes] = [*[EMPTY] * 5, pods, *[EMPTY] * (LISTS - 6)]
    answers = [*[ABSENT] * 4, state(), *[b"{}"] * 3, *look * 2, EMPTY, *look, b"{}", b"{}", EMPTY, EMPTY]
    assert operator.run("uninstall", answers=answers) == 0
    assert capsys.readouterr().out.splitlines() == [
        "Stopped moves and admission.",
        "Removed labels and annotations of Spotweave from 2 pods; "
        "1 of them keeps its node affinity until it is recreated.",
        "Now delete the installed objects, the way you applied them:",
        "  kubectl delete -k manifests/base --ignore-not-found",
    ]
    requests = [operator.script.next_request() for _ in answers]
    for request in requests[6:8]:
        assert (request.method, request.path.rpartition("/")[2]) == ("DELETE", names.WEBHOOK_CONFIGURATION)
    assert [request.path.split("/")[-2][:8] for request in requests[6:8]] == ["mutating", "validati"]
    for request in requests[-4:-2]:
        written = json.loads(request.body)["metadata"]
        assert request.method == "PATCH"
        assert written["annotations"] == dict.fromkeys((names.DECISION, names.REASON, names.SLOT))
        assert written["labels"] == {names.CLASS: None}


def gated(name: str, *gates: str) -> dict[str, Any]:
    """A member of a gang that waits."""
    labels = {names.GANG_LABEL: names.GANG_MEMBER}
    metadata = {"namespace": "shop", "name": name, "uid": f"u-{name}", "labels": labels}
    return {"metadata": metadata, "spec": {"schedulingGates": [{"name": gate} for gate in gates]}}


def test_uninstalling_takes_the_gate_off_members_that_wait_after_no_new_one_gets_it(
    operator: ScriptedOperator, capsys: pytest.CaptureFixture[str]
) -> None:
    """The policy goes first of all; other people's gates stay; the classes that only members use go last."""
    raw_pods = [gated("a", names.GANG_GATE), gated("b", "example.com/wait"), gated("c", "x/y", names.GANG_GATE)]
    pods = json.dumps({"metadata": {"resourceVersion": "1"}, "items": raw_pods}).encode()
    twins = [{"metadata": {"name": name}} for name in ("high", f"{names.TWIN_PREFIX}high")]
    classes = json.dumps({"metadata": {"resourceVersion": "1"}, "items": twins}).encode()
    look: list[Answer | bytes] = [*[EMPTY] * 5, pods, *[EMPTY] * (LISTS - 6)]
    freed: list[Answer | bytes] = [pods, b"{}", b"{}", EMPTY]
    answers = [b"{}", ABSENT, b"{}", *[ABSENT] * 5, *look * 2, *freed, *[EMPTY] * LISTS, classes, b"{}", EMPTY]
    assert operator.run("uninstall", answers=answers) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "Stopped gangs."
    assert "Took the gate off 2 pods that waited for a gang. They start one by one." in printed
    assert "Deleted 1 PriorityClass of members of gangs." in printed
    requests = [operator.script.next_request() for _ in answers]
    kinds = [*["mutatingadmissionpolicybindings"] * 2, *["mutatingadmissionpolicies"] * 2]
    assert [(each.method, each.path.split("/")[-2]) for each in requests[:4]] == [("DELETE", kind) for kind in kinds]
    patched = {each.path.rpartition("/")[2]: json.loads(each.body) for each in requests if each.method == "PATCH"}
    assert sorted(patched) == ["a", "c"]
    assert patched["c"]["metadata"]["uid"] == "u-c"
    assert patched["c"]["spec"] == {"schedulingGates": [{"$patch": "delete", "name": names.GANG_GATE}]}
    assert (requests[-2].method, requests[-2].path.rpartition("/")[2]) == ("DELETE", f"{names.TWIN_PREFIX}high")


NEEDED: dict[str, tuple[list[str], str]] = {
    "pause": (["pause"], names.OPERATE_ROLE),
    "resume": (["resume"], names.OPERATE_ROLE),
    "outage set": (["outage", "set"], names.OPERATE_ROLE),
    "outage clear": (["outage", "clear"], names.OPERATE_ROLE),
    "outage list": (["outage", "list"], names.VIEW_ROLE),
}


@pytest.mark.parametrize(("command", "role"), NEEDED.values(), ids=NEEDED.keys())
def test_who_lacks_rights_is_told_of_the_role_that_gives_all_of_them(
    operator: ScriptedOperator, capsys: pytest.CaptureFixture[str], command: list[str], role: str
) -> None:
    """The first call only reads; the role for that would not let them write."""
    assert operator.run(*command, answers=[FORBIDDEN]) == 3
    assert f"role={role} " in capsys.readouterr().err


def nodes(*zones: str) -> bytes:
    return page(*(raw_node(f"n-{zone}", {names.ZONE: zone}) for zone in zones), version=1, kind="NodeList")


DOUBTS: dict[str, tuple[Answer | bytes, str]] = {
    "a zone where no node is": (
        nodes("zone-b", "zone-a"),
        "spotweave: warning: no node is in zone-x; choose from zone-a, zone-b\n",
    ),
    "the only other zone": (nodes("zone-a"), "spotweave: warning: no node is in zone-x; choose from zone-a\n"),
    "no zones at all": (nodes(""), "spotweave: warning: no node is in zone-x; no node has a zone label\n"),
    "a zone with nodes": (nodes("zone-x", "zone-a"), ""),
    "whoever may not see nodes": (FORBIDDEN, ""),
}


@pytest.mark.parametrize(("answer", "warning"), DOUBTS.values(), ids=DOUBTS.keys())
def test_an_outage_where_no_node_is_is_noted_with_a_warning(
    operator: ScriptedOperator, capsys: pytest.CaptureFixture[str], answer: Answer | bytes, warning: str
) -> None:
    """All nodes of a zone may be gone, so it is no error."""
    assert operator.run("outage", "set", "--zone", "zone-x", answers=[ABSENT, b"{}", answer]) == 0
    assert operator.written()[0] == "POST"
    told_to_them = capsys.readouterr()
    assert "zone-x" in told_to_them.out
    assert told_to_them.err == warning


def test_a_class_that_there_is_not_is_told_with_those_that_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    """Bad usage."""
    with pytest.raises(SystemExit, match="2"):
        main(["outage", "set", "--class", "foo"])
    assert "--class: expected on-demand or spot, got 'foo'" in capsys.readouterr().err


LISTED: dict[str, tuple[Answer | bytes, dict[str, Any] | None, list[str]]] = {
    "nothing": (ABSENT, None, []),
    "a pause": (
        state(**{KEY: ENDLESS}),
        {"since": 1.0, "until": None, "by": "alice", "reason": "why"},
        ["Paused since 1970-01-01 00:00:01Z, until `spotweave resume`, by alice: why"],
    ),
    "a pause that is over": (state(**{KEY: OVER}), None, []),
}


@pytest.mark.parametrize(("answer", "expected", "lines"), LISTED.values(), ids=LISTED.keys())
def test_outages_are_listed_below_the_pause(
    operator: ScriptedOperator,
    capsys: pytest.CaptureFixture[str],
    answer: Answer | bytes,
    expected: dict[str, Any] | None,
    lines: list[str],
) -> None:
    """For machines it is `paused`."""
    assert operator.run("outage", "list", "-o", "json", answers=[answer, answer]) == 0
    assert json.loads(capsys.readouterr().out) == {"paused": expected, "version": 0, "outages": []}
    assert operator.run("outage", "list", answers=[answer, answer]) == 0
    assert capsys.readouterr().out.splitlines() == [*lines, "No outage is noted (version 0)."]


BAD = {
    "no duration": ["--for", "soon"],
    "a duration without a unit": ["--for", "60"],
    "of no length": ["--for", "0s"],
    "a reason that is a story": ["--reason", "x" * 201],
}


@pytest.mark.parametrize("options", BAD.values(), ids=BAD.keys())
def test_bad_usage_is_exit_code_2(operator: ScriptedOperator, options: list[str]) -> None:
    """And nobody is asked anything."""
    with pytest.raises(SystemExit) as ended:
        operator.run("pause", *options, answers=[])
    assert ended.value.code == 2
    assert operator.script.asked.empty()


@pytest.mark.parametrize("command", ["pause", "resume"])
def test_a_cluster_that_says_no_is_exit_code_3(operator: ScriptedOperator, command: str) -> None:
    """Whoever pauses must know that it did not work; also where others are faster, time and again."""
    assert operator.run(command, answers=[FORBIDDEN]) == 3
    conflict = Answer(status(409, "Conflict"), status=409)
    assert operator.run(command, answers=[state(**{KEY: ENDLESS}), conflict] * 5) == 3


def test_who_may_not_read_the_state_is_told_so(caplog: pytest.LogCaptureFixture) -> None:
    """And sees the rest of the status."""
    with scripted_api() as (script, client):
        script.answer(FORBIDDEN, FORBIDDEN)
        assert pause_for_reading(client, 0.0) is None
        assert outages_for_reading(client, 0.0) == ()
    assert "a pause is not shown" in caplog.text
    assert "outages are not shown" in caplog.text


TOLD: dict[str, tuple[Pause, str]] = {
    "with an end": (
        Pause(1750000000, 1750003600, "alice", "black friday"),
        "Paused since 2025-06-15 15:06:40Z, until 2025-06-15 16:06:40Z, by alice: black friday",
    ),
    "without": (Pause(1750000000), "Paused since 2025-06-15 15:06:40Z, until `spotweave resume`, by operator"),
    "beyond the calendar": (Pause(0, 1e300), "Paused since 1970-01-01 00:00:00Z, until the end of time, by operator"),
    "garbled": (
        Pause(0, reason="pause.json is unreadable", is_garbled=True),
        "Paused: pause.json is unreadable; `spotweave resume` clears it",
    ),
}


@pytest.mark.parametrize(("pause", "expected"), TOLD.values(), ids=TOLD.keys())
def test_a_pause_is_told_in_a_line(pause: Pause, expected: str) -> None:
    """Since when, until when, by whom and why."""
    assert pause_sentence(pause) == expected
