"""What `spotweave queue` shows: JSON for scripts, and a table for people."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from cli.gangmachinery import Machinery
from cli.plan import Picture
from cli.queue import queued, shown_queue
from placement import names
from placement.configuration import Configuration
from placement.gang.gang import State
from placement.gang.settings import Gangs
from placement.model import Job, Needs, Snapshot
from report.queue import in_order, queue_table
from tests.builders.model import NOW, namespace, node
from tests.cli.printed import printed
from tests.placement.test_gang import GROUP, JOB, kept, member

ON = Configuration(gangs=Gangs(enabled=True))
SMALL = Needs(requests={"cpu": 1000})
NODES = {"n1": node("n1", cpu=4000)}


def picture(*, is_on: bool = True) -> Picture:
    """One gang of three runs; one of eight is too large for the rest of the node; of one only two members exist."""
    running = [member(n, "n1", needs=SMALL, annotations={**GROUP, names.POD_GROUP: "runs"}) for n in range(3)]
    wait = {names.POD_GROUP: "waits", names.POD_GROUP_MIN_MEMBER: "8", names.POD_GROUP_CLASS: "on-demand,spot"}
    waiting = [replace(member(n, needs=SMALL, annotations=wait), uid=f"w{n}") for n in range(8)]
    late = {names.POD_GROUP: "late", names.POD_GROUP_SIZE: "5", names.EXPECTED_RUNTIME: "soon"}
    coming = [replace(member(n, needs=SMALL, annotations=late), uid=f"l{n}") for n in range(2)]
    pods = tuple(replace(pod, name=f"{pod.name}-{number}") for number, pod in enumerate([*running, *waiting, *coming]))
    jobs = (Job("shop", "train", JOB.uid, 3),)
    snapshot = Snapshot({"shop": namespace()}, NODES, pods=pods, others=jobs)
    return Picture(snapshot, ON if is_on else Configuration(), now=NOW)


def test_the_json_has_the_shape_that_scripts_rely_on() -> None:
    """State, members, reason and since when; the reason of a plan as the rebalancer would make it."""
    late, waits, runs = [each.raw for each in queued(picture())]
    assert [each["state"] for each in (late, waits, runs)] == ["Assembling", "Waiting", "Running"]
    assert waits == {
        "namespace": "shop",
        "name": "waits",
        "state": "Waiting",
        "reason": "8 members wait to start together on on-demand or spot: no node has room for cpu; "
        "nothing is evicted for it: nothing of lower priority runs",
        "members": {"needed": 8, "bound": 0, "starting": 0, "gated": 8, "succeeded": 0},
        "priority": {"spec": 0, "effective": 0},
        "classes": ["on-demand", "spot"],
        "since": "2025-06-15T15:06:35+00:00",
        "expectedRuntimeSeconds": None,
        "survival": None,
        "isLate": False,
        "mistakes": [],
    }
    assert (runs["members"]["needed"], runs["members"]["bound"]) == (3, 3)
    assert "'soon' is invalid" in late["mistakes"][0]


def test_the_table_has_a_line_for_each_gang() -> None:
    """And says where gangs are off, since nothing waits then."""
    text = printed(queue_table(queued(picture())), 200)
    assert [line.split()[:2] for line in text.splitlines()[1:] if line.startswith("shop/")] == [
        ["shop/late", "Assembling"],
        ["shop/waits", "Waiting"],
        ["shop/runs", "Running"],
    ]


def test_the_exit_code_says_whether_a_gang_waits() -> None:
    """One that runs is fine; one that waits is a finding."""
    found, around = queued(picture()), Machinery(True, "pod-1", True)
    assert shown_queue(found, around).code == 1
    running = [each for each in found if each.status.state is State.RUNNING]
    assert shown_queue(running, around).code == 0
    assert "shop/runs" in printed(shown_queue(running, around).shown(), 200)


def test_every_state_has_a_place_in_the_order() -> None:
    """Those first that somebody has to look at: the page lists gangs so, whatever state they are in."""
    (gang,) = [each for each in queued(picture()) if each.status.state is State.RUNNING]
    of_each = [replace(gang, status=replace(gang.status, state=state)) for state in State]
    ordered = [each.status.state for each in in_order(of_each)]
    assert sorted(ordered) == sorted(State)
    assert (ordered[0], ordered[-1]) == (State.BLOCKED, State.RUNNING)
    page = (Path(__file__).parents[2] / "dashboard/static/gangs.js").read_text()
    assert all(f'"{state}"' in page for state in State)


def test_what_would_make_room_or_why_nothing_may_is_shown() -> None:
    """By a gang of higher priority: who would go, and what keeps them."""
    four = {**GROUP, names.POD_GROUP_MIN_MEMBER: "4"}
    urgent = [member(n, needs=replace(SMALL, priority=9), annotations=four) for n in range(4)]
    full = {"n1": node("n1", cpu=4000)}
    for age, expected in ((900, "fits once 4 pods are evicted"), (9, "not run for the minimum time")):
        low = {**four, names.POD_GROUP: "low"}
        there = (member(n, "n1", needs=SMALL, annotations=low, created=NOW - age) for n in range(4))
        pods = (*urgent, *(replace(pod, name=f"low-{pod.name}", uid=f"low-{pod.name}") for pod in there))
        waits = queued(Picture(Snapshot({"shop": namespace()}, full, pods=pods), ON, now=NOW))[0].raw
        assert waits["state"] == "Waiting"
        assert expected in waits["reason"]


def test_a_gang_for_which_room_is_kept_is_shown_as_such() -> None:
    """What the rebalancer would do in a moment is not told as done."""
    empty = {"n1": node("n1", cpu=8000)}
    waiting = tuple(member(number, needs=SMALL) for number in range(8))
    reserved = tuple(kept(number, needs=SMALL) for number in range(8))
    found = [queued(Picture(Snapshot({"shop": namespace()}, empty, pods=p), ON, now=NOW)) for p in (waiting, reserved)]
    assert [(only.raw["state"], only.raw["reason"]) for (only,) in found] == [
        ("Waiting", "there is room for it now"),
        ("Reserved", "room is kept for 8 members"),
    ]


def test_a_mistake_that_blocks_a_gang_is_shown_once() -> None:
    """It is the reason, and one of the mistakes."""
    wrong = {**GROUP, names.POD_GROUP_MIN_MEMBER: "eight"}
    blocked = tuple(member(number, annotations=wrong) for number in range(2))
    (found,) = queued(Picture(Snapshot({"shop": namespace()}, NODES, pods=blocked), ON, now=NOW))
    assert printed(queue_table([found]), 400).count("eight") == 1
