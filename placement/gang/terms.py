"""What the annotations of a gang's members say: parsed strictly, since a misread number would start half a gang.

Members need not all carry every annotation: a launcher may say how many there are, and its workers nothing. Where two
say different things about what must be one for all, the gang does not start (`contradiction`).

    spotweave.dev/pod-group: train                      the gang's name, within its namespace
    spotweave.dev/pod-group-min-member: "8"             so many start together; others later, one by one
    spotweave.dev/pod-group-size: "10"                  how many there will be; min-member, if that is absent
    spotweave.dev/pod-group-wait-timeout: 30m:start     after 30 minutes it starts anyway; 30m:fail: it fails;
                                                        30m: it is reported
    spotweave.dev/pod-group-class: spot,on-demand       the classes that it may run on, the first that holds it
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Any

from placement import names
from placement.gang.exclusive import BY_GANG, BY_POD
from placement.model import Class
from placement.policy import LONGEST_SHOWN, TARGET_SHAPES, Mistake, parse_count, parse_target
from placement.window import parse_duration

LONGEST_NAME = 253
KEEP, START, FAIL = "keep", "start", "fail"
RESTART_GANG, FAIL_GANG, CONTINUE, REPAIR = ON_FAILURE = ("restart-gang", "fail-gang", "continue", "repair")


@dataclass(frozen=True, slots=True)
class WaitTimeout:
    """What happens to a gang that has waited for so long.

    `keep` reports it, `start` starts it without guarantee, `fail` gives it up.
    """

    after: timedelta
    then: str = KEEP


@dataclass(frozen=True, slots=True)
class GangTerms:
    """What a gang asks for. None and () stand for what is not said."""

    min_member: int | None = None
    size: int | None = None
    wait_timeout: WaitTimeout | None = None
    classes: tuple[Class, ...] = ()  # in the wanted order; (): the pods' own affinity decides
    expected_runtime: timedelta | None = None
    availability_target: Fraction | None = None  # the chance to survive its run time that is good enough for spot
    time_limit: timedelta | None = None
    on_partial_failure: str = RESTART_GANG
    preemptible: bool = True
    priority: int | None = None
    exclusive: str = ""  # nothing else runs on its nodes; `pod`: nor do two members on one

    @property
    def needed(self) -> int | None:
        """How many start together, as far as annotations say."""
        return self.min_member if self.min_member is not None else self.size


@dataclass(frozen=True, slots=True)
class Declared:
    """The terms of all members together, and what is wrong with them."""

    terms: GangTerms = GangTerms()
    mistakes: tuple[Mistake, ...] = ()
    contradiction: str = ""  # members say different things

    @property
    def obstacle(self) -> str:
        """Why the gang must not start: what it asks for cannot be known."""
        if self.contradiction:
            return self.contradiction
        return next((sentence(each) for each in self.mistakes if each.annotation in MUST_BE_KNOWN), "")


NOTHING_DECLARED = Declared()


def sentence(mistake: Mistake) -> str:
    return f"{mistake.annotation}: {_shown(mistake.value)!r} is invalid; expected {mistake.expected}"


def _shown(text: str) -> str:
    """It is remembered for as long as the gang waits."""
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…"


def _positive(text: str) -> int:
    count = parse_count(text)
    if count < 1:
        raise ValueError(text)
    return count


def _number(text: str) -> int:
    """Priorities may be negative."""
    return -parse_count(text[1:]) if text.startswith("-") else parse_count(text)


def _duration(text: str) -> timedelta:
    found = parse_duration(text)
    if not found:
        raise ValueError(text)
    return found


@lru_cache(256)
def duration_of(text: str) -> timedelta | None:
    """None for what is no duration."""
    try:
        return _duration(text) if len(text) <= LONGEST_NAME else None
    except ValueError:
        return None


def _wait_timeout(text: str) -> WaitTimeout:
    after, colon, then = text.partition(":")
    if colon and then not in (KEEP, START, FAIL):
        raise ValueError(text)
    return WaitTimeout(_duration(after), then or KEEP)


def _classes(text: str) -> tuple[Class, ...]:
    found = tuple(Class(part.strip()) for part in text.split(","))
    if len(set(found)) < len(found):
        raise ValueError(text)
    return found


def _on_partial_failure(text: str) -> str:
    if text not in ON_FAILURE:
        raise ValueError(text)
    return text


def _switch(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError(text)
    return text == "true"


def _exclusive_node(text: str) -> str:
    if text not in (BY_POD, BY_GANG):
        raise ValueError(text)
    return text


@dataclass(frozen=True, slots=True)
class Row:
    """An annotation: its field, how its text is read, what would be valid, and the shapes that every valid text has.

    The Warn policy (placement/lint.py) is made of the shapes, so that it never warns about a valid text.
    """

    field: str
    parse: Callable[[str], Any]
    expected: str
    shapes: tuple[str, ...]


_TIME = r"(?:\d+[smhd])+"
_NOT_ZERO = r".*[1-9].*"
_CLASS = rf"[\x20\t\r\n]*(?:{'|'.join(Class)})[\x20\t\r\n]*"
_CLASSES = f"{_CLASS}(?:,{_CLASS})?"
_TIMEOUT = f"{_TIME}(?::(?:{KEEP}|{START}|{FAIL}))?"
_COUNT = (r"\d{1,9}", _NOT_ZERO)


ROWS: Mapping[str, Row] = {
    names.POD_GROUP_MIN_MEMBER: Row(
        "min_member", _positive, "a whole number from 1, such as 8", (r"\d{1,9}", _NOT_ZERO)
    ),
    names.POD_GROUP_SIZE: Row("size", _positive, "a whole number from 1, such as 8", _COUNT),
    names.POD_GROUP_WAIT_TIMEOUT: Row(
        "wait_timeout",
        _wait_timeout,
        "a duration such as 30m, 30m:start or 30m:fail",
        (_TIMEOUT, _NOT_ZERO),
    ),
    names.POD_GROUP_CLASS: Row(
        "classes",
        _classes,
        "spot, on-demand, spot,on-demand or on-demand,spot",
        (_CLASSES,),
    ),
    names.EXPECTED_RUNTIME: Row("expected_runtime", _duration, "a duration such as 2h30m", (_TIME, _NOT_ZERO)),
    names.AVAILABILITY_TARGET: Row(
        "availability_target",
        parse_target,
        "a percentage above 0% and below 100% such as 99.9%",
        TARGET_SHAPES,
    ),
    names.TIME_LIMIT: Row("time_limit", _duration, "a duration such as 4h", (_TIME, _NOT_ZERO)),
    names.ON_PARTIAL_FAILURE: Row(
        "on_partial_failure", _on_partial_failure, f"{', '.join(ON_FAILURE[:-1])} or {REPAIR}", ("|".join(ON_FAILURE),)
    ),
    names.EXCLUSIVE_NODE: Row("exclusive", _exclusive_node, "pod or gang", ("pod|gang",)),
    names.PREEMPTIBLE: Row("preemptible", _switch, "true or false", ("true|false",)),
    names.PRIORITY: Row("priority", _number, "a whole number such as 100 or -5", (r"-?\d{1,9}",)),
}
# Without these nothing is known of what would be a part of the gang, and what the whole.
MUST_BE_KNOWN = (
    names.POD_GROUP,
    names.POD_GROUP_MIN_MEMBER,
    names.POD_GROUP_SIZE,
    names.POD_GROUP_CLASS,
    names.EXCLUSIVE_NODE,
)
# What members may say differently: the highest priority counts, and the rest says nothing about how they start.
MAY_DIFFER = (names.PRIORITY, names.EXPECTED_RUNTIME, names.TIME_LIMIT, names.PREEMPTIBLE)


def terms_of(annotations: Mapping[str, str]) -> tuple[GangTerms, tuple[Mistake, ...]]:
    """What one member says, and all mistakes in it."""
    values = tuple(annotations.get(name) for name in (names.POD_GROUP, *ROWS))
    is_short = all(value is None or len(value) <= LONGEST_NAME for value in values)
    return (_terms_of if is_short else _read_terms)(values)


def _read_terms(values: tuple[str | None, ...]) -> tuple[GangTerms, tuple[Mistake, ...]]:
    mistakes = [] if values[0] is None or _is_name(values[0]) else [_mistake(names.POD_GROUP, values[0], "a name")]
    read: dict[str, Any] = {}
    for (annotation, row), value in zip(ROWS.items(), values[1:], strict=True):
        if value is None:
            continue
        try:
            read[row.field] = row.parse(value)
        except ValueError:
            mistakes.append(_mistake(annotation, value, row.expected))
    terms = replace(GangTerms(), **read)
    if terms.min_member is not None and terms.size is not None and terms.min_member > terms.size:
        text = f"at most {names.POD_GROUP_SIZE}, which is {terms.size}"
        mistakes.append(_mistake(names.POD_GROUP_MIN_MEMBER, str(terms.min_member), text))
    return terms, tuple(mistakes)


_terms_of = lru_cache(1024)(_read_terms)  # siblings say the same; what is too long to be valid is not remembered


def _mistake(annotation: str, value: str, expected: str) -> Mistake:
    return Mistake("workload", annotation, value, expected)


def _is_name(text: str) -> bool:
    return 0 < len(text) <= LONGEST_NAME and text.isprintable() and text == text.strip()


def declared(members: Iterable[Mapping[str, str]]) -> Declared:
    """What all members say together, by their annotations. Siblings share one mapping, so few are looked at."""
    said = list({id(each): each for each in members}.values())
    together: dict[str, str] = {}
    for each in said:
        together = {name: each[name] for name in (names.POD_GROUP, *ROWS) if name in each} | together
    for name in ROWS:
        values = sorted({each[name] for each in said if name in each})
        if len(values) > 1 and name not in MAY_DIFFER:
            shown = " and ".join(repr(_shown(each)) for each in values[:3])
            return Declared(contradiction=f"members contradict each other: {name} is {shown}")
    terms, mistakes = terms_of(together)
    each_of = [terms_of(each)[0] for each in said]
    priorities = [each.priority for each in each_of if each.priority is not None]
    is_preemptible = all(each.preemptible for each in each_of)
    return Declared(replace(terms, priority=max(priorities, default=None), preemptible=is_preemptible), mistakes)
