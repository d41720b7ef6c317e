"""Modes forbid moves, never the way out: plan-only, off, paused and leaderless services lose all spot and serve again.

The bounds are those of the promise: the fallback time, the pods' own start and ten seconds; where only Kubernetes
replaces what was lost, a minute more.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from localcluster import Choice, Way
from localcluster.nodes import create_nodes, raw_node
from placement import names
from placement.slots import Mix
from tests.cluster.clustersetup import ClusterSetup, StartPace, cluster_setup
from tests.cluster.namespaceuser import wait_for, wait_within
from tests.cluster.podobserver import PodObserver, observing_pods
from tests.cluster.tenant import clear_outages, empty, next_pod, on_spot, required, requires_spot, tenant
from tests.timing import timed, within

pytestmark = pytest.mark.cluster

REPLICAS, SPOT = 10, 7
FALLBACK_SECONDS = 10
MORE_SECONDS = 10.0
COLLECTION_SECONDS = 60.0  # until Kubernetes itself collects pods whose node is gone
PATIENCE_SECONDS = 120.0
ALL_SPOT = Choice(all_spot=True)
SOON = {names.SPOT_FALLBACK_AFTER: f"{FALLBACK_SECONDS}s"}
EVERY_SLOT_SPOT = {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}
PREFER_NO_SCHEDULE = {"key": "example.com/cheap", "value": "yes", "effect": "PreferNoSchedule"}


@dataclass(frozen=True)
class ModesSetup:
    """`shop` is as ever; in the other two namespaces nothing is to be moved."""

    shop: ClusterSetup
    plan_only: ClusterSetup
    off: ClusterSetup
    observer: PodObserver

    @property
    def setups(self) -> tuple[ClusterSetup, ...]:
        return self.shop, self.plan_only, self.off


@pytest.fixture(scope="module")
def shared_modes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModesSetup]:
    with (
        cluster_setup(tmp_path_factory.mktemp("config"), rebalancers=1) as shop,
        observing_pods(shop.user.client) as observer,
    ):
        plan_only, off = (tenant(shop, f"is-{mode}", {names.REBALANCE: mode}) for mode in ("plan-only", "off"))
        yield ModesSetup(shop, plan_only, off, observer)


@pytest.fixture
def modes(shared_modes: ModesSetup) -> Iterator[ModesSetup]:
    yield shared_modes
    for each in (shared_modes.plan_only, shared_modes.off):
        empty(each.user)  # before the nodes go that a test has brought
    shared_modes.shop.clear()
    if not shared_modes.shop.rebalancers:
        shared_modes.shop.start()


def bound(pace: StartPace, fallback: float = FALLBACK_SECONDS, collection: float = 0.0) -> float:
    """Seconds from a loss until all must serve again."""
    return fallback + collection + pace.within(MORE_SECONDS)


def serves_again(setup: ClusterSetup, *apps: str, patience: float = PATIENCE_SECONDS) -> None:
    for app in apps:
        wait_for(f"{app} to serve again", partial(setup.serves_in_full, app, REPLICAS), patience)


def waits_for_spot(setup: ClusterSetup, name: str) -> None:
    """As many pods as belong on spot may run nowhere else."""
    wait_for(f"pods of {name} to wait for spot", lambda: required(setup.user, name) == SPOT)


def seconds_since(setup: ClusterSetup, moment: float, *apps: str) -> float:
    """Until the last of these workloads served in full."""
    return max(setup.history.full_since(app, REPLICAS) for app in apps) - moment


def buried(setup: ClusterSetup) -> int:
    """How many pods the rebalancer has replaced because their machine was gone."""
    return setup.told(f"{names.METRIC_ACTIONS}_total", 'action="bury"', 'outcome="done"')


def events_on(setup: ClusterSetup, name: str) -> list[str]:
    """What was done to a workload, in the words of its Events; not what was left undone."""
    query = {"fieldSelector": f"involvedObject.kind=Deployment,involvedObject.name={name}"}
    found = setup.user.client.get_json(f"/api/v1/namespaces/{setup.user.namespace}/events", query)["items"]
    return [each["message"] for each in found if each["reason"] != names.EVENT_BLOCKED]


def names_mode(setup: ClusterSetup, name: str, mode: str) -> bool:
    return any(re.search(rf"\b{mode}", text) for text in events_on(setup, name))


def bring_spot(setup: ClusterSetup) -> None:
    """New machines of every spot pool, under names of their own, as clouds give them."""
    profile = setup.cluster.profile
    pools = [pool for pool in profile.pools if pool.capacity_class == "spot"]
    create_nodes(setup.cluster.api, [raw_node(pool, f"new-{pool.name}", profile.region) for pool in pools])


@timed
def test_all_spot_lost_in_plan_only_and_off_and_back_to_auto(modes: ModesSetup) -> None:
    """Whether pods were created in that mode or the mode was changed later: all serve again in time.

    Nothing that has a node is written to, released or evicted meanwhile. Back in `auto`, ordinary moves restore the
    mix, and no workload loses a serving replica.
    """
    shop, plan_only, off, observer = modes.shop, modes.plan_only, modes.off, modes.observer
    plan_only.create("careful", REPLICAS, SOON)
    off.create("manual", REPLICAS, SOON)
    for name in ("cautious", "stopped"):
        shop.create(name, REPLICAS, SOON)
    for setup, name in ((plan_only, "careful"), (off, "manual"), (shop, "cautious"), (shop, "stopped")):
        assert setup.user.rest(name).actual == Mix(SPOT, REPLICAS - SPOT)
    assert [required(shop.user, name) for name in ("cautious", "stopped")] == [SPOT, SPOT]
    shop.annotate("cautious", rebalance="plan-only")
    shop.annotate("stopped", rebalance="off")
    shop.falls_silent(1)
    evictions, graves, moves = shop.evictions(), buried(shop), shop.moves()
    shop.history.forget()
    observer.forget()
    taken = shop.cluster.reclaim(ALL_SPOT, Way.CLOUD)
    lost_at = shop.begin_control(4 * SPOT)
    serves_again(shop, "careful", "cautious")
    pace = shop.pace(lost_at, 4 * SPOT)
    in_plan_only = seconds_since(shop, lost_at, "careful", "cautious")
    bring_spot(shop)
    planned = [pod for pod in observer.ended if pod.labels["app"] in ("careful", "cautious")]
    assert shop.evictions() == evictions
    assert (len(planned), {pod.node for pod in planned} <= set(taken.nodes)) == (2 * SPOT, True)
    for setup, name in ((plan_only, "careful"), (shop, "cautious")):
        assert setup.user.status(name).actual == Mix(0, REPLICAS)
        assert required(setup.user, name) == 0
    assert (observer.written, shop.moves()) == ([], moves)
    shop.history.forget()
    plan_only.annotate("careful", rebalance="auto")
    shop.annotate("cautious", rebalance="auto")
    clear_outages(shop)
    plan_only.settles("careful")
    shop.settles("cautious")
    assert [shop.history.worst(name) for name in ("careful", "cautious")] == [REPLICAS, REPLICAS]
    assert buried(shop) - graves == 2 * SPOT, "what is off is left to Kubernetes"
    serves_again(shop, "manual", "stopped", patience=COLLECTION_SECONDS + PATIENCE_SECONDS)
    in_off = seconds_since(shop, lost_at, "manual", "stopped")
    print(f"plan-only {in_plan_only:.1f} s, off {in_off:.1f} s after the loss; own start {pace.seconds:.1f} s")
    within("all serve again in plan-only", in_plan_only, bound(pace))
    within("all serve again where moves are off", in_off, bound(pace, collection=COLLECTION_SECONDS))
    off.annotate("manual", rebalance="auto")
    shop.annotate("stopped", rebalance="auto")
    off.settles("manual")
    shop.settles("stopped")


@timed
def test_all_spot_lost_while_paused(modes: ModesSetup) -> None:
    """Lost pods are replaced. A pod that is created without any spot waits its fallback time, and gets out once."""
    shop, observer = modes.shop, modes.observer
    shop.serves("web", REPLICAS, SOON)
    shop.settles("web")
    shop.spotweave("pause", "--for", "10m")
    evictions = shop.evictions()
    shop.history.forget()
    observer.forget()
    taken = shop.cluster.reclaim(ALL_SPOT, Way.CLOUD)
    lost_at = shop.begin_control(SPOT)
    serves_again(shop, "web")
    pace = shop.pace(lost_at, SPOT)
    seconds = seconds_since(shop, lost_at, "web")
    within("all serve again", seconds, bound(pace))
    assert shop.evictions() == evictions
    assert {pod.node for pod in observer.ended} <= set(taken.nodes)
    assert observer.written == []
    clear_outages(shop)
    observer.forget()
    created_at = time.monotonic()
    shop.create("late", REPLICAS, SOON)
    waits_for_spot(shop, "late")
    serves_again(shop, "late")
    waited = seconds_since(shop, created_at, "late")
    print(f"served {seconds:.1f} s after the loss, {waited:.1f} s after creation; own start {pace.seconds:.1f} s")
    assert waited > FALLBACK_SECONDS
    within("all serve", waited, bound(pace))
    assert [pod.node for pod in observer.ended] == [""] * SPOT
    assert shop.evictions() - evictions == len({pod.uid for pod in observer.ended}) == SPOT
    assert observer.written == []
    wait_for("an Event that names the pause", partial(names_mode, shop, "late", "pause"))


@timed
def test_pods_that_wait_for_spot_get_out_once_after_the_mode_was_changed(modes: ModesSetup) -> None:
    """Created under `auto` without any spot, then plan-only and off: one eviction per pod; Events name the mode."""
    shop, observer = modes.shop, modes.observer
    shop.cluster.reclaim(ALL_SPOT, Way.CLOUD)
    evictions = shop.evictions()
    observer.forget()
    created_at = shop.begin_control(2 * REPLICAS)
    apps = {"cautious": "plan-only", "stopped": "off"}
    for name in apps:
        shop.create(name, REPLICAS, SOON)
    for name, mode in apps.items():
        waits_for_spot(shop, name)
        shop.annotate(name, rebalance=mode)
    serves_again(shop, *apps)
    pace, waited = shop.pace(created_at, 2 * REPLICAS), seconds_since(shop, created_at, *apps)
    print(f"served {waited:.1f} s after creation; own start {pace.seconds:.1f} s")
    assert waited > FALLBACK_SECONDS
    within("all serve", waited, bound(pace))
    assert [pod.node for pod in observer.ended] == [""] * 2 * SPOT
    assert shop.evictions() - evictions == len({pod.uid for pod in observer.ended}) == 2 * SPOT
    assert observer.written == []
    for name, mode in apps.items():
        assert required(shop.user, name) == 0
        wait_for(f"an Event that names {mode}", partial(names_mode, shop, name, mode))


@timed
def test_without_any_spot_new_pods_serve_at_once(modes: ModesSetup) -> None:
    """In plan-only and off spot is only preferred, so nothing waits for the fallback time and nothing is evicted."""
    shop, plan_only, off = modes.setups
    shop.cluster.reclaim(ALL_SPOT, Way.CLOUD)
    evictions = shop.evictions()
    created_at = shop.begin_control(2 * REPLICAS)
    later = {names.SPOT_FALLBACK_AFTER: "5m"}
    plan_only.create("careful", REPLICAS, later)
    off.create("manual", REPLICAS, later)
    serves_again(shop, "careful", "manual")
    pace, seconds = shop.pace(created_at, 2 * REPLICAS), seconds_since(shop, created_at, "careful", "manual")
    print(f"served {seconds:.1f} s after creation; own start {pace.seconds:.1f} s")
    within("all serve", seconds, bound(pace, fallback=0))
    assert shop.evictions() == evictions
    for setup, name in ((plan_only, "careful"), (off, "manual")):
        assert (on_spot(setup.user, name), required(setup.user, name)) == (SPOT, 0)


@contextmanager
def spot_is_tainted(setup: ClusterSetup) -> Iterator[None]:
    """Every spot node asks politely for no pods."""
    spot = [pool for pool in setup.cluster.profile.pools if pool.capacity_class == "spot"]
    paths = [f"/api/v1/nodes/{name}" for pool in spot for name in pool.node_names]
    for path in paths:
        setup.user.client.patch(path, {"spec": {"taints": [PREFER_NO_SCHEDULE]}})
    try:
        yield
    finally:
        for path in paths:
            setup.user.client.patch(path, {"spec": {"taints": None}})


def tolerates_taint(setup: ClusterSetup, name: str) -> bool:
    wanted = (PREFER_NO_SCHEDULE["key"], PREFER_NO_SCHEDULE["effect"])
    return any(
        (each.get("key"), each.get("effect")) == wanted
        for each in next_pod(setup.user, name)["spec"].get("tolerations", ())
    )


def is_exact_and_preferred(setup: ClusterSetup, sizes: dict[str, Mix]) -> bool:
    """Every mix is as wanted, and no pod requires spot."""
    found = {name: setup.user.rest(name).actual for name in sizes}
    return found == sizes and not any(required(setup.user, name) for name in sizes)


SIZES = {"ten": Mix(7, 3), "thirty": Mix(21, 9)}


def create_sizes(setup: ClusterSetup) -> None:
    for name, mix in SIZES.items():
        setup.create(name, mix.spot + mix.on_demand)


def test_in_plan_only_the_mix_is_exact_though_spot_is_only_preferred(modes: ModesSetup) -> None:
    """7 + 3 of 10 and 21 + 9 of 30."""
    create_sizes(modes.plan_only)
    assert is_exact_and_preferred(modes.plan_only, SIZES)


def test_in_plan_only_the_mix_is_exact_on_spot_nodes_with_a_soft_taint(modes: ModesSetup) -> None:
    """An untolerated `PreferNoSchedule` taint on all spot nodes would send all of them to on-demand."""
    setup = modes.plan_only
    setup.create("probe", 1, EVERY_SLOT_SPOT)
    setup.user.rest("probe")
    with spot_is_tainted(setup):
        wait_for("the taint to be tolerated", partial(tolerates_taint, setup, "probe"))
        create_sizes(setup)
        assert is_exact_and_preferred(setup, SIZES)


@timed
def test_all_spot_lost_together_with_the_leader(modes: ModesSetup) -> None:
    """Kubernetes replaces the pods after a minute, and they find on-demand, though no outage is noted.

    By then there was no leader for a minute: with spot back, it is preferred only, until one leads again.
    """
    shop = modes.shop
    shop.serves("web", REPLICAS, SOON)
    shop.create("probe", 1, EVERY_SLOT_SPOT)
    shop.settles("web", "probe")
    assert required(shop.user, "web") == SPOT
    shop.history.forget()
    for each in shop.rebalancers:
        each.process.kill()
        each.process.wait()
    shop.cluster.reclaim(ALL_SPOT, Way.CLOUD)
    lost_at = shop.begin_control(SPOT)
    serves_again(shop, "web", patience=COLLECTION_SECONDS + PATIENCE_SECONDS)
    pace, seconds = shop.pace(lost_at, SPOT), seconds_since(shop, lost_at, "web")
    print(f"served {seconds:.1f} s after the loss; own start {pace.seconds:.1f} s")
    within("all serve again", seconds, bound(pace, collection=COLLECTION_SECONDS))
    assert on_spot(shop.user, "web") == SPOT, "slots are as before: what is on on-demand now is to return"
    shop.cluster.restore()
    wait_for("spot to be preferred only", lambda: not requires_spot(next_pod(shop.user, "probe")))
    shop.start()
    wait_within("spot to be required again", lambda: requires_spot(next_pod(shop.user, "probe")), 15)
