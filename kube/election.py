"""Which replica leads, by what it saw of one Lease: a state machine without I/O, with time as an argument.

Two replicas never lead at once. A's last renewal began at time a, by A's clock. A leads until a + 10 s and no longer,
whatever it hears or does not hear. The renewal was stored at or after a, so B saw that version at or after a. B takes
over only after it has seen the version unchanged for 15 s by its own clock. So A has stopped before B begins, unless
B's clock runs 1.5 times as fast as A's. The time of day, on any clock or in the Lease, does not matter.

A write names the version that it replaces. So if several replicas try to take over, one succeeds. A write that is
delayed and arrives late changes nothing that was decided meanwhile.

If the Lease was deleted or emptied by hand, its leader may not know yet. So a replica that finds no Lease creates a
blank one, and all but the leader wait for it as if it were held. Leading by creating it would not be safe: "there is
none" is no version, and can be true, untrue and true again. Only a Lease that its leader gave up (`is_released`) is
taken at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Terms:
    """The durations of an election."""

    duration_seconds: int = 15  # if unchanged for this long, its holder is gone
    safe_seconds: float = 10.0  # a leader that could not renew for this long has stopped by itself
    renew_seconds: float = 2.0
    look_seconds: float = 1.0  # how often waiting replicas look, from half to one and a half of this
    retry_seconds: float = 0.5


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """What the Lease says. Without a version: there is no Lease."""

    version: str = ""
    holder: str = ""
    duration_seconds: float = 0.0
    is_released: bool = False  # its holder gave it up
    transitions: int = 0  # how often it changed hands


ABSENT = LeaseRecord()


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What one contender knows."""

    identity: str
    terms: Terms = Terms()
    record: LeaseRecord | None = None  # the Lease as last seen
    seen_at: float = 0.0  # when this version was first seen
    is_certain: bool = False  # nothing is known to have changed it since
    renewed_at: float | None = None  # when our last successful renewal began

    def is_leading(self, now: float) -> bool:
        return self.renewed_at is not None and now - self.renewed_at < self.terms.safe_seconds


# --- what happened ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Woken:
    """Nothing happened; it is time to act."""


@dataclass(frozen=True, slots=True)
class WasRead:
    """The Lease was read; `now` is when the answer arrived."""

    record: LeaseRecord


@dataclass(frozen=True, slots=True)
class Wrote:
    """Our write was stored."""

    record: LeaseRecord
    began_at: float


@dataclass(frozen=True, slots=True)
class Lost:
    """Our write was not stored, because the Lease has changed since we read it."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No answer, or an unusable one. It is unknown whether a write was stored, or still will be."""


Observed = Woken | WasRead | Wrote | Lost | Unanswered


# --- what to do ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Read the Lease."""


@dataclass(frozen=True, slots=True)
class Write:
    """Take or renew the Lease, if it is still as `over` says."""

    over: LeaseRecord


@dataclass(frozen=True, slots=True)
class Create:
    """Create a blank Lease. Whichever replica created it, it is then read."""


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


Step = ReadLease | Write | Create | Wait


def next_step(
    state: Knowledge, observed: Observed, now: float, chance: float, is_fit: bool = True
) -> tuple[Knowledge, Step]:
    """The new knowledge after an event, and what to do next. `chance` in [0, 1) keeps contenders apart.

    A contender that is not fit to lead neither takes nor renews the Lease, but keeps reading it.
    """
    known, step = _next_step(state, observed, now, chance)
    if is_fit or not isinstance(step, Write):
        return known, step
    return known, ReadLease() if isinstance(observed, Woken) else Wait(state.terms.look_seconds * (0.5 + chance))


def _next_step(state: Knowledge, observed: Observed, now: float, chance: float) -> tuple[Knowledge, Step]:
    terms = state.terms
    match observed:
        case Woken():
            return state, _at_work(state)
        case WasRead(record):
            knowing = _knowing(state, record, now)
            return knowing, _on_sight(knowing, record, now, chance)
        case Wrote(record, began_at):
            leading = replace(state, record=record, seen_at=now, is_certain=True, renewed_at=began_at)
            return leading, Wait(terms.renew_seconds)
        case Lost() | Unanswered():
            return replace(state, is_certain=False), Wait(terms.retry_seconds * (0.5 + chance))


def _at_work(state: Knowledge) -> Step:
    """The holder renews without reading first."""
    if state.is_certain and state.record is not None and state.record.holder == state.identity:
        return Write(state.record)
    return ReadLease()


def _knowing(state: Knowledge, record: LeaseRecord, now: float) -> Knowledge:
    """The state with what was read. Another holder's name ends our term at once; our own name does not start one."""
    is_same = state.record is not None and state.record.version == record.version
    is_taken = record.holder not in ("", state.identity)
    return replace(
        state,
        record=record,
        seen_at=state.seen_at if is_same else now,
        is_certain=True,
        renewed_at=None if is_taken else state.renewed_at,
    )


def _on_sight(state: Knowledge, record: LeaseRecord, now: float, chance: float) -> Step:
    """Take the Lease, or wait: at most until it expires, because no event may reach us."""
    if record == ABSENT:
        return Create()
    if record.holder == state.identity or record.is_released:
        return Write(record)
    if not record.holder and state.is_leading(now):  # new or emptied; no other replica can have led since our renewal
        return Write(record)
    left = state.seen_at + max(record.duration_seconds, state.terms.duration_seconds) - now
    if left <= 0:
        return Write(record)
    return Wait(min(left, state.terms.look_seconds * (0.5 + chance)))
