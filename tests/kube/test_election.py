"""The election, step by step and as a whole: never two leaders, and never none for long."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kube.election import (
    ABSENT,
    Create,
    Knowledge,
    LeaseRecord,
    Lost,
    Observed,
    ReadLease,
    Step,
    Terms,
    Unanswered,
    Wait,
    WasRead,
    Woken,
    Write,
    Wrote,
    next_step,
)

# --- step by step ----------------------------------------------------------------------------------------------------

TERMS = Terms()
NEW = Knowledge("me")
MINE = LeaseRecord("7", "me", 15.0)
HERS = LeaseRecord("8", "her", 15.0)
GIVEN_UP = LeaseRecord("9", "", 1.0, is_released=True)
EMPTIED = LeaseRecord("9", "", 15.0)
LEADING = Knowledge("me", TERMS, MINE, seen_at=100.2, is_certain=True, renewed_at=100.0)
WAITING = Knowledge("me", TERMS, HERS, seen_at=100.0, is_certain=True)
BLANK = LeaseRecord("9")
UNHELD = Knowledge("me", TERMS, BLANK, seen_at=100.0, is_certain=True)

STEPS: dict[str, tuple[Knowledge, Observed, float, Step]] = {
    "a newcomer looks first": (NEW, Woken(), 100.0, ReadLease()),
    "what is given up is taken at once": (NEW, WasRead(GIVEN_UP), 100.0, Write(GIVEN_UP)),
    "what is held is waited for": (NEW, WasRead(HERS), 100.0, Wait(1.0)),
    "what somebody emptied is waited for, too": (NEW, WasRead(EMPTIED), 100.0, Wait(1.0)),
    "what is missing is made": (NEW, WasRead(ABSENT), 100.0, Create()),
    "and then waited for": (NEW, WasRead(BLANK), 100.0, Wait(1.0)),
    "who waits looks again": (WAITING, Woken(), 101.0, ReadLease()),
    "it waits for the end, not beyond": (WAITING, WasRead(HERS), 114.75, Wait(0.25)),
    "unchanged for 15 s: taken": (WAITING, WasRead(HERS), 115.0, Write(HERS)),
    "changed meanwhile: 15 s anew": (WAITING, WasRead(replace(HERS, version="9")), 115.0, Wait(1.0)),
    "blank for 15 s: taken": (UNHELD, WasRead(BLANK), 115.0, Write(BLANK)),
    "who says that hers lasts longer is believed": (
        replace(WAITING, record=replace(HERS, duration_seconds=60.0)),
        WasRead(replace(HERS, duration_seconds=60.0)),
        115.0,
        Wait(1.0),
    ),
    "that hers is shorter is not": (
        replace(WAITING, record=replace(HERS, duration_seconds=1.0)),
        WasRead(replace(HERS, duration_seconds=1.0)),
        102.0,
        Wait(1.0),
    ),
    "a leader renews in peace": (LEADING, Wrote(replace(MINE, version="8"), 102.0), 102.1, Wait(2.0)),
    "and without looking": (LEADING, Woken(), 102.0, Write(MINE)),
    "after a failure it looks, since the write may have been stored": (
        replace(LEADING, is_certain=False),
        Woken(),
        103.0,
        ReadLease(),
    ),
    "and goes on if its own name is there": (
        replace(LEADING, is_certain=False),
        WasRead(replace(MINE, version="8")),
        103.1,
        Write(replace(MINE, version="8")),
    ),
    "a leader whose Lease was deleted makes it anew": (LEADING, WasRead(ABSENT), 104.0, Create()),
    "and takes a blank one at once": (LEADING, WasRead(BLANK), 104.1, Write(BLANK)),
    "or one that somebody emptied": (LEADING, WasRead(EMPTIED), 104.1, Write(EMPTIED)),
    "one that has lapsed does not": (LEADING, WasRead(BLANK), 110.0, Wait(1.0)),
    "a race that was lost is no hurry": (WAITING, Lost(), 115.1, Wait(0.5)),
    "nor is a failure": (WAITING, Unanswered(), 115.1, Wait(0.5)),
}


@pytest.mark.parametrize(("state", "observed", "now", "step"), STEPS.values(), ids=STEPS.keys())
def test_steps(state: Knowledge, observed: Observed, now: float, step: Step) -> None:
    """What to do next. Chance is in the middle."""
    assert next_step(state, observed, now, 0.5)[1] == step


UNFIT_STEPS: dict[str, tuple[Knowledge, Observed, float, Step]] = {
    "a leader does not renew, and looks": (LEADING, Woken(), 102.0, ReadLease()),
    "that its name is there changes nothing": (LEADING, WasRead(MINE), 102.1, Wait(1.0)),
    "nor does it take a blank one": (LEADING, WasRead(BLANK), 102.1, Wait(1.0)),
    "what is given up is left to others": (NEW, WasRead(GIVEN_UP), 100.0, Wait(1.0)),
    "and so is what has run out": (WAITING, WasRead(HERS), 115.0, Wait(1.0)),
    "who waits looks as ever": (WAITING, Woken(), 101.0, ReadLease()),
    "what is held is waited for as ever": (WAITING, WasRead(HERS), 114.75, Wait(0.25)),
    "a blank one is made, which makes no leader": (NEW, WasRead(ABSENT), 100.0, Create()),
}


@pytest.mark.parametrize(("state", "observed", "now", "step"), UNFIT_STEPS.values(), ids=UNFIT_STEPS.keys())
def test_who_is_not_fit_only_looks(state: Knowledge, observed: Observed, now: float, step: Step) -> None:
    """Its loop hangs. It leads to the end of its term, and no longer."""
    known, taken = next_step(state, observed, now, 0.5, is_fit=False)
    assert taken == step
    assert known.renewed_at == state.renewed_at


LEADS: dict[str, tuple[Knowledge, Observed, float, bool]] = {
    "a renewal counts from when it began": (LEADING, Wrote(MINE, 102.0), 111.9, True),
    "and for 10 s": (LEADING, Wrote(MINE, 102.0), 112.0, False),
    "a failure ends nothing": (LEADING, Unanswered(), 103.0, True),
    "a conflict ends nothing: somebody may have put a label on it": (LEADING, Lost(), 103.0, True),
    "time does": (LEADING, Unanswered(), 110.0, False),
    "another's name does": (LEADING, WasRead(HERS), 103.0, False),
    "one's own name begins nothing": (NEW, WasRead(MINE), 103.0, False),
    "nor does waiting": (WAITING, WasRead(HERS), 115.0, False),
    "only a write does": (WAITING, Wrote(replace(MINE, version="9"), 115.0), 115.1, True),
}


@pytest.mark.parametrize(("state", "observed", "now", "leads"), LEADS.values(), ids=LEADS.keys())
def test_leading(state: Knowledge, observed: Observed, now: float, leads: bool) -> None:
    """Who leads after what has happened."""
    assert next_step(state, observed, now, 0.5)[0].is_leading(now) is leads


def test_the_wait_of_several_differs() -> None:
    """From half a second to one and a half."""
    waits = [next_step(NEW, WasRead(HERS), 100.0, chance)[1] for chance in (0.0, 0.999)]
    assert waits == [Wait(0.5), Wait(1.499)]


def test_a_failure_does_not_restart_the_wait() -> None:
    """What was seen for 14 s, then not for one call, then again unchanged, has been unchanged for as long."""
    state, _ = next_step(WAITING, Unanswered(), 114.0, 0.5)
    assert next_step(state, WasRead(HERS), 115.0, 0.5)[1] == Write(HERS)


# --- as a whole ------------------------------------------------------------------------------------------------------


@dataclass
class LeaseServer:
    """The API's part of it: one object, and versions."""

    record: LeaseRecord = ABSENT
    versions: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def store(self, over: LeaseRecord, new: LeaseRecord) -> Observed:
        if over.version != self.record.version:
            return Lost()
        self.record = replace(new, version=str(next(self.versions)))
        return Wrote(self.record, 0.0)

    def create(self) -> Observed:
        stored = self.store(ABSENT, LeaseRecord())
        return WasRead(self.record) if isinstance(stored, Wrote) else stored


