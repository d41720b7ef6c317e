"""`spotweave queue preview`: where a gang would run, and who would go, before anything happens."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from cli.errors import UsageError
from cli.expand import PriorityRules, expanded, objects_in
from cli.plan import Picture, index_of
from cli.queuepreview import gang_scene, of_cluster, of_manifests
from placement import names
from placement.configuration import Configuration
from placement.gang.settings import Gangs
from placement.gang.twins import ScopedQuota, twin_name
from placement.model import Class, Job, Key, Namespace, Needs, Node, Pod, PriorityClass, Quota, Snapshot
from placement.plan.select import plan
from report.gangpreview import ShownPreview
from report.savings import Prices
from tests.builders.model import NOW, namespace, node
from tests.placement.test_gang import GROUP, kept, member

ON = Configuration(gangs=Gangs(enabled=True))
CPU = Needs(requests={"cpu": 1000})
FOUR = {**GROUP, names.POD_GROUP_MIN_MEMBER: "4"}
HIGH = PriorityClass("high", 100)
TWIN = PriorityClass(twin_name("high"), 100, never=True)


def picture(*pods: Pod, nodes: dict[str, Node] | None = None, **fields: Any) -> Picture:
    there = nodes if nodes is not None else {"n1": node("n1", cpu=4000)}
    return Picture(Snapshot({"shop": namespace()}, there, pods=pods, **fields), ON, now=NOW)


def low(age: float = 900.0) -> list[Pod]:
    """A gang of four that fills the node."""
    mine = {**FOUR, names.POD_GROUP: "low"}
    found = (member(n, "n1", needs=CPU, annotations=mine, created=NOW - age) for n in range(4))
    return [replace(pod, name=f"low-{pod.name}", uid=f"low-{pod.name}") for pod in found]


def asked(name: str, at: Picture) -> ShownPreview:
    args = argparse.Namespace(gang=name, namespace=None, kubeconfig=None, context=None)
    return of_cluster(args, at, Prices(), ())


# --- a gang in the cluster -------------------------------------------------------------------------------------------


def test_where_it_would_run_is_where_the_plan_reserves() -> None:
    """The preview and the rebalancer's own plan name the same node for each member."""
    nodes = {
        "od": node("od", cpu=8000),
        **{name: node(name, Class.SPOT, "b", cpu=2000, taints=()) for name in ("s1", "s2")},
    }
    wanted = {**FOUR, names.POD_GROUP_CLASS: "spot,on-demand", names.EXPECTED_RUNTIME: "12h"}
    there = picture(*(member(n, needs=CPU, annotations=wanted) for n in range(4)), nodes=nodes)
    shown = asked("shop/train", there)
    actions = plan(gang_scene(there, index_of(there))).actions
    assert {each["pod"]: each["node"] for each in shown.raw["members"]} == {
        action.pod.name: action.nodes[0] for action in actions
    }
    assert {each["class"] for each in shown.raw["members"]} == {"spot"}
    assert shown.raw["survival"]["chance"] == pytest.approx(0.9802, abs=1e-4)  # exp(-(1 + 2 · 0.1) · 12 / 720)
    assert shown.raw["survival"]["pools"] == ["b/m"]
    text = "\n".join(shown.lines)
    assert "4 of 4 members would start now" in text
    assert "98.0%" in text


def test_who_would_be_evicted_is_named_with_the_cost() -> None:
    """And where the members go then: nothing is asked of anybody."""
    urgent = [member(n, needs=replace(CPU, priority=9), annotations=FOUR) for n in range(4)]
    shown = asked("shop/train", picture(*urgent, *low()))
    assert shown.fits
    assert shown.raw["victims"] == [
        {"namespace": "shop", "name": "low", "priority": 0, "whole": True, "pods": [f"low-m{n}" for n in range(4)]}
    ]
    assert shown.raw["cost"] == {"gangs": 1, "pods": 4, "nodeHours": 0.25}
    assert {each["node"] for each in shown.raw["members"]} == {"n1"}
    text = "\n".join(shown.lines)
    assert "4 of 4 members would start once 4 pods are evicted" in text
    assert "shop/low (priority 0, all 4 pods)" in text
    assert "loses 0.2 node-hours" in text


