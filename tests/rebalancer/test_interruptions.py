"""What counts as an interruption, when it is written, and who writes it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fractions import Fraction
from itertools import pairwise

import pytest

from kube.errors import NotFound
from placement import names
from placement.model import Class, NodeTaint, Owner, Pod
from placement.observation import NOTHING_OBSERVED, Observed, Rates
from placement.slots import Slots
from rebalancer.interruptions import HOURS_SECONDS, SOONEST_SECONDS, Change, Observer
from tests.rebalancer.rebalancing import Rebalancer
from tests.rebalancer.simulation import TERMINATION, Cluster, Facts

BUILT_IN = Fraction(7, 10)
SCALE_DOWN = NodeTaint("ToBeDeletedByClusterAutoscaler")


class Scene:
    """A cluster with a rebalancer that observes, and what it has written."""

    def __init__(self, annotations: Mapping[str, str] | None = None) -> None:
        self.cluster = Cluster()
        self.cluster.opt_in("shop")
        self.spot = [node.name for node in self.cluster.add_nodes(Class.SPOT, 4)]
        self.cluster.add_nodes(Class.ON_DEMAND, 3, "abc")
        self.web = self.cluster.deploy("web", 10, annotations)
        self.rebalancer = Rebalancer(self.cluster)
        self.is_leading = True
        self.is_down = False
        self.written: list[tuple[float, Observed]] = []
        self.observer = self.anew()
        self.cluster.actors.append(lambda: self.observer.look(self.cluster.now))
        self.cluster.run(30)

    def anew(self) -> Observer:
        return Observer(self.rebalancer.index, lambda: self.is_leading, self._write)

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


def announced_then_gone(scene: Scene) -> None:
    name = scene.busy()
    scene.cluster.cordon(name, TERMINATION)
    scene.cluster.run(60)
    scene.cluster.delete_node(name)


def cordoned_then_gone(scene: Scene) -> None:
    name = scene.busy()
    scene.cluster.cordon(name)
    scene.cluster.run(5)
    scene.cluster.delete_node(name)


def scaled_down(scene: Scene) -> None:
    name = scene.busy()
    scene.cluster.cordon(name, SCALE_DOWN)
    scene.cluster.run(5)
    scene.cluster.lose(name)


def emptied(scene: Scene) -> None:
    name = scene.cluster.add_node(Class.SPOT).name
    scene.cluster.run(2)
    scene.cluster.cordon(name, TERMINATION)
    scene.cluster.run(5)
    scene.cluster.lose(name)


def with_its_own_alone(scene: Scene) -> None:
    name = scene.cluster.add_node(Class.SPOT).name
    for kind in ("DaemonSet", "Node"):
        owner = Owner(kind, "agent", kind)
        scene.cluster.facts[kind] = Facts()
        scene.cluster.put(Pod("kube-system", kind, kind, owner, {"app": kind}, node=name, phase="Running", ready=True))
    scene.cluster.run(2)
    scene.cluster.cordon(name, TERMINATION)


def on_demand(scene: Scene) -> None:
    taken = {pod.node for pod in scene.cluster.pods}
    scene.cluster.lose(next(name for name in scene.cluster.nodes if name in taken and name not in scene.spot))


def several(scene: Scene) -> None:
    for name in scene.spot[:3]:
        scene.cluster.cordon(name, TERMINATION)


LOSSES: dict[str, tuple[Callable[[Scene], None], tuple[float, float]]] = {
    "the cloud announces it; that it is gone then is no other loss": (announced_then_gone, (0, 1)),
    "it is gone with proof": (lambda scene: scene.cluster.lose(scene.busy()), (0, 1)),
    "gone without proof: nobody knows": (lambda scene: scene.cluster.lose(scene.busy(), proof=False), (0, 0)),
    "cordoned by hand, and deleted": (cordoned_then_gone, (0, 0)),
    "an autoscaler wants fewer": (scaled_down, (0, 0)),
    "nothing was on it": (emptied, (0, 0)),
    "nothing but what every node has": (with_its_own_alone, (0, 0)),
    "on-demand is not watched": (on_demand, (0, 0)),
    "three of four are the pool": (several, (1, 0)),
}


@pytest.mark.parametrize(("happens", "expected"), LOSSES.values(), ids=LOSSES.keys())
def test_what_is_an_interruption(happens: Callable[[Scene], None], expected: tuple[float, float]) -> None:
    """Of the pool, and of single nodes."""
    scene = Scene()
    happens(scene)
    scene.cluster.run(HOURS_SECONDS + 60)
    assert scene.losses == expected
    assert scene.rebalancer.violations == []


def test_it_is_written_rarely() -> None:
    """Hours four times an hour; a loss within a minute, but never two writes within one."""
    scene = Scene()
    scene.cluster.run(2 * HOURS_SECONDS + 5)
    assert len(scene.written) == 2
    assert scene.observed.of("a/m").hours == pytest.approx(2 * HOURS_SECONDS / 3600, rel=0.05)
    assert scene.observed.of("a/m").node_hours == pytest.approx(4 * scene.observed.of("a/m").hours)
    scene.cluster.lose(scene.busy())
    scene.cluster.run(SOONEST_SECONDS + 2)
    scene.cluster.lose(scene.busy())
    scene.cluster.run(SOONEST_SECONDS + 2)
    moments = [at for at, _ in scene.written]
    assert len(moments) == 4
    assert all(later - sooner >= SOONEST_SECONDS for sooner, later in pairwise(moments))


def test_what_could_not_be_written_is_kept() -> None:
    """And written when it can be."""
    scene = Scene()
    scene.is_down = True
    scene.cluster.lose(scene.busy())
    scene.cluster.run(3 * SOONEST_SECONDS)
    assert not scene.written
    scene.is_down = False
    scene.cluster.run(2 * SOONEST_SECONDS)
    assert scene.losses == (0, 1)


def test_only_the_leader_counts() -> None:
    """Another one that takes over counts what happens from then on."""
    scene = Scene()
    scene.is_leading = False
    scene.cluster.lose(scene.busy())
    scene.cluster.run(60)
    scene.is_leading = True
    scene.cluster.run(HOURS_SECONDS + 60)
    assert sum(scene.losses) == 0
    assert 0 < scene.observed.of("a/m").hours <= (HOURS_SECONDS + 60) / 3600


def test_a_node_that_leaves_already_when_we_come_was_counted_before() -> None:
    """By whoever saw its end announced."""
    scene = Scene()
    name = scene.busy()
    scene.cluster.cordon(name, TERMINATION)
    scene.cluster.run(1)
    scene.rebalancer.kill()
    scene.observer = scene.anew()
    scene.cluster.run(5)
    scene.cluster.delete_node(name)
    scene.cluster.run(HOURS_SECONDS + 60)
    assert sum(scene.losses) == 0


def test_auto_follows_the_rates_that_are_noted() -> None:
    """Of ten, eight must serve; one pool that goes too often may hold the two that may go."""
    scene = Scene({names.SPOT_RATIO: "auto"})
    index = scene.rebalancer.index
    assert index.assessments[scene.web.uid].group.policy.slots == Slots(BUILT_IN, 1)
    scene.cluster.rates = Rates(1, {"a/m": 16.0})
    scene.cluster.run(2)
    found = index.assessments[scene.web.uid].group.policy
    assert found.explain() == "spot-ratio auto (25%: 1 pool, 16 losses a month, target 99.9%), min-on-demand 1"
    assert index.assessments[scene.web.uid].wanted == found.slots.mix(10)