@dataclass
class SimulatedContender:
    """One process, with a clock of its own that begins anywhere and runs a little wrong."""

    state: Knowledge
    rate: float
    offset: float
    alive: bool = True
    paused_until: float = 0.0
    hangs_until: float = 0.0

    def clock(self, time: float) -> float:
        return self.offset + time * self.rate

    def leads(self, time: float) -> bool:
        return self.alive and self.state.is_leading(self.clock(time))


class SimulatedElection:
    """Contenders, a server and a bad network, all in one heap of events."""

    def __init__(self, chance: random.Random, terms: Terms, drift: float, trouble: float) -> None:
        self.chance = chance
        self.terms = terms
        self.drift = drift
        self.trouble = trouble  # how often a message is late, or lost
        self.server = LeaseServer()
        self.contenders: list[SimulatedContender] = []
        self.time = 0.0
        self.most = 0  # that led at once
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def at(self, time: float, event: Callable[[], None]) -> None:
        heapq.heappush(self._events, (time, next(self._order), event))

    def run(self, until: float, stop: Callable[[], bool] = lambda: False) -> None:
        """Leading begins only with an event, so after each is when two could lead."""
        while self._events and self._events[0][0] <= until and not stop():
            self.time, _, event = heapq.heappop(self._events)
            event()
            self.most = max(self.most, len(self.leaders()))

    def leaders(self) -> list[SimulatedContender]:
        return [each for each in self.contenders if each.leads(self.time)]

    def join(self) -> SimulatedContender:
        rate = 1 + self.drift * self.chance.uniform(-1, 1)
        state = Knowledge(f"c{len(self.contenders)}", self.terms)
        contender = SimulatedContender(state, rate, self.chance.uniform(0, 1000))
        self.contenders.append(contender)
        self.go_on(contender, Woken())
        return contender

    def go_on(self, contender: SimulatedContender, observed: Observed) -> None:
        """One turn of its thread."""
        if not contender.alive:
            return
        if contender.paused_until > self.time:
            self.at(contender.paused_until, lambda: self.go_on(contender, observed))
            return
        now = contender.clock(self.time)
        is_fit = contender.hangs_until <= self.time
        contender.state, step = next_step(contender.state, observed, now, self.chance.random(), is_fit)
        match step:
            case Wait(seconds):
                self.at(self.time + seconds / contender.rate, lambda: self.go_on(contender, Woken()))
            case ReadLease():
                self.send(contender, lambda: WasRead(self.server.record))
            case Create():
                self.send(contender, self.server.create)
            case Write(over):
                new = LeaseRecord("", contender.state.identity, 15.0)
                self.send(contender, lambda: _begun(self.server.store(over, new), now))

    def send(self, contender: SimulatedContender, request: Callable[[], Observed]) -> None:
        """It arrives, perhaps late, perhaps when its sender has given up or died, perhaps never; so does the answer."""
        arrives, gives_up = self.time + self.delay(), self.time + 2.5 / contender.rate
        answered: list[bool] = []

        def receive() -> None:
            observed = request()
            if self.chance.random() >= self.trouble / 2:
                self.at(self.time + self.delay(), lambda: answer(observed))

        def answer(observed: Observed) -> None:
            if not answered:
                answered.append(True)
                self.go_on(contender, observed)

        if self.chance.random() >= self.trouble / 2:
            self.at(arrives, receive)
        self.at(gives_up, lambda: answer(Unanswered()))

    def delay(self) -> float:
        return self.chance.uniform(0, 30) if self.chance.random() < self.trouble else self.chance.uniform(0, 0.2)

    # --- what befalls them

    def kill(self) -> None:
        for each in self.leaders():
            each.alive = False
        self.join()

    def leave(self) -> None:
        """It leads no more, then gives the Lease up."""
        for each in self.leaders():
            each.alive = False
            self.at(self.time + self.delay(), partial(self._release, each.state.identity))
        self.join()

    def _release(self, identity: str) -> None:
        """It looks first; what it then writes may be late as well, and is tried again."""
        over = self.server.record

        def write() -> None:
            if isinstance(self.server.store(over, LeaseRecord("", "", 1.0, is_released=True)), Lost):
                self._release(identity)

        if over.holder == identity:
            self.at(self.time + self.delay(), write)

    def pause(self) -> None:
        for each in self.leaders():
            each.paused_until = self.time + self.chance.uniform(0, 40)

    def hang(self, seconds: float | None = None) -> None:
        """Its loop, not its thread."""
        for each in self.leaders():
            each.hangs_until = self.time + (self.chance.uniform(0, 60) if seconds is None else seconds)

    def delete(self) -> None:
        self.server.record = ABSENT

    def meddle(self) -> None:
        """Somebody clears the holder by hand, or labels the Lease, or makes a blank one."""
        holder = self.chance.choice(["", self.server.record.holder])
        self.server.record = replace(self.server.record, holder=holder, version=str(next(self.server.versions)))


