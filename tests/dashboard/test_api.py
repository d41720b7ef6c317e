"""The read API: the numbers of `spotweave status`, and how much they are worth."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from fractions import Fraction
from urllib.parse import quote

import pytest

from placement import names
from placement.configuration import Configuration, NamespaceLimit
from placement.eviction import EvictionAsked
from placement.model import Class, NodeRequirement, Owner, Pod, PodTerm, Snapshot
from placement.observation import Observed, PoolRecord, Rates
from placement.outage import Outage, Outages
from placement.outcome import Outcome
from placement.pause import Pause
from placement.plan.actions import Action, How, Plan, Why
from placement.plan.marks import Released
from placement.policy import Limit
from rebalancer.index import Index
from report.drill import drill
from report.skipped import skipped_in, skipped_json
from report.status import statuses
from report.statusjson import status_json
from tests.builders.model import NOW
from tests.builders.snapshots import NODES, SHOP, WEB_NODES, deployment, snapshot
from tests.dashboard.dashboardharness import DashboardHarness, dashboard_of, drained

LEAVING = snapshot(
    deployment("web", ("od-a", "spot-a", "spot-b", "od-b"), min_available="3"),
    nodes=(*(each for each in NODES if each.name != "spot-a"), drained("spot-a")),
)
LOST = snapshot(deployment("web", ("od-a", "gone", "spot-b", ""), spot_ratio="70"))


@pytest.mark.parametrize("seen", [SHOP, LEAVING, LOST], ids=["at rest", "a node leaves", "a node is gone"])
def test_workloads_are_as_status_tells_them(seen: Snapshot) -> None:
    """The same shape and the same numbers, to the letter; what is more is allowed."""
    told = status_json(statuses(seen, Configuration()), datetime.fromtimestamp(NOW, UTC))
    answer = dashboard_of(seen).get("workloads")
    assert (answer["synced"], answer["generatedAt"]) == (told["synced"], told["generatedAt"])
    assert [{key: each[key] for key in told["workloads"][0]} for each in answer["workloads"]] == told["workloads"]


def test_a_workloads_page_has_its_pods_as_status_tells_them() -> None:
    """And where they are, and what would not be survived."""
    answer = dashboard_of().get("workloads/shop/Deployment/web")
    told = status_json(statuses(SHOP, Configuration()), datetime.now(UTC), with_pods=True)["workloads"][1]["pods"]
    pods = answer["workload"]["pods"]
    assert [{key: pod[key] for key in told[0]} for pod in pods] == told
    assert pods[1] | {"reason": ""} == {
        "name": "web-1",
        "slot": 1,
        "node": "spot-a",
        "class": "spot",
        "given": None,
        "serves": True,
        "reason": "",
        "zone": "a",
        "pool": "a/m",
        "leaving": False,
    }
    assert answer["perils"][0] == "losing node spot-a takes 4 replicas and leaves 6, but 8 must serve"


def test_every_answer_says_how_much_it_is_worth() -> None:
    """How old it is, whether this replica leads, whether it hears from the API server."""
    page = dashboard_of()
    page.now += 7.5
    page.is_leading = page.is_synced = False
    for path in ("overview", "workloads", "workloads/shop/Deployment/web", "pools", "drill?spot=1"):
        answer = page.get(path)
        assert (answer["ageSeconds"], answer["leading"], answer["synced"]) == (7.5, False, False)


def test_what_was_not_read_is_not_empty() -> None:
    """Before the first pass there is no answer, rather than one without workloads."""
    answer = DashboardHarness().get("workloads", 503)
    assert (answer["synced"], answer["generatedAt"]) == (False, None)
    assert "workloads" not in answer


def test_the_overview_sums_up() -> None:
    """Eleven serve, six of them on spot; web would not survive anything, and somebody said that eight must serve."""
    answer = dashboard_of(outages=Outages(1, (Outage(Class.SPOT, NOW + 60, frozenset({"b"})),))).get("overview")
    share = answer["spotShare"]
    assert (share["spot"], share["onDemand"], share["share"]) == (6, 5, 0.5455)
    assert share["history"] == [[int(NOW), 0.5455]]
    assert answer["workloads"]["total"] == 2
    assert answer["exposed"]["declared"] == {"node": 1, "pool": 1, "zone": 1, "spot": 1}
    assert answer["exposed"]["assumed"] == {"node": 1, "pool": 0, "zone": 1, "spot": 0}
    assert [each["name"] for each in answer["exposed"]["workloads"]] == ["web", "one"]
    assert [each["zones"] for each in answer["outages"]] == [["b"]]
    assert [each["text"] for each in answer["events"]] == ["spot is out, b"]
    assert answer["paused"] is None


def test_held_evictions_are_shown_until_their_time_is_up() -> None:
    """In the overview and with the workload. They end by time alone, though nothing else changes."""
    made, revision, pods = deployment("web", ("od-a", "spot-a", "spot-b"))
    note = {names.EVICTION_ASKED: EvictionAsked(NOW - 10, "alice").text()}
    note[names.RELEASED] = Released(NOW + 300, "h").text()
    labels = {**pods[1].labels, names.POD_TEMPLATE_HASH: "released-h"}
    going = replace(
        pods[1], owner=Owner("Deployment", "web", "web"), labels=labels, annotations={**pods[1].annotations, **note}
    )
    page = dashboard_of(snapshot((made, revision, [pods[0], going, pods[2]])))
    held = {"pod": "web-1", "since": NOW - 10, "until": NOW + 80, "by": "alice"}
    entry = {"namespace": "shop", "kind": "Deployment", "name": "web", **held}
    assert page.get("overview")["held"] == {"pods": 1, "evictions": [entry]}
    assert page.get("workloads/shop/Deployment/web")["workload"]["held"] == [held]
    page.now += 80
    page.viewer.take(Plan(), page.now)
    assert page.get("overview")["held"] == {"pods": 0, "evictions": []}
    assert page.get("workloads/shop/Deployment/web")["workload"]["held"] == []


def test_the_overview_counts_pods_that_are_not_placed() -> None:
    """By namespace and reason, the same list as in `spotweave status -o json`."""
    job = Owner("Job", "x", "x", "batch")
    strangers = (Pod("shop", "job", "job", job), Pod("shop", "bare", "bare"), Pod("elsewhere", "bare", "other"))
    seen = replace(SHOP, pods=(*SHOP.pods, *strangers))
    answer = dashboard_of(seen).get("overview")["skipped"]
    assert answer == {
        "pods": 2,
        "text": "Not placed: 2 pods in shop (1 without an owner, 1 owned by a Job)",
        "reasons": skipped_json(skipped_in(seen)),
        "reasonsTotal": 2,
    }
    assert dashboard_of().get("overview")["skipped"]["pods"] == 0


def test_a_pause_is_told_with_what_it_blocks() -> None:
    """As `spotweave pause` noted it."""
    seen = snapshot(deployment("web", ["spot-a"] * 4, spot_ratio="0"))
    answer = dashboard_of(seen, pause=Pause(NOW, None, "alice", "black friday")).get("overview")
    assert answer["paused"] == {"since": NOW, "until": None, "by": "alice", "reason": "black friday"}
    assert answer["moves"]["blocked"] == [{"reason": "paused by `spotweave pause`", "pods": 4}]


def test_workloads_are_filtered_sorted_and_paged() -> None:
    """By the server, so that a page of thousands asks for what it shows."""
    page = dashboard_of()
    assert [each["name"] for each in page.get("workloads?sort=replicas&order=desc")["workloads"]] == ["web", "one"]
    assert [each["name"] for each in page.get("workloads?q=ON")["workloads"]] == ["one"]
    assert [each["name"] for each in page.get("workloads?only=declared")["workloads"]] == ["web"]
    second = page.get("workloads?limit=1&offset=1")
    assert ([each["name"] for each in second["workloads"]], second["matching"]) == (["web"], 2)
    for wrong in ("sort=uid", "only=all", "limit=-1", "limit=x", "offset=1e3"):
        assert "accepts" in page.get(f"workloads?{wrong}", 400)["error"]
    assert "not opted in" in page.get("workloads/shop/Deployment/nobody", 404)["error"]


def test_pools_are_told_with_their_fill_and_who_leaves() -> None:
    """Zone × instance type and class; web asks for four of the eight cores of spot in zone a."""
    answer = dashboard_of().get("pools")
    assert (answer["zones"], answer["instanceTypes"]) == (["a", "b"], ["m"])
    spot = next(each for each in answer["pools"] if (each["zone"], each["class"]) == ("a", "spot"))
    assert (spot["count"], spot["fill"]["cpu"], spot["leaving"]) == (1, 0.5, 0)
    demand = next(each for each in answer["pools"] if (each["zone"], each["class"]) == ("a", "on-demand"))
    assert demand["nodes"][0]["created"] == NOW - 7200
    left = next(each for each in dashboard_of(LEAVING).get("pools")["pools"] if each["leaving"])
    assert (left["zone"], left["class"]) == ("a", "spot")


def test_a_view_is_of_the_last_pass_and_not_of_the_middle_of_the_next() -> None:
    """All of web's pods are gone from the index, and the loop has not come to them yet: nothing of that is told."""
    page = dashboard_of()
    for pod in SHOP.pods:
        page.index.observe(pod, None)
    for node in SHOP.nodes.values():
        page.index.observe(node, None)
    page.index.drain()
    spot = next(each for each in page.get("pools")["pools"] if (each["zone"], each["class"]) == ("a", "spot"))
    assert (spot["count"], spot["fill"]["cpu"]) == (1, 0.5)
    assert page.get("overview")["nodes"]["total"] == len(NODES)


