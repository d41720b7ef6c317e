"""Policy: what is valid, which level counts, what is reported."""

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import names
from placement.model import Kind, Rollout, Workload
from placement.policy import (
    SETTINGS,
    Amount,
    Level,
    Limit,
    Mistake,
    Policy,
    Spread,
    mistakes_in,
    needed,
    parse_share,
    percent,
    resolve,
)
from placement.slots import Slots
from placement.window import parse_window
from tests.builders.model import workload
from tests.placement.invariants import few, many

HOST, ZONE = Spread("host"), Spread("zone")
ASKED_ZONE = replace(ZONE, is_asked=True)
BERLIN = "0 22 * * 1-5 8h Europe/Berlin"

VALID: dict[str, tuple[str, str, Any]] = {
    "a percentage": ("spot-ratio", "70%", Fraction(7, 10)),
    "a percentage with decimals": ("spot-ratio", "33.3%", Fraction(333, 1000)),
    "all of it": ("spot-ratio", "100%", Fraction(1)),
    "none of it": ("spot-ratio", "0%", Fraction(0)),
    "a decimal": ("spot-ratio", "0.7", Fraction(7, 10)),
    "a decimal without its zero": ("spot-ratio", ".25", Fraction(1, 4)),
    "the decimal 0": ("spot-ratio", "0", Fraction(0)),
    "the decimal 1": ("spot-ratio", "1", Fraction(1)),
    "the decimal 1.0": ("spot-ratio", "1.0", Fraction(1)),
    "auto": ("spot-ratio", "auto", None),
    "blanks around a value": ("spot-ratio", " 70%\n", Fraction(7, 10)),
    "a floor": ("min-on-demand", "3", 3),
    "no floor": ("min-on-demand", "0", 0),
    "a count that must serve": ("min-available", "2", Amount(2)),
    "a share that must serve": ("min-available", "80%", Amount(share=Fraction(4, 5))),
    "a target": ("availability-target", "99.95%", Fraction(9995, 10000)),
    "a target as a decimal": ("availability-target", "0.999", Fraction(999, 1000)),
    "fall back to on-demand": ("spot-fallback", "on-demand", "on-demand"),
    "wait for spot": ("spot-fallback", "wait", "wait"),
    "a duration": ("spot-fallback-after", "5m", timedelta(minutes=5)),
    "a duration of two units": ("spot-fallback-after", "1h30m", timedelta(minutes=90)),
    "fall back to spot": ("on-demand-fallback", "spot", "spot"),
    "wait for on-demand": ("on-demand-fallback", "wait", "wait"),
    "what is spread by default, and is asked for": ("spread", "zone,host", (replace(HOST, is_asked=True), ASKED_ZONE)),
    "zone hard, host still soft": ("spread", "zone:hard", (HOST, Spread("zone", True, True))),
    "instance types on top": ("spread", "instance-type:soft", (HOST, Spread("instance-type", False, True), ZONE)),
    "blanks between": ("spread", "zone:hard, host:hard", (Spread("host", True, True), Spread("zone", True, True))),
    "no spreading": ("spread", "none", ()),
    "only plan": ("rebalance", "plan-only", "plan-only"),
    "no rebalancing": ("rebalance", "off", "off"),
    "a window": ("rebalance-window", BERLIN, parse_window(BERLIN)),
    "fast": ("replace-lost-pods", "fast", "fast"),
    "as Kubernetes does": ("replace-lost-pods", "kubernetes", "kubernetes"),
    "evictions wait": ("eviction-hold", "2m", timedelta(minutes=2)),
    "evictions do not wait": ("eviction-hold", "off", timedelta()),
}


@pytest.mark.parametrize(("setting", "text", "expected"), VALID.values(), ids=VALID.keys())
def test_a_valid_value_counts(setting: str, text: str, expected: Any) -> None:
    """It sets its own field, nothing else, is told to come from the workload, and is no mistake."""
    policy, mistakes = resolve({names.PREFIX + setting: text})
    assert mistakes == ()
    assert policy == replace(Policy(), **{setting.replace("-", "_"): expected})
    assert [name for name, level in policy.source.items() if level == "workload"] == [setting]


