"""The configuration: what is read, and every mistake at once."""

from dataclasses import replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from placement import names
from placement.classes import PRESETS, Classes, ClassLabel, SpotTaint
from placement.configuration import (
    Configuration,
    ConfigurationError,
    MetricLimits,
    NamespaceLimit,
    PriceSources,
    PriorityRoles,
    parse_configuration,
)
from placement.gang.settings import Gangs
from placement.leavingtaints import LEAVING_TAINTS
from placement.model import Node, NodeRequirement, NodeTaint
from placement.policy import Limit, resolve
from tests.placement.invariants import many

BUILT_IN = Configuration()
OWN = ClassLabel(
    "example.com/tier", ("cheap", "cheaper"), ("dear",), (SpotTaint("example.com/tier"), SpotTaint("cheap", "true"))
)

VALID: dict[str, tuple[str, Configuration]] = {
    "nothing": ("", BUILT_IN),
    "an empty mapping": ("{}", BUILT_IN),
    "sections without a word": ("classes:\ndefaults:\nlimits:\npriorityClasses:\nleavingTaints:\n", BUILT_IN),
    "presets": (
        "classes: [default, karpenter]",
        replace(
            BUILT_IN,
            classes=Classes((PRESETS["default"], PRESETS["karpenter"])),
            defaults={names.SPOT_FALLBACK_AFTER: "5m"},  # an autoscaler brings nodes, which takes minutes
        ),
    ),
    "a preset of a cloud, and a fallback time of one's own": (
        "{classes: [eks], defaults: {spot-fallback-after: 90s}}",
        replace(BUILT_IN, classes=Classes((PRESETS["eks"],)), defaults={names.SPOT_FALLBACK_AFTER: "90s"}),
    ),
    "labels of one's own": (
        """
        classes:
        - key: example.com/tier
          spot: [cheap, cheaper]
          onDemand: [dear]
          taints: [example.com/tier, cheap=true]
        """,
        replace(BUILT_IN, classes=Classes((OWN,))),
    ),
    "only what is needed of a label": (
        "classes: [{key: tier, spot: [cheap]}]",
        replace(BUILT_IN, classes=Classes((ClassLabel("tier", ("cheap",)),))),
    ),
    "defaults, also as YAML's numbers": (
        "defaults: {spot-ratio: 0.6, min-on-demand: 2, spread: none}",
        replace(BUILT_IN, defaults={names.SPOT_RATIO: "0.6", names.MIN_ON_DEMAND: "2", names.SPREAD: "none"}),
    ),
    "off, which YAML reads as false": (
        "defaults: {rebalance: off}",
        replace(BUILT_IN, defaults={names.REBALANCE: "off"}),
    ),
    "series of so many workloads": ("metrics: {workloads: 5000}", replace(BUILT_IN, metrics=MetricLimits(5000))),
    "local storage moves": ("localStorage: move", BUILT_IN),
    "a notice": ("terminationNotice: 45s", replace(BUILT_IN, termination_notice=timedelta(seconds=45))),
    "local storage stays": ("localStorage: keep", replace(BUILT_IN, keeps_local_storage=True)),
    "series of none": ("metrics: {workloads: 0}", replace(BUILT_IN, metrics=MetricLimits(0))),
    "limits for all": (
        "limits: [{maxSpotRatio: 50%, minOnDemand: 2}]",
        replace(BUILT_IN, limits=(NamespaceLimit(Limit(Fraction(1, 2), 2)),)),
    ),
    "limits for some": (
        """
        limits:
        - namespaces:
            matchLabels: {tier: gold}
            matchExpressions: [{key: example.com/team, operator: NotIn, values: [a, b]}, {key: x, operator: Exists}]
          maxSpotRatio: 0
        """,
        replace(
            BUILT_IN,
            limits=(
                NamespaceLimit(
                    Limit(Fraction(0)),
                    (
                        NodeRequirement("tier", "In", ("gold",)),
                        NodeRequirement("example.com/team", "NotIn", ("a", "b")),
                        NodeRequirement("x", "Exists"),
                    ),
                ),
            ),
        ),
    ),
    "prices": (
        "prices: {table: /etc/prices.csv, ratio: 31%}",
        replace(BUILT_IN, prices=PriceSources("/etc/prices.csv", 0.31)),
    ),
    "a ratio alone, as YAML's number": ("prices: {ratio: 0.4}", replace(BUILT_IN, prices=PriceSources("", 0.4))),
    "priority classes": (
        "priorityClasses: {overflow: low, onDemand: high, spot: null}",
        replace(BUILT_IN, priority_roles=PriorityRoles("high", "", "low")),
    ),
    "no overflow class": (
        'priorityClasses: {overflow: ""}',
        replace(BUILT_IN, priority_roles=PriorityRoles(overflow="")),
    ),
    "leaving taints": ("leavingTaints: [example.com/going]", replace(BUILT_IN, leaving_taints=("example.com/going",))),
    "a cordon that moves pods": ("cordon: move", replace(BUILT_IN, cordon="move")),
    "moves at once after a rollout": (
        "moves: {afterRollout: 0s}",
        replace(BUILT_IN, moves=replace(BUILT_IN.moves, after_rollout=timedelta())),
    ),
    "releases without room": (
        "moves: {perNode: 3}",
        replace(BUILT_IN, moves=replace(BUILT_IN.moves, per_node=3)),
    ),
    "gangs": ("gangs: {enabled: true}", replace(BUILT_IN, gangs=Gangs(enabled=True))),
    "all that there is to set about gangs": (
        "gangs: {enabled: on, minimumRunTime: 1h, evictionsPerHour: {perNamespace: 3, inAll: 0}, guardSolo: true}",
        replace(BUILT_IN, gangs=Gangs(True, timedelta(hours=1), 3, 0, guard_solo=True)),
    ),
    "half a budget of evictions": (
        "gangs: {evictionsPerHour: {inAll: 7}}",
        replace(BUILT_IN, gangs=Gangs(evictions_in_all=7)),
    ),
    "gangs without a word": ("gangs: {evictionsPerHour: }", BUILT_IN),
    "a taint that waits for the deletion": (
        "leavingTaints: [a/b, {key: example.com/going, when: deleting}]",
        replace(
            BUILT_IN,
            leaving_taints=("a/b", "example.com/going"),
            patient_taints=frozenset({names.DISRUPTED, "example.com/going"}),
        ),
    ),
    "Karpenter's taint, at once": (
        f"leavingTaints: [{{key: {names.DISRUPTED}, when: tainted}}]",
        replace(BUILT_IN, leaving_taints=(names.DISRUPTED,), patient_taints=frozenset()),
    ),
    "no leaving taints at all": ("leavingTaints: []", replace(BUILT_IN, leaving_taints=())),
    "the built-in leaving taints, written out": (f"leavingTaints: {list(LEAVING_TAINTS)}", BUILT_IN),
}