@pytest.mark.parametrize(
    ("asked", "gone"),
    [
        ("node=spot-a", {"spot-a"}),
        ("pool=a/m", {"spot-a"}),
        ("zone=a", {"od-a", "spot-a"}),
        ("spot=1", {"spot-a", "spot-b"}),
    ],
)
def test_a_drill_tells_what_placement_tells(asked: str, gone: set[str]) -> None:
    """Who loses what, and who falls below what must serve."""
    answer = dashboard_of().get(f"drill?{asked}")
    told = {loss.workload.name: loss.raw for loss in drill(SHOP, Configuration(), gone)}
    assert {each["name"]: each for each in answer["losses"]} == told
    assert answer["nodes"] == len(gone)
    assert answer["fallBelow"]["declared"] == 1


def test_a_drill_tells_whether_the_rest_fits() -> None:
    """Four pods of one core each: the other spot node has two cores left, on-demand has three."""
    room = dashboard_of().get("drill?node=spot-a")["room"]
    assert (room["spot"]["pods"], room["spot"]["fits"], room["allOnDemand"]["fits"]) == (4, False, False)
    assert dashboard_of().get("drill?node=spot-b")["room"]["spot"] == {
        "pods": 2,
        "fits": True,
        "leftOut": None,
        "reason": None,
    }


