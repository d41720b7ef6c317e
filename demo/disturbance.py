"""The course of a disturbance, as `status` would have shown it: before, at the lowest point, after. Pure.

A workload of 10 that must keep 8 loses its 6 spot replicas, and has 10 again two seconds later:

    before: 10 serve, headroom 2      at worst: 4 serve, headroom -4      after: 10 serve, headroom 2

It was short of replicas from the first look that saw fewer than must serve until the first look that did not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from rich.console import Group
from rich.table import Table
from rich.text import Text

from placement.configuration import Configuration
from placement.model import Snapshot
from placement.plan.marks import former_owner, has_left
from report.exposure import Domain, Exposure
from report.status import WorkloadStatus, statuses
from report.tables import headroom

Found = Sequence[WorkloadStatus]


@dataclass(frozen=True, slots=True)
class Look:
    """What was seen at one moment: the status, and how many released pods still serve, by workload UID."""

    at: float
    found: Found
    released: Mapping[str, int] = field(default_factory=dict)

    def serving(self, status: WorkloadStatus) -> int:
        """Includes released pods, which serve until their replacements do: Services still select them."""
        return sum(each.serves for each in status.pods) + self.released.get(status.workload.uid, 0)


@dataclass(frozen=True, slots=True)
class Course:
    """One workload: how many replicas served before, at the lowest point and after, and its exposure then."""

    name: str
    served: tuple[int, int, int]
    exposures: tuple[Exposure, Exposure, Exposure]  # the second: with the least headroom
    short_seconds: float  # in which fewer replicas served than must

    @property
    def needed(self) -> int:
        return self.exposures[1].availability.needed

    @property
    def is_spared(self) -> bool:
        before, fewest, after = self.served
        return fewest >= min(before, after)


def look_at(at: float, snapshot: Snapshot, configuration: Configuration) -> Look:
    owners = {each.uid: each.owner.uid for each in snapshot.replica_sets if each.owner}
    gone = (pod for pod in snapshot.pods if has_left(pod))  # others are counted by status
    serving = (pod for pod in gone if pod.ready and not pod.terminating and pod.node in snapshot.nodes)
    let_go = Counter(owners.get(former_owner(pod), "") for pod in serving)
    return Look(at, statuses(snapshot, configuration), let_go)


def courses(looks: Sequence[Look]) -> list[Course]:
    """The courses of all workloads that were seen from the first look to the last."""
    seen: dict[str, list[tuple[Look, WorkloadStatus]]] = {}
    for look in looks:
        for status in look.found:
            seen.setdefault(status.workload.uid, []).append((look, status))
    return [_course(each) for each in seen.values() if len(each) == len(looks)]


def _course(seen: Sequence[tuple[Look, WorkloadStatus]]) -> Course:
    served = [look.serving(status) for look, status in seen]
    exposures = [status.exposure for _, status in seen]
    worst = min(exposures, key=lambda each: each.headroom)
    return Course(
        str(seen[0][1].workload.key),
        (served[0], min(served), served[-1]),
        (exposures[0], worst, exposures[-1]),
        sum(_short_seconds(seen)),
    )


def _short_seconds(seen: Sequence[tuple[Look, WorkloadStatus]]) -> Iterator[float]:
    for (look, status), (then, _) in pairwise(seen):
        if look.serving(status) < status.exposure.availability.needed:
            yield then.at - look.at


def surviving(found: Found) -> int:
    """How many workloads would survive the loss of any one pool."""
    return sum(each.exposure.survives(Domain.POOL) for each in found)


# --- told ------------------------------------------------------------------------------------------------------------


def told(looks: Sequence[Look]) -> Group:
    found = courses(looks)
    return Group(_table(found), *(Text(line) for line in sentences(found, looks)))


def _table(found: Sequence[Course]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("WORKLOAD", overflow="fold")
    table.add_column("MUST\nserve", justify="right")
    for title in ("BEFORE", "LOWEST", "AFTER"):
        table.add_column(f"{title}\nserve", justify="right")
        table.add_column("HEADROOM\nsurvives", no_wrap=True)
    for each in found:
        styles = ("", "green" if each.is_spared else "bold red", "")
        pairs = zip(each.served, each.exposures, styles, strict=True)
        cells = [cell for count, exposed, style in pairs for cell in (Text(str(count), style), headroom(exposed))]
        table.add_row(Text(each.name), Text(str(each.needed)), *cells)
    return table


def sentences(found: Sequence[Course], looks: Sequence[Look]) -> Iterator[str]:
    """Which workloads served fewer than must, for how long, and how many could have lost one more pool."""
    short = [each for each in found if each.short_seconds]
    for each in short:
        served = f"{each.name} served {each.served[1]} replicas, below its minimum of {each.needed}"
        yield f"{served}, for {each.short_seconds:.1f} s."
    if all(each.is_spared for each in found):
        yield "No workload lost a serving replica."
    elif not short:
        yield "Every workload kept its minimum of serving replicas."
    counts = [surviving(look.found) for look in looks]
    yield (
        f"Workloads that survive the loss of any pool, out of {len(found)}: "
        f"{counts[0]} before, {min(counts)} at the lowest point, {counts[-1]} after."
    )
