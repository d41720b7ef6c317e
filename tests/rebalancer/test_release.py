"""Released pods on a simulated cluster: each has a controller at every moment, and ends with what it belongs to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from placement import names
from placement.model import Class, Owner, Pod, Rollout, Workload
from placement.plan.actions import How
from tests.rebalancer.rebalancing import LowestServing, SimulatedRebalancer
from tests.rebalancer.simulation import TERMINATION, Making, SimulatedCluster, is_serving

SLOW = Making(start_seconds=120)
MODES = ("auto", "plan-only", "off")


class StartedRelease:
    """Four replicas of a Deployment, one of which was just released; replacements take two minutes."""

    def __init__(self, replicas: int = 4, budget: str | int | None = None, mode: str = "auto") -> None:
        self.cluster = cluster = SimulatedCluster()
        cluster.opt_in("shop")
        cluster.add_nodes(Class.SPOT, 3, zones="abc")
        cluster.add_nodes(Class.ON_DEMAND, 3)
        self.web = cluster.deploy("web", replicas)
        if budget is not None:
            cluster.budget(self.web, min_available=budget)
        cluster.run(60)
        self.rebalancer, self.lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
        cluster.run_until(lambda: self.rebalancer.is_exact(self.web) and self.rebalancer.is_calm())
        cluster.makings[self.web.uid] = replace(SLOW)
        cluster.annotate(self.web, spot_ratio="0%")
        cluster.run_until(lambda: bool(self.released))
        cluster.run(1)
        cluster.annotate(self.web, rebalance=mode)
        cluster.run(2)
        self.olds = self.released
        self.lowest.begin()

    @property
    def released(self) -> list[Pod]:
        return [pod for pod in self.cluster.pods if names.RELEASED in pod.annotations]

    def ended(self, seconds: float) -> None:
        """What was released is not any more by then, and no rule was broken."""
        uids = {pod.uid for pod in self.olds}
        self.cluster.run_until(lambda: not any(pod.uid in uids for pod in self.released), seconds)
        assert self.rebalancer.violations == []


def test_a_released_pod_is_its_deployments_and_safe_to_evict() -> None:
    """In the very patch that releases it: no moment is without a controller (`_check_owned`), and an undo is exact."""
    started = StartedRelease()
    cluster = started.cluster
    (old,) = started.olds
    assert old.owner == Owner("Deployment", "web", started.web.uid)
    assert old.annotations[names.SAFE_TO_EVICT] == "true"
    assert started.rebalancer.violations == []
    before = old
    cluster.change(started.web, rollout=Rollout(paused=True))
    started.ended(5)
    again = cluster.pod(old.key, old.uid)
    assert again is not None
    (revision,) = cluster.sets_of(started.web)
    assert again.owner == Owner("ReplicaSet", revision.name, revision.uid)
    assert names.SAFE_TO_EVICT not in again.annotations
    assert again.labels == {**before.labels, names.POD_TEMPLATE_HASH: "r1"}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("budget", [None, 1, "100%"])
def test_a_scale_to_zero_leaves_nothing_within_five_seconds(budget: str | int | None, mode: str) -> None:
    """Kubernetes alone would let it run for ever. No budget keeps it: its ReplicaSet would have asked none either."""
    started = StartedRelease(budget=budget, mode=mode)
    started.cluster.change(started.web, replicas=0)
    started.cluster.run_until(lambda: not started.cluster.pods, 5)
    assert started.rebalancer.violations == []


@pytest.mark.parametrize("mode", MODES)
def test_a_scale_down_ends_what_is_one_too_many(mode: str) -> None:
    """The newcomer goes first, since it does not serve; then the old pod is one too many."""
    started = StartedRelease(mode=mode)
    started.cluster.change(started.web, replicas=3)
    started.ended(10)
    assert len(started.cluster.serving(started.web)) == started.lowest.serving["web"] == 3


@pytest.mark.parametrize("mode", MODES)
def test_no_old_pod_is_left_after_a_rollout(mode: str) -> None:
    """Kubernetes alone would leave the old version beside the new one. Never fewer serve than the rollout allows."""
    started = StartedRelease(mode=mode)
    cluster = started.cluster
    cluster.makings[started.web.uid].start_seconds = 5
    cluster.roll_out(started.web)
    cluster.run_until(lambda: _is_rolled_out(cluster, started.web), 300)
    started.ended(3)
    assert started.lowest.serving["web"] >= 3


def _is_rolled_out(cluster: SimulatedCluster, web: Workload) -> bool:
    """As `kubectl rollout status` sees it: it looks at ReplicaSets, and knows of no released pod."""
    if len(cluster.sets_of(web)) < 2:
        return False
    old, new = sorted(cluster.sets_of(web), key=lambda each: each.name)
    own = [pod for pod in cluster.owned(new.uid) if is_serving(pod, cluster.nodes)]
    return not cluster.owned(old.uid) and len(own) == web.replicas


@pytest.mark.parametrize("mode", MODES)
def test_a_paused_deployment_gets_its_pod_back(mode: str) -> None:
    started = StartedRelease(mode=mode)
    started.cluster.change(started.web, rollout=Rollout(paused=True))
    started.ended(5)
    started.cluster.run(5)
    assert {pod.uid for pod in started.olds} <= {pod.uid for pod in started.cluster.pods}
    assert len(started.cluster.pods) == started.lowest.serving["web"] == 4


@pytest.mark.parametrize("is_killed", [False, True], ids=["by who released it", "by the next leader"])
@pytest.mark.parametrize("mode", MODES)
def test_what_a_deployment_leaves_behind_is_adopted_within_ten_seconds(mode: str, is_killed: bool) -> None:
    """`kubectl delete deployment --cascade=orphan`: its ReplicaSet is there and wants it, the newcomer leaves first."""
    started = StartedRelease(mode=mode)
    (left,) = started.cluster.sets_of(started.web)
    started.cluster.delete(started.web, orphan=True)
    if is_killed:
        started.rebalancer.kill()
    started.ended(5)
    started.cluster.run(5)
    assert {pod.uid for pod in started.olds} <= {pod.uid for pod in started.cluster.owned(left.uid)}
    assert len(started.cluster.pods) == len(started.cluster.owned(left.uid)) == 4
    assert all(pod.ready for pod in started.cluster.pods)


@pytest.mark.parametrize("replicas", [0, 3])
def test_what_a_deployment_leaves_behind_goes_where_its_replica_set_wants_no_more(replicas: int) -> None:
    """It was scaled by hand meanwhile."""
    started = StartedRelease()
    (left,) = started.cluster.sets_of(started.web)
    started.rebalancer.is_alive = False
    started.cluster.delete(started.web, orphan=True)
    started.cluster.put(replace(left, owner=None, replicas=replicas))
    started.cluster.run(10)
    started.rebalancer.is_alive = True
    started.ended(5)
    started.cluster.run(5)
    assert len(started.cluster.pods) == len(started.cluster.owned(left.uid)) == replicas


def test_a_released_pod_is_collected_with_its_deployment() -> None:
    """By Kubernetes itself, rebalancer or not."""
    started = StartedRelease()
    started.rebalancer.is_alive = False
    started.cluster.delete(started.web)
    started.cluster.run(5)
    assert started.cluster.pods == []


def released_before(started: StartedRelease, *, is_owned: bool) -> Pod:
    """As the version before left a pod: without a controller, or its ReplicaSet's for a moment more."""
    (old,) = started.olds
    (revision,) = started.cluster.sets_of(started.web)
    until, template_hash, *_ = old.annotations[names.RELEASED].split("/")
    written = {**old.annotations, names.RELEASED: f"{until}/{template_hash}"}
    del written[names.SAFE_TO_EVICT]
    owner = Owner("ReplicaSet", revision.name, revision.uid) if is_owned else None
    former = replace(started.cluster.disown(old), annotations=written, owner=owner)
    started.cluster.put(former)
    return former