@pytest.mark.parametrize(("where", "fits"), [(("od-a", "spot-a"), True), (("od-a", "spot-a", "od-b"), False)])
def test_a_drill_counts_hosts_where_pods_are_kept_apart(where: tuple[str, ...], fits: bool) -> None:
    """Each replica on a host of its own: what is lost needs an empty host, however much room the others have."""
    apart = PodTerm(names.HOSTNAME, (NodeRequirement("app", "In", ("web",)),))
    workload, replica_set, pods = deployment("web", where)
    alone = [replace(each, needs=replace(each.needs, anti_affinity=(apart,))) for each in pods]
    room = dashboard_of(snapshot((workload, replica_set, alone))).get("drill?spot=1")["room"]
    assert (room["allOnDemand"]["pods"], room["allOnDemand"]["fits"]) == (1, fits)


def test_a_drill_asks_for_one_thing_that_exists() -> None:
    """Without a question it tells what there is."""
    page = dashboard_of()
    assert page.get("drill")["pools"] == ["a/m", "b/m"]
    page.get("drill?node=nobody", 404)
    page.get("drill?node=spot-a&zone=a", 400)
    page.get("drill?workload=shop/web&ratio=50%25", 400)


def test_another_ratio_is_tried_before_it_is_set() -> None:
    """At 30 % three of web's six are moved off spot, and on-demand has room for just so many."""
    page = dashboard_of()
    answer = page.get(f"drill?workload=shop/Deployment/web&ratio={quote('30%')}")
    assert (answer["wantedNow"], answer["wanted"]) == ({"spot": 6, "onDemand": 4}, {"spot": 3, "onDemand": 7})
    assert (answer["moves"], answer["unplaced"]) == (3, 0)
    assert answer["exposure"]["blastRadius"]["spot"] == 6
    assert answer["exposureAfter"]["blastRadius"]["spot"] == 3
    assert "expected a percentage" in page.get("drill?workload=shop/Deployment/web&ratio=30", 400)["error"]