@pytest.mark.parametrize(("text", "expected"), VALID.values(), ids=VALID.keys())
def test_a_configuration_is_read(text: str, expected: Configuration) -> None:
    """What is not written stays built-in."""
    assert parse_configuration(yaml.safe_load(text)) == expected


MISTAKES: dict[str, tuple[str, list[str]]] = {
    "not a mapping": ("[classes]", ["the configuration"]),
    "a notice that is no duration": ("terminationNotice: soon", ["terminationNotice"]),
    "a notice without a unit": ("terminationNotice: 45", ["terminationNotice"]),
    "local storage that does neither": ("localStorage: stay", ["localStorage"]),
    "local storage that is a list": ("localStorage: [keep]", ["localStorage"]),
    "series of fewer than none": ("metrics: {workloads: -1}", ["metrics.workloads"]),
    "series of yes workloads": ("metrics: {workloads: yes, all: 3}", ["metrics", "metrics.workloads"]),
    "an unknown section": ("{class: [default], 3: x}", ["the configuration", "the configuration"]),
    "classes are a list": ("classes: default", ["classes"]),
    "an unknown preset": ("classes: [default, azure]", ["classes[1]"]),
    "a label of nothing": ("classes: [{}]", ["classes[0].spot", "classes[0].key"]),
    "a label's unknown field": ("classes: [{key: a, spot: [b], demand: [c]}]", ["classes[0]"]),
    "a key that the API server would refuse in affinity": (
        "classes: [{key: 'capacity type', spot: [b]}, {key: a/b/c, spot: [b]}, {key: 5, spot: [b]}]",
        ["classes[0].key", "classes[1].key", "classes[2].key"],
    ),
    "a value that the API server would refuse": ("classes: [{key: a, spot: ['b c']}]", ["classes[0].spot"]),
    "values without quotes": (
        "classes: [{key: a, spot: [true], onDemand: [5, '']}]",
        ["classes[0].spot", "classes[0].onDemand", "classes[0].onDemand"],
    ),
    "one value instead of a list": ("classes: [{key: a, spot: b}]", ["classes[0].spot"]),
    "a taint without a key, which would make a toleration that is refused": (
        "classes: [{key: a, spot: [b], taints: ['=spot', 'a=b:NoSchedule']}]",
        ["classes[0].taints", "classes[0].taints"],
    ),
    "defaults are a mapping": ("defaults: [spot-ratio]", ["defaults"]),
    "an unknown default": ("defaults: {spotRatio: 50%}", ["defaults"]),
    "a default's wrong value": ("defaults: {spot-ratio: 70}", ["defaults.spot-ratio"]),
    "a default without a value": ("defaults: {spot-ratio: }", ["defaults.spot-ratio"]),
    "two defaults": (
        "defaults: {spot-ratio: 70, min-on-demand: -1}",
        ["defaults.min-on-demand", "defaults.spot-ratio"],
    ),
    "limits are a list": ("limits: {maxSpotRatio: 50%}", ["limits"]),
    "a limit is a mapping": ("limits: [50%]", ["limits[0]"]),
    "a limit's unknown field": ("limits: [{maxSpot: 50%}]", ["limits[0]"]),
    "a limit that could be 50 or 0.5": ("limits: [{}, {maxSpotRatio: 50}]", ["limits[1].maxSpotRatio"]),
    "a limit without a value": ("limits: [{maxSpotRatio: }]", ["limits[0].maxSpotRatio"]),
    "half a pod": ("limits: [{minOnDemand: 1.5}]", ["limits[0].minOnDemand"]),
    "yes is no number": ("limits: [{minOnDemand: yes}]", ["limits[0].minOnDemand"]),
    "fewer than none": ("limits: [{minOnDemand: -1}]", ["limits[0].minOnDemand"]),
    "a selector's unknown field": ("limits: [{namespaces: {names: [a]}}]", ["limits[0].namespaces"]),
    "labels as a list": ("limits: [{namespaces: {matchLabels: [a]}}]", ["limits[0].namespaces.matchLabels"]),
    "a label without quotes would never match": (
        "limits: [{namespaces: {matchLabels: {gold: true}}}]",
        ["limits[0].namespaces.matchLabels"],
    ),
    "an unknown operator": (
        "limits: [{namespaces: {matchExpressions: [{key: a, operator: Equals}]}}]",
        ["limits[0].namespaces.matchExpressions.operator"],
    ),
    "an expression without a key would never match": (
        "limits: [{namespaces: {matchExpressions: [{operator: Exists}]}}]",
        ["limits[0].namespaces.matchExpressions.key"],
    ),
    "In of nothing would never match": (
        "limits: [{namespaces: {matchExpressions: [{key: a, operator: In}]}}]",
        ["limits[0].namespaces.matchExpressions.values"],
    ),
    "Exists has no values": (
        "limits: [{namespaces: {matchExpressions: [{key: a, operator: Exists, values: [b]}]}}]",
        ["limits[0].namespaces.matchExpressions.values"],
    ),
    "an unknown role": ("priorityClasses: {soft: low}", ["priorityClasses"]),
    "a number is no name": ("priorityClasses: {spot: 5}", ["priorityClasses.spot"]),
    "taints as one text": ("leavingTaints: going", ["leavingTaints"]),
    "a taint that is no key": ("leavingTaints: [{taint: going}]", ["leavingTaints", "leavingTaints"]),
    "a taint for another time": ("leavingTaints: [{key: going, when: later}]", ["leavingTaints"]),
    "a ratio without a sign": ("prices: {ratio: 35}", ["prices.ratio"]),
    "a table that is no path": ("prices: {table: [a]}", ["prices.table"]),
    "a source that nobody knows": ("prices: {url: x}", ["prices"]),
    "gangs that are neither on nor off": (
        "gangs: {enabled: 'yes', guardSolo: 1}",
        ["gangs.enabled", "gangs.guardSolo"],
    ),
    "gangs as one word": ("gangs: true", ["gangs"]),
    "an unknown setting of gangs": ("gangs: {enable: true}", ["gangs"]),
    "a run time without a unit": ("gangs: {minimumRunTime: 5}", ["gangs.minimumRunTime"]),
    "one budget instead of two": ("gangs: {evictionsPerHour: 20}", ["gangs.evictionsPerHour"]),
    "budgets that are none": (
        "gangs: {evictionsPerHour: {perNamespace: -1, inAll: 50%, each: 2}}",
        ["gangs.evictionsPerHour", "gangs.evictionsPerHour.perNamespace", "gangs.evictionsPerHour.inAll"],
    ),
    "everything at once": (
        "{x: 1, classes: [azure], defaults: {spot-ratio: 70}, limits: [5], priorityClasses: 3, leavingTaints: [1]}",
        ["the configuration", "classes[0]", "defaults.spot-ratio", "limits[0]", "priorityClasses", "leavingTaints"],
    ),
}


