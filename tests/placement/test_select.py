"""What is done now, and what is left and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import groupby
from typing import Any

import pytest

from placement import names
from placement.availability import Basis
from placement.classes import PRESETS, Classes
from placement.configuration import Configuration
from placement.model import (
    Budget,
    Class,
    HostPort,
    Kind,
    Node,
    NodeRequirement,
    NodeTaint,
    Owner,
    Pod,
    PodTerm,
    Quota,
    Rollout,
)
from placement.outage import Evidence, Outage, Outages, Shape, ended, noted
from placement.outcome import Outcome
from placement.plan.actions import Blocked, How, Plan, Why
from placement.plan.ground import ground_of
from placement.plan.group import Group
from placement.plan.losses import BY, GoneNode
from placement.plan.marks import Evicted, Moved, Released, Undone, policy_mark
from placement.plan.scene import HeldBack, Scene
from placement.plan.select import plan
from placement.plan.stock import Used
from placement.policy import Amount
from tests.builders.model import DEPLOYMENT, NEEDS, NOW, ON_DEMAND, SPOT, budget, node, owned_by_deployment, pod
from tests.builders.plan import assessed, ground, group

NODES = (node("o", ON_DEMAND, cpu=64_000), node("s", SPOT, cpu=64_000))
SHAPE = Shape(1000, 1024)
SCALED = Configuration(Classes((replace(PRESETS["default"], is_scaled=True),)))
TERMINATION = NodeTaint("aws-node-termination-handler/spot-itn")
TRIED = {names.UNDONE: Undone(1, NOW + 60).text()}


def ten(**fields: Any) -> Group:
    """Ten at 70 %, all on on-demand: seven are to go to spot."""
    return group([pod(f"p{slot}", slot, "o", **fields.pop("pod", {})) for slot in range(10)], **fields)


def planned(
    *groups: Group,
    nodes: tuple[Node, ...] = NODES,
    moves: dict[str, Any] | None = None,
    used: Used = lambda _name: {},
    **scene: Any,
) -> Plan:
    base = Configuration()
    on = replace(ground(*nodes), configuration=replace(base, moves=replace(base.moves, **(moves or {}))))
    return plan(Scene([assessed(each, on) for each in groups], on, used, NOW, **scene))


def moves_of(made: Plan) -> int:
    return sum(action.how in (How.RELEASE, How.EVICT) for action in made.actions)


def skipped(made: Plan) -> dict[Blocked, int]:
    return {each.blocked: each.pods for each in made.skipped}


def test_a_quarter_of_a_workload_at_a_time() -> None:
    made = planned(ten())
    assert moves_of(made) == 3
    assert skipped(made) == {Blocked.PER_WORKLOAD: 4}
    assert all(action.to is SPOT and action.why is Why.RATIO for action in made.actions)


@pytest.mark.parametrize(
    ("moves", "blocked"),
    [
        ({"per_node": 2}, Blocked.PER_NODE),
        ({"per_namespace": 2}, Blocked.PER_NAMESPACE),
        ({"at_once": 2}, Blocked.IN_ALL),
        ({"per_minute": 2}, Blocked.PER_MINUTE),
        ({"per_workload": Amount(2)}, Blocked.PER_WORKLOAD),
    ],
    ids=lambda value: str(value),
)
def test_every_limit_limits(moves: dict[str, Any], blocked: Blocked) -> None:
    made = planned(ten(), moves={"per_workload": Amount(10), **moves})
    assert moves_of(made) == 2
    assert skipped(made) == {blocked: 5}


def test_moves_of_the_last_minute_and_moves_under_way_count() -> None:
    assert moves_of(planned(ten(), recent=299)) == 1
    let_go = pod("old", 9, "o", owner="rs", annotations={names.RELEASED: "2030-01-01T00:00:00Z/h"})
    under_way = group([*ten().cohorts[0].pods[:9], pod("new", 9, "o"), let_go], replicas=10)
    assert moves_of(planned(under_way)) == 2


@pytest.mark.parametrize(
    ("fields", "blocked"),
    [
        ({"created": NOW - 10}, Blocked.YOUNG),
        ({"annotations": {names.SAFE_TO_EVICT: "false"}}, Blocked.KEPT),
        ({"annotations": {names.DO_NOT_DISRUPT: "true"}}, Blocked.KEPT),
        ({"annotations": {names.UNDONE: Undone(1, NOW + 60).text()}}, Blocked.BREAKER),
        ({"needs": replace(NEEDS, node_selector={names.CAPACITY: "on-demand"})}, Blocked.OWN_TERMS),
        ({"annotations": {names.MOVED: Moved("spot", "7of10min1", NOW - 60).text()}}, Blocked.COOL_DOWN),
    ],
    ids=lambda value: str(value) if isinstance(value, Blocked) else "",
)
def test_what_stops_the_move_of_one_pod(fields: dict[str, Any], blocked: Blocked) -> None:
    made = planned(group([pod(f"p{slot}", slot, "o", **fields) for slot in range(10)]))
    assert moves_of(made) == 0
    assert skipped(made) == {blocked: 7}


@pytest.mark.parametrize(
    "before",
    [Moved("on-demand", "7of10min1", NOW - 60), Moved("spot", "3of10min1", NOW - 60), Moved("spot", "7of10min1", 0)],
    ids=["from elsewhere", "under another policy", "long ago"],
)
def test_the_cool_down_is_for_the_way_back_alone(before: Moved) -> None:
    pods = [pod(f"p{slot}", slot, "o", annotations={names.MOVED: before.text()}) for slot in range(10)]
    assert moves_of(planned(group(pods))) == 3


def test_a_class_that_is_out_is_no_target() -> None:
    out = noted(Outages(), Outage(SPOT, 0.0, shape=SHAPE, by=BY), NOW - 5)
    made = planned(ten(), outages=out)
    assert moves_of(made) == 0
    assert skipped(made) == {Blocked.OUTAGE: 7}


def test_after_an_outage_one_goes_first() -> None:
    """The others follow when it has got there."""
    over = noted(Outages(), Outage(SPOT, 0.0, shape=SHAPE, by=BY), NOW - 100)
    over = ended(over, over.noted, NOW - 10)
    made = planned(ten(), outages=over)
    assert moves_of(made) == 1
    assert skipped(made)[Blocked.PROBING] == 6
    assert moves_of(planned(ten(), outages=over, proofs={(SPOT, NODES[1].pool, SHAPE): NOW - 5})) == 3


def test_after_an_outage_one_goes_first_for_each_pool() -> None:
    """Slots 1, 2, 4, 5, 7, 8, 9 prefer two pools in turn. What is proven of one says nothing of the other."""
    over = noted(Outages(), Outage(SPOT, 0.0, shape=SHAPE, by=BY), NOW - 100)
    over = ended(over, over.noted, NOW - 10)
    pools = (NODES[0], NODES[1], node("t", SPOT, "b", cpu=64_000))
    many = {"per_workload": Amount(10)}
    first = planned(ten(), nodes=pools, outages=over, moves=many)
    assert moves_of(first) == 2
    assert skipped(first) == {Blocked.PROBING: 5}
    proven = {(SPOT, pools[1].pool, SHAPE): NOW - 5}
    assert moves_of(planned(ten(), nodes=pools, outages=over, moves=many, proofs=proven)) in (3 + 1, 4 + 1)


def test_five_workloads_whose_moves_fail_stop_all_but_one_in_the_cluster() -> None:
    """Whatever its class and shape; with four of them moves go on."""
    failing = [
        replace(each, workload=replace(each.workload, uid=f"failing-{index}", name=f"failing-{index}"))
        for index in range(5)
        for each in [group([pod("x", 0, "o"), pod("y", 1, "o", annotations=TRIED), pod("z", 2, "s")])]
    ]
    small = group([pod(f"small-{slot}", slot, "o", needs=replace(NEEDS, requests={"cpu": 100})) for slot in range(4)])
    small = replace(small, workload=replace(small.workload, uid="small", name="small"))
    assert moves_of(planned(*failing[:4], ten(), small)) == 3 + 1
    made = planned(*failing, ten(), small)
    assert moves_of(made) == 1
    assert Blocked.BREAKER in skipped(made)


def other(found: Group) -> Group:
    """The same workload under another name."""
    pods = tuple(replace(each, name=f"other-{each.name}", uid=f"other-{each.uid}") for each in found.cohorts[0].pods)
    workload = replace(found.workload, uid="other", name="other")
    return replace(found, workload=workload, cohorts=(replace(found.cohorts[0], pods=pods),))


def test_a_move_that_was_refused_leaves_its_place_to_others() -> None:
    """It would have been the probe, and the only one in this namespace."""
    over = noted(Outages(), Outage(SPOT, 0.0, shape=SHAPE, by=BY), NOW - 100)
    over = ended(over, over.noted, NOW - 10)
    held = {(f"p{slot}", How.RELEASE): HeldBack(Outcome.IMPOSSIBLE) for slot in range(10)}
    made = planned(ten(), other(ten()), outages=over, held=held, moves={"per_namespace": 1})
    assert [action.pod.name for action in made.actions] == ["other-p9"]
    assert (Why.RATIO, Blocked.REFUSED, 7) in {(each.why, each.blocked, each.pods) for each in made.skipped}


@pytest.mark.parametrize(
    ("outcome", "blocked"),
    [(Outcome.IMPOSSIBLE, Blocked.REFUSED), (Outcome.BLOCKED, Blocked.BUDGET), (Outcome.BUSY, Blocked.BUSY)],
)
def test_what_failed_a_moment_ago_is_told_and_not_done(outcome: Outcome, blocked: Blocked) -> None:
    """The end of a move, too."""
    old = replace(pod("old", 2, "o", annotations={names.RELEASED: Released(NOW + 60, "h").text()}), owner=DEPLOYMENT)
    marked = pod("new", 2, "s", annotations={names.MOVED: Moved("on-demand", "7of10min1", NOW).text()})
    found = group([pod("x", 0, "o"), pod("y", 1, "s"), marked, old], 3)
    assert [action.how for action in planned(found).actions] == [How.FINISH]
    for text in (None, "replaced by new"):
        made = planned(found, held={("old", How.FINISH): HeldBack(outcome, text)})
        assert made.actions == ()
        assert skipped(made) == {blocked: 1}
    other = planned(found, held={("old", How.FINISH): HeldBack(outcome, "for another reason")})
    assert [action.how for action in other.actions] == [How.FINISH]


def one_per_host() -> Group:
    """Ten at 70 %, all on on-demand, that want a host each."""
    apart = replace(NEEDS, anti_affinity=(PodTerm(names.HOSTNAME, ()),))
    return group([pod(f"p{slot}", slot, "o", needs=apart) for slot in range(10)])


def test_none_goes_to_see_where_siblings_keep_it_from_every_node() -> None:
    """It would be put back and try again for ever, and others of its namespace would wait for what came of it."""
    assert skipped(planned(one_per_host())) == {Blocked.NO_PLACE: 7}
    assert moves_of(planned(one_per_host(), nodes=NODES[:1])) == 1, "there is no spot node: one may come"
    on = replace(ground(*NODES), configuration=SCALED)
    made = plan(Scene([assessed(one_per_host(), on)], on, lambda _name: {}, NOW))
    assert moves_of(made) == 1, "an autoscaler brings nodes"


def test_where_no_place_is_in_sight_one_goes_to_see() -> None:
    """Its pending replacement makes an autoscaler bring nodes."""
    made = planned(ten(), nodes=NODES[:1])
    assert moves_of(made) == 1
    assert skipped(made) == {Blocked.PROBING: 6}


def test_a_pod_that_finds_no_node_blocks_no_other_workload() -> None:
    """Its own workload's pods wait for it."""
    other = stuck(NOW - 20)
    made = planned(ten(), replace(other, workload=replace(other.workload, uid="other", name="other")))
    assert moves_of(made) == 3
    pods = [pod(f"p{slot}", slot, "o") for slot in range(10)]
    pods[1] = replace(stuck(NOW - 20).cohorts[0].pods[2], annotations={names.SLOT: "1"})
    assert skipped(planned(group(pods))) == {Blocked.CROWDED: 6, Blocked.WAITING: 1}


