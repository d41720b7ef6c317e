"""What a workload went through when it lost replicas with a spot node.

It begins when the node is lost, or its end announced, and is over when as many replicas serve elsewhere as before and
the node is gone. After a quarter of an hour it is given up, or when enough replicas serve after that, at the latest
after an hour. Example: two replicas are on a node whose end is announced
at 0 s. Their replacements serve at 75 s, and the node is gone at 60 s: it took 75 s to recover, the notice was 60 s,
and the replicas were missed for 15 s. If the replacements serve at 50 s, nothing is missed. A node that is not ready
is gone, even if its Node object stays.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from placement.autostate import WorkloadRecord

LONGEST_SECONDS = 900.0
SHORT_SECONDS = 3600.0  # while too few serve


@dataclass(frozen=True, slots=True)
class Incident:
    """One loss of replicas. `wanted` is how many served before, on whatever node."""

    began: float
    wanted: int
    nodes: frozenset[str]
    gone: float | None = None  # when the first of the nodes was
    served: float | None = None  # when as many served elsewhere

    def seen(self, now: float, *, elsewhere: int, is_gone: bool) -> Incident:
        gone = now if self.gone is None and is_gone else self.gone
        served = now if self.served is None and elsewhere >= self.wanted and now > self.began else self.served
        return replace(self, gone=gone, served=served)

    def joined(self, nodes: frozenset[str], wanted: int) -> Incident:
        """More nodes go before the first loss is over."""
        return replace(self, nodes=self.nodes | nodes, wanted=max(self.wanted, wanted), served=None)

    def is_over(self, now: float, *, is_short: bool = False) -> bool:
        longest = SHORT_SECONDS if is_short else LONGEST_SECONDS
        return (self.gone is not None and self.served is not None) or now - self.began >= longest

    def noted_in(self, record: WorkloadRecord, now: float) -> WorkloadRecord:
        """The record with this incident. A node that is still there was announced early enough."""
        served = now if self.served is None else self.served
        gone = now if self.gone is None else self.gone
        return replace(
            record,
            recoveries=record.recoveries.with_one(served - self.began),
            notices=record.notices.with_one(gone - self.began),
            missed=record.missed.with_one(max(0.0, served - gone)),
        )