def test_why_it_does_not_fit_is_said() -> None:
    """Too young a victim keeps its room, and nothing would be evicted."""
    urgent = [member(n, needs=replace(CPU, priority=9), annotations=FOUR) for n in range(4)]
    shown = asked("shop/train", picture(*urgent, *low(age=9)))
    assert not shown.fits
    assert "shop/low has not run for the minimum time" in shown.raw["reason"]
    assert (shown.raw["members"], shown.raw["victims"], shown.raw["survival"]) == ([], [], None)


def test_gangs_whose_turn_is_before_take_their_room_first() -> None:
    """It would be wrong to promise the same room twice."""
    mine = {**FOUR, names.POD_GROUP: "older"}
    older = [replace(member(n, needs=CPU, annotations=mine, created=NOW - 60), uid=f"o{n}") for n in range(4)]
    older = [replace(pod, name=f"older-{pod.name}") for pod in older]
    younger = [member(n, needs=CPU, annotations=FOUR) for n in range(4)]
    assert asked("shop/older", picture(*older, *younger)).fits
    assert not asked("shop/train", picture(*older, *younger)).fits


def test_the_turns_of_gangs_that_wait_are_shown() -> None:
    """A large one that does not fit waits before it, and is passed."""
    mine = {names.POD_GROUP: "large", names.POD_GROUP_MIN_MEMBER: "9"}
    large = [replace(member(n, needs=CPU, annotations=mine, created=NOW - 60), uid=f"o{n}") for n in range(9)]
    large = [replace(pod, name=f"large-{pod.name}") for pod in large]
    shown = asked("shop/train", picture(*large, *(member(n, needs=CPU, annotations=FOUR) for n in range(4))))
    assert (shown.fits, shown.raw["ahead"]) == (True, ["shop/large"])


def test_a_gang_that_runs_or_is_blocked_is_shown_as_such() -> None:
    """There is nothing to preview."""
    running = [member(n, "n1", needs=CPU, annotations=FOUR) for n in range(4)]
    assert "runs, 4 of 4 on nodes" in "\n".join(asked("shop/train", picture(*running)).lines)
    foreign = [member(n, needs=CPU, annotations=FOUR, gates=("a/b", names.GANG_GATE)) for n in range(4)]
    shown = asked("shop/train", picture(*foreign))
    assert (shown.fits, shown.raw["state"]) == (False, "Blocked")
    assert shown.raw["reason"].startswith("ForeignGate")


@pytest.mark.parametrize("name", ["shop/tarin", "other/train"])
def test_an_unknown_gang_is_an_error_that_names_those_that_exist(name: str) -> None:
    """Of a typing error nothing must be told that might be taken for an answer."""
    with pytest.raises(UsageError, match="shop/train"):
        asked(name, picture(*(member(n, annotations=FOUR) for n in range(4))))


# --- manifests -------------------------------------------------------------------------------------------------------


def template(**annotations: str) -> dict[str, Any]:
    container = {"name": "a", "image": "i", "resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}
    return {
        "metadata": {"annotations": {names.POD_GROUP: "train", **annotations}, "labels": {"app": "train"}},
        "spec": {"containers": [container], "priorityClassName": "high"},
    }


def job(parallelism: int = 4, **spec: Any) -> dict[str, Any]:
    return {
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "shop"},
        "spec": {"parallelism": parallelism, "template": template(), **spec},
    }


