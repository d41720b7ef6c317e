"""The last look before each write, and what is left when one of them fails."""

from __future__ import annotations

from concurrent.futures import Executor as Pool
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kube.errors import ApiError
from placement import names
from placement.model import NOTHING, Key, Namespace, Node, Owner, Pod
from placement.outage import Outage
from placement.outcome import Outcome
from placement.plan.actions import Action, How, Plan, Why
from rebalancer.executor import Executor, LastLook
from tests.builders.model import CONFIGURATION, SPOT, namespace, node, pod
from tests.rebalancer.rebalancing import Here, Slow

OLD = pod("old", 1, "n")
NEW = pod("new", 1, "m")
FINISH = Action(How.FINISH, Why.OVER, None, OLD, rests_on=(NEW,))


class ExecutorCluster:
    """What the stores hold now, and what was written. A pod named "broken" makes the writer fail."""

    def __init__(
        self,
        *objects: Pod | Node | Namespace,
        is_leading: bool = True,
        is_paused: bool = False,
        ends: Pool | None = None,
        most_ends: int = 16,
    ) -> None:
        self.objects = {(type(each), each.key): each for each in objects}
        self.written: list[str] = []
        self.refuses_notes = False
        sight = LastLook(
            is_leading=lambda: is_leading,
            is_paused=lambda: is_paused,
            pod=lambda key: self._get(Pod, key),
            node=lambda key: self._get(Node, key),
            namespace=lambda key: self._get(Namespace, key),
            is_leaving=CONFIGURATION.is_leaving,
        )
        self.executor = Executor(self, self, Here(), ends or Here(), sight, most_ends, patience_seconds=0.0)

    def _get(self, kind: type, key: Key) -> Any:
        return self.objects.get((kind, key))

    def perform(self, *actions: Action, outages: tuple[Outage, ...] = ()) -> list[Outcome | None]:
        return [done.outcome for done in self.executor.perform(Plan(outages, actions=actions))]

    def _write(self, verb: str, key: Key) -> Outcome:
        if key.name == "broken":
            raise KeyError(key.name)
        self.written.append(f"{verb} {key.name}")
        return Outcome.DONE

    def annotate(self, key: Key, uid: str, annotations: Any, labels: Any = NOTHING) -> Outcome:
        return self._write("annotate", key)

    def hand_over(self, pod: Pod, owner: Owner, annotations: Any, labels: Any) -> Outcome:
        return self._write(f"hand to {owner.kind}", pod.key)

    def evict(self, key: Key, uid: str) -> Outcome:
        return self._write("evict", key)

    def reserve(self, key: Key, uid: str, node: str, annotations: Any) -> Outcome:
        return self._write("reserve", key)

    def unreserve(self, key: Key, uid: str, annotations: Any) -> Outcome:
        return self._write("unreserve", key)

    def start_member(self, pod: Pod, nodes: Any, annotations: Any = None) -> Outcome:
        return self._write("start", pod.key)

    def suspend(self, owner: Owner, namespace: str) -> Outcome:
        return self._write("suspend", Key(namespace, owner.name))

    def ungate(self, pod: Pod) -> Outcome:
        return self._write("ungate", pod.key)

    def evict_replaced(self, key: Key, uid: str) -> Outcome:
        return self._write("evict-replaced", key)

    def evict_waiting(self, key: Key, uid: str) -> Outcome:
        return self._write("evict-waiting", key)

    def delete(self, key: Key, uid: str, grace_seconds: int | None = None) -> Outcome:
        return self._write("delete", key)

    def fail_lost(self, key: Key, uid: str, why: str) -> Outcome:
        return self._write("fail", key)

    def note(self, outages: Any) -> None:
        if self.refuses_notes:
            raise ApiError("PUT state", 422, "Invalid", "too long")
        self.written.append("note")

    def end(self, outages: Any) -> None:
        self.written.append("end")


THERE = (OLD, NEW, node("n"), node("m"), namespace())


@pytest.mark.parametrize(
    ("changed", "is_done"),
    [
        (NEW, True),
        (replace(NEW, annotations={**NEW.annotations, names.MOVED: "x"}), True),
        (replace(NEW, ready=False), False),
        (replace(NEW, changed=NEW.changed + 1), False),
        (replace(NEW, terminating=True), False),
        (replace(NEW, uid="another"), False),
        (replace(NEW, phase="Failed"), False),
        (node("m", ready=False), False),
        (node("m", unschedulable=True), True),
        (node("m", unschedulable=True, drained=True), False),
        (replace(OLD, annotations={}), False),
        (Namespace("shop"), False),
    ],
    ids=[
        "nothing has changed",
        "the replacement was marked",
        "the replacement is not ready any more",
        "the replacement was not ready in between",
        "the replacement is on its way out",
        "another pod has the replacement's name",
        "the replacement has failed",
        "the replacement's node is not ready",
        "the replacement's node is cordoned",
        "the replacement's node is leaving",
        "the pod itself has changed",
        "the namespace was opted out",
    ],
)
def test_a_pod_goes_only_while_what_its_end_rests_on_serves(changed: Pod | Node | Namespace, is_done: bool) -> None:
    """By what is known at the moment of the write, which may be seconds after the plan."""
    cluster = ExecutorCluster(*THERE, changed)
    assert cluster.perform(FINISH) == [Outcome.DONE if is_done else None]
    assert bool(cluster.written) is is_done


@pytest.mark.parametrize("gone", [NEW, node("m"), namespace()])
def test_what_is_gone_serves_no_more(gone: Pod | Node | Namespace) -> None:
    assert ExecutorCluster(*(each for each in THERE if each != gone)).perform(FINISH) == [None]


