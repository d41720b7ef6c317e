"""What a workload's owner reads in Events: each thing once, without names of pods, nothing that passes by itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from dashboard.viewer import Around, Viewer
from kube.events import Note
from placement import names
from placement.eviction import EvictionAsked
from placement.model import Class, Pod, Workload
from placement.outage import Outages
from placement.outcome import Outcome
from placement.plan.actions import Action, Blocked, How, Plan, Skipped, Why
from rebalancer.executor import Done
from rebalancer.notify import _PASSING, Teller
from report.sentences import moment
from tests.builders.model import workload
from tests.rebalancer.rebalancing import SimulatedRebalancer
from tests.rebalancer.simulation import Making, SimulatedCluster

SPOT, ON_DEMAND = Class.SPOT, Class.ON_DEMAND
WEB = workload(uid="web-uid")
NO_PLAN = Plan()


class NoticeReader:
    """Reads what the teller tells: workload, reason, text, and whether it is a warning."""

    def __init__(self) -> None:
        self.read: list[tuple[str, str, str, bool]] = []
        self.notes: list[Note] = []
        self.teller = Teller(self.tell)

    def tell(
        self, workload: Workload, reason: str, text: str, *, is_warning: bool = True, is_once: bool = False
    ) -> None:
        self.read.append((workload.name, reason, text, is_warning))
        self.notes.append(Note.about(workload, reason, text, is_warning=is_warning, is_once=is_once))

    def texts(self, *reasons: str) -> list[str]:
        return [text for _, reason, text, _ in self.read if reason in reasons]


def action(how: How, why: Why = Why.RATIO, number: int = 0, **fields: object) -> Action:
    pod = Pod("shop", f"web-{number}", f"uid-{number}")
    return Action(how, why, **{"workload": WEB, "pod": pod, **fields})  # type: ignore[arg-type]


SENTENCES: dict[str, tuple[Action, str]] = {
    "a move begins": (
        action(How.RELEASE, to=SPOT),
        "Moving a pod to spot: its replacement starts first (wrong-class)",
    ),
    "a move ends": (
        action(How.FINISH, Why.OVER, to=SPOT),
        "Evicted a pod after a move: its replacement serves on spot",
    ),
    "a move that nothing wants any more": (
        action(How.FINISH, Why.OVER, text="no longer needed"),
        "Evicted a released pod: no longer needed",
    ),
    "a move of a workload that wants no pods": (
        action(How.DELETE, Why.OVER, text="its workload is scaled to 0"),
        "Deleted a released pod: its workload is scaled to 0",
    ),
    "a move is undone": (action(How.UNDO, text="no place in time"), "Undid the move of a pod: no place in time"),
    "an eviction": (
        action(How.EVICT, to=ON_DEMAND),
        "Evicted a pod: there is room for its replacement on on-demand (wrong-class)",
    ),
    "a pod that is created again": (
        action(How.REPLACE, Why.STUCK, text="no spot node can run it (rebalance: off)"),
        "Evicted a pod that was never scheduled: no spot node can run it (rebalance: off)",
    ),
    "a burial": (action(How.BURY, Why.LOST), "Deleted a pod whose node is gone, so that it is replaced at once"),
}


@pytest.mark.parametrize(("done", "text"), SENTENCES.values(), ids=SENTENCES.keys())
def test_what_was_done_is_a_sentence(done: Action, text: str) -> None:
    """No warning: it is our work."""
    owner = NoticeReader()
    owner.teller.told(NO_PLAN, [Done(done, Outcome.DONE)])
    assert owner.read == [("web", names.EVENT_MOVED, text, False)]


SILENT: dict[str, Done] = {
    "what failed": Done(action(How.EVICT), Outcome.BLOCKED),
    "what was not tried": Done(action(How.RELEASE), None),
    "what is gone already": Done(action(How.FINISH), Outcome.GONE),
    "annotations": Done(action(How.ANNOTATE), Outcome.DONE),
    "pods whose workload is gone": Done(action(How.FINISH, workload=None), Outcome.DONE),
}


@pytest.mark.parametrize("done", SILENT.values(), ids=SILENT.keys())
def test_what_is_no_news_is_not_told(done: Done) -> None:
    """Nobody needs to know, or nobody is there."""
    owner = NoticeReader()
    owner.teller.told(NO_PLAN, [done])
    assert owner.read == []


def test_many_moves_are_one_event() -> None:
    """Ten pods: told ten times, and all are the same Event, whose count goes up."""
    owner = NoticeReader()
    owner.teller.told(NO_PLAN, [Done(action(How.RELEASE, number=each, to=SPOT), Outcome.DONE) for each in range(10)])
    assert len(owner.notes) == 10
    assert len({note.event_name for note in owner.notes}) == 1


def skipping(*blocked: Blocked) -> Plan:
    return Plan(skipped=tuple(Skipped(WEB, Why.RATIO, each, 3) for each in blocked))


def test_what_blocks_is_told_once_and_again_when_it_stands_again() -> None:
    """Pass after pass it stands; it goes; it comes back."""
    owner = NoticeReader()
    for plan in (skipping(Blocked.QUOTA), skipping(Blocked.QUOTA), NO_PLAN, skipping(Blocked.QUOTA)):
        owner.teller.told(plan, [])
    text = "Not moved (wrong-class): the namespace's quota has no room for one more pod"
    assert owner.read == [("web", names.EVENT_BLOCKED, text, True)] * 2


def test_another_blocker_is_other_news() -> None:
    """Also while the first one stands."""
    owner = NoticeReader()
    owner.teller.told(skipping(Blocked.QUOTA), [])
    owner.teller.told(skipping(Blocked.QUOTA, Blocked.BUDGET), [])
    assert len(owner.texts(names.EVENT_BLOCKED)) == 2
    assert owner.read[-1][2].endswith(str(Blocked.BUDGET))


@pytest.mark.parametrize("blocked", Blocked)
def test_what_passes_by_itself_is_silent(blocked: Blocked) -> None:
    """As many moves as allowed are under way, say. All else is told."""
    owner = NoticeReader()
    owner.teller.told(skipping(blocked), [])
    assert bool(owner.read) == (blocked not in _PASSING)


# --- what befalls a workload -----------------------------------------------------------------------------------------


class Told(SimulatedRebalancer):
    """A rebalancer on a simulated cluster that tells as the program does."""

    def start(self) -> None:
        self.owner = NoticeReader()
        super().start()
        self.viewer = Viewer(self.index, Around(lambda: True, lambda: True, Outages, lambda: None))

    def _tell(self, plan: Plan, done: Sequence[Done], *_seconds: float) -> None:
        super()._tell(plan, done)
        self.owner.teller.told(plan, done)
        taken = self.viewer.take(plan, self.cluster.now)
        self.owner.teller.watch(taken.assessments, taken.ground, self.cluster.now)


def shop(spot_zones: str = "abc") -> SimulatedCluster:
    cluster = SimulatedCluster()
    cluster.opt_in("shop")
    cluster.add_nodes(SPOT, 6, spot_zones, ("m",))
    cluster.add_nodes(ON_DEMAND, 6, "abc")
    return cluster


def test_all_spot_goes_and_returns() -> None:
    """Seven replicas are one loss; then fallback, and its end. Each is told once."""
    cluster = shop()
    cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = Told(cluster)
    cluster.run(60)
    assert rebalancer.owner.read == []
    spot = [name for name in cluster.nodes if name.startswith("spot")]
    held = {pod.node for pod in cluster.pods if pod.node in spot}
    for name in spot:
        cluster.lose(name)
    cluster.run(20)
    read = rebalancer.owner
    assert read.texts(names.EVENT_LOST) == [f"Lost 7 replicas with {len(held)} nodes"]
    assert read.texts(names.EVENT_FALLBACK) == ["Pods that belong on spot run on on-demand until spot has room"]
    assert read.texts(names.EVENT_FALLBACK_OVER) == []
    cluster.add_nodes(SPOT, 6, "abc")
    cluster.run(900)
    assert len(read.texts(names.EVENT_FALLBACK)) == len(read.texts(names.EVENT_LOST)) == 1
    assert read.texts(names.EVENT_FALLBACK_OVER) == ["All pods run on their own class again"]


def test_nodes_that_go_one_after_the_other_are_one_loss() -> None:
    """A second apart, and nothing proves that they are gone for good: told while the pods are still counted ready."""
    cluster = shop()
    cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = Told(cluster)
    spot = sorted({pod.node for pod in cluster.pods if cluster.class_of(pod) is SPOT})
    for name in spot:
        cluster.lose(name, proof=False)
        cluster.step()
    assert rebalancer.owner.texts(names.EVENT_LOST) == []
    cluster.run(5)
    assert rebalancer.owner.texts(names.EVENT_LOST) == [f"Lost 7 replicas with {len(spot)} nodes"]
    cluster.run(300)
    assert len(rebalancer.owner.texts(names.EVENT_LOST)) == 1


def test_a_pool_that_must_not_go_is_told_when_it_lasts_and_when_it_is_over() -> None:
    """All spot is one pool, seven of ten replicas are there, and eight must serve. Then nine fewer must."""
    cluster = shop("a")
    web = cluster.deploy("web", 10, {names.MIN_AVAILABLE: "8"})
    cluster.run(60)
    rebalancer = Told(cluster)
    read = rebalancer.owner
    cluster.run(30)
    assert read.texts(names.EVENT_EXPOSED) == []  # it may be over in a moment
    cluster.run(600)
    (text,) = read.texts(names.EVENT_EXPOSED)
    told = "Would not survive the loss of a spot pool: losing pool a/m takes 7 replicas and leaves 3, but 8 must serve"
    assert text == told
    cluster.annotate(web, min_available="2")
    cluster.run(120)
    assert read.texts(names.EVENT_SAFE) == ["Would survive the loss of any spot pool again"]
    assert len(read.texts(names.EVENT_EXPOSED)) == 1


def test_what_nobody_declared_is_no_owners_matter() -> None:
    """The same pool; how many must serve is assumed."""
    cluster = shop("a")
    cluster.deploy("web", 10)
    cluster.run(60)
    rebalancer = Told(cluster)
    cluster.run(300)
    assert rebalancer.owner.texts(names.EVENT_EXPOSED) == []


# --- evictions by others ---------------------------------------------------------------------------------------------


def ask_to_evict(cluster: SimulatedCluster, *pods: Pod) -> None:
    """As the webhook notes it."""
    for pod in pods:
        note = {names.EVICTION_ASKED: EvictionAsked(cluster.now, "alice").text()}
        cluster.put(replace(pod, annotations={**pod.annotations, **note}))


def test_a_held_eviction_is_one_event_for_each_pod() -> None:
    """It names the pod, who asked and when. It is told once, however long the pod waits, and is no warning."""
    cluster = shop()
    web = cluster.deploy("web", 10, making=Making(start_seconds=20))
    cluster.run(90)
    rebalancer = Told(cluster)
    cluster.run(30)
    read, asked = rebalancer.owner, cluster.now
    first, second = sorted(cluster.pods_of(web), key=lambda pod: pod.name)[:2]
    ask_to_evict(cluster, first, second)
    cluster.run(10)
    assert rebalancer.count("release") == 2
    until = f"until enough replicas serve without it; alice asked at {moment(asked)}"
    assert [(text, warns) for _, reason, text, warns in read.read if reason == names.EVENT_HELD] == [
        (f"Holds the eviction of pod {pod.name} {until}", False) for pod in (first, second)
    ]
    cluster.run(300)
    assert len(read.texts(names.EVENT_HELD)) == 2
    assert len({note.event_name for note in read.notes if note.reason == names.EVENT_HELD}) == 2


def test_a_new_leader_repeats_no_held_eviction() -> None:
    """It says the same about the same pod, which is written as one Event without a count."""
    cluster = shop()
    web = cluster.deploy("web", 10, making=Making(start_seconds=30))
    cluster.run(90)
    rebalancer = Told(cluster)
    cluster.run(30)
    ask_to_evict(cluster, cluster.pods_of(web)[0])
    cluster.run(5)
    said = [note for note in rebalancer.owner.notes if note.reason == names.EVENT_HELD]
    rebalancer.kill()
    rebalancer.start()
    cluster.run(5)
    again = [note for note in rebalancer.owner.notes if note.reason == names.EVENT_HELD]
    assert [each.event_name for each in again] == [each.event_name for each in said]
    assert len(said) == 1
    assert all(note.is_once for note in (*said, *again))