def test_auto_is_tried_before_it_is_set() -> None:
    """With the rates that are noted: two pools of which neither may go bear two pods each."""
    seen = snapshot(deployment("web", WEB_NODES, spot_ratio="60%", min_available="8", availability_target="99.99%"))
    page = dashboard_of(seen, observed=Observed(Rates(1, {"a/m": 1.0, "b/m": 1.0})))
    answer = page.get("drill?workload=shop/Deployment/web&ratio=auto")
    assert (answer["wantedNow"]["spot"], answer["wanted"]["spot"]) == (6, 4)


def test_a_workload_tells_how_often_it_is_expected_to_fall_short() -> None:
    """Pool a/m and its one node hold four, of which two may be lost; as `spotweave status` tells it, and auto too."""
    pools = {"a/m": PoolRecord(hours=720.0, losses=3.0), "b/m": PoolRecord(hours=480.0)}
    observed = Observed(Rates(1, {"a/m": 4.0, "b/m": 0.5}), pools=pools)
    seen = snapshot(deployment("web", WEB_NODES, spot_ratio="auto", min_available="8", availability_target="99.99%"))
    answer = dashboard_of(seen, observed=observed).get("workloads/shop/Deployment/web")
    assert answer["risk"] == (
        "2.6 incidents expected in 30 days, below min-available for 0.0602% of the time (observed 20 days)"
    )
    assert answer["policy"] == "spot-ratio auto (45%: 2 pools, 4.5 losses a month, target 99.99%), min-on-demand 1"
    [status] = status_json(statuses(seen, Configuration(), observed), datetime.now(UTC))["workloads"]
    told = answer["workload"]
    assert (told["exposure"], told["wanted"]) == (status["exposure"], status["wanted"])
    assert status["exposure"]["incidentsPer30Days"] == 2.6


def test_savings_are_told_with_their_source_and_follow_a_nodes_price() -> None:
    """Six of eleven pods on spot; at 0.35, then one node is annotated with half the price."""
    page = dashboard_of()
    saved, sources = 6 * 0.65 / 11, {"default": 6}
    told = page.get("overview")["savings"]
    assert told == {"share": round(saved, 4), "cost": round(1 - saved, 4), "sources": sources}
    old = page.index.ground.sites["spot-a"].node
    page.index.observe(old, replace(old, annotations={names.PRICE_RATIO: "0.5"}))
    page.now += 2
    page.passes()
    told = page.get("overview")["savings"]
    saved, sources = (2 * 0.65 + 4 * 0.5) / 11, {"default": 2, "node annotation": 4}
    assert told == {"share": round(saved, 4), "cost": round(1 - saved, 4), "sources": sources}
    changed = page.get(f"drill?workload=shop/Deployment/web&ratio={quote('0')}")
    assert changed["savings"]["share"] == round((2 * 0.65 + 4 * 0.5) / 10, 4)