@pytest.mark.parametrize("is_owned", [True, False], ids=["its ReplicaSet's", "nothing's"])
@pytest.mark.parametrize("event", ["nothing", "leaving", "scaled to zero", "rolled out", "deleted"])
def test_what_the_version_before_released_is_finished_or_put_back(event: str, is_owned: bool) -> None:
    """Whatever befalls its Deployment while that is replaced."""
    started = StartedRelease()
    cluster, web = started.cluster, started.web
    started.rebalancer.is_alive = False
    old = released_before(started, is_owned=is_owned)
    events: dict[str, Callable[[], object]] = {
        "nothing": lambda: None,
        "leaving": lambda: cluster.cordon(old.node, TERMINATION),
        "scaled to zero": lambda: cluster.change(web, replicas=0),
        "rolled out": lambda: cluster.roll_out(web),
        "deleted": lambda: cluster.delete(web),
    }
    events[event]()
    cluster.run(300)
    started.rebalancer.is_alive = True
    started.rebalancer.kill()
    cluster.run_until(lambda: not any(pod.owner is None for pod in cluster.pods), 10)
    cluster.run(600)
    assert started.rebalancer.violations == []
    gone = event in ("scaled to zero", "deleted")
    assert len(cluster.pods) == (0 if gone else 4)


