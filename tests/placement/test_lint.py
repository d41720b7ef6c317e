"""Lint: what is told about what people write."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import names
from placement.gang.terms import ROWS, terms_of
from placement.lint import (
    GROUP_EXPECTED,
    KNOWN_EXPECTED,
    LABEL_EXPECTED,
    PLACEMENT_EXPECTED,
    TEMPLATE_EXPECTED,
    Finding,
    LintedObject,
    findings_in,
    rollout_finding,
)
from placement.model import Kind, Namespace, Rollout, Template, Workload
from placement.policy import LONGEST_VALUE, SETTINGS, WHITE_SPACE, Policy, Setting
from tests.builders.model import workload
from tests.placement.invariants import many

WEB = workload()
SIZE_EXPECTED = ROWS[names.POD_GROUP_SIZE].expected
RATIO, PLACEMENT = names.SPOT_RATIO, names.PLACEMENT
RATIO_EXPECTED = next(each.expected for each in SETTINGS if each.annotation == RATIO)


WRITTEN: dict[str, tuple[LintedObject, list[Finding]]] = {
    "nothing of ours": (LintedObject("workload", {"example.com/a": "b"}, {"app": "web"}, {"x": "y"}, {}), []),
    "all right": (LintedObject("workload", {RATIO: "70%"}, {PLACEMENT: "enabled"}, {}, {}), []),
    "a value that does not count": (
        LintedObject("workload", {RATIO: "70"}, {}, {}, {}),
        [Finding("annotations", RATIO, "70", RATIO_EXPECTED)],
    ),
    "an annotation that nobody knows": (
        LintedObject("namespace", {names.PREFIX + "x": "1"}, {}, {}, {}),
        [Finding("annotations", names.PREFIX + "x", "1", KNOWN_EXPECTED)],
    ),
    "an opt-out that is none": (
        LintedObject("workload", {PLACEMENT: "off"}, {PLACEMENT: "no"}, {}, {PLACEMENT: ""}),
        [
            Finding("labels", PLACEMENT, "no", PLACEMENT_EXPECTED),
            Finding("annotations", PLACEMENT, "off", PLACEMENT_EXPECTED),
            Finding("template labels", PLACEMENT, "", PLACEMENT_EXPECTED),
        ],
    ),
    "an opt-in that is none": (
        LintedObject("namespace", {}, {PLACEMENT: "true"}, {}, {}),
        [Finding("labels", PLACEMENT, "true", PLACEMENT_EXPECTED)],
    ),
    "a setting as a label": (
        LintedObject("namespace", {}, {names.REBALANCE: "plan-only", PLACEMENT: "enabled"}, {}, {}),
        [Finding("labels", names.REBALANCE, "plan-only", LABEL_EXPECTED)],
    ),
    "a setting on the pod template": (
        LintedObject("workload", {}, {}, {RATIO: "70%"}, {}),
        [Finding("template annotations", RATIO, "70%", TEMPLATE_EXPECTED)],
    ),
    "a gang's name belongs there": (LintedObject("workload", {}, {}, {names.PREFIX + "pod-group": "a"}, {}), []),
    "and all that is said of it": (
        LintedObject("workload", {}, {}, {names.POD_GROUP: "a", names.POD_GROUP_SIZE: "4", names.PRIORITY: "-1"}, {}),
        [],
    ),
    "a gang's mistakes, as its parser says them": (
        LintedObject("workload", {}, {}, {names.POD_GROUP: " ", names.POD_GROUP_SIZE: "four"}, {}),
        [
            Finding("template annotations", names.POD_GROUP, " ", "a name", "is invalid"),
            Finding("template annotations", names.POD_GROUP_SIZE, "four", SIZE_EXPECTED, "is invalid"),
        ],
    ),
    "what is said of no gang": (
        LintedObject("workload", {}, {}, {names.POD_GROUP_SIZE: "4"}, {}),
        [Finding("template annotations", names.POD_GROUP_SIZE, "4", GROUP_EXPECTED)],
    ),
    "what nobody knows of gangs": (
        LintedObject("workload", {}, {}, {names.POD_GROUP: "a", names.PREFIX + "pod-group-minimum": "4"}, {}),
        [Finding("template annotations", names.PREFIX + "pod-group-minimum", "4", TEMPLATE_EXPECTED)],
    ),
}


@pytest.mark.parametrize(("written", "expected"), WRITTEN.values(), ids=WRITTEN.keys())
def test_what_does_not_count_is_found_where_it_stands(written: LintedObject, expected: list[Finding]) -> None:
    """Annotation, value, place and what would be valid."""
    assert list(findings_in(written)) == expected


def test_objects_are_read_whole() -> None:
    """Labels, annotations and the template's of a workload; a namespace has no template."""
    workload = replace(WEB, annotations={"a": "1"}, labels={"b": "2"}, template=Template({"c": "3"}))
    assert LintedObject.on_workload(workload, {"d": "4"}) == LintedObject(
        "workload", {"a": "1"}, {"b": "2"}, {"d": "4"}, {"c": "3"}
    )
    assert LintedObject.on_namespace(Namespace("n", {"b": "2"}, {"a": "1"})) == LintedObject(
        "namespace", {"a": "1"}, {"b": "2"}, {}, {}
    )


