"""The examples of gangs: none has a mistake, and each does in the demo's cluster what its first lines say."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from cli.expand import PriorityRules, expanded, objects_in
from cli.lint import read_all, reports
from cli.plan import Picture
from cli.queuepreview import of_manifests
from localcluster import demo_profile
from placement.configuration import Configuration
from placement.gang.settings import Gangs
from placement.gang.terms import terms_of
from placement.model import Class, Node, Pod, Snapshot
from report.gangpreview import ShownPreview
from report.savings import Prices
from tests.builders.model import NOW, namespace, node

EXAMPLES = Path(__file__).parent.parent / "manifests" / "examples"
FILES = sorted((EXAMPLES / "gangs").glob("*.yaml"))
ON = Configuration(gangs=Gangs(enabled=True))


def nodes() -> dict[str, Node]:
    return {
        name: node(name, Class(pool.capacity_class or "on-demand"), pool.zone, 8000, pool.instance_type, taints=())
        for pool in demo_profile().pools
        for name in pool.node_names
    }


def previewed(name: str, *running: Pod) -> ShownPreview:
    """The gang of an example, beside what runs."""
    found = expanded(objects_in(str(EXAMPLES / "gangs" / name)), "demo", PriorityRules(), NOW)
    there = Snapshot({"demo": namespace("demo")}, nodes(), pods=running)
    (shown,) = of_manifests(Picture(there, ON, now=NOW), found, Prices(), ())
    return shown


def test_there_are_the_scenarios_that_people_look_for() -> None:
    """Training on spot first, a launcher with workers, two workloads, and the three of any gang scheduler."""
    names = {"train", "mpi", "two-workloads", "success", "too-large", "priority-low", "priority-high"}
    assert {file.stem for file in FILES} == names


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_no_example_has_a_mistake(file: Path) -> None:
    """For `lint`, for what admission reads, and for who reads YAML with strings that are no numbers."""
    read = read_all([str(file)])
    assert (read.problems, list(reports(read.objects, Configuration()))) == ([], [])
    assert file.read_text().startswith("# ")
    found = expanded(objects_in(str(file)), "demo", PriorityRules(), NOW)
    assert found.members
    assert [mistake for pod in found.members for mistake in terms_of(pod.annotations)[1]] == []
    for raw in yaml.safe_load_all(file.read_text()):
        assert raw["metadata"]["namespace"] == "demo"


@pytest.mark.parametrize(
    ("name", "members", "classes"),
    [("train", 4, {"spot"}), ("success", 3, None), ("mpi", 5, None), ("two-workloads", 6, None)],
)
def test_gangs_that_fit_start_whole(name: str, members: int, classes: set[str] | None) -> None:
    """All members at once; the training Job on spot."""
    raw = previewed(f"{name}.yaml").raw
    assert (raw["fits"], len(raw["members"]), raw["victims"], raw["notes"]) == (True, members, [], [])
    assert classes in (None, {each["class"] for each in raw["members"]})


def test_the_gang_that_does_not_fit_evicts_nobody() -> None:
    """Although what runs has a lower priority."""
    raw = previewed("too-large.yaml", *background()).raw
    assert (raw["fits"], raw["victims"]) == (False, [])
    assert "does not fit even if everything of lower priority is evicted" in raw["reason"]


def background() -> list[Pod]:
    """The gang of low priority as it runs, one member on each on-demand node."""
    found = expanded(objects_in(str(EXAMPLES / "gangs" / "priority-low.yaml")), "demo", PriorityRules(), NOW)
    there = [name for name, each in nodes().items() if each.labels["node.kubernetes.io/capacity"] == "on-demand"]
    return [
        replace(pod, node=name, gates=(), phase="Running", ready=True, created=NOW - 3600)
        for pod, name in zip(found.members, there, strict=True)
    ]


def test_the_gang_of_high_priority_takes_the_room_of_the_low_one() -> None:
    """Whole; without it there is room for the high one, too."""
    assert previewed("priority-high.yaml").raw["victims"] == []
    raw = previewed("priority-high.yaml", *background()).raw
    assert (raw["fits"], [each["name"] for each in raw["victims"]]) == (True, ["background"])
    assert (raw["cost"]["pods"], raw["victims"][0]["whole"]) == (6, True)
