"""Label selectors, as Kubernetes reads them."""

from typing import Any

import pytest

from placement.selector import matches

WEB = {"app": "web", "tier": "gold"}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, **({"values": list(values)} if values else {})}]}


SELECTORS: dict[str, tuple[dict[str, Any] | None, bool]] = {
    "an empty one selects everything": ({}, True),
    "an absent one selects nothing": (None, False),
    "empty parts ask for nothing": ({"matchLabels": {}, "matchExpressions": []}, True),
    "parts that are null ask for nothing": ({"matchLabels": None, "matchExpressions": None}, True),
    "a label": ({"matchLabels": {"app": "web"}}, True),
    "a label with another value": ({"matchLabels": {"app": "api"}}, False),
    "a label that is not there": ({"matchLabels": {"zone": "a"}}, False),
    "all labels must fit": ({"matchLabels": {"app": "web", "tier": "silver"}}, False),
    "In": (expression("tier", "In", "silver", "gold"), True),
    "In, with others": (expression("tier", "In", "silver"), False),
    "In, without the label": (expression("zone", "In", "a"), False),
    "NotIn": (expression("tier", "NotIn", "silver"), True),
    "NotIn, with this one": (expression("tier", "NotIn", "gold"), False),
    "NotIn, without the label": (expression("zone", "NotIn", "a"), True),
    "Exists": (expression("tier", "Exists"), True),
    "Exists, without the label": (expression("zone", "Exists"), False),
    "DoesNotExist": (expression("zone", "DoesNotExist"), True),
    "DoesNotExist, with the label": (expression("tier", "DoesNotExist"), False),
    "an operator of nodes, which labels do not know": (expression("tier", "Gt", "1"), False),
    "labels and expressions must both fit": (
        {"matchLabels": {"app": "web"}, **expression("tier", "NotIn", "gold")},
        False,
    ),
}


@pytest.mark.parametrize(("selector", "expected"), SELECTORS.values(), ids=SELECTORS.keys())
def test_a_selector_selects_by_labels(selector: dict[str, Any] | None, expected: bool) -> None:
    """The labels are app: web and tier: gold."""
    assert matches(selector, WEB) is expected
