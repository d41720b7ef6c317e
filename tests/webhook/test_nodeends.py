"""Since when nodes leave, and when they end: the first sight counts, and Karpenter's own plans end nothing."""

from __future__ import annotations

from itertools import count

from placement import names
from placement.configuration import Configuration
from placement.model import Node, NodeTaint
from webhook.nodeends import NodeEnds

SPOT = {names.CAPACITY: "spot"}
DISRUPTED = (NodeTaint(names.DISRUPTED),)
STAYS, PLANNED = Node("n", SPOT), Node("n", SPOT, DISRUPTED)
DELETED = Node("n", SPOT, DISRUPTED, deleting=True)


def seen(*course: Node | None) -> NodeEnds:
    """A node as it changed every ten seconds, first to last; None: it is gone."""
    ends, before = NodeEnds(Configuration(), count(10.0, 10.0).__next__), None
    for node in course:
        ends.see(before, node)
        before = node
    return ends


def test_the_first_sight_counts() -> None:
    ends = seen(STAYS, DELETED, DELETED)
    assert (ends.leaving_since("n"), ends.end_of("n")) == (20.0, 140.0)


def test_a_node_that_stays_or_is_gone_is_forgotten() -> None:
    for course in ((STAYS,), (DELETED, STAYS), (DELETED, None)):
        ends = seen(*course)
        assert (ends.leaving_since("n"), ends.end_of("n")) == (None, None)


def test_karpenters_own_plan_is_no_end() -> None:
    """It taints the node, brings its replacement, deletes the Node then, and waits for the pods."""
    ends = seen(STAYS, PLANNED, DELETED)
    assert (ends.leaving_since("n"), ends.end_of("n")) == (30.0, None)
