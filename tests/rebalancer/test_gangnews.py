"""What the owner of a gang reads in Events, and what is counted: state changes, each once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from placement import names
from placement.gang.gang import State, status_of
from placement.gang.reservation import Reservation
from placement.lack import Lack
from placement.model import Pod, Subject
from placement.outcome import Outcome
from placement.plan.actions import Action, How, Plan, Why
from rebalancer.executor import Done
from rebalancer.gangnews import ASSEMBLING_SECONDS, GangNews
from tests.builders.model import NOW
from tests.placement.test_gang import EIGHT, KEY, eight, gang, kept, member
from tests.rebalancer.gangsimulation import SimulatedJob, gang_cluster


@dataclass
class GangReader:
    """Reads what is told, and counts as metrics do."""

    read: list[tuple[str, str, str]] = field(default_factory=list)
    states: dict[State, int] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    undone: int = 0
    victims: int = 0
    preemptions: list[str] = field(default_factory=list)
    late: int = 0
    attempts: Counter[tuple[str, Lack | None]] = field(default_factory=Counter)

    ended: list[Pod] = field(default_factory=list)  # members that are there, and do not live

    def __post_init__(self) -> None:
        train = lambda pod: Subject("Job", pod.namespace, "train", "job", "batch/v1")  # noqa: E731
        self.news = GangNews(self.tell, self, train, lambda _key: self.ended)

    def tell(self, about: Subject, /, reason: str, text: str, *, is_warning: bool = True) -> None:
        self.read.append((about.kind, reason, text))

    def count_gangs(self, states: Mapping[State, int], late: int = 0) -> None:
        self.states, self.late = {state: count for state, count in states.items() if count}, late

    def attempted(self, outcome: str, lack: Lack | None = None) -> None:
        self.attempts[outcome, lack] += 1

    def started(self, seconds: float) -> None:
        self.seconds.append(seconds)

    def rolled_back(self) -> None:
        self.undone += 1

    def preempting(self, outcome: str) -> None:
        self.preemptions.append(outcome)

    def preempted(self, pods: int) -> None:
        self.victims += pods

    def see(self, *pods: Pod, at: float = NOW, **more: Any) -> None:
        found = gang(list(pods))
        statuses = (replace(status_of(found, at), **more),) if found.is_restless else ()
        self.news.watch(Plan(gangs=statuses), {KEY: found}, at)

    @property
    def reasons(self) -> list[str]:
        return [reason for _, reason, _ in self.read]


def test_a_gang_that_starts_at_once_is_told_once() -> None:
    """From complete to bound takes two seconds; what was in between is no news."""
    reader = GangReader()
    reader.see(*eight())
    reader.see(*(kept(number) for number in range(8)), at=NOW + 1)
    reader.see(*(kept(number, is_gated=False) for number in range(8)), at=NOW + 1.5)
    reader.see(*(member(number, "n1") for number in range(8)), at=NOW + 2)
    reader.see(*(member(number, "n1") for number in range(8)), at=NOW + 3)
    assert reader.read == [("Job", names.EVENT_GANG_STARTED, "Gang train: all 8 members have a node")]
    assert (reader.seconds, reader.states) == ([2.0], {State.RUNNING: 1})


def test_a_gang_that_ends_within_a_moment_has_started() -> None:
    """Its members have succeeded before any was seen on a node. If one of them failed, that is no start."""
    for phases, reasons in ((["Succeeded"] * 8, [names.EVENT_GANG_STARTED]), (["Succeeded"] * 7 + ["Failed"], [])):
        reader = GangReader()
        reader.see(*eight())
        reader.see(*(kept(number) for number in range(8)), at=NOW + 1)
        reader.ended = [replace(member(n, "n1"), phase=phase) for n, phase in enumerate(phases)]
        reader.news.watch(Plan(), {}, NOW + 2)
        assert reader.reasons == reasons
        assert reader.seconds == [2.0] * len(reasons)


def test_waiting_is_told_once_however_long_it_lasts() -> None:
    """With the reason that a plan has found."""
    reader = GangReader()
    for second in range(5):
        reader.see(*eight(), at=NOW + second, was_tried=True)
    assert reader.reasons == [names.EVENT_GANG_WAITING]
    assert reader.states == {State.WAITING: 1}


def test_slow_members_are_told_after_a_minute() -> None:
    """Controllers take a moment to create them."""
    reader = GangReader()
    reader.see(*eight()[:5])
    assert reader.read == []
    reader.see(*eight()[:5], at=NOW + ASSEMBLING_SECONDS)
    assert reader.read == [("Job", names.EVENT_GANG_WAITING, "Gang train waits: 5 of 8 members exist")]


def test_what_blocks_it_and_mistakes_are_told_each_once() -> None:
    """Both name what to change."""
    reader = GangReader()
    wrong = {**EIGHT, names.TIME_LIMIT: "soon"}
    for _ in range(2):
        reader.see(*(member(n, annotations=wrong, gates=("other", names.GANG_GATE)) for n in range(8)))
    assert reader.reasons == [names.EVENT_GANG_MISTAKE, names.EVENT_GANG_BLOCKED]


def test_a_start_that_is_undone_is_told_and_counted() -> None:
    """Once for all members, whatever becomes of them one by one."""
    reader = GangReader()
    undone = Reservation("p1", NOW - 90, "n1", is_undone=True).text()
    for left in (8, 5, 2):
        reader.see(*(member(number, is_gated=False, gang_plan=undone) for number in range(left)))
    assert reader.reasons == [names.EVENT_GANG_UNDONE]
    assert reader.undone == 1


def test_what_began_under_another_leader_is_not_timed() -> None:
    """It started, but nobody here knows when it was complete."""
    reader = GangReader()
    reader.see(*(kept(number, is_gated=False) for number in range(8)))
    reader.see(*(member(number, "n1") for number in range(8)), at=NOW + 1)
    assert (reader.reasons, reader.seconds) == ([names.EVENT_GANG_STARTED], [])


def test_both_sides_of_a_preemption_are_told() -> None:
    """The gang once, by who goes and the cost; each owner of victims once per pass, by the gang."""
    reader = GangReader()
    waits = Reservation("p1", NOW - 1, "n1", awaits_victims=True).text()
    for _ in range(2):
        reader.see(*(member(number, gang_plan=waits, nominated="n1") for number in range(8)))
    gone = Action(How.PREEMPT, Why.GANG, None, member(0, "n1"), text="gang shop/high needs the room")
    reader.news.tell_victims([Done(gone, Outcome.DONE), Done(gone, Outcome.DONE), Done(gone, Outcome.BLOCKED)])
    assert reader.reasons == [names.EVENT_GANG_PREEMPTING, names.EVENT_GANG_PREEMPTED]
    assert (reader.preemptions, reader.victims) == (["begun"], 2)


def test_attempts_are_counted_by_what_came_of_them() -> None:
    """Each time that room was looked for; a state that lasts is one attempt."""
    reader = GangReader()
    for second in range(2):
        reader.see(*eight(), at=NOW + second, was_tried=True, lack=Lack.ROOM, is_late=True)
    reader.see(*eight(), at=NOW + 2, is_late=True)  # it rests
    for second in range(2):
        reader.see(*eight(), at=NOW + 3 + second, state=State.EVICTING)
    reader.see(*eight(), at=NOW + 5, state=State.RESERVED)
    reader.see(*(kept(number) for number in range(8)), at=NOW + 6)
    assert reader.attempts == {("no-room", Lack.ROOM): 2, ("preempting", None): 1, ("reserved", None): 1}
    assert reader.late == 0


def test_gangs_beyond_their_wait_timeout_are_counted() -> None:
    """As the plan finds them."""
    reader = GangReader()
    reader.see(*eight(), is_late=True)
    assert (reader.late, reader.reasons) == (1, [names.EVENT_GANG_LATE])


def test_owners_of_pods_are_found_in_the_catalogue() -> None:
    """A gang's Event is on its Job, not on the pod."""
    cluster, rebalancer = gang_cluster()
    SimulatedJob(cluster, "train")
    cluster.run(3)
    (found,) = rebalancer.index.gangs.values()
    subjects = Counter(rebalancer.index.subject_of(pod) for pod in found.pods)
    assert subjects == {Subject("Job", "shop", "train", "job-train", "batch/v1"): 4}