def test_an_eviction_rests_on_all_siblings() -> None:
    siblings = (pod("a", 0, "n"), pod("b", 2, "m"))
    evict = Action(How.EVICT, Why.RATIO, None, OLD, rests_on=siblings)
    assert ExecutorCluster(*THERE, *siblings).perform(evict) == [Outcome.DONE]
    assert ExecutorCluster(*THERE, siblings[0], replace(siblings[1], ready=False)).perform(evict) == [None]


def test_who_is_created_anew_is_evicted_only_while_it_waits() -> None:
    cluster = ExecutorCluster(*THERE)
    assert cluster.perform(Action(How.REPLACE, Why.STUCK, None, OLD)) == [Outcome.DONE]
    assert cluster.written == ["evict-waiting old"]


def test_nothing_is_written_after_a_pause_or_by_who_does_not_lead() -> None:
    """Not even what a plan holds that was made before."""
    for cluster in (ExecutorCluster(*THERE, is_paused=True), ExecutorCluster(*THERE, is_leading=False)):
        assert cluster.perform(FINISH) == [None]
        assert cluster.written == []
    assert ExecutorCluster(*THERE, is_leading=False).perform(FINISH, outages=(Outage(SPOT, 0.0),)) == []


def test_what_is_done_in_every_mode_is_done_while_moves_are_paused() -> None:
    """The way out of our own constraint is no move; outages are part of it."""
    paused = ExecutorCluster(*THERE, is_paused=True)
    waits = replace(FINISH, how=How.REPLACE, in_every_mode=True)
    assert paused.perform(waits, outages=(Outage(SPOT, 0.0),)) == [Outcome.DONE]


def test_what_rests_on_no_note_is_done_though_a_note_cannot_be_written() -> None:
    """One that is refused must not stop the ends of moves."""
    cluster = ExecutorCluster(*THERE)
    cluster.refuses_notes = True
    with pytest.raises(ApiError):
        cluster.perform(FINISH, replace(FINISH, how=How.BURY), outages=(Outage(SPOT, 0.0),))
    assert [each.split()[0] for each in cluster.written] == ["evict-replaced"]


def test_what_was_released_is_put_back_though_the_label_is_gone() -> None:
    """So does what nothing wants any more go; evicted is nobody there."""
    cluster = ExecutorCluster(OLD, Namespace("shop"))
    undo = Action(How.UNDO, Why.OVER, None, OLD, owner=Owner("ReplicaSet", "web-h", "rs"))
    assert cluster.perform(undo) == [Outcome.DONE]
    assert cluster.perform(Action(How.DELETE, Why.OVER, None, OLD)) == [Outcome.DONE]
    assert cluster.perform(Action(How.FINISH, Why.OVER, None, OLD)) == [None]
    assert cluster.written == ["hand to ReplicaSet old", "delete old"]


def test_what_must_end_in_every_mode_ends_while_moves_are_paused() -> None:
    """A pause forbids moves; it keeps no pod that nothing wants any more, and that no controller would end."""
    cluster = ExecutorCluster(*THERE, is_paused=True)
    assert cluster.perform(FINISH) == [None]
    assert cluster.perform(replace(FINISH, in_every_mode=True)) == [Outcome.DONE]
    assert cluster.written == ["evict-replaced old"]


def test_a_release_hands_the_pod_to_its_deployment() -> None:
    cluster = ExecutorCluster(*THERE)
    assert cluster.perform(Action(How.RELEASE, Why.RATIO, None, OLD, owner=Owner("Deployment", "web", "d"))) == [
        Outcome.DONE
    ]
    assert cluster.written == ["hand to Deployment old"]


def test_a_failure_that_nobody_thought_of_loses_no_other_outcome(caplog: pytest.LogCaptureFixture) -> None:
    """It counts as busy, so that it is tried again, later each time."""
    broken = pod("broken", 2, "n")
    adopt = [Action(How.ANNOTATE, Why.ADOPT, None, each) for each in (OLD, broken, NEW)]
    cluster = ExecutorCluster(*THERE, broken)
    assert cluster.perform(*adopt) == [Outcome.DONE, Outcome.BUSY, Outcome.DONE]
    assert cluster.written == ["annotate old", "annotate new"]
    assert "KeyError" in caplog.text


def test_nobody_waits_for_the_end_of_a_move() -> None:
    """Ten a second end under one budget. What came of them is told by a later pass; until then they are under way."""
    slow = Slow(Random(1), share=1.0)
    cluster = ExecutorCluster(*THERE, ends=slow)
    assert cluster.perform(FINISH, Action(How.ANNOTATE, Why.OVER, None, NEW)) == [Outcome.DONE]
    assert cluster.written == ["annotate new"]
    assert set(cluster.executor.under_way) == {OLD.uid}
    assert cluster.perform() == []
    while "evict-replaced old" not in cluster.written:
        slow.go_on()
    assert cluster.perform() == [Outcome.DONE]
    assert cluster.written == ["annotate new", "evict-replaced old"]
    assert not cluster.executor.under_way


def test_no_end_of_a_move_waits_for_its_turn() -> None:
    """What it rests on may change meanwhile; the next pass looks again."""
    slow = Slow(Random(1), share=1.0)
    cluster = ExecutorCluster(*THERE, ends=slow, most_ends=1)
    other = replace(OLD, uid="other", name="other")
    cluster.perform(FINISH, replace(FINISH, pod=other, why=Why.RETURN))
    assert set(cluster.executor.under_way) == {OLD.uid}
