"""The rebalancer on a real control plane: mixes stay right through everything, and nobody serves one replica less."""

from __future__ import annotations

import time
from functools import partial
from statistics import median
from typing import Any

import pytest

from localcluster import Choice, Way, kubectl
from placement import names
from placement.plan.actions import EVENING
from report.status import WorkloadStatus
from tests.cluster.scene import Scene
from tests.cluster.world import wait_for
from tests.timing import timed, within

pytestmark = pytest.mark.cluster


def test_a_changed_ratio_costs_the_difference_and_no_serving_replica(scene: Scene) -> None:
    """70 → 30 → 90 % of 50 replicas under `minAvailable: 100%`: 20 and 30 moves; 50 serve all the while."""
    scene.serves("web", 50, minAvailable="100%")
    scene.settles("web")
    scene.watcher.forget()
    before = scene.moves()
    scene.annotate("web", spot_ratio="30%")
    scene.settles("web")
    assert scene.moves() - before == 20
    scene.annotate("web", spot_ratio="90%")
    scene.settles("web")
    assert scene.moves() - before == 50
    assert scene.watcher.worst("web") == 50


def test_a_lone_replica_on_the_wrong_class_is_moved_and_serves_all_the_while(scene: Scene) -> None:
    """Under `minAvailable: 1`, which a plain eviction cannot pass."""
    scene.serves("lone", 1, {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}, minAvailable=1)
    scene.watcher.forget()
    scene.annotate("lone", spot_ratio=None, min_on_demand=None)
    scene.settles("lone")
    assert scene.watcher.worst("lone") == 1


def described(scene: Scene, name: str) -> str:
    """What `kubectl describe` prints of a Deployment, in lines without alignment."""
    world = scene.world
    text = kubectl.call("describe", "deployment", name, "-n", world.namespace, kubeconfig=world.kubeconfig)
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def test_kubectl_describe_tells_the_owner_what_was_moved_and_what_was_not(scene: Scene) -> None:
    """Four moves are one Event that counts; what may only be planned is a warning."""
    scene.serves("web", 10)
    scene.serves("still", 10, {names.REBALANCE: "plan-only"})
    for name in ("web", "still"):
        scene.annotate(name, spot_ratio="30%")
    scene.settles("web")
    wait_for("the Event", lambda: "Not moved" in described(scene, "still"))
    moved, blocked = described(scene, "web"), described(scene, "still")
    (line,) = [line for line in moved.splitlines() if "Moving a pod" in line]
    assert line.startswith("Normal Moved ")
    assert line.endswith("Moving a pod to on-demand: its replacement starts first (wrong-class)")
    (line,) = [line for line in blocked.splitlines() if "Not moved" in line]
    assert line.startswith("Warning MoveBlocked ")
    assert line.endswith("Not moved (wrong-class): rebalance is plan-only")
    assert "Moving a pod" not in blocked


def test_kubectl_describe_tells_the_owner_of_a_loss_the_fallback_and_its_end(scene: Scene) -> None:
    """One Event for seven replicas, one for where they run meanwhile, and one when they are back."""
    scene.serves("web", 10)
    held = {pod["spec"]["nodeName"] for pod in scene.world.pods("web") if "spot" in pod["spec"]["nodeName"]}
    scene.cluster.reclaim(Choice(all_spot=True))
    try:
        wait_for("the Event", lambda: "Fallback" in described(scene, "web"))
        wait_for("the Event", lambda: "ReplicasLost" in described(scene, "web"))
    finally:
        scene.cluster.restore()
    text = described(scene, "web")
    assert f"Lost 7 replicas with {len(held)} nodes" in text
    assert "Pods that belong on spot run on on-demand until spot has room" in text
    scene.settles("web")
    wait_for("the Event", lambda: "Normal FallbackOver" in described(scene, "web"))
    assert described(scene, "web").count("ReplicasLost") == 1


EVICTION_SECONDS = 0.1  # one of many under one budget, on a machine with nothing else to do
STATEFUL = "state"  # never has a pod more than replicas: evicted one at a time, where a place is proven
POLICIES: dict[str, tuple[int, dict[str, str], dict[str, Any]]] = {
    "plain": (10, {}, {}),
    STATEFUL: (6, {names.SPOT_RATIO: "50%", names.REPLACE_LOST_PODS: "fast"}, {}),
    "all": (6, {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}, {}),
    "none": (4, {names.SPOT_RATIO: "0"}, {}),
    "lone": (1, {}, {"minAvailable": 1}),
    "pair": (2, {}, {"minAvailable": 1}),
    "guarded": (10, {}, {"minAvailable": 9}),
    "strict": (5, {names.SPOT_RATIO: "80%"}, {"maxUnavailable": 0}),
    "floor": (9, {names.MIN_ON_DEMAND: "5"}, {"minAvailable": "50%"}),
    "wide": (30, {names.SPOT_RATIO: "90%"}, {"minAvailable": "100%"}),
}
REPLICAS = {name: replicas for name, (replicas, _, _) in POLICIES.items()}
NO_LOSS_ALLOWED = ("none", "lone", "strict", "wide")  # of these a drainer may take no replica that serves


def ten_workloads(scene: Scene) -> dict[str, WorkloadStatus]:
    for name, (replicas, settings, budget) in POLICIES.items():
        if name == STATEFUL:
            scene.create(name, replicas, settings, kind="StatefulSet", spec={"podManagementPolicy": "Parallel"})
        else:
            scene.create(name, replicas, settings, **budget)
    return scene.settles(*POLICIES)


