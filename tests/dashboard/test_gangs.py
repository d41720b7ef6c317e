"""Gangs on the page's API: how many, in which state and why, and one of them in full."""

from __future__ import annotations

from dataclasses import replace

from placement import names
from placement.model import Snapshot
from tests.builders.model import namespace
from tests.dashboard.dashboardharness import dashboard_of
from tests.dashboard.gangfixture import NODES, gang_dashboard, gangs, of_gang


def test_the_overview_counts_gangs_and_lists_those_that_do_not_run() -> None:
    """Those first that somebody has to look at."""
    seen = gang_dashboard().get("overview")["gangs"]
    assert (seen["enabled"], seen["total"], seen["late"]) == (True, 5, 1)
    assert seen["states"] == {"Blocked": 1, "Evicting": 1, "Running": 2, "Waiting": 1}
    told = [(each["name"], each["state"]) for each in seen["waiting"]]
    assert told == [("team/job.1", "Blocked"), ("large", "Waiting"), ("urgent", "Evicting")]
    assert seen["waitingTotal"] == 3


def test_where_gangs_are_off_that_is_said() -> None:
    """And nothing else changes."""
    seen = dashboard_of().get("overview")["gangs"]
    assert (seen["enabled"], seen["total"], seen["waiting"]) == (False, 0, [])


def test_gangs_are_filtered_and_cut_into_pages_by_the_server() -> None:
    """Thousands of them cost as much as a hundred."""
    many = [pod for number in range(250) for pod in of_gang(f"g{number:03}", 1, "od-2")]
    page = gang_dashboard(Snapshot({"shop": namespace()}, NODES, pods=tuple(many)))
    seen = page.get("gangs?limit=100&offset=200")
    assert (seen["total"], seen["matching"], len(seen["gangs"])) == (250, 250, 50)
    assert [each["name"] for each in page.get("gangs?q=g12")["gangs"]] == [f"g12{n}" for n in range(10)]
    assert page.get("gangs?only=Waiting")["matching"] == 0
    assert "only= accepts" in page.get("gangs?only=waits", 400)["error"]


def test_one_gang_is_shown_in_full() -> None:
    """Terms, members with their nodes, and the chance to keep them; a name may have slashes."""
    page = gang_dashboard()
    train = page.get("gangs/shop/train")
    assert {(each["state"], each["node"], each["class"]) for each in train["pods"]} == {("bound", "s1", "spot")}
    assert (train["terms"]["expectedRuntimeSeconds"], train["survival"]["pools"]) == (12 * 3600, ["b/m"])
    blocked = page.get("gangs/shop/team/job.1")
    assert blocked["reason"].startswith("ForeignGate")
    assert {tuple(each["otherGates"]) for each in blocked["pods"]} == {("kueue.x-k8s.io/admission",)}
    assert "there is no gang shop/none" in page.get("gangs/shop/none", 404)["error"]


def test_both_sides_of_a_preemption_name_the_other() -> None:
    """Who makes room, and for whom."""
    page = gang_dashboard()
    urgent, low = page.get("gangs/shop/urgent"), page.get("gangs/shop/low")
    assert [(each["pod"], each["gang"]) for each in urgent["victims"]] == [(f"low-{n}", "low") for n in range(4)]
    assert {each["reservedOn"] for each in urgent["pods"]} == {"od-1"}
    assert urgent["plan"]["awaitsVictims"]
    assert low["preemptedFor"] == ["shop/urgent"]


def test_what_happens_to_a_gang_is_remembered() -> None:
    """Changes of state with their reason, of this gang alone; what was there at first is no news."""
    page = gang_dashboard()
    assert page.get("gangs/shop/large")["events"] == []
    before = {pod.uid: pod for pod in gangs().pods}
    for pod in of_gang("large", 9, "od-2", annotations={names.POD_GROUP_WAIT_TIMEOUT: "1s"}):
        page.index.observe(before[pod.uid], pod)
    page.now += 2
    page.passes()
    (event,) = page.get("gangs/shop/large")["events"]
    assert (event["what"], event["text"]) == ("gang", "Running: all members have a node")
    assert event["gang"] == {"namespace": "shop", "name": "large"}
    assert page.get("gangs/shop/train")["events"] == []
    assert event in page.get("overview")["events"]


def test_an_answer_does_not_change_while_gangs_do_not() -> None:
    """So that a client keeps what it has."""
    page = gang_dashboard()
    before = page.client.get("/api/v1/gangs").headers["ETag"]
    page.now += 2
    page.passes()
    assert page.client.get("/api/v1/gangs").headers["ETag"] == before
    gone = next(pod for pod in gangs().pods if pod.name == "train-0")
    page.index.observe(gone, replace(gone, phase="Succeeded"))
    page.now += 2
    page.passes()
    assert page.client.get("/api/v1/gangs").headers["ETag"] != before
