"""What people see of gangs and do by hand, on a real control plane: queue, preview, explain, release, Events."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.main import main
from placement import names
from tests.cluster.gangsetup import CPU, MEMBERS, GangSetup, gang_setup, pod_spec
from tests.cluster.namespaceuser import wait_for

pytestmark = pytest.mark.cluster
EVICTS_AT_ONCE = "gangs: {enabled: true, minimumRunTime: 0s}\nmoves: {minAge: 1s, afterRollout: 0s}\n"


@pytest.fixture(scope="module")
def gangs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GangSetup]:
    with gang_setup(tmp_path_factory.mktemp("config"), configuration=EVICTS_AT_ONCE) as made:
        yield made


def command(gangs: GangSetup, capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    """What `spotweave WORDS -o json` prints, and its exit code."""
    capsys.readouterr()
    code = main([*words, "-o", "json", "--kubeconfig", str(gangs.setup.user.kubeconfig)])
    out = capsys.readouterr()
    return code, json.loads(out.out) if out.out else out.err


def manifest(path: Path, name: str, namespace: str, priority: str) -> Path:
    written = {names.POD_GROUP: name, names.PRIORITY: priority}
    template = {"metadata": {"labels": {"app": name}, "annotations": written}, "spec": pod_spec(CPU)}
    meta = {"name": name, "namespace": namespace}
    spec = {"replicas": MEMBERS, "selector": {"matchLabels": {"app": name}}, "template": template}
    file = path / f"{name}.yaml"
    file.write_text(yaml.safe_dump({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": meta, "spec": spec}))
    return file


def test_a_preview_says_what_then_happens(gangs: GangSetup, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A gang in a manifest: it fits now; when it is there, a higher one would evict it, and then does, with Events."""
    namespace = gangs.setup.user.namespace
    low, high = (manifest(tmp_path, name, namespace, str(at)) for name, at in (("low", 1), ("high", 5)))
    code, seen = command(gangs, capsys, "queue", "preview", "-f", str(low))
    (first,) = seen["gangs"]
    assert (code, first["fits"], len(first["members"]), first["victims"], seen["leader"] != "") == (
        0,
        True,
        8,
        [],
        True,
    )
    gangs.setup.user.create(yaml.safe_load(low.read_text()))
    wait_for("the first to start", lambda: gangs.is_whole("low"))
    code, seen = command(gangs, capsys, "queue", "-n", namespace)
    assert (code, [each["state"] for each in seen["gangs"]], seen["warnings"]) == (0, ["Running"], [])

    code, seen = command(gangs, capsys, "queue", "preview", "-f", str(high))
    (then,) = seen["gangs"]
    assert (code, then["fits"], then["cost"]["pods"], then["victims"][0]["name"]) == (0, True, MEMBERS, "low")
    gangs.setup.user.create(yaml.safe_load(high.read_text()))
    wait_for("the other to start", lambda: gangs.is_whole("high") and gangs.waits_whole("low"))

    def told(name: str) -> Any:
        return command(gangs, capsys, "explain", f"gang/{name}", "-n", namespace)[1]

    wait_for("both sides to be told", lambda: told("high")["attempts"]["starts"] == 1 and _reasons(told("low")))
    (begun,) = [each["text"] for each in told("high")["events"] if each["reason"] == names.EVENT_GANG_PREEMPTING]
    assert f"{namespace}/low (priority 1" in begun
    assert "this loses" in begun
    lost = next(each["text"] for each in told("low")["events"] if each["reason"] == names.EVENT_GANG_PREEMPTED)
    assert f"gang {namespace}/high (priority 5) needs the room" in lost
    assert f"{MEMBERS} pods go for it" in lost
    explained = told("low")
    assert (explained["state"], explained["preview"]["fits"], explained["fine"]) == ("Waiting", False, False)
    assert explained["missing"] == MEMBERS


def _reasons(raw: Any) -> bool:
    return {names.EVENT_GANG_STARTED, names.EVENT_GANG_PREEMPTED} <= {each["reason"] for each in raw["events"]}


def test_gates_come_off_by_hand_without_a_rebalancer(gangs: GangSetup, capsys: pytest.CaptureFixture[str]) -> None:
    """The way out: an unknown gang is refused; else the scheduler places what fits, and the queue says who leads."""
    namespace = gangs.setup.user.namespace
    gangs.clear()
    gangs.setup.stop_all()
    gangs.create("train", MEMBERS + 1)
    wait_for("all members to exist", lambda: gangs.gated("train") == MEMBERS + 1)
    assert command(gangs, capsys, "queue", "release", f"{namespace}/trian")[0] == 2
    code, seen = command(gangs, capsys, "queue", "release", "train", "-n", namespace)
    assert (code, len(seen["gangs"][0]["released"])) == (0, MEMBERS + 1)
    wait_for("what fits to run", lambda: gangs.bound("train") == MEMBERS)
    assert gangs.gated("train") == 0
    assert command(gangs, capsys, "queue", "release", "--all") == (0, {"gangs": [], "notes": []})
