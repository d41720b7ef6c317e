"""`spotweave explain gang/NAME`: state, members, plan, what it waits for, and what happened."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from cli import explain
from cli.errors import UsageError
from cli.explaingang import GangEvent, events_of, explained, known_in
from cli.gangmachinery import UNLED, Machinery
from cli.gangnames import key_of
from cli.plan import Picture
from placement import names
from placement.gang.claim import RoomClaim
from placement.gang.reservation import Reservation
from placement.model import Class, Key, Pod, Subject
from tests.builders.model import NOW, node
from tests.builders.snapshots import SHOP
from tests.cli.test_queue_preview import CPU, FOUR, low, picture
from tests.cli.test_queue_release import GatesApi
from tests.placement.test_gang import member

KEY = Key("shop", "train")
AT_WORK = Machinery(True, "pod-1", True)


def told(at: Picture, *events: GangEvent, around: Machinery = AT_WORK) -> Any:
    return explained(at, KEY, events, around)


def test_a_gang_that_waits_says_what_is_missing_and_who_would_go() -> None:
    """State, each member, the terms, and the preview of now."""
    wanted = {**FOUR, names.POD_GROUP_CLASS: "on-demand", names.POD_GROUP_WAIT_TIMEOUT: "30m:start"}
    urgent = [member(n, needs=replace(CPU, priority=9), annotations=wanted) for n in range(4)]
    found = told(picture(*urgent, *low()))
    raw = found.raw
    assert (found.code, raw["fine"], raw["state"], raw["missing"]) == (1, False, "Waiting", 4)
    assert [(each["pod"], each["owner"], each["state"], each["node"]) for each in raw["pods"]] == [
        (f"m{n}", "Job/train", "gated", None) for n in range(4)
    ]
    assert raw["terms"]["waitTimeoutThen"] == "start"
    assert (raw["preview"]["fits"], raw["preview"]["cost"]["pods"]) == (True, 4)
    text = "\n".join(raw["lines"])
    for part in (
        "4 must start for it to be whole",
        "priority 9",
        "runs on on-demand",
        "wait-timeout 0:30:00, then start",
    ):
        assert part in text
    assert "4 of 4 members would start once 4 pods are evicted" in text


def test_a_reservation_is_shown_with_its_plan_and_its_victims() -> None:
    """For each member the node that is kept for it; and the pods that make room, of which some end already."""
    mark = {names.PREEMPTED_BY: RoomClaim(KEY, "p1", 4).text()}
    victims = [replace(pod, annotations={**pod.annotations, **mark}) for pod in low()]
    victims[0] = replace(victims[0], terminating=True)
    waits = Reservation("p1", NOW - 1, "n1", awaits_victims=True).text()
    held = [
        member(n, needs=replace(CPU, priority=9), annotations=FOUR, nominated="n1", gang_plan=waits) for n in range(4)
    ]
    raw = told(picture(*held, *victims)).raw
    assert raw["plan"] == {"id": "p1", "at": "2025-06-15T15:06:39+00:00", "awaitsVictims": True, "undone": False}
    assert {each["reservedOn"] for each in raw["pods"]} == {"n1"}
    assert [each["terminating"] for each in raw["victims"]].count(True) == 1
    text = "\n".join(raw["lines"])
    assert "waits for 4 pods that make room (1 end already)" in text
    assert "m0 of Job/train: gated; room is kept on n1" in text


def test_a_victim_says_for_which_gang_it_makes_room() -> None:
    """The other side."""
    mark = {names.PREEMPTED_BY: RoomClaim(Key("lab", "urgent"), "p1", 4).text()}
    pods = [member(n, "n1", needs=CPU, annotations={**FOUR, **mark}) for n in range(4)]
    raw = told(picture(*pods)).raw
    assert raw["preemptedFor"] == ["lab/urgent"]
    assert "makes room for gang lab/urgent" in raw["lines"]


def test_a_gang_that_runs_is_fine_and_says_where_and_how_safe() -> None:
    """Each member's node, class and pool, and the chance to keep them."""
    spot = {"s1": node("s1", Class.SPOT, "b", taints=())}
    mine = {**FOUR, names.EXPECTED_RUNTIME: "12h"}
    pods = [member(n, "s1", needs=CPU, annotations=mine) for n in range(4)]
    found = told(picture(*pods, nodes=spot))
    assert (found.code, found.raw["preview"]) == (0, None)
    assert {(each["node"], each["class"], each["pool"]) for each in found.raw["pods"]} == {("s1", "spot", "b/m")}
    assert found.raw["survival"]["chance"] == pytest.approx(0.9818, abs=1e-4)  # exp(-1.1 · 12 / 720)
    assert "m0 of Job/train: on s1 (spot, b/m)" in "\n".join(found.raw["lines"])