def stuck(created: float, *, rebalance: str = "auto", **fields: Any) -> Group:
    """A workload of which one pod waits for spot."""
    term = ground().configuration.classes.terms(SPOT)
    told = {"unschedulable": "no room", "required_terms": term, "created": created, "changed": created, **fields}
    return group(
        [pod("x", 0, "o"), pod("y", 1, "s"), pod("stuck", 2, **told)], annotations={names.REBALANCE: rebalance}
    )


def test_a_pod_that_waits_for_a_class_that_is_out_is_created_anew() -> None:
    """It will be admitted soft."""
    out = noted(Outages(), Outage(SPOT, 0.0, shape=SHAPE, by=BY), NOW - 5)
    assert [action.how for action in planned(stuck(NOW - 20), outages=out).actions] == [How.REPLACE]


def test_a_pod_that_is_younger_than_the_outage_is_given_a_moment() -> None:
    """One that is older goes at once: whoever creates it anew has read of the outage."""
    out = noted(Outages(), Outage(SPOT, 0.0, shape=SHAPE, by=BY), NOW - 1)
    assert [action.how for action in planned(stuck(NOW - 1.5), outages=out).actions] == [How.REPLACE]
    assert planned(stuck(NOW - 0.5), outages=out).actions == ()


def test_a_pod_that_was_admitted_in_vain_widens_the_outage() -> None:
    """It came after the outage was noted, and asked for less then: creating it anew would not help."""
    out = noted(Outages(), Outage(SPOT, 0.0, shape=SHAPE, by=BY), NOW - 60)
    made = planned(stuck(NOW - 20), outages=out)
    assert not made.actions
    evidence = Evidence("shop/stuck", "Deployment shop/web")
    assert made.outages == (Outage(SPOT, 0.0, by=BY, namespace="shop", evidence=evidence),)
    wider = noted(out, made.outages[0], NOW - 10)
    assert [action.how for action in planned(stuck(NOW - 20), outages=wider).actions] == [How.REPLACE]


