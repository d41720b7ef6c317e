"""Mistakes met while placing pods, told on the workload: one Event for all of them, however many pods there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from placement import names
from placement.model import Workload
from placement.policy import Mistake

Tell = Callable[[Workload, str, str], None]  # kube.events.EventWriter.tell


class Mistakes:
    """What admission calls. It costs microseconds, never raises and never waits."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell

    def tell(self, workload: Workload, mistakes: Sequence[Mistake], *, dry_run: bool = False) -> None:
        """A dry run tells nobody anything: it must change nothing."""
        if mistakes and not dry_run:
            self._tell(workload, names.EVENT_MISTAKE, "; ".join(map(str, mistakes)))


def nobody(_workload: Workload, _reason: str, _text: str) -> None:
    """Tells nobody: for where there is no cluster to tell."""
