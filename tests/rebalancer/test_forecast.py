"""`plan --opt-in` comes true: what is foretold of a namespace is what its workloads then have, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import names
from placement.configuration import Configuration
from placement.model import NOTHING, Class, Needs, NodeRequirement, PodTerm, Quota, Rollout, Workload
from placement.plan.actions import Blocked
from placement.slots import Mix
from placement.window import parse_window
from report.foretold import NOT_READY
from tests.examples import examples
from tests.rebalancer.optingin import Before, before, grown, mixes
from tests.rebalancer.simulation import POD_NEEDS, Making, SimulatedCluster

Deploy = Callable[[SimulatedCluster], Workload]
APART = PodTerm(names.HOSTNAME, (NodeRequirement("app", "In", ("web",)),))
ON_DEMAND_ONLY = replace(POD_NEEDS, node_selector={names.CAPACITY: "on-demand"})


@examples(12)
@given(st.integers(0, 10**6), st.booleans())
def test_what_is_foretold_comes_true(seed: int, is_tight: bool) -> None:
    """Workloads of all shapes, with room and without: each has the mix that was foretold, and breaks no rule."""
    cluster = grown(seed, is_tight=is_tight)
    told = {name: ending.assessment.actual for name, ending in cluster.foretold().items()}
    rebalancer = cluster.opts_in()
    assert mixes(cluster, rebalancer) == told
    assert rebalancer.violations == []


@examples(12)
@given(st.integers(0, 10**6), st.booleans())
def test_whoever_does_not_get_what_it_asks_for_is_told_why(seed: int, is_tight: bool) -> None:
    """A reason that lasts, for at least as many pods as are missing."""
    states = (
        Blocked.UNSETTLED,
        Blocked.UNSLOTTED,
        Blocked.UNADOPTED,
        Blocked.YOUNG,
        Blocked.PROBING,
        Blocked.COOL_DOWN,
    )
    passing = set(map(str, states))
    for ending in grown(seed, is_tight=is_tight).foretold().values():
        found, reasons = ending.assessment, dict(ending.stays)
        missing = abs(found.wanted.spot - found.actual.spot)
        assert sum(reasons.values()) >= missing
        assert not passing & reasons.keys()


def deployed(
    needs: Needs = POD_NEEDS,
    rollout: Rollout | None = None,
    replicas: int = 3,
    annotations: Mapping[str, str] = NOTHING,
) -> Deploy:
    making = Making(needs=needs)
    return lambda cluster: cluster.deploy("web", replicas, annotations, rollout=rollout, making=making)


def stateful(replicas: int = 3, annotations: Mapping[str, str] = NOTHING) -> Deploy:
    return lambda cluster: cluster.deploy_stateful("web", replicas, annotations, ordered=True)


def with_budget(deploy: Deploy, **amounts: int | str) -> Deploy:
    def made(cluster: SimulatedCluster) -> Workload:
        workload = deploy(cluster)
        cluster.budget(workload, **amounts)
        return workload

    return made


def asking_to_be_kept(cluster: SimulatedCluster) -> Workload:
    return cluster.deploy("web", 3, making=Making(annotations={names.SAFE_TO_EVICT: "false"}))


def beside_a_full_quota(cluster: SimulatedCluster) -> Workload:
    cluster.put(Quota("shop", "all", {"pods": 3}))
    return cluster.deploy("web", 3)


ALL_SPOT = {names.SPOT_RATIO: "100%", names.MIN_ON_DEMAND: "0"}
STORIES: dict[str, tuple[Deploy, Mix, Blocked | None]] = {
    "a plain Deployment gets what it asks for": (deployed(), Mix(2, 1), None),
    "a StatefulSet is moved one at a time": (stateful(), Mix(2, 1), None),
    "one replica stays on on-demand, and that is what it asks for": (deployed(replicas=1), Mix(0, 1), None),
    "no replicas": (deployed(replicas=0), Mix(), None),
    "Recreate with several replicas is evicted one by one": (deployed(rollout=Rollout(recreate=True)), Mix(2, 1), None),
    "a lone Recreate would not serve meanwhile": (
        deployed(rollout=Rollout(recreate=True), replicas=1, annotations=ALL_SPOT),
        Mix(0, 1),
        Blocked.LAST,
    ),
    "a lone StatefulSet neither": (stateful(1, ALL_SPOT), Mix(0, 1), Blocked.LAST),
    "a budget without slack holds a StatefulSet": (
        with_budget(stateful(), max_unavailable=0),
        Mix(0, 3),
        Blocked.BUDGET,
    ),
    "the same budget does not hold a Deployment": (with_budget(deployed(), max_unavailable=0), Mix(2, 1), None),
    "all must serve, and a StatefulSet cannot spare one": (
        stateful(3, {names.MIN_AVAILABLE: "100%"}),
        Mix(0, 3),
        Blocked.MINIMUM,
    ),
    "its own selector excludes spot": (deployed(ON_DEMAND_ONLY), Mix(0, 3), Blocked.OWN_TERMS),
    "it asks to be kept": (asking_to_be_kept, Mix(0, 3), Blocked.KEPT),
    "the quota leaves no room for a second pod": (beside_a_full_quota, Mix(0, 3), Blocked.QUOTA),
    "hard spread that admission adds": (deployed(annotations={names.SPREAD: "host:hard"}), Mix(2, 1), None),
    "moves are switched off": (deployed(annotations={names.REBALANCE: "off"}), Mix(0, 3), Blocked.OFF),
    "no spot node is large enough": (deployed(replace(POD_NEEDS, requests={"cpu": 7000})), Mix(0, 3), Blocked.NO_PLACE),
    "apart from each other, and one spot host": (
        deployed(replace(POD_NEEDS, anti_affinity=(APART,))),
        Mix(1, 2),
        Blocked.NO_PLACE,
    ),
}


@pytest.mark.parametrize(("deploy", "mix", "blocked"), STORIES.values(), ids=STORIES)
def test_a_workload_and_what_lasts(deploy: Deploy, mix: Mix, blocked: Blocked | None) -> None:
    """Foretold with its reason, and then so."""
    cluster = before_opt_in(deploy)
    ending = cluster.foretold()["web"]
    assert ending.assessment.actual == mix
    assert [reason for reason, _ in ending.stays] == ([] if blocked is None else [str(blocked)])
    rebalancer = cluster.opts_in(600)
    assert mixes(cluster, rebalancer) == {"web": mix}


def before_opt_in(deploy: Deploy, configuration: Configuration | None = None, spot: int = 1) -> Before:
    """Four on-demand nodes of 8 CPUs, and spot nodes of 4."""
    cluster = SimulatedCluster(1, configuration)
    cluster.add_nodes(Class.ON_DEMAND, 4, "ab")
    cluster.add_nodes(Class.SPOT, spot, "ab", cpu=4000)
    return before(cluster, deploy)


def test_a_window_is_waited_for() -> None:
    """Half an hour on the first of a month is enough; that it waits is told."""
    cluster = before_opt_in(deployed(annotations={names.REBALANCE_WINDOW: "0 3 1 * * 30m"}))
    window = parse_window("0 3 1 * * 30m")
    assert not window.is_open(cluster.cluster.now)
    ending = cluster.foretold()["web"]
    assert (ending.assessment.actual, ending.stays, ending.waits_for_window) == (Mix(2, 1), (), True)


def test_pods_that_are_not_ready_count_for_nothing_and_are_named() -> None:
    """The scheduler finds no node for one of three, whatever Spotweave does."""
    cluster = before_opt_in(
        deployed(replace(POD_NEEDS, requests={"cpu": 8000}), replicas=5, annotations={names.SPOT_RATIO: "0%"})
    )
    ending = cluster.foretold()["web"]
    assert (ending.assessment.actual, dict(ending.stays)) == (Mix(0, 4), {NOT_READY: 1})


def test_an_autoscaler_brings_the_nodes_that_are_missing() -> None:
    """One spot node holds four pods; ten at 70 % need room for seven."""
    scaled = Configuration()
    classes = scaled.classes
    labels = tuple(replace(label, is_scaled=True) for label in classes.labels)
    scaled = replace(scaled, classes=replace(classes, labels=labels))
    ending = before_opt_in(deployed(replicas=10), scaled).foretold()["web"]
    assert (ending.assessment.actual, ending.stays, ending.moves) == (Mix(7, 3), (), 7)
    assert before_opt_in(deployed(replicas=10)).foretold()["web"].assessment.actual == Mix(4, 6)