def test_history_tells_moves_losses_and_departures() -> None:
    """The latest first, of a workload or of all."""
    page = dashboard_of()
    web = SHOP.workloads[0]
    action = Action(How.RELEASE, Why.RETURN, web, SHOP.pods[0], Class.ON_DEMAND, Class.SPOT)
    page.now += 60
    page.passes([(action, Outcome.DONE), (action, None)])
    page.now += 60
    page.index.observe(page.index.ground.sites["spot-b"].node, drained("spot-b"))
    page.passes()
    page.now += 60
    page.index.observe(drained("spot-b"), None)
    page.passes()
    events = page.get("workloads/shop/Deployment/web")["events"]
    assert [(each["what"], each["text"]) for each in events] == [
        ("lost", "2 pods lost with their nodes"),
        ("leaving", "2 pods on nodes that are leaving"),
        ("move", "moving web-0 to spot: its replacement starts first (return)"),
    ]
    assert [each["node"] for each in page.get("overview")["events"] if not each["workload"]] == ["spot-b", "spot-b"]
    points = page.get("overview")["spotShare"]["history"]
    assert [share for _, share in points] == [0.5455, 0.5455, 0.5455, 0.4444]  # on a leaving node they still serve


def test_moves_that_are_under_way_are_told() -> None:
    """A released pod serves until its replacement does."""
    workload, replica_set, pods = deployment("web", ("od-a", "spot-a", "spot-b"))
    mark = {**pods[1].annotations, names.RELEASED: "2025-06-15T15:10:00Z/h"}
    labels = {**pods[1].labels, names.POD_TEMPLATE_HASH: "released-h"}
    pods[1] = replace(pods[1], owner=None, labels=labels, annotations=mark)
    answer = dashboard_of(snapshot((workload, replica_set, pods))).get("overview")["moves"]
    assert (answer["runningTotal"], answer["running"][0]["pod"]) == (1, "web-1")


def test_notes_are_no_moves() -> None:
    """Pods that admission missed get their slots by annotation: nothing moves for that, and nothing is said to."""
    workload, replica_set, pods = deployment("web", ("od-a", "spot-a", "spot-b"))
    pods = [replace(each, annotations={}, labels={"app": "web"}) for each in pods]
    page = dashboard_of(snapshot((workload, replica_set, pods)))
    moves = page.get("overview")["moves"]
    assert (moves["notes"], moves["nextTotal"], moves["next"]) == (3, 0, [])
    assert page.get("workloads/shop/Deployment/web")["next"] == []


def test_blocked_pods_are_counted_as_pods() -> None:
    """Four pods of one workload wait for one thing: four, as the list says, and not one."""
    seen = snapshot(deployment("web", ["spot-a"] * 4, spot_ratio="0"))
    moves = dashboard_of(seen, pause=Pause(NOW, None, "alice", "")).get("overview")["moves"]
    assert moves["blockedPods"] == sum(each["pods"] for each in moves["blocked"]) == 4


def test_the_last_move_is_remembered_where_no_pod_tells_it() -> None:
    """An eviction leaves no note on any pod; a move that failed is none."""
    page = dashboard_of()
    web, one = (next(each for each in SHOP.workloads if each.name == name) for name in ("web", "one"))
    page.now += 60
    page.passes(
        [
            (Action(How.EVICT, Why.RATIO, web, SHOP.pods[0]), Outcome.DONE),
            (Action(How.EVICT, Why.RATIO, one, SHOP.pods[-1]), Outcome.BLOCKED),
        ]
    )
    moved = {each["name"]: each["lastMove"] for each in page.get("workloads?sort=lastMove&order=desc")["workloads"]}
    assert list(moved.items()) == [("web", page.now), ("one", None)]


