"""Classes: which one a node is of, and which ones a pod's own terms leave possible."""

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import names
from placement.classes import PRESETS, Classes, ClassLabel, SpotTaint
from placement.model import Class, NodeRequirement, NodeTerm, Pod
from tests.placement.invariants import many

O, S = Class.ON_DEMAND, Class.SPOT  # noqa: E741 - as in the design's example
BOTH = frozenset({O, S})
ALL = Classes(tuple(PRESETS.values()))
TWO = Classes((PRESETS["default"], PRESETS["karpenter"]))
KARPENTER = "karpenter.sh/capacity-type"

NODES: dict[str, tuple[Classes, dict[str, str], Class | None]] = {
    "default, spot": (Classes(), {names.CAPACITY: "spot"}, S),
    "default, on-demand": (Classes(), {names.CAPACITY: "on-demand"}, O),
    "an unlabelled node has no known class": (Classes(), {}, None),
    "nor has an unknown value": (Classes(), {names.CAPACITY: "Spot"}, None),
    "karpenter, spot": (Classes((PRESETS["karpenter"],)), {KARPENTER: "spot"}, S),
    "karpenter, reserved": (Classes((PRESETS["karpenter"],)), {KARPENTER: "reserved"}, O),
    "eks, spot": (Classes((PRESETS["eks"],)), {"eks.amazonaws.com/capacityType": "SPOT"}, S),
    "eks, on-demand": (Classes((PRESETS["eks"],)), {"eks.amazonaws.com/capacityType": "ON_DEMAND"}, O),
    "gke, spot": (Classes((PRESETS["gke"],)), {"cloud.google.com/gke-spot": "true"}, S),
    "gke, standard nodes carry no label": (Classes((PRESETS["gke"],)), {}, None),
    "aks, spot": (Classes((PRESETS["aks"],)), {"kubernetes.azure.com/scalesetpriority": "spot"}, S),
    "aks, regular": (Classes((PRESETS["aks"],)), {"kubernetes.azure.com/scalesetpriority": "regular"}, O),
    "another preset's label does not count": (Classes(), {KARPENTER: "spot"}, None),
    "several presets, by the second": (TWO, {KARPENTER: "spot"}, S),
    "several presets that disagree: spot, the careful answer": (
        TWO,
        {names.CAPACITY: "on-demand", KARPENTER: "spot"},
        S,
    ),
}


@pytest.mark.parametrize(("classes", "labels", "expected"), NODES.values(), ids=NODES.keys())
def test_a_node_is_of_the_class_its_labels_name(
    classes: Classes, labels: dict[str, str], expected: Class | None
) -> None:
    """None where they name none."""
    assert classes.of_node(labels) is expected


def term(*requirements: tuple[str, str, str]) -> NodeTerm:
    return tuple(NodeRequirement(key, operator, tuple(values.split())) for key, operator, values in requirements)


def test_on_demand_is_not_known_to_be_spot() -> None:
    """One term, ANDed over all keys, so that unlabelled nodes are usable; spot is one ORed term a key."""
    assert TWO.terms(O) == (term((names.CAPACITY, "NotIn", "spot"), (KARPENTER, "NotIn", "spot")),)
    assert TWO.terms(S) == (term((names.CAPACITY, "In", "spot")), term((KARPENTER, "In", "spot")))


C = names.CAPACITY
ALLOWED: dict[str, tuple[tuple[NodeTerm, ...], frozenset[Class]]] = {
    "no terms": ((), BOTH),
    "a term about something else": ((term(("disk", "In", "ssd")),), BOTH),
    "only spot": ((term((C, "In", "spot")),), frozenset({S})),
    "only on-demand": ((term((C, "In", "on-demand")),), frozenset({O})),
    "either": ((term((C, "In", "spot on-demand")),), BOTH),
    "a value of neither is on-demand to us": ((term((C, "In", "metal")),), frozenset({O})),
    "not spot": ((term((C, "NotIn", "spot")),), frozenset({O})),
    "not on-demand leaves unlabelled nodes, which count as on-demand": ((term((C, "NotIn", "on-demand")),), BOTH),
    "the label exists": ((term((C, "Exists", "")),), BOTH),
    "the label does not exist": ((term((C, "DoesNotExist", "")),), frozenset({O})),
    "a contradiction": ((term((C, "In", "spot"), (C, "In", "on-demand")),), frozenset()),
    "exists and does not": ((term((C, "Exists", ""), (C, "DoesNotExist", "")),), frozenset()),
    "ORed terms add up": ((term((C, "In", "spot")), term((C, "In", "on-demand"))), BOTH),
    "one of the ORed terms is impossible": (
        (term((C, "In", "spot"), (C, "DoesNotExist", "")), term((C, "In", "on-demand"))),
        frozenset({O}),
    ),
    "greater-than is not judged": ((term((C, "Gt", "5")),), BOTH),
}


