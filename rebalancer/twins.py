"""Keeps the twins of the PriorityClasses that members of gangs use. `placement.gang.twins` says which are missing.

They are few and hardly ever change. So they are not followed: all classes are read when a member uses one for the first
time, and once a minute.
"""

from __future__ import annotations

import logging
from collections import Counter
from threading import Lock

from kube.errors import ApiError
from kube.twins import TwinWriter
from placement import names
from placement.gang.twins import is_twin, twin_changes
from placement.model import Pod

log = logging.getLogger(__name__)

LOOK_SECONDS = 60.0
RETRY_SECONDS = 5.0


class Twins:
    """The classes that members use, and when they were last compared with the twins that there are."""

    def __init__(self, writer: TwinWriter, *, is_guarding: bool = False) -> None:
        """While solo pods are guarded, their classes get twins, too."""
        self._writer = writer
        self._is_guarding = is_guarding
        self._lock = Lock()
        self._used = Counter[str]()  # members by the class that they asked for
        self._looked_for: frozenset[str] = frozenset()
        self._due = float("-inf")

    def observe(self, old: Pod | None, new: Pod | None) -> None:
        """Called by the pods' store for every difference."""
        before, after = self._class_of(old), self._class_of(new)
        if before == after:
            return
        with self._lock:
            if after is not None:
                self._used[after] += 1
            if before is not None:
                self._used[before] -= 1
                if not self._used[before]:
                    del self._used[before]

    def _class_of(self, pod: Pod | None) -> str | None:
        """The class that a pod asked for, "" for none; None where it gets no twin, or has one already."""
        if pod is None or not (pod.labels.get(names.GANG_LABEL) == names.GANG_MEMBER or self._guards(pod)):
            return None
        found = pod.needs.priority_class
        return None if is_twin(found) else found

    def _guards(self, pod: Pod) -> bool:
        """Wherever it is: namespaces may be opted in later."""
        return self._is_guarding and pod.namespace not in names.EXCLUDED_NAMESPACES

    def look(self, now: float) -> None:
        """Called by the leader after every pass, on the loop's thread."""
        with self._lock:
            used = frozenset(self._used)
        if now < self._due and used <= self._looked_for:
            return
        try:
            for change in twin_changes(used, self._writer.classes()):
                self._writer.make(change)
                log.info("PriorityClass %s made, value %d", change.name, change.value)
        except ApiError as error:
            log.warning("twins of PriorityClasses: %s", error)
            self._due, self._looked_for = now + RETRY_SECONDS, used
            return
        self._due, self._looked_for = now + LOOK_SECONDS, used