@pytest.mark.parametrize(("text", "expected"), MISTAKES.values(), ids=MISTAKES.keys())
def test_every_mistake_is_told_at_once(text: str, expected: list[str]) -> None:
    """Each by where it is, what was written and what would be right."""
    with pytest.raises(ConfigurationError) as raised:
        parse_configuration(yaml.safe_load(text))
    assert [mistake.partition(": ")[0] for mistake in raised.value.mistakes] == expected
    assert all(" is invalid; expected " in mistake for mistake in raised.value.mistakes)
    assert str(raised.value) == "\n".join(raised.value.mistakes)


SELECTED: dict[str, tuple[dict[str, str], list[Limit]]] = {
    "a namespace that nothing selects": ({}, [Limit(min_on_demand=1)]),
    "the label's value": ({"tier": "gold"}, [Limit(min_on_demand=1), Limit(min_on_demand=2)]),
    "another value": ({"tier": "silver"}, [Limit(min_on_demand=1)]),
    "both": (
        {"tier": "gold", "pci": ""},
        [Limit(min_on_demand=1), Limit(min_on_demand=2), Limit(min_on_demand=3)],
    ),
}


@pytest.mark.parametrize(("labels", "expected"), SELECTED.values(), ids=SELECTED.keys())
def test_limits_hold_for_the_namespaces_they_select(labels: dict[str, str], expected: list[Limit]) -> None:
    """All requirements of a selector must hold; no selector selects all."""
    configuration = parse_configuration(
        {
            "limits": [
                {"minOnDemand": 1},
                {"minOnDemand": 2, "namespaces": {"matchLabels": {"tier": "gold"}}},
                {
                    "minOnDemand": 3,
                    "namespaces": {
                        "matchLabels": {"tier": "gold"},
                        "matchExpressions": [{"key": "pci", "operator": "Exists"}],
                    },
                },
            ]
        }
    )
    assert configuration.limits_of(labels) == tuple(expected)


