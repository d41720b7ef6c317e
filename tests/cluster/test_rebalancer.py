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
from tests.cluster.clustersetup import ClusterSetup
from tests.cluster.namespaceuser import wait_for
from tests.timing import timed, within

pytestmark = pytest.mark.cluster


def test_a_changed_ratio_costs_the_difference_and_no_serving_replica(setup: ClusterSetup) -> None:
    """70 → 30 → 90 % of 50 replicas under `minAvailable: 100%`: 20 and 30 moves; 50 serve all the while."""
    setup.serves("web", 50, minAvailable="100%")
    setup.settles("web")
    setup.history.forget()
    before = setup.moves()
    setup.annotate("web", spot_ratio="30%")
    setup.settles("web")
    assert setup.moves() - before == 20
    setup.annotate("web", spot_ratio="90%")
    setup.settles("web")
    assert setup.moves() - before == 50
    assert setup.history.worst("web") == 50


def test_a_lone_replica_on_the_wrong_class_is_moved_and_serves_all_the_while(setup: ClusterSetup) -> None:
    """Under `minAvailable: 1`, which a plain eviction cannot pass."""
    setup.serves("lone", 1, {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}, minAvailable=1)
    setup.history.forget()
    setup.annotate("lone", spot_ratio=None, min_on_demand=None)
    setup.settles("lone")
    assert setup.history.worst("lone") == 1


def described(setup: ClusterSetup, name: str) -> str:
    """What `kubectl describe` prints of a Deployment, in lines without alignment."""
    user = setup.user
    text = kubectl.call("describe", "deployment", name, "-n", user.namespace, kubeconfig=user.kubeconfig)
    return "\n".join(" ".join(line.split()) for line in text.splitlines())


def test_kubectl_describe_tells_the_owner_what_was_moved_and_what_was_not(setup: ClusterSetup) -> None:
    """Four moves are one Event that counts; what may only be planned is a warning."""
    setup.serves("web", 10)
    setup.serves("still", 10, {names.REBALANCE: "plan-only"})
    for name in ("web", "still"):
        setup.annotate(name, spot_ratio="30%")
    setup.settles("web")
    wait_for("the Event", lambda: "Not moved" in described(setup, "still"))
    moved, blocked = described(setup, "web"), described(setup, "still")
    (line,) = [line for line in moved.splitlines() if "Moving a pod" in line]
    assert line.startswith("Normal Moved ")
    assert line.endswith("Moving a pod to on-demand: its replacement starts first (wrong-class)")
    (line,) = [line for line in blocked.splitlines() if "Not moved" in line]
    assert line.startswith("Warning MoveBlocked ")
    assert line.endswith("Not moved (wrong-class): rebalance is plan-only")
    assert "Moving a pod" not in blocked


def test_kubectl_describe_tells_the_owner_of_a_loss_the_fallback_and_its_end(setup: ClusterSetup) -> None:
    """One Event for seven replicas, one for where they run meanwhile, and one when they are back."""
    setup.serves("web", 10)
    held = {pod["spec"]["nodeName"] for pod in setup.user.pods("web") if "spot" in pod["spec"]["nodeName"]}
    setup.cluster.reclaim(Choice(all_spot=True))
    try:
        wait_for("the Event", lambda: "Fallback" in described(setup, "web"))
        wait_for("the Event", lambda: "ReplicasLost" in described(setup, "web"))
    finally:
        setup.cluster.restore()
    text = described(setup, "web")
    assert f"Lost 7 replicas with {len(held)} nodes" in text
    assert "Pods that belong on spot run on on-demand until spot has room" in text
    setup.settles("web")
    wait_for("the Event", lambda: "Normal FallbackOver" in described(setup, "web"))
    assert described(setup, "web").count("ReplicasLost") == 1


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


def ten_workloads(setup: ClusterSetup) -> dict[str, WorkloadStatus]:
    for name, (replicas, settings, budget) in POLICIES.items():
        if name == STATEFUL:
            setup.create(name, replicas, settings, kind="StatefulSet", spec={"podManagementPolicy": "Parallel"})
        else:
            setup.create(name, replicas, settings, **budget)
    return setup.settles(*POLICIES)