INVALID: dict[str, tuple[str, str]] = {
    "70 could be 70 % or a slip for 0.7": ("spot-ratio", "70"),
    "more than all": ("spot-ratio", "101%"),
    "a little more than all": ("spot-ratio", "1.01"),
    "less than nothing": ("spot-ratio", "-10%"),
    "a comma": ("spot-ratio", "0,7"),
    "a fraction": ("spot-ratio", "7/10"),
    "an exponent": ("spot-ratio", "1e-1"),
    "not a number": ("spot-ratio", "nan"),
    "another alphabet's digits": ("spot-ratio", "٧٠%"),
    "no text at all": ("spot-ratio", ""),
    "AUTO": ("spot-ratio", "AUTO"),
    "a floor in percent": ("min-on-demand", "10%"),
    "a negative floor": ("min-on-demand", "-1"),
    "half a pod": ("min-on-demand", "1.5"),
    "a number that no cluster has": ("min-on-demand", "9" * 5000),
    "a decimal is neither count nor percentage": ("min-available", "0.5"),
    "more than all must serve": ("min-available", "120%"),
    "certainty": ("availability-target", "100%"),
    "no availability": ("availability-target", "0%"),
    "a target without a unit": ("availability-target", "99.9"),
    "an unknown fallback": ("spot-fallback", "spot"),
    "a number without a unit": ("spot-fallback-after", "60"),
    "a duration with a blank": ("spot-fallback-after", "1h 30m"),
    "an endless duration": ("spot-fallback-after", "9" * 30 + "d"),
    "an unknown other fallback": ("on-demand-fallback", "on-demand"),
    "an unknown topology": ("spread", "zone,rack"),
    "an unknown strength": ("spread", "zone:firm"),
    "none and something": ("spread", "none,zone"),
    "an empty list": ("spread", ""),
    "yes": ("rebalance", "yes"),
    "a window of words": ("rebalance-window", "at night"),
    "slow": ("replace-lost-pods", "slow"),
    "for ever": ("eviction-hold", "forever"),
}


@pytest.mark.parametrize(("setting", "text"), INVALID.values(), ids=INVALID.keys())
def test_an_invalid_value_is_a_mistake_and_does_not_count(setting: str, text: str) -> None:
    """The policy is as if it had not been written; the mistake names annotation, value and what would be valid."""
    annotation = names.PREFIX + setting
    expected = next(each.expected for each in SETTINGS if each.annotation == annotation)
    policy, mistakes = resolve({annotation: text})
    assert (policy, set(policy.source.values())) == (Policy(), {"built-in"})
    assert mistakes == (Mistake("workload", annotation, text, expected),)
    assert all(part in str(mistakes[0]) for part in (annotation, repr(text)[:50], expected))


def test_every_setting_is_tried_both_ways() -> None:
    """A new setting needs a line in both tables."""
    every = {setting.name for setting in SETTINGS}
    assert {setting for setting, _, _ in VALID.values()} == every
    assert {setting for setting, _ in INVALID.values()} == every


def test_all_mistakes_are_told_at_once() -> None:
    """Also those of both levels together, and what is right beside them counts."""
    policy, mistakes = resolve(
        {names.SPOT_RATIO: "70", names.MIN_ON_DEMAND: "two", names.SPREAD: "none"}, {names.REBALANCE: "never"}
    )
    told = [(mistake.level, mistake.annotation) for mistake in mistakes]
    assert told == [("workload", names.MIN_ON_DEMAND), ("workload", names.SPOT_RATIO), ("namespace", names.REBALANCE)]
    assert policy == replace(Policy(), spread=())


