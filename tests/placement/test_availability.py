"""How many replicas must serve, and who says so."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.availability import Availability, Basis, BudgetIndex, availability, needed_by
from placement.model import Budget, Kind, Rollout, Template, Workload
from placement.policy import Amount, Policy
from placement.selector import matches
from tests.builders.model import budget, workload
from tests.placement.invariants import few

WEB = workload(template=Template({"app": "web", "tier": "gold"}))


def least(amount: int | str) -> Budget:
    return budget(min_available=amount)


def most(amount: int | str) -> Budget:
    return budget(max_unavailable=amount)


BUDGETS: dict[str, tuple[tuple[Budget, ...], int, int | None]] = {
    "no budget": ((), 10, None),
    "minAvailable: a count": ((least(9),), 10, 9),
    "minAvailable: a share is rounded up": ((least("85%"),), 10, 9),
    "minAvailable: an exact share": ((least("50%"),), 10, 5),
    "minAvailable: all": ((least("100%"),), 10, 10),
    "minAvailable: none": ((least(0),), 10, 0),
    "minAvailable: more than there are": ((least(12),), 10, 10),
    "maxUnavailable: a count": ((most(1),), 10, 9),
    "maxUnavailable: a share is rounded up, so 2 of 10 may go": ((most("15%"),), 10, 8),
    "maxUnavailable: none may go": ((most(0),), 10, 10),
    "maxUnavailable: all may go": ((most("100%"),), 10, 0),
    "maxUnavailable: more than there are": ((most(12),), 10, 0),
    "maxUnavailable: 30 % of a single replica is that one": ((most("30%"),), 1, 0),
    "the strictest of several": ((most("15%"), least(9), least(1)), 10, 9),
    "one that says nothing": ((budget(),), 10, None),
    "of no replicas": ((least(3), most(0)), 0, 0),
}


@pytest.mark.parametrize(("budgets", "replicas", "expected"), BUDGETS.values(), ids=BUDGETS.keys())
def test_what_budgets_want(budgets: tuple[Budget, ...], replicas: int, expected: int | None) -> None:
    """As the disruption controller reckons, on this workload's replicas."""
    assert needed_by(budgets, replicas) == expected


STORE = replace(WEB, kind=Kind.STATEFUL_SET, rollout=Rollout(max_unavailable=3, max_surge=0))
SOURCES: dict[str, tuple[Policy, Workload, tuple[Budget, ...], Availability]] = {
    "the annotation, whatever budgets say": (
        Policy(min_available=Amount(4)),
        WEB,
        (least(9),),
        Availability(4, Basis.DECLARED),
    ),
    "else a budget": (Policy(), WEB, (least(9),), Availability(9, Basis.BUDGET)),
    "a budget that asks for less than a rollout leaves": (Policy(), WEB, (least(1),), Availability(1, Basis.BUDGET)),
    "else what a rollout leaves": (Policy(), WEB, (), Availability(8, Basis.ASSUMED)),
    "a budget that says nothing declares nothing": (
        Policy(),
        WEB,
        (budget(),),
        Availability(8, Basis.ASSUMED),
    ),
    "else a StatefulSet's n − 1": (Policy(), STORE, (), Availability(9, Basis.ASSUMED)),
}


@pytest.mark.parametrize(("policy", "workload", "budgets", "expected"), SOURCES.values(), ids=SOURCES.keys())
def test_who_says_how_many_must_serve(
    policy: Policy, workload: Workload, budgets: tuple[Budget, ...], expected: Availability
) -> None:
    """Ten replicas. Only what nobody said is assumed."""
    told = availability(policy, workload, budgets)
    assert told == expected
    assert told.is_assumed is (expected.source is Basis.ASSUMED)


def selecting(name: str, namespace: str = "shop", **selector: Any) -> Budget:
    return budget(name, namespace=namespace, selector=selector)


def test_budgets_are_found_by_the_labels_of_the_template() -> None:
    """Of the same namespace alone; by labels, by expressions, or all."""
    index = BudgetIndex(
        [
            selecting("by-label", matchLabels={"app": "web"}),
            selecting("by-two", matchLabels={"tier": "gold", "app": "web"}),
            selecting("all"),
            selecting("by-expression", matchExpressions=[{"key": "app", "operator": "Exists"}]),
            selecting("other", matchLabels={"app": "api"}),
            selecting("half", matchLabels={"app": "web", "tier": "silver"}),
            selecting("elsewhere", "bank", matchLabels={"app": "web"}),
            selecting("all-elsewhere", "bank"),
        ]
    )
    assert {budget.name for budget in index.of(WEB)} == {"by-label", "by-two", "all", "by-expression"}
    assert {budget.name for budget in index.of(replace(WEB, template=Template()))} == {"all"}


labels = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xyz"), max_size=3)
expressions = st.lists(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from("abc"),
            "operator": st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
            "values": st.lists(st.sampled_from("xyz"), max_size=2),
        }
    ),
    max_size=2,
)
selectors = st.fixed_dictionaries({"matchLabels": labels, "matchExpressions": expressions})


@few
@given(st.lists(selectors, max_size=8), labels)
def test_the_index_finds_what_trying_all_would_find(written: list[dict[str, Any]], of: dict[str, str]) -> None:
    """Whatever they select by; each once."""
    budgets = [budget(str(number), selector=selector) for number, selector in enumerate(written)]
    found = BudgetIndex(budgets).of(replace(WEB, template=Template(of)))
    expected = [budget for budget in budgets if matches(budget.selector, of)]
    assert sorted(found, key=lambda each: each.name) == sorted(expected, key=lambda each: each.name)