def test_a_pod_that_asks_to_be_kept_is_left_to_the_drainer_who_now_can() -> None:
    """It is released from a node that leaves, and its end is the drainer's: a controller owns it, so it is evicted."""
    cluster = SimulatedCluster()
    cluster.configuration = replace(cluster.configuration, keeps_local_storage=True)
    cluster.opt_in("shop")
    cluster.add_nodes(Class.SPOT, 3, zones="abc")
    cluster.add_nodes(Class.ON_DEMAND, 3)
    stores = Making(needs=replace(Making().needs, has_local_storage=True))
    logs = cluster.deploy("logs", 4, making=stores)
    cluster.run(60)
    rebalancer, lowest = SimulatedRebalancer(cluster), LowestServing(cluster)
    cluster.run_until(lambda: rebalancer.is_exact(logs))
    node = next(pod.node for pod in cluster.pods if cluster.class_of(pod) is Class.SPOT)
    cluster.cordon(node, TERMINATION)
    cluster.run(60)
    kept = [pod for pod in cluster.pods if pod.node == node]
    assert kept
    assert all(pod.is_released and pod.annotations[names.SAFE_TO_EVICT] == "true" for pod in kept)
    assert rebalancer.count("finish") == 0
    assert all(pod.owner is not None and pod.owner.kind == "Deployment" for pod in kept)
    for pod in kept:
        assert cluster.evict(pod) == ""
    cluster.run(60)
    assert lowest.serving["logs"] >= 4
    assert rebalancer.violations == []


def test_a_pod_whose_controller_takes_no_notice_of_its_label_is_not_released() -> None:
    """A ReplicaSet that its Deployment adopted, under a name of its own: its pods could not be put back."""
    started = StartedRelease()
    plans = [plan for _, plan, _ in started.rebalancer.passes]
    (action,) = [action for plan in plans for action in plan.actions if action.how is How.RELEASE]
    assert action.owner == Owner("Deployment", "web", started.web.uid)
    cluster = SimulatedCluster()
    cluster.opt_in("shop")
    cluster.add_nodes(Class.SPOT, 3, zones="abc")
    cluster.add_nodes(Class.ON_DEMAND, 3)
    web = cluster.deploy("web", 4)
    cluster.run(60)
    for pod in cluster.pods:
        assert pod.owner is not None
        cluster.put(replace(pod, owner=replace(pod.owner, name="adopted")))
    (revision,) = cluster.sets_of(web)
    cluster.remove(revision)
    cluster.put(replace(revision, name="adopted"))
    rebalancer = SimulatedRebalancer(cluster)
    cluster.annotate(web, spot_ratio="0%")
    cluster.third_parties.clear()
    plan = rebalancer.loop.once()
    assert plan is not None
    assert [action.how for action in plan.actions if action.how is How.RELEASE] == []