KINDS: dict[str, tuple[dict[str, Any], int]] = {
    "a Job: as many as run at once": (job(), 4),
    "a Job with fewer completions than parallelism": (job(9, completions=4), 4),
    "a CronJob: the pods of its next run": ({**job(), "kind": "CronJob", "spec": {"jobTemplate": job()}}, 4),
    "a Deployment": ({**job(), "kind": "Deployment", "spec": {"replicas": 4, "template": template()}}, 4),
    "a StatefulSet": ({**job(), "kind": "StatefulSet", "spec": {"replicas": 4, "template": template()}}, 4),
    "a pod": ({**job(), "kind": "Pod", **template()}, 1),
    "a JobSet: a launcher and two Jobs of two workers": (
        {
            **job(),
            "kind": "JobSet",
            "spec": {
                "replicatedJobs": [
                    {"name": "launcher", "template": {"spec": {"template": template()}}},
                    {"name": "w", "replicas": 2, "template": {"spec": {"parallelism": 2, "template": template()}}},
                ]
            },
        },
        5,
    ),
}


@pytest.mark.parametrize(("raw", "count"), KINDS.values(), ids=KINDS.keys())
def test_manifests_become_the_pods_that_their_controllers_create(raw: dict[str, Any], count: int) -> None:
    """Each with gate, label and the twin of its class, as admission gives them; a limit is a request, too."""
    if raw["kind"] == "Pod":
        raw = {**raw, "metadata": {**raw["metadata"], "name": "train", "namespace": "shop"}}
    found = expanded([raw], "other", PriorityRules((HIGH, TWIN)), NOW)
    assert len(found.members) == count
    assert len({pod.uid for pod in found.members}) == len({pod.name for pod in found.members}) == count
    for pod in found.members:
        assert (pod.namespace, pod.gates, pod.labels[names.GANG_LABEL]) == ("shop", (names.GANG_GATE,), "member")
        assert (pod.needs.priority, pod.needs.requests["cpu"]) == (100, 1000)
    shown = of_manifests(picture(nodes={"n1": node("n1", cpu=8000)}), found, Prices(), ())
    assert [(each.fits, each.raw["needed"]) for each in shown] == [(True, count)]


def test_a_twin_that_is_not_there_leaves_the_priority() -> None:
    """And where a quota is scoped by class, the member keeps its class, as at admission."""
    scoped = (ScopedQuota("shop", "q", by_priority=True),)
    for rules in (PriorityRules((HIGH,)), PriorityRules((HIGH, TWIN), quotas=scoped)):
        assert {pod.needs.priority for pod in expanded([job()], "shop", rules, NOW).members} == {100}


def test_pods_that_admission_leaves_alone_are_no_members() -> None:
    """Of another scheduler, opted out, or without a group: said, and not previewed."""
    other = job()
    other["spec"]["template"]["spec"]["schedulerName"] = "volcano"
    plain = {"kind": "Deployment", "metadata": {"name": "web"}, "spec": {"template": {"spec": {"containers": []}}}}
    found = expanded([other, plain, {"kind": "Namespace", "metadata": {"name": "x"}}], "shop", PriorityRules(), NOW)
    assert (found.members, len(found.left_out)) == ([], 2)
    with pytest.raises(UsageError, match="no pod of these manifests"):
        of_manifests(picture(), found, Prices(), ())


def test_two_workloads_may_be_one_gang() -> None:
    """With a size that says how many there are in all."""
    both = [job(2), {**job(2), "metadata": {"name": "more", "namespace": "shop"}}]
    for raw in both:
        raw["spec"]["template"] = template(**{names.POD_GROUP_SIZE: "4"})
    found = expanded(both, "shop", PriorityRules(), NOW)
    (shown,) = of_manifests(picture(), found, Prices(), ())
    assert (shown.fits, len(shown.raw["members"])) == (True, 4)