@pytest.mark.parametrize(("terms", "expected"), ALLOWED.values(), ids=ALLOWED.keys())
def test_terms_leave_classes_possible(terms: tuple[NodeTerm, ...], expected: frozenset[Class]) -> None:
    """Terms are ORed, expressions ANDed."""
    assert Classes().allowed(terms) == expected


def test_with_several_presets_a_term_may_name_any() -> None:
    """What is on-demand by one label may be spot by another."""
    assert TWO.allowed((term((C, "In", "on-demand")),)) == BOTH
    assert TWO.allowed((term((C, "In", "on-demand"), (KARPENTER, "DoesNotExist", "")),)) == frozenset({O})
    assert TWO.allowed((term((C, "NotIn", "spot"), (KARPENTER, "In", "spot")),)) == frozenset({S})


KEYS, VALUES = ("a", "b"), ("s", "o", "x")
small = Classes((ClassLabel("a", ("s",), ("o",)), ClassLabel("b", ("s", "x"))))
requirements = st.builds(
    NodeRequirement,
    st.sampled_from(KEYS),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.lists(st.sampled_from(VALUES), unique=True).map(tuple),
)
some_terms = st.lists(st.lists(requirements, max_size=4).map(tuple), max_size=3)


@many
@given(some_terms)
def test_allowed_is_what_brute_force_finds(terms: list[NodeTerm]) -> None:
    """Of all nodes that these keys and values (and one more) can make, those that match have exactly these classes."""
    found = set()
    for values in product((None, "other", *VALUES), repeat=len(KEYS)):
        labels = {key: value for key, value in zip(KEYS, values, strict=True) if value is not None}
        if not terms or any(all(each.allows(labels.get(each.key)) for each in anded) for anded in terms):
            found.add(small.of_node(labels) or O)
    assert small.allowed(terms) == found


@many
@given(st.sampled_from(list(Class)), st.dictionaries(st.sampled_from(KEYS), st.sampled_from([*VALUES, "y"])))
def test_a_class_terms_match_exactly_its_nodes(wanted: Class, labels: dict[str, str]) -> None:
    """Unlabelled nodes are on-demand."""
    matches = any(all(each.allows(labels.get(each.key)) for each in anded) for anded in small.terms(wanted))
    assert matches == ((small.of_node(labels) or O) is wanted)


PODS: dict[str, tuple[tuple[NodeTerm, ...], dict[str, str] | None, Class | None]] = {
    "its node's": (Classes().terms(O), {C: "spot"}, S),
    "an unlabelled node's": ((), {}, O),
    "pending, by our terms": (Classes().terms(S), None, S),
    "pending, by our other terms": (Classes().terms(O), None, O),
    "pending, with nothing to tell": ((), None, None),
    "pending, and impossible": ((term((C, "In", "")),), None, None),
}


@pytest.mark.parametrize(("terms", "node_labels", "expected"), PODS.values(), ids=PODS.keys())
def test_a_pod_is_of_its_nodes_class_else_of_its_terms(
    terms: tuple[NodeTerm, ...], node_labels: dict[str, str] | None, expected: Class | None
) -> None:
    """Unknown where neither tells."""
    assert Classes().of_pod(Pod("shop", "a", required_terms=terms), node_labels) is expected


def test_spot_pods_tolerate_what_spot_nodes_are_tainted_with() -> None:
    """Any effect; a taint with a value is tolerated with that value only."""
    assert SpotTaint("k").toleration == {"key": "k", "operator": "Exists"}
    assert Classes().tolerations == ({"key": C, "operator": "Equal", "value": "spot"},)
    assert [each["key"] for each in ALL.tolerations] == [
        C,
        "cloud.google.com/gke-spot",
        "kubernetes.azure.com/scalesetpriority",
    ]


def test_the_other_class() -> None:
    """There are two."""
    assert (O.other, S.other) == (S, O)
