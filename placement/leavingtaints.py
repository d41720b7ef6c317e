"""Taints that announce the end of a node, and whether they count at once."""

from __future__ import annotations

from collections.abc import Mapping

from placement import names

LEAVING_TAINTS = (
    "aws-node-termination-handler/spot-itn",
    "aws-node-termination-handler/rebalance-recommendation",
    names.DISRUPTED,
    "cloud.google.com/impending-node-termination",
    names.SCALED_DOWN,
    "node.cloudprovider.kubernetes.io/shutdown",
)
# Karpenter taints a node, waits for the node that replaces it, and deletes it then. Pods that left sooner would wait
# for a node, and Karpenter would buy one more for them.
PATIENT_TAINTS = frozenset({names.DISRUPTED})
WHENS = ("tainted", "deleting")  # a leaving taint counts at once, or only on a Node that is being deleted


def patient(taints: Mapping[str, str]) -> frozenset[str]:
    """Those that count only on a Node that is being deleted. For each key: when it counts, "" if that is not said."""
    tainted, deleting = ({key for key, when in taints.items() if when == each} for each in WHENS)
    return frozenset((PATIENT_TAINTS | deleting) - tainted)