def waiting_newcomer() -> Group:
    """A pod was released from on-demand ten minutes ago; its replacement waits for spot."""
    old = pod("old", 2, "o", annotations={names.RELEASED: Released(NOW + 60, "h").text()})
    found = stuck(NOW - 600)
    return replace(found, cohorts=(replace(found.cohorts[0], released=(replace(old, owner=DEPLOYMENT),)),))


def test_a_newcomer_that_waits_in_vain_is_given_up_and_speaks_for_nobody_else() -> None:
    """The old pod serves. Others are not to be softened because somebody changed a ratio."""
    made = planned(waiting_newcomer())
    assert [f"{action.how} {action.pod.name}" for action in made.actions] == ["annotate stuck", "undo old"]
    assert not made.outages


def test_a_newcomer_is_given_up_at_once_where_the_class_is_out() -> None:
    out = noted(Outages(), Outage(SPOT, 0.0, shape=SHAPE, by=BY), NOW - 5)
    made = planned(waiting_newcomer(), outages=out)
    assert [f"{action.how} {action.pod.name}" for action in made.actions] == ["annotate stuck", "undo old"]


def test_a_probe_that_waits_in_vain_tells_that_the_class_is_still_out() -> None:
    over = noted(Outages(), Outage(SPOT, 0.0, shape=SHAPE, by=BY), NOW - 1200)
    made = planned(waiting_newcomer(), outages=over)
    assert [action.how for action in made.actions] == [How.ANNOTATE, How.UNDO]
    assert [each.of for each in made.outages] == [SPOT]


def test_a_pod_speaks_for_what_it_asks_for_and_for_its_namespace() -> None:
    """It names zone and architecture: no other pod is softened because of it."""
    bound = replace(NEEDS, node_selector={names.ZONE: "b", "arch": "arm64"})
    there = node("arm", zone="b")
    there = replace(there, labels={**there.labels, "arch": "arm64"})
    made = planned(stuck(NOW - 600, needs=bound), nodes=(*NODES, there))
    (outage,) = made.outages
    assert (outage.of, outage.zones, outage.shape, outage.namespace) == (SPOT, frozenset("b"), SHAPE, "shop")
    assert outage.terms == ((NodeRequirement("arch", "In", ("arm64",)),),)
    assert outage.evidence == Evidence("shop/stuck", "Deployment shop/web")
    assert [(workload.name, each) for workload, each in made.witnesses] == [("web", outage)]
    asks = "≥1000m CPU, ≥1024Mi memory, arch In arm64"
    said = f"Spot is out in b for pods of namespace shop that request {asks} (evidence: shop/stuck)"
    assert outage.sentence == said


HOPELESS: dict[str, dict[str, Any]] = {
    "a zone without nodes": {"needs": replace(NEEDS, node_selector={names.ZONE: "elsewhere"})},
    "a typo": {"needs": replace(NEEDS, node_selector={"disk": "sdd"})},
    "larger than any node": {"needs": replace(NEEDS, requests={"cpu": 100_000})},
    "a volume that is not bound": {
        "needs": replace(NEEDS, claims=("data",)),
        "unschedulable": "0/2 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
    },
    "somebody's gate": {"unschedulable": "", "waits": "SchedulingGated"},
    "a preemption": {"unschedulable": "", "waits": "room on o"},
}