LEVELS: dict[str, tuple[dict[str, str], dict[str, str], dict[str, str], Fraction, Level]] = {
    "nobody says anything": ({}, {}, {}, Fraction(7, 10), "built-in"),
    "the configuration": ({}, {}, {names.SPOT_RATIO: "10%"}, Fraction(1, 10), "configuration"),
    "the namespace": ({}, {names.SPOT_RATIO: "20%"}, {names.SPOT_RATIO: "10%"}, Fraction(1, 5), "namespace"),
    "the workload": (
        {names.SPOT_RATIO: "30%"},
        {names.SPOT_RATIO: "20%"},
        {names.SPOT_RATIO: "10%"},
        Fraction(3, 10),
        "workload",
    ),
    "a bad workload's value leaves it to the namespace": (
        {names.SPOT_RATIO: "30"},
        {names.SPOT_RATIO: "20%"},
        {names.SPOT_RATIO: "10%"},
        Fraction(1, 5),
        "namespace",
    ),
    "two bad ones leave it to the configuration": (
        {names.SPOT_RATIO: "30"},
        {names.SPOT_RATIO: "20"},
        {names.SPOT_RATIO: "10%"},
        Fraction(1, 10),
        "configuration",
    ),
}


@pytest.mark.parametrize(("workload", "namespace", "defaults", "ratio", "source"), LEVELS.values(), ids=LEVELS.keys())
def test_the_nearest_valid_level_counts(
    workload: dict[str, str], namespace: dict[str, str], defaults: dict[str, str], ratio: Fraction, source: Level
) -> None:
    """Workload > namespace > configuration > built-in, each setting by itself; the source tells which."""
    policy, _ = resolve(workload, namespace, defaults)
    assert (policy.spot_ratio, policy.source["spot-ratio"]) == (ratio, source)
    assert policy.source["spread"] == "built-in"


RATIO, FLOOR = names.SPOT_RATIO, names.MIN_ON_DEMAND
HALF = Limit(max_spot_ratio=Fraction(1, 2))
TWO = Limit(min_on_demand=2)
AT_MOST, AT_LEAST = "at most 50% (limited by the configuration)", "at least 2 (limited by the configuration)"
LIMITS: dict[str, tuple[dict[str, str], dict[str, str], list[Limit], Slots, list[Mistake]]] = {
    "within the limits nothing changes": (
        {RATIO: "40%", FLOOR: "3"},
        {},
        [HALF, TWO],
        Slots(Fraction(2, 5), 3),
        [],
    ),
    "a ratio above is clamped and told": (
        {RATIO: "80%"},
        {},
        [HALF],
        Slots(Fraction(1, 2), 1),
        [Mistake("workload", RATIO, "80%", AT_MOST)],
    ),
    "a floor below is clamped and told": (
        {FLOOR: "0"},
        {},
        [TWO],
        Slots(Fraction(7, 10), 2),
        [Mistake("workload", FLOOR, "0", AT_LEAST)],
    ),
    "told where it was written": (
        {},
        {RATIO: "80%"},
        [HALF],
        Slots(Fraction(1, 2), 1),
        [Mistake("namespace", RATIO, "80%", AT_MOST)],
    ),
    "a default that is clamped is nobody's mistake": ({}, {}, [HALF, TWO], Slots(Fraction(1, 2), 2), []),
    "of several limits the strictest counts, and is told once": (
        {RATIO: "1", FLOOR: "1"},
        {},
        [Limit(Fraction(3, 5), 2), HALF, Limit(Fraction(9, 10), 1)],
        Slots(Fraction(1, 2), 2),
        [Mistake("workload", RATIO, "100%", AT_MOST), Mistake("workload", FLOOR, "1", AT_LEAST)],
    ),
    "a limit of nothing": ({RATIO: "1"}, {}, [Limit()], Slots(Fraction(1), 1), []),
    "a limit of 0 % is a limit": (
        {RATIO: "1"},
        {},
        [Limit(Fraction(0))],
        Slots(Fraction(0), 1),
        [Mistake("workload", RATIO, "100%", "at most 0% (limited by the configuration)")],
    ),
}


@pytest.mark.parametrize(("workload", "namespace", "limits", "slots", "expected"), LIMITS.values(), ids=LIMITS.keys())
def test_limits_clamp_what_was_asked_for(
    workload: dict[str, str],
    namespace: dict[str, str],
    limits: list[Limit],
    slots: Slots,
    expected: list[Mistake],
) -> None:
    """What a limit takes back is reported like a mistake, if a person wrote it."""
    policy, mistakes = resolve(workload, namespace, {}, limits)
    assert (policy.slots, list(mistakes)) == (slots, expected)


