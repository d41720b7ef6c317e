"""What counts as an interruption, when it is written, and who writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest

from kube.errors import NotFound, ServerError
from placement import names
from placement.model import Class, Node, NodeTaint, Owner, Pod, Sign
from placement.observation import NOTHING_OBSERVED, Observed, Rates
from placement.slots import Slots
from rebalancer.interruptions import HOURS_SECONDS, SOONEST_SECONDS, Change, Observer
from tests.rebalancer.rebalancing import SimulatedRebalancer
from tests.rebalancer.simulation import TERMINATION, PodFacts, SimulatedCluster

BUILT_IN = Fraction(7, 10)
SCALE_DOWN = NodeTaint("ToBeDeletedByClusterAutoscaler")
DISRUPTED = NodeTaint("karpenter.sh/disrupted")


class ObserverSetup:
    """A cluster with a rebalancer that observes, and what it has written."""

    def __init__(self, annotations: Mapping[str, str] | None = None) -> None:
        self.cluster = SimulatedCluster()
        self.cluster.opt_in("shop")
        self.spot = [node.name for node in self.cluster.add_nodes(Class.SPOT, 4)]
        self.cluster.add_nodes(Class.ON_DEMAND, 3, "abc")
        self.web = self.cluster.deploy("web", 10, annotations)
        self.rebalancer = SimulatedRebalancer(self.cluster)
        self.is_leading = True
        self.is_down = False
        self.written: list[tuple[float, Observed]] = []
        self.expired: set[str] = set()  # the names of nodes
        self.gone: set[str] = set()  # the names of those that cannot be read any more
        self.asked: list[str] = []
        self.observer = self.anew()
        self.cluster.actors.append(lambda: self.observer.look(self.cluster.now))
        self.cluster.run(30)

    def anew(self) -> Observer:
        return Observer(self.rebalancer.index, lambda: self.is_leading, self._write, self._is_expired)

    def _is_expired(self, node: Node) -> bool:
        self.asked.append(node.name)
        if self.is_down:
            raise ServerError("GET /", 500, "InternalError", "down")
        if node.name in self.gone:
            raise NotFound("GET /", 404, "NotFound", "gone")
        return node.name in self.expired

    def _write(self, change: Change) -> None:
        if self.is_down:
            raise NotFound("PUT /", 404, "NotFound", "gone")
        self.written.append((self.cluster.now, change(self.observed)))

    @property
    def observed(self) -> Observed:
        return self.written[-1][1] if self.written else NOTHING_OBSERVED

    @property
    def losses(self) -> tuple[float, float]:
        record = self.observed.of("a/m")
        return record.losses, record.node_losses

    def busy(self) -> str:
        """A spot node with pods."""
        return next(pod.node for pod in self.cluster.pods if pod.node in self.spot)


def announced_then_gone(setup: ObserverSetup) -> None:
    name = setup.busy()
    setup.cluster.cordon(name, TERMINATION)
    setup.cluster.run(60)
    setup.cluster.delete_node(name)


def cordoned_then_gone(setup: ObserverSetup) -> None:
    name = setup.busy()
    setup.cluster.cordon(name)
    setup.cluster.run(5)
    setup.cluster.delete_node(name)


def scaled_down(setup: ObserverSetup) -> None:
    name = setup.busy()
    setup.cluster.cordon(name, SCALE_DOWN)
    setup.cluster.run(5)
    setup.cluster.lose(name)


def removed(setup: ObserverSetup, *steps: dict[str, Any], said: str = "") -> None:
    """As Karpenter does it: step by step, with an Event at the end of some ways."""
    name = setup.busy()
    for fields in steps:
        setup.cluster.put(replace(setup.cluster.nodes[name], **fields))
        setup.cluster.run(1)
    if said:
        setup.cluster.put(Sign("default", "planned", said, name, setup.cluster.now, kind="Node"))
    setup.cluster.run(30)
    setup.cluster.delete_node(name)


TAINTED: dict[str, Any] = {"taints": (DISRUPTED,)}
DELETED: dict[str, Any] = {"deleting": True, "outlives_machine": True}


def given_up(setup: ObserverSetup) -> None:
    """Karpenter gives its plan up, and the cloud takes the node an hour later."""
    name = setup.busy()
    for fields in (TAINTED, {"taints": ()}, DELETED, {**DELETED, **TAINTED}):
        setup.cluster.put(replace(setup.cluster.nodes[name], **fields))
        setup.cluster.run(1)
    setup.cluster.run(30)


def emptied(setup: ObserverSetup) -> None:
    name = setup.cluster.add_node(Class.SPOT).name
    setup.cluster.run(2)
    setup.cluster.cordon(name, TERMINATION)
    setup.cluster.run(5)
    setup.cluster.lose(name)


def with_its_own_alone(setup: ObserverSetup) -> None:
    name = setup.cluster.add_node(Class.SPOT).name
    for kind in ("DaemonSet", "Node"):
        owner = Owner(kind, "agent", kind)
        setup.cluster.facts[kind] = PodFacts()
        setup.cluster.put(Pod("kube-system", kind, kind, owner, {"app": kind}, node=name, phase="Running", ready=True))
    setup.cluster.run(2)
    setup.cluster.cordon(name, TERMINATION)


def on_demand(setup: ObserverSetup) -> None:
    taken = {pod.node for pod in setup.cluster.pods}
    setup.cluster.lose(next(name for name in setup.cluster.nodes if name in taken and name not in setup.spot))


def several(setup: ObserverSetup) -> None:
    for name in setup.spot[:3]:
        setup.cluster.cordon(name, TERMINATION)


LOSSES: dict[str, tuple[Callable[[ObserverSetup], None], tuple[float, float]]] = {
    "the cloud announces it; that it is gone then is no other loss": (announced_then_gone, (0, 1)),
    "it is gone with proof": (lambda setup: setup.cluster.lose(setup.busy()), (0, 1)),
    "gone without proof: nobody knows": (lambda setup: setup.cluster.lose(setup.busy(), proof=False), (0, 0)),
    "cordoned by hand, and deleted": (cordoned_then_gone, (0, 0)),
    "an autoscaler wants fewer": (scaled_down, (0, 0)),
    "Karpenter replaces it: tainted first, deleted then": (
        lambda setup: removed(setup, TAINTED, {**TAINTED, **DELETED}),
        (0, 0),
    ),
    "Karpenter removes it by its own plan, and says so": (
        lambda setup: removed(setup, DELETED, {**DELETED, **TAINTED}, said="DisruptionTerminating"),
        (0, 0),
    ),
    "the cloud takes it, and Karpenter drains it": (
        lambda setup: removed(setup, DELETED, {**DELETED, **TAINTED}),
        (0, 1),
    ),
    "another Event about it is no plan": (
        lambda setup: removed(setup, DELETED, {**DELETED, **TAINTED}, said="DeletingNode"),
        (0, 1),
    ),
    "the cloud announces it while Karpenter replaces it": (
        lambda setup: removed(setup, TAINTED, {"taints": (DISRUPTED, TERMINATION)}),
        (0, 1),
    ),
    "Karpenter gave its plan up before the cloud took it": (given_up, (0, 1)),
    "nothing was on it": (emptied, (0, 0)),
    "nothing but what every node has": (with_its_own_alone, (0, 0)),
    "on-demand is not watched": (on_demand, (0, 0)),
    "three of four are the pool": (several, (1, 0)),
}


@pytest.mark.parametrize(("happens", "expected"), LOSSES.values(), ids=LOSSES.keys())
def test_what_is_an_interruption(happens: Callable[[ObserverSetup], None], expected: tuple[float, float]) -> None:
    """Of the pool, and of single nodes."""
    setup = ObserverSetup()
    happens(setup)
    setup.cluster.run(HOURS_SECONDS + 60)
    assert setup.losses == expected
    assert setup.rebalancer.violations == []


@pytest.mark.parametrize(
    ("is_expired", "is_down", "losses"),
    [(True, False, (0, 0)), (False, False, (0, 1)), (True, True, (0, 1))],
    ids=["expired", "young", "nobody knows"],
)
def test_a_node_that_expires_is_not_interrupted(is_expired: bool, is_down: bool, losses: tuple[float, float]) -> None:
    """Its NodeClaim tells, and it is asked for once. In doubt it counts."""
    setup = ObserverSetup()
    setup.expired, setup.is_down = {setup.busy()} if is_expired else set(), is_down
    removed(setup, DELETED, {**DELETED, **TAINTED})
    setup.is_down = False
    setup.cluster.run(HOURS_SECONDS + 60)
    assert setup.losses == losses
    assert len(setup.asked) == 1


def test_many_nodes_that_expire_are_asked_for_little_by_little() -> None:
    """Each look waits for its answers, and more nodes may leave meanwhile."""
    setup = ObserverSetup()
    there = [setup.cluster.nodes[name] for name in setup.spot]
    going = [replace(each, name=f"{each.name}-{turn}", uid=f"{each.uid}-{turn}") for each in there for turn in range(3)]
    setup.expired = {each.name for each in going}
    setup.rebalancer.index.interrupted.extend(replace(each, deleting=True, taints=(DISRUPTED,)) for each in going)
    asked = []
    for _ in range(4):
        setup.observer.look(setup.cluster.now)
        asked.append(len(setup.asked))
    assert asked == [5, 10, 12, 12]
    setup.cluster.run(HOURS_SECONDS + 60)
    assert not any(setup.losses)
    assert setup.asked == [each.name for each in going]


def test_a_node_that_cannot_be_asked_for_any_more_hides_no_other() -> None:
    """The first of three that expire is gone before it is asked for: it alone counts."""
    setup = ObserverSetup()
    setup.expired, setup.gone = set(setup.spot[:3]), {setup.spot[0]}
    there = [setup.cluster.nodes[name] for name in setup.spot[:3]]
    setup.rebalancer.index.interrupted.extend(
        replace(each, uid=each.name, deleting=True, taints=(DISRUPTED,)) for each in there
    )
    setup.cluster.run(HOURS_SECONDS + 60)
    assert setup.asked == setup.spot[:3]
    assert setup.losses == (0, 1)


def test_it_is_written_rarely() -> None:
    """Hours four times an hour; a loss within a minute, but never two writes within one."""
    setup = ObserverSetup()
    setup.cluster.run(2 * HOURS_SECONDS + 5)
    assert len(setup.written) == 2
    assert setup.observed.of("a/m").hours == pytest.approx(2 * HOURS_SECONDS / 3600, rel=0.05)
    assert setup.observed.of("a/m").node_hours == pytest.approx(4 * setup.observed.of("a/m").hours)
    setup.cluster.lose(setup.busy())
    setup.cluster.run(SOONEST_SECONDS + 2)
    setup.cluster.lose(setup.busy())
    setup.cluster.run(SOONEST_SECONDS + 2)
    moments = [at for at, _ in setup.written]
    assert len(moments) == 4
    assert all(later - sooner >= SOONEST_SECONDS for sooner, later in pairwise(moments))


def test_what_could_not_be_written_is_kept() -> None:
    """And written when it can be."""
    setup = ObserverSetup()
    setup.is_down = True
    setup.cluster.lose(setup.busy())
    setup.cluster.run(3 * SOONEST_SECONDS)
    assert not setup.written
    setup.is_down = False
    setup.cluster.run(2 * SOONEST_SECONDS)
    assert setup.losses == (0, 1)


def test_only_the_leader_counts() -> None:
    """Another one that takes over counts what happens from then on."""
    setup = ObserverSetup()
    setup.is_leading = False
    setup.cluster.lose(setup.busy())
    setup.cluster.run(60)
    setup.is_leading = True
    setup.cluster.run(HOURS_SECONDS + 60)
    assert sum(setup.losses) == 0
    assert 0 < setup.observed.of("a/m").hours <= (HOURS_SECONDS + 60) / 3600


def test_a_node_that_leaves_already_when_we_come_was_counted_before() -> None:
    """By whoever saw its end announced."""
    setup = ObserverSetup()
    name = setup.busy()
    setup.cluster.cordon(name, TERMINATION)
    setup.cluster.run(1)
    setup.rebalancer.kill()
    setup.observer = setup.anew()
    setup.cluster.run(5)
    setup.cluster.delete_node(name)
    setup.cluster.run(HOURS_SECONDS + 60)
    assert sum(setup.losses) == 0


def test_auto_follows_the_rates_that_are_noted() -> None:
    """Of ten, eight must serve; one pool that goes too often may hold the two that may go."""
    setup = ObserverSetup({names.SPOT_RATIO: "auto"})
    index = setup.rebalancer.index
    assert index.assessments[setup.web.uid].group.policy.slots == Slots(BUILT_IN, 1)
    setup.cluster.rates = Rates(1, {"a/m": 16.0})
    setup.cluster.run(2)
    found = index.assessments[setup.web.uid].group.policy
    assert found.explain() == "spot-ratio auto (25%: 1 pool, 16 losses a month, target 99.9%), min-on-demand 1"
    assert index.assessments[setup.web.uid].wanted == found.slots.mix(10)