def test_what_people_bring_from_other_schedulers_is_previewed_as_admission_reads_it() -> None:
    """A label with its PodGroup; and bare annotations with a foreign scheduler, where the configuration says so."""
    labelled = job(4)
    labelled["spec"]["template"]["metadata"] = {"labels": {names.POD_GROUP_LABEL: "theirs"}}
    group = {"kind": "PodGroup", "metadata": {"name": "theirs", "namespace": "shop"}, "spec": {"minMember": 3}}
    (shown,) = of_manifests(picture(), expanded([group, labelled], "shop", PriorityRules(), NOW), Prices(), ())
    assert (shown.raw["name"], shown.raw["needed"], shown.fits) == ("theirs", 3, True)
    bare = job(4)
    bare["spec"]["template"]["metadata"] = {"annotations": {"pod-group": "bare", "priority": "7"}}
    bare["spec"]["template"]["spec"]["schedulerName"] = "volcano"
    assert expanded([bare], "shop", PriorityRules(), NOW).members == []
    mapped = Gangs(enabled=True, bare_annotations=True, scheduler_names=("volcano",))
    (shown,) = of_manifests(picture(), expanded([bare], "shop", PriorityRules(), NOW, mapped), Prices(), ())
    assert (shown.raw["name"], shown.found.gang.wish, shown.fits) == ("bare", 7, True)


def test_the_jobs_of_a_jobset_do_not_say_how_many_there_are() -> None:
    """One of them has come first; its number is not the gang's."""
    found = expanded([KINDS["a JobSet: a launcher and two Jobs of two workers"][0]], "shop", PriorityRules(), NOW)
    assert {each.is_part for each in found.owners if isinstance(each, Job)} == {True}


def test_what_a_preview_assumes_is_said() -> None:
    """A namespace that is not there yet, and a quota that would keep members from being created."""
    found = expanded([job()], "shop", PriorityRules(), NOW)
    quota = Quota("shop", "q", {"pods": 3})
    closed = picture(quotas=(quota,))
    (shown,) = of_manifests(
        replace(closed, snapshot=replace(closed.snapshot, namespaces={"shop": Namespace("shop")})), found, Prices(), ()
    )
    assert shown.fits
    assert "not opted in" in shown.raw["notes"][0]
    assert "QuotaShort: the ResourceQuota shop/q" in shown.raw["notes"][1]


def test_a_gang_that_exists_is_previewed_by_its_name() -> None:
    """Its pods would count twice."""
    found = expanded([job()], "shop", PriorityRules(), NOW)
    with pytest.raises(UsageError, match="queue preview shop/train"):
        of_manifests(picture(*(member(n, annotations=FOUR) for n in range(4))), found, Prices(), ())


@pytest.mark.parametrize(
    "raw",
    [job(-1), job(True), {**job(), "spec": {"parallelism": 2, "template": {**template(), "spec": {"containers": 7}}}}],
    ids=["a negative number", "no number", "no list of containers"],
)
def test_what_the_api_server_would_not_take_is_an_error(raw: dict[str, Any]) -> None:
    """In words, with the object."""
    with pytest.raises(UsageError):
        expanded([raw], "shop", PriorityRules(), NOW)


def test_manifests_are_read_from_files_directories_and_lists(tmp_path: Path) -> None:
    """As `lint` and kubectl read them; a file with nothing in it is an error."""
    (tmp_path / "a.yaml").write_text(yaml.safe_dump_all([job(), {"kind": "List", "items": [job()]}]))
    assert len(objects_in(str(tmp_path))) == len(objects_in(str(tmp_path / "a.yaml"))) == 2
    (tmp_path / "b.yaml").write_text("a: [")
    (tmp_path / "c.yaml").write_text("# nothing\n")
    for wrong in ("b.yaml", "c.yaml", "none.yaml"):
        with pytest.raises(UsageError):
            objects_in(str(tmp_path / wrong))


def test_the_preview_of_a_plan_under_way_names_what_is_reserved() -> None:
    """It is about to start: where room is kept."""
    reserved = [kept(n, "n1", needs=CPU, annotations=FOUR) for n in range(4)]
    shown = asked("shop/train", picture(*reserved))
    assert (shown.raw["state"], {each["node"] for each in shown.raw["members"]}) == ("Reserved", {"n1"})
    assert Key("shop", "train") == shown.found.gang.key
