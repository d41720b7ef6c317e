"""What a platform team sets about gangs: section `gangs` of the configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from placement.policy import parse_count
from placement.window import parse_duration

_is_name = re.compile(r"[a-z0-9][-.a-z0-9]{0,252}").fullmatch
Rows = Mapping[str, tuple[str, Callable[[str], Any], str]]  # key → field, how its text is read, what would be valid


@dataclass(frozen=True, slots=True)
class Gangs:
    """Off by default. Then no pod gets a gate, and the rebalancer only takes off gates that are there."""

    enabled: bool = False
    minimum_run_time: timedelta = timedelta(minutes=5)  # a pod that runs for less is no victim
    evictions_per_namespace: int = 20  # in an hour, of pods that make room for a gang
    evictions_in_all: int = 100
    guard_solo: bool = False  # pods without a gang preempt by the same rule, too
    bare_annotations: bool = False  # `pod-group`, `pod_group` and `priority` count without a prefix, too
    scheduler_names: tuple[str, ...] = ()  # with those: schedulers whose pods go to the default scheduler


def parse_switch(text: str) -> bool:
    """YAML's `true` and `false` reach us as `on` and `off`. Raises ValueError."""
    switches = {"on": True, "off": False}
    if text not in switches:
        raise ValueError(text)
    return switches[text]


GANGS_ROWS: Rows = {
    "enabled": ("enabled", parse_switch, "true or false"),
    "minimumRunTime": ("minimum_run_time", parse_duration, "a duration such as 5m"),
    "guardSolo": ("guard_solo", parse_switch, "true or false"),
    "bareAnnotations": ("bare_annotations", parse_switch, "true or false"),
}


def parse_scheduler_names(raw: object) -> tuple[str, ...]:
    """Raises ValueError. They are written into an expression of the API server: nothing but letters, digits, - and ."""
    if not isinstance(raw, list) or not all(isinstance(each, str) and _is_name(each) for each in raw):
        raise ValueError(raw)
    return tuple(raw)


EVICTIONS_ROWS: Rows = {
    "perNamespace": ("evictions_per_namespace", parse_count, "a whole number"),
    "inAll": ("evictions_in_all", parse_count, "a whole number"),
}
