"""Who leads, from what was seen of one Lease: a state machine without I/O, whose time is an argument.

Two never lead at once. A's last renewal began at a, by A's clock; A leads until a + 10 s and not a moment longer,
whatever it hears or does not hear. It was stored at or after a, so B saw that version at or after a, and B takes over
only when it has seen it unchanged for 15 s by its own clock. So A has stopped before B begins, unless B's clock runs
half as fast again as A's. What time it is by any clock, or by the Lease, does not matter.

A write names the version that it replaces. So of several that take over one succeeds, and a write that was lost on
its way and arrives late changes nothing that was decided meanwhile.

A Lease that somebody deleted or emptied by hand is no invitation: its leader may not know yet. Whoever misses it makes
a blank one, which all but the leader wait for as if it were held. To lead by making it would not be safe: "there is
none" is no version, and may be true, untrue and true again. Only what its leader gave up (`is_released`) is taken at
once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True)
class Terms:
    """How long things may take."""

    duration_seconds: int = 15  # unchanged for so long: its holder is gone
    safe_seconds: float = 10.0  # a leader that could not renew for so long has stopped by itself
    renew_seconds: float = 2.0
    look_seconds: float = 1.0  # how often those that wait look; anything from half to one and a half of it
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
    record: LeaseRecord | None = None  # as last seen
    seen_at: float = 0.0  # when this version of it was first seen
    is_certain: bool = False  # nothing is known to have happened to it since
    renewed_at: float | None = None  # when our last renewal that succeeded began

    def is_leading(self, now: float) -> bool:
        return self.renewed_at is not None and now - self.renewed_at < self.terms.safe_seconds


# --- what happened ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Woken:
    """Nothing: it is time to do something."""


@dataclass(frozen=True, slots=True)
class WasRead:
    """It was read; `now` is when the answer came."""

    record: LeaseRecord


@dataclass(frozen=True, slots=True)
class Wrote:
    """Our write was stored."""

    record: LeaseRecord
    began_at: float


@dataclass(frozen=True, slots=True)
class Lost:
    """Our write was not stored, because the Lease is no longer what we have seen."""


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No answer, or a useless one. Whether a write was stored, or will be yet, is unknown."""


Observed = Woken | WasRead | Wrote | Lost | Unanswered


# --- what to do ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadLease:
    """Look at the Lease."""


@dataclass(frozen=True, slots=True)
class Write:
    """Make it ours, or keep it ours, if it still is what `over` says."""

    over: LeaseRecord


@dataclass(frozen=True, slots=True)
class Create:
    """Make a blank one. Whoever made it, it is then `Seen`."""


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float


Step = ReadLease | Write | Create | Wait


def next_step(
    state: Knowledge, observed: Observed, now: float, chance: float, is_fit: bool = True
) -> tuple[Knowledge, Step]:
    """What is known after what happened, and what to do next. `chance` in [0, 1) keeps contenders apart.

    A contender that is not fit to lead neither takes the Lease nor renews it, and goes on looking.
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
    """Who holds it renews without looking first."""
    if state.is_certain and state.record is not None and state.record.holder == state.identity:
        return Write(state.record)
    return ReadLease()


def _knowing(state: Knowledge, record: LeaseRecord, now: float) -> Knowledge:
    """The state with what was read. Another holder ends our leading at once, our own name does not begin it."""
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
    """Take it, or wait: for its end at the longest, since nobody may tell us."""
    if record == ABSENT:
        return Create()
    if record.holder == state.identity or record.is_released:
        return Write(record)
    if not record.holder and state.is_leading(now):  # new or emptied; nobody else can have led since our renewal
        return Write(record)
    left = state.seen_at + max(record.duration_seconds, state.terms.duration_seconds) - now
    if left <= 0:
        return Write(record)
    return Wait(min(left, state.terms.look_seconds * (0.5 + chance)))
