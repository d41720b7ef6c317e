"""Twins of PriorityClasses: their names, which one a member gets, and which are to be made."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import names
from placement.gang.twins import (
    AskedPriority,
    NoTwin,
    TwinChange,
    chosen_twin,
    is_twin,
    twin_changes,
    twin_label,
    twin_name,
)
from placement.model import PriorityClass

HIGH = PriorityClass("high", 1000)
TWIN = PriorityClass("spotweave-never-high", 1000, never=True)
NONE = PriorityClass("spotweave-never-default", 0, never=True)
SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
class_names = st.from_regex(SUBDOMAIN, fullmatch=True).filter(lambda name: len(name) <= 253)

CHOSEN: dict[str, tuple[AskedPriority, list[PriorityClass], bool, PriorityClass | NoTwin]] = {
    "the twin of its class": (AskedPriority("high", 1000), [HIGH, TWIN], False, TWIN),
    "one without a class has a twin of value 0": (AskedPriority(), [HIGH, NONE], False, NONE),
    "it preempts nobody as it is": (AskedPriority("high", 1000, never=True), [TWIN], False, NoTwin.NOT_NEEDED),
    "it has its twin already": (AskedPriority(TWIN.name, 1000, never=True), [TWIN], False, NoTwin.NOT_NEEDED),
    "a class of Kubernetes itself": (
        AskedPriority("system-node-critical", 2000001000),
        [PriorityClass("spotweave-never-system-node-critical", 2000001000, never=True)],
        False,
        NoTwin.SYSTEM_CLASS,
    ),
    "a quota by class, which the twin would escape": (AskedPriority("high", 1000), [TWIN], True, NoTwin.QUOTA),
    "a twin that is not there would refuse the pod": (AskedPriority("high", 1000), [HIGH], False, NoTwin.UNKNOWN),
    "so would one with another value": (AskedPriority("high", 2000), [TWIN], False, NoTwin.UNKNOWN),
    "somebody's class of that name, which preempts": (
        AskedPriority("high", 1000),
        [PriorityClass(TWIN.name, 1000)],
        False,
        NoTwin.UNKNOWN,
    ),
}


@pytest.mark.parametrize(("asked", "classes", "is_scoped", "expected"), CHOSEN.values(), ids=CHOSEN.keys())
def test_which_twin_a_member_gets(
    asked: AskedPriority, classes: list[PriorityClass], is_scoped: bool, expected: PriorityClass | NoTwin
) -> None:
    """In doubt none: a class that does not fit refuses the pod, and a member without a twin only waits for longer."""
    by_name = {each.name: each for each in classes}
    assert chosen_twin(asked, by_name.get, is_scoped=is_scoped) == expected


@given(st.lists(class_names, min_size=2, max_size=2, unique=True))
def test_every_class_has_a_twin_of_its_own(pair: list[str]) -> None:
    """With a name that the API server takes, however long the class's is; and a label that it takes."""
    twins = [*map(twin_name, pair), twin_name("")]
    assert len(set(twins)) == 3
    for twin in twins:
        assert SUBDOMAIN.fullmatch(twin)
        assert len(twin) <= 253
        assert is_twin(twin)
    for each in pair:
        assert re.fullmatch(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", twin_label(each))


def test_a_class_that_is_called_default_is_not_taken_for_none() -> None:
    """Their values differ."""
    assert twin_name("") == f"{names.TWIN_PREFIX}default"
    assert twin_name("default") != twin_name("")
    assert twin_name("high") == TWIN.name


CHANGES: dict[str, tuple[list[str], list[PriorityClass], list[TwinChange]]] = {
    "for members without a class there is always one": ([], [HIGH], [TwinChange("", NONE.name, 0)]),
    "all are there": (["high", ""], [HIGH, TWIN, NONE], []),
    "one is missing": (["high"], [HIGH, NONE], [TwinChange("high", TWIN.name, 1000)]),
    "a class that is gone": (["gone"], [NONE], []),
    "one that preempts nobody anyway": (["calm"], [NONE, PriorityClass("calm", 5, never=True)], []),
    "a twin has none": ([TWIN.name], [NONE, PriorityClass(TWIN.name, 1000)], []),
    "a class of Kubernetes itself": (["system-x"], [NONE, PriorityClass("system-x", 2_000_000_000)], []),
    "a class that was made again with another value": (
        ["high"],
        [PriorityClass("high", 7), TWIN, NONE],
        [TwinChange("high", TWIN.name, 7, replaces=True)],
    ),
}


@pytest.mark.parametrize(("used", "classes", "expected"), CHANGES.values(), ids=CHANGES.keys())
def test_which_twins_are_made(used: list[str], classes: list[PriorityClass], expected: list[TwinChange]) -> None:
    """Of the classes that members use. What nobody uses stays: a pod that was just admitted may name it."""
    assert list(twin_changes(used, classes)) == expected