@pytest.mark.parametrize("fields", HOPELESS.values(), ids=HOPELESS.keys())
@pytest.mark.parametrize("mode", ["auto", "plan-only", "off"])
def test_a_pod_that_waits_for_its_own_reasons_is_no_evidence(fields: dict[str, Any], mode: str) -> None:
    """Without our term it would fit nowhere either: nothing is noted, nothing evicted, however long it waits."""
    made = planned(stuck(NOW - 86_400, rebalance=mode, **fields))
    assert made.outages == ()
    assert [action for action in made.actions if action.pod.name == "stuck"] == []


def test_a_port_that_is_taken_everywhere_is_no_evidence() -> None:
    taken = {"host-port/80/TCP": 1}
    made = planned(stuck(NOW - 600, needs=replace(NEEDS, host_ports=(HostPort(80),))), used=lambda _name: taken)
    assert (made.outages, made.actions) == ((), ())


def test_a_volume_is_no_obstacle_where_the_scheduler_names_our_term() -> None:
    said = "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) didn't match Pod's node affinity/selector."
    made = planned(stuck(NOW - 600, needs=replace(NEEDS, claims=("data",)), unschedulable=said))
    assert [each.namespace for each in made.outages] == ["shop"]


@pytest.mark.parametrize("mode", ["plan-only", "off"])
def test_where_moves_are_off_a_stuck_pod_is_created_again_once_its_time_is_over(mode: str) -> None:
    """The webhook requires nothing in these modes, so no outage is needed. Pods that had a node stay."""
    assert planned(stuck(NOW - 30, rebalance=mode)).actions == ()
    made = planned(stuck(NOW - 61, rebalance=mode))
    assert made.outages == ()
    (action,) = made.actions
    assert (action.how, action.pod.name, action.in_every_mode) == (How.REPLACE, "stuck", True)
    assert f"rebalance: {mode}" in action.text


def test_where_moves_are_off_a_pod_that_waits_for_on_demand_needs_an_outage() -> None:
    """The webhook still requires on-demand, since the floor rests on it."""
    terms = ground().configuration.classes.terms(ON_DEMAND)
    told: dict[str, Any] = {"unschedulable": "no room", "required_terms": terms, "changed": NOW - 121}
    web = group([pod("x", 0, **told), pod("y", 1, "s")], annotations={names.REBALANCE: "plan-only"})
    full: dict[str, Any] = {"used": lambda name: {"cpu": 64_000} if name == "o" else {}}
    (outage,) = planned(web, **full).outages
    assert (outage.of, outage.namespace) == (ON_DEMAND, "shop")
    out = noted(Outages(), outage, NOW - 5)
    assert [action.how for action in planned(web, outages=out, **full).actions] == [How.REPLACE]


def test_while_moves_are_paused_outages_are_noted_and_stuck_pods_created_again() -> None:
    made = planned(stuck(NOW - 61), ten(), is_paused=True)
    assert [each.namespace for each in made.outages] == ["shop"]
    assert made.actions == ()
    out = noted(Outages(), made.outages[0], NOW - 5)
    (action,) = planned(stuck(NOW - 61), ten(), is_paused=True, outages=out).actions
    assert (action.how, action.pod.name) == (How.REPLACE, "stuck")
    assert "rebalance: auto, paused" in action.text


def test_an_outage_in_one_namespace_softens_and_blocks_no_other() -> None:
    (outage,) = planned(stuck(NOW - 61)).outages
    out = noted(Outages(), outage, NOW - 5)
    bank = ten()
    bank = replace(bank, workload=replace(bank.workload, namespace="bank", uid="bank"))
    bank = replace(
        bank, cohorts=tuple(replace(c, pods=tuple(replace(p, namespace="bank") for p in c.pods)) for c in bank.cohorts)
    )
    assert moves_of(planned(bank, outages=out)) == 3
    assert moves_of(planned(ten(), outages=out)) == 0


def test_an_outage_ends_with_its_evidence() -> None:
    """Its workload is gone, or its pods run where they belong; as long as one runs elsewhere, it stands."""
    (outage,) = planned(stuck(NOW - 61)).outages
    out = noted(Outages(), outage, NOW - 60)
    full: dict[str, Any] = {"used": lambda _name: {"cpu": 64_000}}
    assert planned(outages=out, **full).ended == out.noted
    soft: dict[str, Any] = {"labels": {names.CLASS: "spot"}, "annotations": {names.SOFT: "true"}}
    assert planned(group([pod("x", 0, "o"), pod("y", 1, "o", **soft)]), outages=out, **full).ended == ()
    young = noted(Outages(), outage, NOW - 20)
    assert planned(outages=young, **full).ended == ()


@pytest.mark.parametrize(
    ("quota", "moves"),
    [
        (Quota("shop", "q", {"pods": 10}, {"pods": 10}), 0),
        (Quota("shop", "q", {"pods": 12}, {"pods": 10}), 2),
        (Quota("shop", "q", {"requests.cpu": 11_500}, {"requests.cpu": 10_000}), 1),
        (Quota("shop", "q", {"services": 1}, {"services": 1}), 3),
    ],
    ids=["none left", "two pods left", "cpu for one left", "of something else"],
)
def test_a_release_needs_quota_for_one_more(quota: Quota, moves: int) -> None:
    made = planned(replace(ten(), quotas=(quota,)))
    assert moves_of(made) == moves
    assert (Blocked.QUOTA in skipped(made)) == (moves < 3)


@pytest.mark.parametrize(
    ("budgets", "moves"),
    [
        ((budget(allowed=0, healthy=10, desired=10),), 3),
        ((budget(allowed=0, healthy=9, desired=10),), 0),
        ((budget(allowed=9, healthy=10, desired=1), budget("c", allowed=9, healthy=10, desired=1)), 0),
    ],
    ids=[
        "that allows nothing now",
        "that would allow nothing then either",
        "two of them, which nobody can evict under",
    ],
)
def test_a_release_needs_a_budget_that_lets_the_old_pod_go_afterwards(budgets: tuple[Budget, ...], moves: int) -> None:
    made = planned(ten(), budgets=lambda _pod: budgets)
    assert moves_of(made) == moves
    assert (Blocked.BUDGET in skipped(made)) == (moves == 0)