def test_the_end_of_a_move_has_a_reason_only_if_it_is_known() -> None:
    """ "over" says nothing to anybody."""
    page = dashboard_of()
    web = SHOP.workloads[0]
    page.now += 60
    page.passes(
        [
            (Action(How.FINISH, Why.OVER, web, SHOP.pods[0], to=Class.SPOT), Outcome.DONE),
            (Action(How.FINISH, Why.LEAVING, web, SHOP.pods[1], to=Class.SPOT), Outcome.DONE),
        ]
    )
    assert [each["text"] for each in page.get("overview")["events"]] == [
        "moved web-1 to spot: its replacement serves (node-leaving)",
        "moved web-0 to spot: its replacement serves",
    ]


def test_counts_lead_to_just_those_workloads() -> None:
    """Declared and assumed minima apart, as the overview counts them."""
    page = dashboard_of()
    exposed = page.get("overview")["exposed"]
    for minimum in ("declared", "assumed"):
        for domain, count in exposed[minimum].items():
            assert page.get(f"workloads?only={domain}&minimum={minimum}")["matching"] == count
    assert "declared" in page.get("workloads?minimum=none", 400)["error"]


def test_lists_that_are_cut_say_how_many_there_are() -> None:
    """120 nodes leave: fifty names, and the number."""
    leaving = [replace(drained("spot-a"), name=f"spot-{number}") for number in range(120)]
    nodes = dashboard_of(snapshot(nodes=leaving)).get("overview")["nodes"]
    assert (len(nodes["leaving"]), nodes["leavingTotal"], nodes["lostTotal"]) == (50, 120, 0)


def test_a_limit_that_takes_a_ratio_back_is_told() -> None:
    """The platform team allows half: asking for more is answered with that, and with why."""
    configuration = Configuration(limits=(NamespaceLimit(Limit(Fraction(1, 2), None)),))
    page = dashboard_of(index=Index(configuration))
    answer = page.get(f"drill?workload=shop/Deployment/web&ratio={quote('90%')}")
    assert answer["wanted"]["spot"] == 5
    assert len(answer["mistakes"]) == 1
    assert "50%" in answer["mistakes"][0]
    assert page.get(f"drill?workload=shop/Deployment/web&ratio={quote('40%')}")["mistakes"] == []


def test_thousands_of_workloads_cost_what_has_changed() -> None:
    """One change among 2,000: one status is worked out anew, and a page of 100 rows has 100 rows."""
    many = snapshot(*(deployment(f"w{number:04}", ("od-a", "spot-a", "spot-b")) for number in range(2000)))
    page = dashboard_of(many)
    first = page.client.get("/api/v1/workloads?limit=100")
    assert len(first.get_json()["workloads"]) == 100
    assert len(first.data) < 200_000
    packed = page.client.get("/api/v1/workloads?limit=100", headers={"Accept-Encoding": "gzip"})
    assert len(packed.data) < 20_000
    assert len(page.client.get("/api/v1/overview").data) < 60_000
    before = page.viewer.view()
    changed = many.workloads[7]
    page.index.observe(changed, replace(changed, annotations={names.SPOT_RATIO: "50%"}))
    page.now += 2
    page.passes()
    after = page.viewer.view()
    assert before is not None
    assert after is not None
    assert len({id(each) for each in after.seen} - {id(each) for each in before.seen}) == 1


def test_who_asks_the_same_gets_what_was_worked_out_once() -> None:
    """Until there is another pass, a second later at the earliest: fifty pages cost as much as one."""
    page = dashboard_of()
    views = set()
    for _ in range(3):
        page.now += 0.3
        page.passes()
        views.add(id(page.viewer.view()))
    assert len(views) == 1
    page.now += 1
    page.passes()
    assert id(page.viewer.view()) not in views