def _begun(observed: Observed, began_at: float) -> Observed:
    return replace(observed, began_at=began_at) if isinstance(observed, Wrote) else observed


def history(seed: int, contenders: int, trouble: float, terms: Terms = TERMS, drift: float = 0.15) -> SimulatedElection:
    """Four minutes in which something befalls the leader every 15 s or so."""
    election = SimulatedElection(random.Random(seed), terms, drift, trouble)
    for _ in range(contenders):
        election.join()
    time = 0.0
    while (time := time + election.chance.expovariate(1 / 15)) < 240:
        befalls = [election.kill, election.leave, election.pause, election.hang, election.delete, election.meddle]
        election.at(time, election.chance.choice(befalls))
    election.run(240)
    return election


@given(seed=st.integers(0, 2**32), contenders=st.integers(2, 5), trouble=st.sampled_from([0.0, 0.05, 0.3, 0.6]))
def test_never_two_leaders(seed: int, contenders: int, trouble: float) -> None:
    """Whatever is lost, late, killed, paused, hung or deleted, with clocks that run up to 15 % wrong."""
    assert history(seed, contenders, trouble).most <= 1


def test_the_simulation_would_show_two_leaders() -> None:
    """With a leader that trusts its renewal beyond the duration, or clocks that run far wrong, there are two."""
    bold = Terms(safe_seconds=25.0)
    assert any(history(seed, 3, 0.3, terms=bold).most > 1 for seed in range(50))
    assert any(history(seed, 3, 0.3, drift=0.6).most > 1 for seed in range(50))