def stateful(**fields: Any) -> Group:
    """db-0 … db-7 at 70 %, all on on-demand: five are to go to spot, by eviction."""
    pods = [
        pod(f"db-{k}", k, "o", owner="d", **({"ready": False} if k in fields.get("down", ()) else {})) for k in range(8)
    ]
    fields.pop("down", None)
    shown = {names.CONTROLLER_REVISION_HASH: fields.pop("shown", "r2")}
    pods = [replace(each, labels={**each.labels, **shown}) if each.name == "db-0" else each for each in pods]
    made = group([own(each) for each in pods], kind=Kind.STATEFUL_SET, **fields)
    return replace(made, cohorts=(replace(made.cohorts[0], uid="d"),))


def own(each: Pod) -> Pod:
    return replace(each, owner=Owner("StatefulSet", "web", "d"))


def test_what_cannot_be_released_is_evicted_one_at_a_time() -> None:
    made = planned(stateful())
    assert Counter(action.how for action in made.actions) == {How.EVICT: 1}
    assert made.actions[0].pod.name == "db-7"


@pytest.mark.parametrize(
    ("max_surge", "how", "moves"),
    [(0, How.EVICT, 1), ("0%", How.EVICT, 1), ("1%", How.RELEASE, 3), (1, How.RELEASE, 3)],
)
def test_without_a_surge_no_second_pod_runs_beside_the_first(max_surge: int | str, how: How, moves: int) -> None:
    """`maxSurge: 0` says so. Kubernetes rounds any other share up to one pod."""
    made = planned(ten(rollout=Rollout(max_surge=max_surge, max_unavailable=1)))
    assert [action.how for action in made.actions] == [how] * moves


def test_without_a_surge_a_leaving_node_is_left_to_its_drainer() -> None:
    """As for `Recreate`: what cannot be released is not touched."""
    leaving = node("s", SPOT, taints=(NodeTaint("aws-node-termination-handler/spot-itn"),))
    pods = [pod("a", 0, "o"), pod("b", 1, "s"), pod("c", 2, "s")]
    for rollout, moves in ((Rollout(max_surge=0), 0), (Rollout(recreate=True), 0), (Rollout(), 2)):
        assert moves_of(planned(group(pods, rollout=rollout), nodes=(NODES[0], leaving))) == moves


@pytest.mark.parametrize(
    ("fields", "scene", "blocked"),
    [
        ({"down": (3,)}, {}, Blocked.UNREADY),
        ({"needed": 8, "source": Basis.DECLARED}, {}, Blocked.MINIMUM),
        ({"annotations": {names.SPOT_RATIO: "70%", names.MIN_ON_DEMAND: "2"}}, {"nodes": NODES[:1]}, Blocked.NO_PLACE),
        ({}, {"budgets": lambda _pod: (budget(allowed=0, healthy=8, desired=8),)}, Blocked.BUDGET),
        ({"revision": "r2", "shown": "r1"}, {}, Blocked.ROLLOUT),
    ],
    ids=["while one does not serve", "as many must serve", "without a place", "against its budget", "in a rollout"],
)
def test_an_eviction_needs_more(fields: dict[str, Any], scene: dict[str, Any], blocked: Blocked) -> None:
    made = planned(stateful(**fields), **scene)
    assert moves_of(made) == 0
    assert blocked in skipped(made)


@pytest.mark.parametrize(
    ("rollout", "old", "evicted"),
    [
        (Rollout(), "db-0", ""),
        (Rollout(partition=1), "db-0", "db-7"),
        (Rollout(partition=7), "db-7", ""),
        (Rollout(on_delete=True), "db-0", "db-7"),
        (Rollout(on_delete=True), "db-7", "db-5"),
    ],
    ids=[
        "it will be updated next",
        "it is held back, and stays so when it is created anew",
        "the partition lets it go",
        "its owner updates it by deleting it",
        "and would not want us to",
    ],
)
def test_pods_of_an_older_revision_that_stays_stop_nobody_else(rollout: Rollout, old: str, evicted: str) -> None:
    found = stateful(revision="r2", shown="r2", rollout=rollout)
    labels = {**found.cohorts[0].pods[0].labels, names.CONTROLLER_REVISION_HASH: "r1"}
    pods = [replace(each, labels=labels) if each.name == old else each for each in found.cohorts[0].pods]
    made = planned(replace(found, cohorts=(replace(found.cohorts[0], pods=tuple(pods)),)))
    assert [action.pod.name for action in made.actions] == [evicted] * bool(evicted)


def test_a_pod_that_would_get_an_older_revision_back_is_left_alone() -> None:
    """The partition was raised to 8 after db-7 had been updated."""
    found = stateful(revision="r2", rollout=Rollout(partition=8))
    pods = [
        replace(each, labels={**each.labels, names.CONTROLLER_REVISION_HASH: "r2" if each.name == "db-7" else "r1"})
        for each in found.cohorts[0].pods
    ]
    made = planned(replace(found, cohorts=(replace(found.cohorts[0], pods=tuple(pods)),)))
    assert [action.pod.name for action in made.actions] == ["db-5"]


def test_an_eviction_that_did_not_help_is_not_repeated_soon() -> None:
    found = stateful()
    mark = policy_mark(found.policy.slots)
    before = {f"d/{k}": Evicted("on-demand", mark, NOW - 60) for k in range(8)}
    assert skipped(planned(found, evicted=before)) == {Blocked.COOL_DOWN: 5}
    later = {f"d/{k}": Evicted("on-demand", mark, NOW - 700) for k in range(8)}
    assert moves_of(planned(found, evicted=later)) == 1
    again = {f"d/{k}": Evicted("on-demand", mark, NOW - 700, tries=1) for k in range(8)}
    assert moves_of(planned(found, evicted=again)) == 0


