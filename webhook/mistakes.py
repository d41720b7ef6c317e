"""Reports mistakes in policies on the workload: one Event for all of them, however many pods there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from placement import names
from placement.model import Workload
from placement.policy import Mistake

WriteEvent = Callable[[Workload, str, str], None]  # kube.events.EventWriter.tell


class Mistakes:
    """What admission calls. It costs microseconds, never raises and never waits."""

    def __init__(self, write: WriteEvent) -> None:
        self._write = write

    def report(self, workload: Workload, mistakes: Sequence[Mistake], *, dry_run: bool = False) -> None:
        """A dry run reports nothing: it must change nothing."""
        if mistakes and not dry_run:
            self._write(workload, names.EVENT_MISTAKE, "; ".join(map(str, mistakes)))


def write_nothing(_workload: Workload, _reason: str, _text: str) -> None:
    """For tests and benchmarks, where there is no cluster to write Events to."""