def test_what_happened_is_counted_from_events() -> None:
    """They are the only memory beyond the leader's own, and are kept for an hour."""
    pods = [member(n, "n1", needs=CPU, annotations=FOUR) for n in range(4)]
    undone = GangEvent(NOW - 60, names.EVENT_GANG_UNDONE, "Job/train", "Gang train is rolled back", 3)
    started = GangEvent(NOW - 9, names.EVENT_GANG_STARTED, "Job/train", "Gang train: all 4 members have a node")
    raw = told(picture(*pods), undone, started).raw
    assert raw["attempts"] == {"starts": 1, "rolledBack": 3, "preemptions": 0}
    assert "GangRolledBack ×3 on Job/train" in "\n".join(raw["lines"])


def test_that_nobody_leads_is_said_first() -> None:
    """Nothing else matters then."""
    pods = [member(n, needs=CPU, annotations=FOUR) for n in range(4)]
    assert told(picture(*pods), around=Machinery(True, "", True)).raw["lines"][0] == f"! {UNLED}"


@dataclass
class EventfulApi(GatesApi):
    """Answers with Events; `asked` are the queries."""

    asked: list[Any] = field(default_factory=list)

    def get_json(self, path: str, query: Any = None, **_rest: Any) -> Any:
        self._refuse(path)
        self.asked.append((path, query))
        return {
            "items": [
                event("GangStarted", "Gang train: all 8 members have a node", 9),
                event("GangWaiting", "Gang train waits: no room", 1),
                event("GangWaiting", "Gang another waits: no room", 2),
                event("SuccessfulCreate", "Created pod: Gang train", 3),
                event("GangPreempted", "Evicted a pod: gang lab/urgent needs the room", 4),
            ]
        }


def event(reason: str, text: str, second: int) -> dict[str, Any]:
    return {
        "metadata": {},
        "reason": reason,
        "message": text,
        "eventTime": f"2025-06-15T15:00:0{second}.000000Z",
        "involvedObject": {"kind": "Job", "name": "train"},
    }


def test_events_are_those_of_the_gang_on_its_owners_the_oldest_first() -> None:
    """Several gangs may have one owner, and owners have Events of others."""
    api = EventfulApi()
    job = Subject("Job", "shop", "train", "uid-1", "batch/v1")
    found = events_of(api.client, KEY, [job, job])
    assert [each.reason for each in found] == ["GangWaiting", "GangPreempted", "GangStarted"]
    ((path, query),) = api.asked
    assert path == "/api/v1/namespaces/shop/events"
    assert query["fieldSelector"] == "involvedObject.uid=uid-1"


def words(name: str, namespace: str | None = None) -> argparse.Namespace:
    return argparse.Namespace(name=name, namespace=namespace, kubeconfig=None, context=None)


@pytest.mark.parametrize(
    ("name", "namespace", "expected"),
    [
        ("shop/train", None, KEY),
        ("train", "shop", KEY),
        ("team/job.1", "shop", Key("shop", "team/job.1")),
        ("shop/team/job.1", None, Key("shop", "team/job.1")),
    ],
)
def test_names_of_gangs_may_have_slashes(name: str, namespace: str | None, expected: Key) -> None:
    """With a namespace before them, or apart."""
    assert key_of(words(name, namespace), name, {KEY, Key("shop", "team/job.1")}) == expected


def test_an_unknown_gang_names_those_that_exist() -> None:
    """Also where none is alike."""
    with pytest.raises(UsageError, match="shop/train"):
        key_of(words("zzz", "lab"), "zzz", {KEY})
    with pytest.raises(UsageError, match="no pod is a member"):
        key_of(words("zzz", "lab"), "zzz", set())


def test_the_kind_may_be_left_out_where_nothing_else_has_the_name() -> None:
    """`explain train` is the gang; `explain web` is the Deployment, also if there is a gang web."""
    pods = [member(n, needs=CPU, annotations=FOUR) for n in range(4)]
    web = {**FOUR, names.POD_GROUP: "web"}
    also: list[Pod] = [replace(member(0, needs=CPU, annotations=web), uid="x", name="x")]
    both = Picture(replace(SHOP, pods=(*SHOP.pods, *pods, *also)), now=NOW)
    assert known_in(both) == {KEY, Key("shop", "web")}
    assert explain._is_gang_alone(words("shop/train"), both, "shop/train")
    assert not explain._is_gang_alone(words("shop/web"), both, "shop/web")
    assert explain.split("gang/train", SHOP) == ("gang", "train")