def test_a_finding_is_a_sentence() -> None:
    """As the parser says it, without the level."""
    assert str(Finding("annotations", RATIO, "70", "70%")) == f"{RATIO}: '70' is ignored; expected 70%"


EIGHTY = Policy(spot_ratio=Fraction(4, 5))
TWO, ONE = Rollout(max_unavailable=2), Rollout(max_unavailable=1)
STORE = replace(WEB, kind=Kind.STATEFUL_SET, rollout=Rollout(max_unavailable=1, max_surge=0))
ROLLOUTS: dict[str, tuple[Workload, Policy, str | None]] = {
    "2 of 10 on on-demand, both at once": (
        replace(WEB, rollout=TWO),
        EIGHTY,
        "at least 3, or a smaller maxUnavailable",
    ),
    "2 of 10 on on-demand, one at a time": (replace(WEB, rollout=ONE), EIGHTY, None),
    "25 % of 10 is 2": (WEB, EIGHTY, "at least 3, or a smaller maxUnavailable"),
    "3 of 10 outlast 25 %": (WEB, Policy(), None),
    "a floor of 3": (WEB, replace(EIGHTY, min_on_demand=3), None),
    "all at once": (
        replace(WEB, rollout=Rollout(max_unavailable="100%")),
        Policy(),
        "at least 10, or a smaller maxUnavailable",
    ),
    "all on on-demand: no mix to lose": (WEB, Policy(spot_ratio=Fraction(0)), None),
    "none on on-demand: nothing to lose": (WEB, Policy(spot_ratio=Fraction(1), min_on_demand=0), None),
    "Recreate takes all on purpose": (replace(WEB, rollout=Rollout(recreate=True)), EIGHTY, None),
    "a StatefulSet by our defaults": (replace(STORE, replicas=3), Policy(), None),
    "a StatefulSet whose owner asks for one on on-demand": (
        replace(STORE, replicas=3),
        Policy(source={"min-on-demand": "workload"}),
        "at least 2",
    ),
    "a StatefulSet in a namespace with a ratio of its own": (
        replace(STORE, replicas=3),
        Policy(source={"spot-ratio": "namespace"}),
        "at least 2",
    ),
    "a StatefulSet by our defaults that takes all at once": (
        replace(STORE, rollout=Rollout(max_unavailable="100%", max_surge=0)),
        Policy(),
        "at least 10",
    ),
    "a StatefulSet with three": (STORE, Policy(), None),
    "a single replica": (replace(STORE, replicas=1), Policy(), None),
}


@pytest.mark.parametrize(("workload", "policy", "expected"), ROLLOUTS.values(), ids=ROLLOUTS.keys())
def test_a_rollout_that_may_take_all_of_on_demand_is_flagged(
    workload: Workload, policy: Policy, expected: str | None
) -> None:
    """Where on_demand(n) ≤ maxUnavailable, and there is a mix to lose."""
    found = rollout_finding(workload, policy)
    assert (found.expected if found else None) == expected
    assert found is None or found.annotation == names.MIN_ON_DEMAND


