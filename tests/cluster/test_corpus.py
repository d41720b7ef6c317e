"""Applications as people publish them, with us and without us on the same nodes: nobody waits longer, mixes are right.

A sample runs with every change, the whole corpus in `make soak`.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from localcluster.profile import NodePool, Profile
from placement import names
from tests.cluster.clustersetup import cluster_setup
from tests.cluster.test_untouched import as_created
from tests.corpus.applications import CONTROL_PORTS, NAMES, control_of, load, shift_ports
from tests.corpus.story import FALLBACK_SECONDS, LOSS, Chapter, CorpusStory
from tests.corpus.tally import tallying
from tests.timing import timed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

SAMPLE = ("argocd", "ingress", "zookeeper")
NOISE_SECONDS = 30.0  # a machine that is busy with other things
COLLECTED_SECONDS = 60.0  # so long Kubernetes takes to replace lost pods, where the control happened to lose none


def hosts() -> Profile:
    """Six spot nodes and six others over three zones, as in the demo, with room for the corpus twice."""
    pools = [("on-demand", zone, "m5.2xlarge", 2) for zone in "abc"] + [
        ("spot", "a", "m5.2xlarge", 2),
        ("spot", "b", "m5.2xlarge", 1),
        ("spot", "b", "c5.2xlarge", 1),
        ("spot", "c", "c5.2xlarge", 1),
        ("spot", "c", "r5.2xlarge", 1),
    ]
    return Profile(
        tuple(
            NodePool(f"{of}-{zone}-{kind[:2]}", f"zone-{zone}", kind, count, "32", "128Gi", of, pods=500)
            for of, zone, kind, count in pools
        )
    )


@dataclass
class CorpusRun:
    """What happened, and what was not ours: objects before we came, pods before spot was lost.

    Kubernetes collects pods of finished Jobs with their nodes, so only those pods are there in any case.
    """

    story: CorpusStory
    foreign: dict[str, Any]
    strange_pods: dict[str, dict[str, Any]]


@pytest.fixture(
    scope="module",
    params=[pytest.param(SAMPLE, id="sample"), pytest.param(NAMES, id="all", marks=pytest.mark.soak)],
)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CorpusRun]:
    """The whole story, and what was none of ours before it."""
    directory = tmp_path_factory.mktemp("config")
    with (
        cluster_setup(directory, rebalancers=1, profile=hosts(), configuration="{}\n") as setup,
        tallying(setup.user.client) as tally,
    ):
        story = CorpusStory(setup, tally, [load(name) for name in request.param])
        story.apply()
        before = story.foreign()
        story.opt_in()
        for replicas in (1, 3, 10):
            story.scale(replicas)
        strange = dict(story.strange_pods())
        story.lose_spot()
        story.restore_spot()
        if request.param == NAMES:
            story.scale(3)
            story.lose_spot()
            story.restore_spot()
        yield CorpusRun(story, before, strange)


@pytest.fixture
def story(told: CorpusRun) -> CorpusStory:
    return told.story


@timed
def test_every_mix_becomes_right(story: CorpusStory) -> None:
    """Within three minutes of each change, but for the named exceptions, whose own reason must stand."""
    assert {chapter.name: chapter.wrong for chapter in story.chapters if chapter.wrong} == {}


def test_no_workload_is_short_of_pods_for_longer_than_without_us(story: CorpusStory) -> None:
    """Longer than its control and the fallback time together: of pods that have a node."""
    longer = {
        f"{chapter.name}: {name}": (ours, control)
        for chapter in story.chapters
        for name, (ours, control) in chapter.short.items()
        if ours > max(control, _lasting(chapter)) + FALLBACK_SECONDS + NOISE_SECONDS
    }
    assert longer == {}
    assert {chapter.name: chapter.fewer for chapter in story.chapters if chapter.fewer} == {}


def _lasting(chapter: Chapter) -> float:
    """Seconds that pods are missing in any case."""
    return COLLECTED_SECONDS if chapter.name == LOSS else 0.0


def test_the_forecast_comes_true(story: CorpusStory) -> None:
    """`plan --opt-in` named the mix that came; where it is not the policy's, it named what still stands in the way."""
    assert set(story.forecasts) == {each.full_name for each in story.workloads}
    mixes = {name: forecast.then for name, forecast in story.forecasts.items() if name not in story.drawn}
    assert {name: (str(mix), str(story.after[name])) for name, mix in mixes.items() if mix != story.after[name]} == {}
    silent = [
        name
        for name, forecast in story.forecasts.items()
        if forecast.then != story.promised[name] and not _stands(story, name, forecast.blocked)
    ]
    assert silent == []


def _stands(story: CorpusStory, name: str, blockers: list[str]) -> bool:
    """Each of them, and there is one at least."""
    return bool(blockers) and all(each in story.explained[name] for each in blockers)


def test_nothing_foreign_is_touched(told: CorpusRun) -> None:
    """What owners wrote is the same to the byte, and pods that we do not place are as their controls."""
    story, after = told.story, told.story.foreign()
    assert {name: (each, after.get(name)) for name, each in told.foreign.items() if after.get(name) != each} == {}
    pods = {**told.strange_pods, **dict(story.strange_pods())}
    assert [name for name, pod in pods.items() if _traces(pod)] == []
    for application in story.applications:
        assert _shapes(pods, application.name) == _shapes(pods, control_of(application.name))


def _shapes(pods: dict[str, dict[str, Any]], namespace: str) -> set[str]:
    return {_shape(pod) for pod in pods.values() if pod["metadata"]["namespace"] == namespace and _is_foreign(pod)}


def _is_foreign(pod: dict[str, Any]) -> bool:
    kinds = {owner["kind"] for owner in pod["metadata"].get("ownerReferences", ())}
    return not kinds & {"ReplicaSet", "StatefulSet", "Deployment"}


def _shape(pod: dict[str, Any]) -> str:
    """What does not differ from pod to pod; host ports as in the namespace of ours."""
    raw = as_created(copy.deepcopy(pod))
    if pod["metadata"]["namespace"].endswith(control_of("")):
        shift_ports(raw["spec"], -CONTROL_PORTS)
    for volume in raw["spec"].get("volumes", ()):
        volume.pop("name") if "projected" in volume else None
    for container in (*raw["spec"].get("initContainers", ()), *raw["spec"]["containers"]):
        container.pop("volumeMounts", None)
    for made in ("job-name", names.CONTROLLER_REVISION_HASH):  # the latter goes by the host ports as well
        raw["metadata"].get("labels", {}).pop(made, None)
    return repr(raw)


def _traces(pod: dict[str, Any]) -> list[str]:
    """Labels and annotations of ours."""
    written = {**pod["metadata"].get("labels", {}), **pod["metadata"].get("annotations", {})}
    return [key for key in written if key.startswith(names.PREFIX)]


def test_no_pod_is_refused(story: CorpusStory) -> None:
    assert story.refusals() == []


def test_no_serving_replica_is_lost_in_moves(story: CorpusStory) -> None:
    """None of those that can run beside themselves; of the others at most one at a time."""
    assert {chapter.name: chapter.lost for chapter in story.chapters if chapter.lost} == {}
