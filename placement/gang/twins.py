"""Twins: PriorityClasses with the same value, by which no pod preempts another.

A member of a gang that is started and finds no room would make the scheduler delete single pods of others. With
`preemptionPolicy: Never` it does not, but that has to come from its PriorityClass. So the rebalancer makes a twin of
each class that members use, and admission gives a member the twin of its class.

Worked example: a member asks for the class `high` (value 1000). Its twin is `spotweave-never-high`, with value 1000 and
`Never`. A member without a class has priority 0; its twin is `spotweave-never-default`, with value 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from hashlib import sha256

from placement import names
from placement.model import Key, PriorityClass

NEVER = "Never"
DEFAULT = "default"  # stands for no class in a twin's name
SYSTEM_PREFIX = "system-"  # classes of Kubernetes itself; the API server lets nobody make twins of them
LONGEST_NAME = 253
LONGEST_LABEL = 63
DIGITS = 10  # of the digest that stands for the rest of a long name


class NoTwin(StrEnum):
    """Why a member keeps its PriorityClass. It has its gate all the same."""

    NOT_NEEDED = "it preempts nobody as it is"
    SYSTEM_CLASS = "system classes have no twins"
    QUOTA = "a ResourceQuota of its namespace is scoped by PriorityClass, and the twin would escape it"
    UNKNOWN = "the twin of its PriorityClass is not known yet"


@dataclass(frozen=True, slots=True)
class ScopedQuota:
    """A ResourceQuota, and whether it counts pods by their PriorityClass."""

    namespace: str
    name: str
    by_priority: bool = False

    @property
    def key(self) -> Key:
        return Key(self.namespace, self.name)


@dataclass(frozen=True, slots=True)
class AskedPriority:
    """What a pod's spec says when webhooks see it: the API server has worked out the rest from the class."""

    priority_class: str = ""
    priority: int = 0
    never: bool = False


def twin_name(priority_class: str) -> str:
    """The name of a class's twin; `""` is the class of pods that have none."""
    name = names.TWIN_PREFIX + (priority_class or DEFAULT)
    return _shortened(name, LONGEST_NAME, priority_class, needs_digest=priority_class == DEFAULT)


def twin_label(priority_class: str) -> str:
    """The value of the label `twin-of`, which may not be as long as a class's name."""
    return _shortened(priority_class, LONGEST_LABEL, priority_class)


def _shortened(text: str, longest: int, whole: str, *, needs_digest: bool = False) -> str:
    """A text that is too long ends with a digest of the class. So does the twin of a class that is called `default`."""
    if len(text) <= longest and not needs_digest:
        return text
    digest = sha256(whole.encode()).hexdigest()[:DIGITS]
    return f"{text[: longest - DIGITS - 1].rstrip('-.')}-{digest}"


def is_twin(name: str) -> bool:
    return name.startswith(names.TWIN_PREFIX)


def chosen_twin(
    asked: AskedPriority, find: Callable[[str], PriorityClass | None], *, is_scoped: bool
) -> PriorityClass | NoTwin:
    """The twin that a member gets. Only one that is there, with the value that the pod has, and that never preempts.

    A class that does not exist, or one with another value, would refuse the pod.
    """
    if asked.never:
        return NoTwin.NOT_NEEDED
    if asked.priority_class.startswith(SYSTEM_PREFIX):
        return NoTwin.SYSTEM_CLASS
    if is_scoped:
        return NoTwin.QUOTA
    twin = find(twin_name(asked.priority_class))
    return twin if twin is not None and twin.never and twin.value == asked.priority else NoTwin.UNKNOWN


@dataclass(frozen=True, slots=True)
class TwinChange:
    """A twin that is to be made; an outdated one of that name is deleted first, since values cannot be changed."""

    of: str  # the class, or ""
    name: str
    value: int
    replaces: bool = False


def twin_changes(used: Iterable[str], classes: Iterable[PriorityClass]) -> Iterator[TwinChange]:
    """What is missing for the classes that members use, and for those without one."""
    by_name = {each.name: each for each in classes}
    for of in sorted({"", *used}):
        original = by_name.get(of) if of else PriorityClass("")
        if original is None or original.never or is_twin(of) or of.startswith(SYSTEM_PREFIX):
            continue
        twin = by_name.get(twin_name(of))
        if twin is None or not twin.never or twin.value != original.value:
            yield TwinChange(of, twin_name(of), original.value, replaces=twin is not None)