@pytest.mark.parametrize(("percents", "expected"), [([90], 70), ([50], 50), ([0, 50], 0), ([50, 0], 0)])
def test_a_limit_holds_for_auto_too(percents: list[int], expected: int) -> None:
    """It stays `auto`, and is nobody's mistake: who writes it asks for what may be."""
    limits = [Limit(Fraction(each, 100)) for each in percents]
    policy, mistakes = resolve({RATIO: "auto"}, {}, {}, limits)
    assert policy.spot_ratio is None
    assert (policy.slots, mistakes) == (Slots(Fraction(expected, 100), 1), ())


UNKNOWN: dict[str, tuple[str, str]] = {
    "a slip is answered with the nearest": ("spot-ration", f"the annotation {names.SPOT_RATIO}"),
    "another slip": ("min-ondemand", f"the annotation {names.MIN_ON_DEMAND}"),
    "anything else with all there are": (
        "x",
        "spotweave.dev/ followed by one of " + ", ".join(setting.name for setting in SETTINGS),
    ),
}


@pytest.mark.parametrize(("name", "expected"), UNKNOWN.values(), ids=UNKNOWN.keys())
def test_an_unknown_annotation_is_a_mistake(name: str, expected: str) -> None:
    """A misspelt annotation would otherwise be ignored without a word."""
    assert resolve({names.PREFIX + name: "70%"})[1] == (Mistake("workload", names.PREFIX + name, "70%", expected),)


def test_what_is_not_ours_is_not_looked_at() -> None:
    """Others' annotations, and the opt-out, are no mistakes."""
    written = {"example.com/spot-ratio": "70", names.PLACEMENT: "disabled", names.DELETION_COST: "x"}
    assert resolve(written, written) == (Policy(), ())


likely_texts = st.sampled_from([text for _, text, _ in VALID.values()] + [text for _, text in INVALID.values()])
texts = st.one_of(st.text(max_size=30), likely_texts, st.text("0123456789.,%:-+/* smhdzone", max_size=20))
annotations = st.dictionaries(
    st.one_of(
        st.sampled_from([setting.annotation for setting in SETTINGS]),
        st.text(max_size=20).map(names.PREFIX.__add__),
        st.text(max_size=20),
    ),
    texts,
    max_size=12,
)


@many
@given(annotations, annotations)
def test_no_text_raises_and_exactly_the_mistakes_do_not_count(
    workload: dict[str, str], namespace: dict[str, str]
) -> None:
    """Whatever is written, there is a policy; taking all that was reported away changes nothing but the report."""
    policy, mistakes = resolve(workload, namespace)
    wrong = {(mistake.level, mistake.annotation) for mistake in mistakes}
    right = [
        {key: text for key, text in written.items() if (level, key) not in wrong}
        for level, written in (("workload", workload), ("namespace", namespace))
    ]
    again, none = resolve(right[0], right[1])
    assert (again, again.source, none) == (policy, policy.source, ())
    for setting in SETTINGS:
        levels = [
            level
            for level, written in zip(("workload", "namespace"), right, strict=True)
            if setting.annotation in written
        ]
        assert policy.source[setting.name] == (levels[0] if levels else "built-in")


@many
@given(st.sampled_from(SETTINGS), texts)
def test_only_value_errors_tell_a_mistake(setting: Any, text: str) -> None:
    """A parser gives a value, or a mistake is found; the two never disagree, and nothing else is raised."""
    mistakes = list(mistakes_in({setting.annotation: text}, "workload"))
    try:
        setting.parse(text.strip())
    except ValueError:
        assert len(mistakes) == 1
    else:
        assert mistakes == []


@few
@given(st.integers(0, 100_000_000))
def test_percentages_are_read_as_they_are_shown(millionths: int) -> None:
    """What `percent` writes, `parse_share` reads back, to the last of six digits."""
    share = Fraction(millionths, 100_000_000)
    assert parse_share(percent(share)) == share