def test_an_eviction_that_did_not_help_is_written_on_the_successor() -> None:
    """So that the next leader knows, too."""
    found = stateful()
    before = Evicted("on-demand", policy_mark(found.policy.slots), NOW - 60, tries=2, uid="the old db-7")
    made = planned(found, evicted={"d/7": before})
    (mark,) = [action for action in made.actions if action.how is How.ANNOTATE]
    assert mark.pod.name == "db-7"
    pods = [
        replace(each, annotations={**each.annotations, names.MOVED: str(mark.annotations[names.MOVED])})
        for each in found.cohorts[0].pods
    ]
    told = replace(found, cohorts=(replace(found.cohorts[0], pods=tuple(pods)),))
    assert skipped(planned(told)) == {Blocked.COOL_DOWN: 5}
    assert all(action.how is not How.ANNOTATE for action in planned(told, evicted={"d/7": before}).actions)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, {Blocked.LAST: 1}),
        ({"needed": 0, "source": Basis.DECLARED}, {}),
        ({"needed": 0, "source": Basis.BUDGET}, {}),
        ({"needed": 1, "source": Basis.DECLARED}, {Blocked.MINIMUM: 1}),
    ],
    ids=["nobody said anything", "none must serve", "its budget lets it go", "one must serve"],
)
def test_the_last_replica_is_evicted_only_where_somebody_said_so(
    fields: dict[str, Any], expected: dict[Blocked, int]
) -> None:
    """db-0 is on spot and belongs on on-demand, as a lone replica does."""
    found = group([own(pod("db-0", 0, "s", owner="d"))], kind=Kind.STATEFUL_SET, **fields)
    made = planned(replace(found, cohorts=(replace(found.cohorts[0], uid="d"),)))
    assert skipped(made) == expected
    assert moves_of(made) == (not expected)


def test_two_workloads_under_one_budget_share_what_it_allows() -> None:
    """It lets one pod go: one of the two StatefulSets gives one, in one plan."""
    shared = (budget(allowed=1, healthy=16, desired=15),)
    first, second = stateful(), other(stateful())
    assert moves_of(planned(first, second)) == 2
    made = planned(first, second, budgets=lambda _pod: shared)
    assert moves_of(made) == 1
    assert Blocked.BUDGET in skipped(made)


def test_a_pod_waits_longer_where_an_autoscaler_is_on_it() -> None:
    """Ten minutes at most, counted from its word and from when the pod began to wait."""
    assert skipped(planned(stuck(NOW - 300), is_awaited=lambda _pod: NOW - 30)) == {Blocked.AUTOSCALER: 1}
    assert planned(stuck(NOW - 300)).outages
    assert planned(stuck(NOW - 300), is_awaited=lambda _pod: NOW - 700).outages
    assert planned(stuck(NOW - 700), is_awaited=lambda _pod: NOW - 30).outages


def test_a_pod_waits_ten_seconds_where_an_autoscaler_cannot_help_it() -> None:
    """The scheduler tries again at once, so a moment is left to it."""
    assert skipped(planned(stuck(NOW - 20))) == {Blocked.WAITING: 1}
    assert planned(stuck(NOW - 20), is_denied=lambda each: each.name == "stuck").outages
    assert skipped(planned(stuck(NOW - 9), is_denied=lambda _pod: True)) == {Blocked.WAITING: 1}


def test_lost_room_is_an_outage_only_where_no_autoscaler_brings_it_back() -> None:
    """Two pods went with the only spot node; on-demand has room for both."""
    web = group([pod("x", 0, "o"), pod("y", 1, "gone"), pod("z", 2, "gone")])
    lost = {"gone": GoneNode(node("gone", SPOT), SPOT, "its removal was announced")}

    def outages(configuration: Configuration) -> list[Class]:
        on = replace(ground(NODES[0]), configuration=configuration)
        made = plan(Scene([assessed(web, on)], on, lambda _name: {}, NOW, lost=lost))
        assert {(action.how, action.pod.name) for action in made.actions} == {(How.BURY, "y"), (How.BURY, "z")}
        return [each.of for each in made.outages]

    assert outages(Configuration()) == [SPOT]
    assert outages(SCALED) == []


@pytest.mark.parametrize(
    ("source", "needed", "why", "moves"),
    [
        (Basis.DECLARED, 5, Why.EXPOSED, 2),
        (Basis.BUDGET, 5, Why.EXPOSED, 2),
        (Basis.ASSUMED, 5, Why.BALANCE, 2),
        (Basis.DECLARED, 3, None, 0),
    ],
    ids=["declared", "by its budget", "assumed", "it survives as it is"],
)
def test_pods_above_the_headroom_in_one_pool_go_to_another(
    source: Basis, needed: int, why: Why | None, moves: int
) -> None:
    """All seven spot pods are in pool s; pools t and u are empty. With five of ten needed the headroom is five."""
    pools = (NODES[0], NODES[1], node("t", SPOT, "b", cpu=64_000), node("u", SPOT, "c", cpu=64_000))
    pods = [pod(f"p{slot}", slot, "o" if slot in (0, 3, 6) else "s") for slot in range(10)]
    found = group(pods, needed=needed, source=source)
    made = planned(found, nodes=pools, moves={"per_workload": Amount(10)})
    assert [(action.how, action.why, action.to) for action in made.actions] == [(How.RELEASE, why, SPOT)] * moves


def test_the_last_on_on_demand_waits_for_another() -> None:
    """db-0 is on spot, db-1 on on-demand, the floor is 1: db-0 goes first."""
    pods = [own(pod("db-0", 0, "s", owner="d")), own(pod("db-1", 1, "o", owner="d"))]
    found = group(pods, kind=Kind.STATEFUL_SET, annotations={names.SPOT_RATIO: "50%"})
    made = planned(replace(found, cohorts=(replace(found.cohorts[0], uid="d"),)))
    assert [action.pod.name for action in made.actions] == ["db-0"]
    assert Blocked.LAST_ON_DEMAND in skipped(made)