# --- the shapes, which the policy is made of, against the readers ----------------------------------------------------

likely = st.text("0123456789.%:,-*/ \tsmhdautonezihr", max_size=12)


def shaped(setting: Setting) -> st.SearchStrategy[str]:
    """Texts of the right shape, and the same with a letter changed."""
    right = st.from_regex(re.compile(f"(?:{setting.shapes[0]})", re.ASCII), fullmatch=True).map(lambda text: text[:100])
    changed = st.tuples(right, st.integers(0, 99), st.sampled_from("0159%.,:-/* x")).map(
        lambda parts: parts[0][: parts[1]] + parts[2] + parts[0][parts[1] + 1 :]
    )
    return st.one_of(right, changed, likely, st.text(max_size=5))


def is_read(setting: Setting, text: str) -> bool:
    try:
        setting.read(text)
    except ValueError:
        return False
    return True


@many
@given(st.data(), st.sampled_from(SETTINGS))
def test_what_has_the_right_shape_can_be_read(data: st.DataObject, setting: Setting) -> None:
    """So the policy is silent only where it cannot know: a window's time zone, and a range that runs backwards."""
    text = data.draw(shaped(setting)).strip(WHITE_SPACE)
    matches = all(re.fullmatch(shape, text, re.ASCII) for shape in setting.shapes)
    if matches and setting.annotation != names.REBALANCE_WINDOW:
        assert is_read(setting, text)


DURATIONS = (names.SPOT_FALLBACK_AFTER, names.REBALANCE_WINDOW)
CHOICES = (names.SPOT_FALLBACK, names.ON_DEMAND_FALLBACK, names.REBALANCE, names.REPLACE_LOST_PODS)


@many
@given(st.data(), st.sampled_from([each for each in SETTINGS if each.annotation not in (*DURATIONS, *CHOICES)]))
def test_what_can_be_read_has_the_right_shape(data: st.DataObject, setting: Setting) -> None:
    """The shapes take nothing away; but durations of more than 8 digits, and blanks that no keyboard has."""
    text = data.draw(shaped(setting)).strip(WHITE_SPACE)
    if is_read(setting, text) and text.isascii() and not set(text) & set("\v\f\x1c\x1d\x1e\x1f"):
        assert all(re.fullmatch(shape, text, re.ASCII) for shape in setting.shapes)


@pytest.mark.parametrize("setting", SETTINGS, ids=lambda setting: setting.name)
def test_no_shape_takes_long_texts(setting: Setting) -> None:
    """The policy's cost is bounded by the length, so the parser has the same bound."""
    with pytest.raises(ValueError):
        setting.parse(" " * LONGEST_VALUE + "1")


GANG_TEXTS = ["", "0", "00", "1", "8", "-5", "--5", "+5", "1234567890", "٣", "true", "True", "1x", "a b", " 8", "8\n"]
GANG_TEXTS += ["30m", "0s", "1h0m", "30m:start", "30m:keep", "30m:fail", "30m:", "30m:x", "0m:start", "1h\n"]
GANG_TEXTS += ["spot", "spot,on-demand", "on-demand, spot", "spot,spot", "spot,", "Spot", "repair", "restart-gang"]
GANG_TEXTS += ["pod", "gang", "99999999999d"]
# What no shape can tell: a class named twice, and a time that is longer than any.
UNDECIDED = {("spot,spot", names.POD_GROUP_CLASS)} | {
    ("99999999999d", each) for each in (names.EXPECTED_RUNTIME, names.POD_GROUP_WAIT_TIMEOUT, names.TIME_LIMIT)
}


@pytest.mark.parametrize("annotation", ROWS)
def test_the_shapes_of_gangs_are_those_that_its_parser_takes(annotation: str) -> None:
    """So the policy never warns about a valid value, and is silent only where it cannot know."""
    for text in GANG_TEXTS:
        is_read = not terms_of({names.POD_GROUP: "a", annotation: text})[1]
        matches = all(re.fullmatch(shape, text, re.ASCII) for shape in ROWS[annotation].shapes)
        assert matches is is_read or (matches and (text, annotation) in UNDECIDED), text