AMOUNTS = {
    "a count is a count": (Amount(3), 10, 3),
    "a share is rounded up": (Amount(share=Fraction(1, 2)), 5, 3),
    "an exact share is not": (Amount(share=Fraction(1, 2)), 4, 2),
    "90 % of 10 is 9, where floats say 9.000…1": (Amount(share=Fraction(9, 10)), 10, 9),
    "all": (Amount(share=Fraction(1)), 7, 7),
    "of nothing": (Amount(share=Fraction(1, 2)), 0, 0),
}


@pytest.mark.parametrize(("amount", "replicas", "expected"), AMOUNTS.values(), ids=AMOUNTS.keys())
def test_shares_are_rounded_up(amount: Amount, replicas: int, expected: int) -> None:
    """As in PodDisruptionBudgets."""
    assert amount.of(replicas) == expected


def rolled(kind: Kind, replicas: int, max_unavailable: int | str = "25%") -> Workload:
    return workload("web", replicas, kind, rollout=Rollout(max_unavailable=max_unavailable))


D, T = Kind.DEPLOYMENT, Kind.STATEFUL_SET
NEEDED = {
    "declared as a count": (Policy(min_available=Amount(4)), rolled(D, 10), 4),
    "declared as a share": (Policy(min_available=Amount(share=Fraction(1, 4))), rolled(D, 10), 3),
    "never more than there are": (Policy(min_available=Amount(40)), rolled(D, 10), 10),
    "declared beats a StatefulSet's n − 1": (Policy(min_available=Amount(1)), rolled(T, 3), 1),
    "assumed: a Deployment's maxUnavailable, rounded down": (Policy(), rolled(D, 10), 8),
    "assumed: three replicas at 25 % need all three": (Policy(), rolled(D, 3), 3),
    "assumed: a count": (Policy(), rolled(D, 10, 4), 6),
    "assumed: a count above the replicas": (Policy(), rolled(D, 3, 10), 0),
    "assumed: all may go": (Policy(), rolled(D, 10, "100%"), 0),
    "assumed: a StatefulSet's n − 1": (Policy(), rolled(T, 3, 2), 2),
    "a StatefulSet of none": (Policy(), rolled(T, 0), 0),
    "a lone StatefulSet's replica is the whole service": (Policy(), rolled(T, 1), 1),
    "a lone Deployment's, too": (Policy(), rolled(D, 1, 1), 1),
}


@pytest.mark.parametrize(("policy", "of", "expected"), NEEDED.values(), ids=NEEDED.keys())
def test_how_many_must_serve(policy: Policy, of: Workload, expected: int) -> None:
    """Declared, else what the workload's own rollout would leave."""
    assert needed(policy, of) == expected


def test_a_policy_explains_itself() -> None:
    """In the words that people wrote it with."""
    assert Policy().explain() == "spot-ratio 70%, min-on-demand 1"
    assert Policy(spot_ratio=None, min_on_demand=2).explain() == "spot-ratio auto (70%), min-on-demand 2"
    assert str(Amount(share=Fraction(1, 3))) == "33.333333%"
    assert (str(Amount(3)), str(Spread("zone", True)), str(Spread("host"))) == ("3", "zone:hard", "host:soft")


def test_auto_stands_for_the_built_in_ratio() -> None:
    """Until interruption rates have been observed."""
    assert resolve({RATIO: "auto"})[0].slots == Slots(Fraction(7, 10), 1)


ROLLOUTS = {
    "more than all at once": (Rollout(max_unavailable=0, max_surge="1000%"), 10),
    "with leading zeros": (Rollout(max_unavailable="0050%"), 5),
    "rounded down": (Rollout(max_unavailable="25%"), 8),
    "one where nothing else would move": (Rollout(max_unavailable="1%", max_surge=0), 9),
}


@pytest.mark.parametrize(("rollout", "expected"), ROLLOUTS.values(), ids=ROLLOUTS.keys())
def test_what_a_rollout_leaves_is_read_as_kubernetes_reads_it(rollout: Rollout, expected: int) -> None:
    """Of ten replicas."""
    assert needed(Policy(), workload(rollout=rollout)) == expected