def missed(name: str, pods: int) -> Group:
    """A workload that admission has missed."""
    found = group([pod(f"{name}-{index}", None, "o") for index in range(pods)])
    return replace(found, workload=replace(found.workload, uid=name, name=name))


def test_annotations_wait_for_what_is_more_important_and_for_each_other() -> None:
    """20 workloads of 15 missed pods: 100 at once, after what is below its floor, before what is on the wrong class."""
    below = group([pod(f"f{slot}", slot, "s") for slot in range(3)])
    below = replace(below, workload=replace(below.workload, uid="z", name="below"))
    wrong = replace(ten(), workload=replace(ten().workload, uid="zz", name="wrong"))
    made = planned(*(missed(f"w{index}", 15) for index in range(20)), below, wrong, most_notes=100)
    assert [why for why, _ in groupby(made.actions, lambda action: action.why)] == [Why.FLOOR, Why.ADOPT, Why.RATIO]
    assert sum(action.how is How.ANNOTATE for action in made.actions) == 100
    assert made.left == 200


def test_a_pause_stops_all() -> None:
    made = planned(ten(), is_paused=True)
    assert made.actions == ()
    assert skipped(made) == {Blocked.PAUSED: 7}


def test_pods_on_a_leaving_node_go_at_once_beyond_all_limits() -> None:
    """And where spot has no room for them, the outage is noted before."""
    leaving = node("s", SPOT, taints=(TERMINATION,))
    pods = [pod(f"p{slot}", slot, "o" if slot in (0, 3, 6) else "s") for slot in range(10)]
    made = planned(group(pods), nodes=(NODES[0], leaving), moves={"at_once": 1})
    assert moves_of(made) == 7
    assert [(each.of, each.shape) for each in made.outages] == [(SPOT, SHAPE)]


def on_leaving_nodes(count: int, **taints: Any) -> tuple[Group, tuple[Node, ...]]:
    """As many pods of spot slots, each on a node of its own that leaves."""
    pods = [pod(f"p{slot}", slot, "o" if slot == 0 else f"s{slot}") for slot in range(count + 1)]
    nodes = [node(f"s{slot}", SPOT, **taints) for slot in range(1, count + 1)]
    return group(pods, annotations={names.SPOT_RATIO: "100%"}), (node("o", cpu=1000), *nodes)


def test_what_leaves_is_released_as_fast_as_there_is_room() -> None:
    """Twenty nodes go. Spot has room for six of their pods, on-demand for four."""
    web, nodes = on_leaving_nodes(20, taints=(TERMINATION,))
    free = (node("free", SPOT, cpu=6000), node("spare", cpu=4000))
    made = planned(web, nodes=(*nodes, *free), used=lambda name: {"cpu": 1000} if name == "o" else {})
    assert moves_of(made) == 10
    assert skipped(made) == {Blocked.NO_PLACE: 10}
    assert [each.evidence is not None for each in made.outages] == [True]


def test_room_is_given_once_though_replacements_are_not_seen_yet() -> None:
    """Ten pods were released into the room for ten a moment ago, and their ReplicaSet has created none yet."""
    web, nodes = on_leaving_nodes(20, taints=(TERMINATION,))
    nodes = (*nodes, node("free", SPOT, cpu=10_000))
    (cohort,) = web.cohorts
    written = {names.RELEASED: Released(NOW + 60, "h", 21).text()}
    gone = [owned_by_deployment(replace(p, annotations={**p.annotations, **written})) for p in cohort.pods[11:]]
    pending = replace(web, cohorts=(replace(cohort, pods=cohort.pods[:11], released=tuple(gone)),))
    assert moves_of(planned(pending, nodes=nodes)) == 0


def test_what_leaves_does_not_depend_on_how_many_others_wait() -> None:
    """Two hundred kinds of pods wait, each for more than any node has."""
    web, nodes = on_leaving_nodes(4, taints=(TERMINATION,))
    waiting = [pod(f"w{n}", None, needs=replace(NEEDS, requests={"cpu": 90_000 + n})) for n in range(200)]
    made = planned(web, nodes=(*nodes, node("free", SPOT, cpu=6000)), waiting=waiting)
    assert moves_of(made) == 4


def test_with_an_autoscaler_all_that_leave_wait_for_it_and_missing_room_is_no_outage() -> None:
    """They go in any case. Without a release, fewer would serve until the nodes are there."""
    web, nodes = on_leaving_nodes(20, taints=(TERMINATION,))
    on = ground_of((*nodes, node("free", SPOT, cpu=2000), node("spare", cpu=4000)), SCALED)
    made = plan(Scene([assessed(web, on)], on, lambda _name: {}, NOW))
    assert moves_of(made) == 20
    assert made.outages == ()


def test_a_cordon_moves_nothing_unless_the_configuration_says_so() -> None:
    """Then within the limits of moves."""
    web, nodes = on_leaving_nodes(20, unschedulable=True)
    free = node("free", SPOT, cpu=64_000)
    assert planned(web, nodes=(*nodes, free)) == Plan()
    on = ground_of((*nodes, free), replace(Configuration(), cordon="move"))
    made = plan(Scene([assessed(web, on)], on, lambda _name: {}, NOW))
    assert moves_of(made) == 6  # a quarter of 21, rounded up
    assert {action.why for action in made.actions} == {Why.CORDON}


def test_what_must_be_evicted_first_stays_on_a_cordoned_node() -> None:
    """Our eviction would look like a drain to the next leader."""
    found = group([pod(f"p-{slot}", slot, "o", owner="d") for slot in range(3)], kind=Kind.STATEFUL_SET)
    assert moves_of(planned(found)) == 1
    assert skipped(planned(found, nodes=(replace(NODES[0], unschedulable=True), NODES[1]))) == {Blocked.CORDONED: 2}