def quiet(seed: int, contenders: int) -> SimulatedElection:
    """A good network, in which somebody leads."""
    election = SimulatedElection(random.Random(seed), TERMS, drift=0.05, trouble=0.0)
    for _ in range(contenders):
        election.join()
    election.run(30, stop=lambda: bool(election.leaders()))
    assert election.leaders()
    election.run(election.time + election.chance.uniform(0, 10))
    return election


@given(seed=st.integers(0, 2**32), contenders=st.integers(2, 5))
def test_after_a_kill_somebody_leads_again_in_time(seed: int, contenders: int) -> None:
    """Within the duration, 5 % of it for slow clocks, and 1.5 s to notice and write."""
    election = quiet(seed, contenders)
    killed = election.time
    election.kill()
    election.run(killed + 60, stop=lambda: bool(election.leaders()))
    assert election.time - killed <= 15 * 1.06 + 1.5


@given(seed=st.integers(0, 2**32), contenders=st.integers(2, 5))
def test_a_leader_whose_loop_hangs_is_followed_in_time(seed: int, contenders: int) -> None:
    """As after a kill, and 1.5 s for others to see a renewal that was on its way; never two lead meanwhile."""
    election = quiet(seed, contenders)
    (hung,) = election.leaders()
    began = election.time
    election.hang(600)
    election.run(began + 60, stop=lambda: bool(election.leaders()) and election.leaders() != [hung])
    assert election.time - began <= 15 * 1.06 + 1.5 + 1.5
    assert election.leaders() != [hung]
    assert election.most == 1


@given(seed=st.integers(0, 2**32), seconds=st.floats(0, 60))
def test_a_lone_leader_leads_again_when_its_loop_goes_on(seed: int, seconds: float) -> None:
    """It still holds the Lease, and renews it."""
    election = quiet(seed, 1)
    (leader,) = election.leaders()
    election.hang(seconds)
    over = election.time + seconds
    election.run(over)
    election.run(over + 60, stop=lambda: bool(election.leaders()))
    assert election.leaders() == [leader]
    assert election.time - over <= 3.0


@given(seed=st.integers(0, 2**32), contenders=st.integers(2, 5))
def test_who_leaves_is_followed_at_once(seed: int, contenders: int) -> None:
    """Those that wait look every second or so."""
    election = quiet(seed, contenders)
    left = election.time
    election.leave()
    election.run(left + 60, stop=lambda: bool(election.leaders()))
    assert election.time - left <= 2.5


@given(seed=st.integers(0, 2**32), contenders=st.integers(1, 4))
def test_a_leader_in_peace_leads_on(seed: int, contenders: int) -> None:
    """For minutes, and also if the Lease is deleted or emptied under it."""
    election = quiet(seed, contenders)
    (leader,) = election.leaders()
    begun = election.time
    for seconds in range(30, 180, 30):
        election.at(begun + seconds, election.chance.choice([election.delete, election.meddle]))
    for seconds in range(180):
        election.run(begun + seconds)
        assert election.leaders() == [leader]
