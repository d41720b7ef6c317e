"""Label selectors, as Kubernetes reads them: `{matchLabels: {…}, matchExpressions: [{key, operator, values}, …]}`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.model import NOTHING, NodeRequirement, NodeTerm

OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")


def requirements(selector: Mapping[str, Any]) -> NodeTerm:
    """What a selector asks of labels; all of it must hold."""
    equal = (NodeRequirement(key, "In", (value,)) for key, value in (selector.get("matchLabels") or {}).items())
    others = (
        NodeRequirement(each["key"], each["operator"], tuple(each.get("values") or ()))
        for each in selector.get("matchExpressions") or ()
    )
    return (*equal, *others)


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether it selects an object with these labels.

    An empty selector selects everything, an absent one nothing. An operator that labels do not know selects nothing
    either. `{tier NotIn [gold]}` selects {tier: silver} and {}; `{tier In [gold]}` selects neither.
    """
    if selector is None or not (selector.get("matchLabels") or NOTHING).items() <= labels.items():
        return False
    return not selector.get("matchExpressions") or holds(requirements(selector), labels)


def holds(asked: NodeTerm, labels: Mapping[str, str]) -> bool:
    """The same of a selector that was read already, as its requirements."""
    return all(each.operator in OPERATORS and each.allows(labels.get(each.key)) for each in asked)