def elsewhere(found: Group, namespace: str) -> Group:
    """The same workload in another namespace."""
    cohorts = tuple(
        replace(cohort, pods=tuple(replace(each, namespace=namespace) for each in cohort.pods))
        for cohort in found.cohorts
    )
    return replace(found, workload=replace(found.workload, namespace=namespace, uid=namespace), cohorts=cohorts)


def test_namespaces_take_turns() -> None:
    """A backlog in one does not keep another waiting, also where its workloads have less to spare."""
    many = [replace(ten(needed=10), workload=replace(ten().workload, uid=f"a{n}")) for n in range(10)]
    made = planned(*many, elsewhere(ten(), "bank"), moves={"at_once": 4})
    assert Counter(action.pod.namespace for action in made.actions) == {"shop": 2, "bank": 2}


def failing(namespace: str, count: int) -> list[Group]:
    """Workloads of which one move each was undone."""
    tried = ten()
    pods = tuple(replace(each, annotations={**each.annotations, **TRIED}) for each in tried.cohorts[0].pods[:1])
    tried = replace(tried, cohorts=(replace(tried.cohorts[0], pods=(*pods, *tried.cohorts[0].pods[1:])),))
    return [
        replace(each, workload=replace(each.workload, uid=f"{namespace}{n}"))
        for n in range(count)
        for each in [elsewhere(tried, namespace)]
    ]


def test_moves_that_do_not_help_stop_their_own_namespace() -> None:
    """Five of fifty workloads; of a hundred it takes ten. Other namespaces go on."""
    five = failing("shop", 5)
    made = planned(*five, elsewhere(ten(), "bank"), sizes={"shop": 50, "bank": 1})
    assert Counter(action.pod.namespace for action in made.actions) == {"shop": 1, "bank": 3}
    assert moves_of(planned(*five, sizes={"shop": 100}, moves={"per_node": 100})) == 5 * 3


def test_moves_that_help_in_few_namespaces_are_stopped_everywhere() -> None:
    """In three of twelve; of forty it takes ten."""
    three = [found for name in ("a", "b", "c") for found in failing(name, 5)]
    few, many = {str(n): 1 for n in range(12)}, {str(n): 1 for n in range(40)}
    assert moves_of(planned(*three, ten(), sizes=few)) == 4
    assert moves_of(planned(*three, ten(), sizes=many, moves={"per_node": 100})) == 3 + 3


def test_a_breaker_never_stops_a_repair_below_the_floor() -> None:
    """All of a workload's pods had a move undone, and none is on on-demand."""
    pods = [pod(f"p{slot}", slot, "s") for slot in range(10)]
    below = group(pods, annotations={names.MIN_ON_DEMAND: "2"})
    made = planned(*failing("shop", 10), below)
    assert Why.FLOOR in {action.why for action in made.actions}


LIMITED = replace(NEEDS, limits={"cpu": 2000})


@pytest.mark.parametrize(
    ("kind", "hard", "used", "blocked"),
    [
        (Kind.DEPLOYMENT, {"limits.cpu": 5000}, {"limits.cpu": 4000}, {Blocked.QUOTA}),
        (Kind.DEPLOYMENT, {"limits.cpu": 6000}, {"limits.cpu": 4000}, set()),
        (Kind.STATEFUL_SET, {"pods": 2}, {"pods": 2}, set()),
        (Kind.STATEFUL_SET, {"pods": 1}, {"pods": 2}, {Blocked.QUOTA}),
        (Kind.STATEFUL_SET, {"limits.cpu": 3000}, {"limits.cpu": 4000}, {Blocked.QUOTA}),
    ],
    ids=[
        "no room for the limits of one more",
        "room for them",
        "who is evicted may come back",
        "but not where the quota was lowered since",
        "nor where that for limits was",
    ],
)
def test_quotas_count_limits_and_evictions_too(
    kind: Kind, hard: dict[str, int], used: dict[str, int], blocked: set[Blocked]
) -> None:
    """Two replicas at 0 %, of which slot 1 is on spot."""
    pods = [pod("db-0", 0, "o", needs=LIMITED), pod("db-1", 1, "s", needs=LIMITED)]
    if kind is Kind.STATEFUL_SET:
        pods = [replace(each, owner=Owner("StatefulSet", "rs", "rs")) for each in pods]
    found = replace(
        group(pods, kind=kind, annotations={names.SPOT_RATIO: "0%"}), quotas=(Quota("shop", "q", hard, used),)
    )
    made = planned(found)
    assert (set(skipped(made)), moves_of(made)) == (blocked, 0 if blocked else 1)


def test_a_place_that_a_waiting_pod_will_take_proves_nothing() -> None:
    """One place on on-demand, and a stranger's pod that was created a moment ago; or waits for too long already."""
    pods = [pod("db-0", 0, "o"), pod("db-1", 1, "s")]
    found = group(pods, kind=Kind.STATEFUL_SET, annotations={names.SPOT_RATIO: "0%"})
    nodes = (node("o", ON_DEMAND, cpu=1000), node("s", SPOT))
    stranger = pod("job", None, owner="job", created=NOW - 5)
    hopeless = replace(stranger, unschedulable="no", changed=NOW - 3600)
    foreign = replace(stranger, created=NOW - 3600)  # of a scheduler that is not there
    assert moves_of(planned(found, nodes=nodes, waiting=[foreign])) == 1
    assert moves_of(planned(found, nodes=nodes, waiting=[hopeless], is_awaited=lambda _pod: NOW + 1e9)) == 1
    assert skipped(planned(found, nodes=nodes, waiting=[stranger])) == {Blocked.NO_PLACE: 1}
    for waiting in ([], [hopeless]):
        assert moves_of(planned(found, nodes=nodes, waiting=waiting)) == 1