def returns_to_spot(setup: ClusterSetup) -> None:
    """All mixes are exact again; nobody served one replica less, no floor was broken, no pod changed its class twice.

    As all serve all the while, no budget was ever broken either.
    """
    setup.history.forget()
    before, evened = setup.moves(), setup.moves(*EVENING)
    found = {name: setup.user.status(name) for name in POLICIES}
    astray = sum(each.wanted.spot - each.actual.spot for each in found.values())
    setup.cluster.restore()
    setup.settles(*POLICIES)
    spared = {STATEFUL: REPLICAS[STATEFUL] - 1}  # one at a time is gone until it is back under its name
    assert {name: setup.history.worst(name) for name in POLICIES} == REPLICAS | spared
    for name, status in found.items():
        assert setup.history.worst_on_demand(name) >= status.wanted.on_demand, name
    between_pools = setup.moves(*EVENING) - evened  # where the scheduler has put too many into one pool of spot
    assert setup.moves() - before - between_pools <= astray
    assert between_pools <= len(POLICIES)


@timed
def test_all_spot_lost_and_back(setup: ClusterSetup) -> None:
    """Ten workloads of different policies: each serves again three seconds after its pods' start; then back on spot."""
    at_first = ten_workloads(setup)
    lost = sum(each.actual.spot for each in at_first.values())
    setup.history.forget()
    setup.cluster.reclaim(Choice(all_spot=True), Way.CLOUD)
    gone_at = setup.begin_control(lost)
    for name, replicas in REPLICAS.items():
        wait_for(f"{name} to serve again", partial(setup.serves_in_full, name, replicas))
    for name, replicas in REPLICAS.items():
        assert setup.history.worst(name) >= replicas - at_first[name].actual.spot, name
        assert setup.history.worst_on_demand(name) >= at_first[name].actual.on_demand, name
    slowest = max(setup.history.full_since(name, replicas) for name, replicas in REPLICAS.items()) - gone_at
    pace = setup.pace(gone_at, lost)
    print(f"all serve again {slowest:.1f} s after the loss; {lost} other pods took {pace.seconds:.1f} s to start")
    within("all serve again", slowest, pace.within(3.0))
    returns_to_spot(setup)


@timed
def test_all_spot_announced_and_back(setup: ClusterSetup) -> None:
    """With a notice and a foreign drainer: whose budget allows no loss never serves one replica less.

    Replacements are asked for within a second, beyond what as many writes take by themselves; half of them are there a
    second after the notice, beyond as many writes and as many creations; the nodes are empty five seconds after the
    pods' own start, beyond what the evictions of the largest workload take under one budget.
    """
    spot = [each.actual.spot for each in ten_workloads(setup).values()]
    lost, most = sum(spot), max(spot)
    began = setup.begin_control(lost)  # before the notice: what is measured in tenths of a second is not to be crowded
    pace, created, written = setup.pace(began, lost), setup.history.arrived("control", began), setup.patched()
    before = setup.evicted(most, lost)
    setup.history.forget()
    reclaimed = setup.cluster.reclaim(Choice(all_spot=True), Way.CLOUD, notice_seconds=120)
    assert reclaimed.left == ()
    emptied = setup.history.emptied()
    answers = [seconds for name in POLICIES if name != STATEFUL for seconds in setup.history.answers(name)]
    evicted = max(before, setup.evicted(most, lost))
    slowness = max(pace.slowness, evicted / most / EVICTION_SECONDS)
    asked = setup.history.asked
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
    assert {name: setup.history.worst(name) for name in NO_LOSS_ALLOWED} == {
        name: REPLICAS[name] for name in NO_LOSS_ALLOWED
    }
    for name, replicas in REPLICAS.items():
        wait_for(f"{name} to serve in full", partial(setup.serves_in_full, name, replicas))
    returns_to_spot(setup)


def test_a_node_that_is_registered_again_keeps_its_pods(setup: ClusterSetup) -> None:
    """Deleted without any sign, and back after ten seconds: nothing is touched."""
    setup.serves("web", 10)
    setup.settles("web")
    before = {pod["metadata"]["uid"] for pod in setup.user.pods("web")}
    writes = setup.writes()
    taken = setup.cluster.reclaim(Choice(zone="zone-a", all_spot=True), Way.BARE)
    assert any(pod["spec"]["nodeName"] in taken.nodes for pod in setup.user.pods("web"))
    time.sleep(10)  # what it is about: a node that is gone for a while
    setup.cluster.restore()
    setup.settles("web")
    assert {pod["metadata"]["uid"] for pod in setup.user.pods("web")} == before
    assert setup.writes() == writes