def returns_to_spot(scene: Scene) -> None:
    """All mixes are exact again; nobody served one replica less, no floor was broken, no pod changed its class twice.

    As all serve all the while, no budget was ever broken either.
    """
    scene.watcher.forget()
    before, evened = scene.moves(), scene.moves(*EVENING)
    found = {name: scene.world.status(name) for name in POLICIES}
    astray = sum(each.wanted.spot - each.actual.spot for each in found.values())
    scene.cluster.restore()
    scene.settles(*POLICIES)
    spared = {STATEFUL: REPLICAS[STATEFUL] - 1}  # one at a time is gone until it is back under its name
    assert {name: scene.watcher.worst(name) for name in POLICIES} == REPLICAS | spared
    for name, status in found.items():
        assert scene.watcher.worst_on_demand(name) >= status.wanted.on_demand, name
    between_pools = scene.moves(*EVENING) - evened  # where the scheduler has put too many into one pool of spot
    assert scene.moves() - before - between_pools <= astray
    assert between_pools <= len(POLICIES)


@timed
def test_all_spot_lost_and_back(scene: Scene) -> None:
    """Ten workloads of different policies: each serves again three seconds after its pods' start; then back on spot."""
    at_first = ten_workloads(scene)
    lost = sum(each.actual.spot for each in at_first.values())
    scene.watcher.forget()
    scene.cluster.reclaim(Choice(all_spot=True), Way.CLOUD)
    gone_at = scene.begin_control(lost)
    for name, replicas in REPLICAS.items():
        wait_for(f"{name} to serve again", partial(scene.serves_in_full, name, replicas))
    for name, replicas in REPLICAS.items():
        assert scene.watcher.worst(name) >= replicas - at_first[name].actual.spot, name
        assert scene.watcher.worst_on_demand(name) >= at_first[name].actual.on_demand, name
    slowest = max(scene.watcher.full_since(name, replicas) for name, replicas in REPLICAS.items()) - gone_at
    pace = scene.pace(gone_at, lost)
    print(f"all serve again {slowest:.1f} s after the loss; {lost} other pods took {pace.seconds:.1f} s to start")
    within("all serve again", slowest, pace.within(3.0))
    returns_to_spot(scene)


@timed
def test_all_spot_announced_and_back(scene: Scene) -> None:
    """With a notice and a foreign drainer: whose budget allows no loss never serves one replica less.

    Replacements are asked for within a second, beyond what as many writes take by themselves; half of them are there a
    second after the notice, beyond as many writes and as many creations; the nodes are empty five seconds after the
    pods' own start, beyond what the evictions of the largest workload take under one budget.
    """
    spot = [each.actual.spot for each in ten_workloads(scene).values()]
    lost, most = sum(spot), max(spot)
    began = scene.begin_control(lost)  # before the notice: what is measured in tenths of a second is not to be crowded
    pace, created, written = scene.pace(began, lost), scene.watcher.arrived("control", began), scene.patched()
    before = scene.evicted(most, lost)
    scene.watcher.forget()
    reclaimed = scene.cluster.reclaim(Choice(all_spot=True), Way.CLOUD, notice_seconds=120)
    assert reclaimed.left == ()
    emptied = scene.watcher.emptied()
    answers = [seconds for name in POLICIES if name != STATEFUL for seconds in scene.watcher.answers(name)]
    evicted = max(before, scene.evicted(most, lost))
    slowness = max(pace.slowness, evicted / most / EVICTION_SECONDS)
    asked = scene.watcher.asked
    print(
        f"{len(asked)} replacements were asked for {median(asked):.2f} s (at most {max(asked):.2f} s), "
        f"{len(answers)} were there {median(answers):.2f} s (at most {max(answers):.2f} s) after the "
        f"notice, the nodes empty after {emptied:.1f} s; {lost} other pods took {created:.2f} s to be there, "
        f"{written:.2f} s to be patched and {pace.seconds:.1f} s to start, {most} of them {evicted:.1f} s to be evicted"
    )
    assert len(asked) >= lost - POLICIES[STATEFUL][0]
    within("half are asked for", median(asked), written + 1.0 * slowness)
    within("all are asked for", max(asked), written + 3.0 * slowness)  # some come to a node as its notice does
    within("half are there", median(answers), created + written + 1.0 * slowness)
    within("all are there", max(answers), created + written + 5.0 * slowness)  # the last waits for the API server
    within("the nodes are empty", emptied, pace.seconds + evicted + 5.0 * slowness)
    assert {name: scene.watcher.worst(name) for name in NO_LOSS_ALLOWED} == {
        name: REPLICAS[name] for name in NO_LOSS_ALLOWED
    }
    for name, replicas in REPLICAS.items():
        wait_for(f"{name} to serve in full", partial(scene.serves_in_full, name, replicas))
    returns_to_spot(scene)


def test_a_node_that_is_registered_again_keeps_its_pods(scene: Scene) -> None:
    """Deleted without any sign, and back after ten seconds: nothing is touched."""
    scene.serves("web", 10)
    scene.settles("web")
    before = {pod["metadata"]["uid"] for pod in scene.world.pods("web")}
    writes = scene.writes()
    taken = scene.cluster.reclaim(Choice(zone="zone-a", all_spot=True), Way.BARE)
    assert any(pod["spec"]["nodeName"] in taken.nodes for pod in scene.world.pods("web"))
    time.sleep(10)  # what it is about: a node that is gone for a while
    scene.cluster.restore()
    scene.settles("web")
    assert {pod["metadata"]["uid"] for pod in scene.world.pods("web")} == before
    assert scene.writes() == writes
