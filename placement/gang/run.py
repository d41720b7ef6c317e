"""The annotation `gang-run` of a member that has started: which run of its gang it belongs to; read and written here.

    `19a2f/1750000000.250/8/0`    the run 19a2f, since 1750000000.250, with 8 members, never restarted before
    `19a2f/1750000000.250/8/2/restart/1750000090.000`    it ends: all members are evicted, and it starts again
    `19a2f/1750000000.250/8/2/fail/1750000090.000`       it ends, and does not start again by itself

It is written with the start, and is the same for all members, also for those that join later. So the pods say how many
there were: where fewer are left than the run had, and its owners want no fewer, members were lost. A mark is written on
all members before the first is evicted, so that the next leader evicts the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

from placement import names
from placement.backoff import doubled
from placement.model import Pod

RESTART, FAIL = "restart", "fail"
LONGEST = 128
MOST_DIGITS = 7
STEADY_SECONDS = 600.0  # a run that lasts for longer was no failure to start
FIRST_SECONDS, LONGEST_SECONDS = 5.0, 300.0  # until a gang that was restarted more than once in a row starts again


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a gang; `mark` says that it ends, and how."""

    name: str
    at: float
    number: int
    restarts: int = 0  # in a row, before it
    mark: str = ""
    marked_at: float = 0.0

    def text(self) -> str:
        mark = f"/{self.mark}/{self.marked_at:.3f}" if self.mark else ""
        return f"{self.name}/{self.at:.3f}/{self.number}/{self.restarts}{mark}"

    def ending(self, mark: str, now: float) -> Run:
        return replace(self, mark=mark, marked_at=now)

    def restarts_after(self, now: float) -> int:
        """How many restarts in a row there are with the one that ends it. A run that lasted begins a new row."""
        return 1 if now - self.at > STEADY_SECONDS else self.restarts + 1


def pause_before(restarts: int) -> float:
    """Before the start after so many restarts in a row: the first is at once, then 5 s, 10 s, up to 5 minutes."""
    return 0.0 if restarts < 2 else doubled(FIRST_SECONDS, restarts - 2, LONGEST_SECONDS)


def run_of(pod: Pod) -> Run | None:
    """What is written on a member; None: nothing, or nothing that we wrote."""
    text = pod.annotations.get(names.GANG_RUN, "")
    return _read(text) if text and len(text) <= LONGEST else None


@lru_cache(4096)
def _read(text: str) -> Run | None:
    parts = text.split("/")
    if len(parts) not in (4, 6) or not parts[0]:
        return None
    counts = parts[2:4]
    if not all(each.isascii() and each.isdigit() and len(each) <= MOST_DIGITS for each in counts):
        return None
    try:
        times = [float(each) for each in (parts[1], *parts[5:])]
    except ValueError:
        return None
    mark = parts[4] if len(parts) > 4 else ""
    if not all(0 < each < 1e11 for each in times) or mark not in ("", RESTART, FAIL):
        return None
    return Run(parts[0], times[0], int(counts[0]), int(counts[1]), mark, times[1] if mark else 0.0)
