"""The two verbs that plans for gangs know, reserve and release: whoever carries them out."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from placement import names
from placement.model import Pod
from placement.outcome import Outcome
from placement.plan.actions import Action, How, Plan, Why
from rebalancer.executor import Executor, LastLook
from rebalancer.gangbackend import Nominations, Written
from tests.builders.model import namespace
from tests.placement.test_gang import member
from tests.rebalancer.test_executor import ExecutorCluster

WRITTEN = {names.GANG_PLAN: "p1/1.000/n1"}
RUN = {names.GANG_RUN: "p1/1.000/8/0"}
GONE = {names.GANG_PLAN: None}


@dataclass
class OtherBackend:
    """One that reserves and releases in a way of its own, as native gang scheduling would."""

    asked: list[tuple[Any, ...]] = field(default_factory=list)

    def reserve(self, pod: Pod, node: str, written: Written) -> Outcome:
        self.asked.append(("reserve", pod.name, node, dict(written)))
        return Outcome.DONE

    def unreserve(self, pod: Pod, written: Written) -> Outcome:
        self.asked.append(("unreserve", pod.name, dict(written)))
        return Outcome.BLOCKED

    def release(self, pod: Pod, nodes: Sequence[str], written: Written) -> Outcome:
        self.asked.append(("release", pod.name, tuple(nodes), dict(written)))
        return Outcome.DONE

    def ungate(self, pod: Pod) -> Outcome:
        self.asked.append(("ungate", pod.name))
        return Outcome.DONE


def action(how: How, **fields: Any) -> Action:
    return Action(how, Why.GANG, None, member(0), **fields)


CASES = {
    "room is reserved": (action(How.RESERVE, nodes=("n1",), annotations=WRITTEN), ("reserve", "m0", "n1", WRITTEN)),
    "and given back": (action(How.UNRESERVE, annotations=GONE), ("unreserve", "m0", GONE)),
    "a member is released": (
        action(How.START, nodes=("n1", "n2"), annotations=RUN),
        ("release", "m0", ("n1", "n2"), RUN),
    ),
    "and without a plan": (action(How.UNGATE), ("ungate", "m0")),
}


@pytest.mark.parametrize(("asked", "expected"), CASES.values(), ids=CASES.keys())
def test_a_plan_says_two_verbs_and_the_back_end_carries_them_out(asked: Action, expected: tuple[Any, ...]) -> None:
    """No other write is made to the pod, and the outcome is the back end's."""
    backend, recorder, pod = OtherBackend(), ExecutorCluster(), asked.pod
    look = LastLook(lambda: True, lambda: False, lambda _: pod, lambda _: None, lambda _: namespace())
    with ThreadPoolExecutor(1) as pool:
        (done,) = Executor(recorder, recorder, pool, pool, look, gangs=backend).perform(Plan(actions=(asked,)))
    assert backend.asked == [expected]
    assert recorder.written == []
    assert done.outcome is (Outcome.BLOCKED if asked.how is How.UNRESERVE else Outcome.DONE)


def test_nominations_are_the_back_end_if_none_is_given() -> None:
    """On the unmodified scheduler: each verb is one write to the pod."""
    recorder = ExecutorCluster()
    backend, pod = Nominations(recorder), member(0)
    outcomes = [
        backend.reserve(pod, "n1", WRITTEN),
        backend.unreserve(pod, WRITTEN),
        backend.release(pod, ["n1"], RUN),
        backend.ungate(pod),
    ]
    assert set(outcomes) == {Outcome.DONE}
    assert recorder.written == ["reserve m0", "unreserve m0", "start m0", "ungate m0"]