words = st.one_of(
    st.sampled_from(
        [
            *("classes", "defaults", "limits", "priorityClasses", "leavingTaints", "key", "spot", "onDemand", "taints"),
            *("spot-ratio", "namespaces", "maxSpotRatio", "minOnDemand", "matchLabels", "matchExpressions", "operator"),
            *("values", "In", "Exists", "overflow", "default", "gke", "50%", "a/b", "rebalance"),
        ]
    ),
    st.text(max_size=5),
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(-3, 200), st.floats(), words)
loaded = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(words, st.integers(), st.none()), inner, max_size=4)
    ),
    max_leaves=12,
)
sections = st.fixed_dictionaries(
    {},
    optional={
        "classes": loaded,
        "defaults": loaded,
        "limits": st.lists(
            st.fixed_dictionaries({}, optional={"namespaces": loaded, "maxSpotRatio": scalars, "minOnDemand": scalars}),
            max_size=2,
        ),
        "priorityClasses": loaded,
        "leavingTaints": loaded,
    },
)


@many
@given(st.one_of(loaded, sections))
def test_whatever_is_written_is_a_configuration_or_a_list_of_mistakes(raw: Any) -> None:
    """Never another exception; and what passes can be used."""
    try:
        configuration = parse_configuration(raw)
    except ConfigurationError:
        return
    assert resolve({}, {}, configuration.defaults, configuration.limits_of({"a": "b"}))[1] == ()
    assert configuration.classes.labels


NOTICES = {
    "a spot node that ends": ("aws-node-termination-handler/spot-itn", "{}", 120.0),
    "one of a cloud that says so late": ("cloud.google.com/impending-node-termination", "classes: [gke]", 30.0),
    "as configured": ("aws-node-termination-handler/spot-itn", "terminationNotice: 45s", 45.0),
    "a node that is one too many": ("ToBeDeletedByClusterAutoscaler", "{}", None),
    "any other taint": ("dedicated", "{}", None),
}


@pytest.mark.parametrize(("taint", "text", "seconds"), NOTICES.values(), ids=NOTICES.keys())
def test_how_long_before_its_end_a_node_is_announced(taint: str, text: str, seconds: float | None) -> None:
    node = Node("n", taints=(NodeTaint(taint),))
    assert parse_configuration(yaml.safe_load(text)).notice_seconds(node) == seconds


TAKEN = {
    "a spot node that is being deleted": ("spot", True, "[karpenter]", 120.0),
    "the notice is the one of its own label": ("spot", True, "[karpenter, aks]", 120.0),
    "Karpenter waits for the pods of a node that it replaces": ("spot", False, "[karpenter]", None),
    "and on on-demand always": ("on-demand", True, "[karpenter]", None),
}


@pytest.mark.parametrize(("capacity", "deleting", "classes", "seconds"), TAKEN.values(), ids=TAKEN.keys())
def test_karpenters_taint_announces_an_end_where_the_cloud_takes_the_node(
    capacity: str, deleting: bool, classes: str, seconds: float | None
) -> None:
    node = Node("n", {"karpenter.sh/capacity-type": capacity}, (NodeTaint(names.DISRUPTED),), deleting=deleting)
    assert parse_configuration(yaml.safe_load(f"classes: {classes}")).notice_seconds(node) == seconds
