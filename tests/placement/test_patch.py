"""The patch: applied by an independent library, it gives what was decided and keeps what users wrote."""

from copy import deepcopy
from dataclasses import replace
from itertools import product
from typing import Any

import jsonpatch
import kubernetes_validate
import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import names
from placement.classes import PRESETS, Classes
from placement.clusterstate import ClusterState
from placement.configuration import Configuration
from placement.decide import Case, Decision, Reason, decide
from placement.inject import Injection
from placement.model import Class, Kind, NodeRequirement, Pod, Pool, Template
from placement.model import Owner as PodOwner
from placement.patch import own_terms, patch, placed_pod
from placement.policy import Policy, Spread
from placement.revision import Revision
from tests.builders.api import raw_object
from tests.builders.model import workload
from tests.placement.invariants import few, many

Raw = dict[str, Any]
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
KARPENTER = PRESETS["karpenter"].key
ONE = Configuration()
TWO = Configuration(Classes((PRESETS["default"], PRESETS["karpenter"])))


def applied(raw_pod: Raw, operations: list[Raw]) -> Raw:
    """By a library that is not ours, on a copy."""
    result: Raw = jsonpatch.apply_patch(deepcopy(raw_pod), operations)
    return result


# --- pods as users write them ----------------------------------------------------------------------------------------

expressions = st.one_of(
    st.fixed_dictionaries(
        {
            "key": st.sampled_from([names.CAPACITY, KARPENTER, "disk"]),
            "operator": st.sampled_from(["In", "NotIn"]),
            "values": st.lists(st.sampled_from(["spot", "on-demand", "ssd"]), min_size=1, max_size=2, unique=True),
        }
    ),
    st.fixed_dictionaries(
        {
            "key": st.sampled_from([names.CAPACITY, KARPENTER, "disk"]),
            "operator": st.sampled_from(["Exists", "DoesNotExist"]),
        }
    ),
)
by_name = st.just([{"key": "metadata.name", "operator": "In", "values": ["node-1"]}])
node_terms = st.fixed_dictionaries(
    {},
    optional={
        "matchExpressions": st.one_of(st.none(), st.lists(expressions, max_size=3)),
        "matchFields": st.one_of(st.none(), by_name),
    },
)
preferences = st.lists(
    st.fixed_dictionaries(
        {"weight": st.just(7), "preference": st.fixed_dictionaries({"matchExpressions": st.lists(expressions)})}
    ),
    max_size=2,
)
node_affinities = st.fixed_dictionaries(
    {},
    optional={
        REQUIRED: st.one_of(
            st.none(),
            st.fixed_dictionaries({"nodeSelectorTerms": st.one_of(st.none(), st.lists(node_terms, max_size=4))}),
        ),
        PREFERRED: st.one_of(st.none(), preferences),
        "unknownAffinity": st.just({"kept": True}),
    },
)
affinities = st.fixed_dictionaries(
    {},
    optional={
        "nodeAffinity": st.one_of(st.none(), node_affinities),
        "podAntiAffinity": st.just({REQUIRED: [{"topologyKey": names.HOSTNAME}]}),
    },
)
tolerations = st.lists(
    st.sampled_from(
        [
            {"operator": "Exists"},
            {"key": names.CAPACITY, "operator": "Equal", "value": "spot"},
            {"key": names.CAPACITY, "operator": "Equal", "value": "spot", "effect": "NoSchedule"},
            {"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5},
        ]
    ),
    max_size=3,
)
constraints = st.lists(
    st.builds(
        lambda key, when: {"maxSkew": 3, "topologyKey": key, "whenUnsatisfiable": when, "labelSelector": {}},
        st.sampled_from([names.ZONE, names.HOSTNAME, "rack"]),
        st.sampled_from(["DoNotSchedule", "ScheduleAnyway"]),
    ),
    max_size=3,
    unique_by=lambda constraint: (constraint["topologyKey"], constraint["whenUnsatisfiable"]),
)
our_names = [names.SLOT, names.DECISION, names.SOFT, names.RELEASED, names.REASON, names.DELETION_COST, names.CLASS]
string_maps = st.one_of(
    st.none(),
    st.dictionaries(st.sampled_from(["app", "a/b~c", *our_names]), st.sampled_from(["", "x", "3"]), max_size=4),
)
raw_pods = st.builds(
    lambda metadata, spec, rest: {"metadata": metadata, "spec": {"containers": [{"name": "c"}], **spec}, **rest},
    st.fixed_dictionaries(
        {"generateName": st.just("web-abc-")},
        optional={"labels": string_maps, "annotations": string_maps, "managedFields": st.just([{"manager": "m"}])},
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "affinity": st.one_of(st.none(), affinities),
            "tolerations": st.one_of(st.none(), tolerations),
            "topologySpreadConstraints": st.one_of(st.none(), constraints),
            "nodeSelector": st.one_of(st.none(), st.just({}), st.just({"disk": "ssd"})),
            "priorityClassName": st.sampled_from(["global", "spotweave-overflow"]),
            "priority": st.sampled_from([0, -5]),
            "preemptionPolicy": st.just("PreemptLowerPriority"),
            "unknownField": st.just({"deep": [1, None, {"kept": True}]}),
        },
    ),
    st.fixed_dictionaries({}, optional={"status": st.just({}), "kind": st.just("Pod"), "unknown": st.just([1])}),
)


@st.composite
def decisions(draw: st.DrawFn, raw_pod: Raw) -> Decision:
    """As admission makes them for this pod: all classes, soft or not, one or two presets, with and without pools."""
    kind = draw(st.sampled_from(list(Kind)))
    made = workload(kind=kind, ordered=draw(st.booleans()) and kind is Kind.STATEFUL_SET)
    spread = draw(st.sampled_from([(), (Spread("host"), Spread("zone")), (Spread("zone", True), Spread("host"))]))
    template = Template(has_deletion_cost=draw(st.booleans()))
    selector = {"matchLabels": {"app": "web"}}
    cluster = ClusterState(
        draw(st.sampled_from([ONE, TWO])),
        draw(st.sampled_from([(), (Pool("a", "m"), Pool("b", "m"))])),
        (names.OVERFLOW_PRIORITY,),
        frozenset(draw(st.sets(st.sampled_from(list(Class))))),
        frozenset(draw(st.sets(st.sampled_from(list(Class))))),
        draw(
            st.sampled_from([{}, {Class.SPOT: ({"key": "shy", "operator": "Exists", "effect": "PreferNoSchedule"},)}])
        ),
    )
    policy = Policy(spread=spread, rebalance=draw(st.sampled_from(["auto", "plan-only", "off"])))
    revision = Revision("rs", made, policy, 10, selector, template)
    return decide("id", draw(st.sampled_from([0, 1, 4, 9])), Case(revision, own_terms(raw_pod["spec"]), cluster))


cases = raw_pods.flatmap(lambda raw_pod: st.tuples(st.just(raw_pod), decisions(raw_pod)))


def required_terms(raw_pod: Raw) -> list[Raw] | None:
    """None where nothing is required."""
    required = ((raw_pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(REQUIRED) or {}
    return required.get("nodeSelectorTerms") or None


@many
@given(cases)
def test_the_patch_applied_gives_what_was_decided(case: tuple[Raw, Decision]) -> None:
    """Exactly the placed pod, its priority apart: there the class is new and what was computed from the old is gone."""
    raw_pod, decision = case
    before = deepcopy(raw_pod)
    patched = applied(raw_pod, patch(raw_pod, decision))
    expected = placed_pod(raw_pod, decision)
    if (
        decision.injection.priority_class
        and raw_pod["spec"].get("priorityClassName") != decision.injection.priority_class
    ):
        expected["spec"]["priorityClassName"] = decision.injection.priority_class
        expected["spec"].pop("priority", None)
        expected["spec"].pop("preemptionPolicy", None)
    assert patched == expected
    assert raw_pod == before


@many
@given(cases)
def test_patching_twice_is_patching_once(case: tuple[Raw, Decision]) -> None:
    """Admission is idempotent, with several presets too."""
    raw_pod, decision = case
    patched = applied(raw_pod, patch(raw_pod, decision))
    assert patch(patched, decision) == []


@many
@given(cases)
def test_every_path_of_the_patch_is_there(case: tuple[Raw, Decision]) -> None:
    """A patch that does not apply refuses the pod: nothing is removed that is absent, nothing replaced or tested."""
    raw_pod, decision = case
    for operation in patch(raw_pod, decision):
        _, outer, inner = operation["path"].split("/")
        assert operation["op"] in ("add", "remove")
        assert operation["op"] == "add" or inner in raw_pod[outer]


@many
@given(cases)
def test_what_users_wrote_survives(case: tuple[Raw, Decision]) -> None:
    """Labels, others' annotations, tolerations, constraints, preferences and unknown fields, all at their place."""
    raw_pod, decision = case
    new = placed_pod(raw_pod, decision)
    spec, patched = raw_pod["spec"], new["spec"]
    for key in ("tolerations", "topologySpreadConstraints"):
        written = spec.get(key) or []
        assert (patched.get(key) or [])[: len(written)] == written
    for key in ("nodeSelector", "containers", "unknownField"):
        assert patched.get(key) == spec.get(key)
    for part in ("labels", "annotations"):
        kept = {key: value for key, value in (raw_pod["metadata"].get(part) or {}).items() if key not in our_names}
        assert kept.items() <= (new["metadata"].get(part) or {}).items()
    affinity, written_affinity = patched.get("affinity") or {}, spec.get("affinity") or {}
    assert affinity.get("podAntiAffinity") == written_affinity.get("podAntiAffinity")
    node_affinity, written_node = affinity.get("nodeAffinity") or {}, written_affinity.get("nodeAffinity") or {}
    assert node_affinity.get("unknownAffinity") == written_node.get("unknownAffinity")
    preferred = written_node.get(PREFERRED) or []
    assert (node_affinity.get(PREFERRED) or [])[: len(preferred)] == preferred


@many
@given(cases)
def test_every_users_term_is_a_prefix_of_its_products(case: tuple[Raw, Decision]) -> None:
    """Terms stay in order, each followed by ours in it or left as it is; none is added beside them."""
    raw_pod, decision = case
    written = required_terms(raw_pod)
    new = required_terms(placed_pod(raw_pod, decision))
    if not decision.injection.required or written is None:
        assert new == (written if not decision.injection.required else required_terms_of(decision))
        return
    assert new is not None
    rest = iter(new)
    for term in written:
        own = term.get("matchExpressions") or []
        products = [next(rest)]
        if products[0] != term:
            products += [next(rest) for _ in decision.injection.required[1:]]
        for each in products:
            assert (each.get("matchExpressions") or [])[: len(own)] == own
            assert each.get("matchFields") == term.get("matchFields")
    assert list(rest) == []


def required_terms_of(decision: Decision) -> list[Raw]:
    return [
        {
            "matchExpressions": [
                {"key": each.key, "operator": each.operator, "values": list(each.values)} for each in term
            ]
        }
        for term in decision.injection.required
    ]


# --- what the scheduler makes of it ----------------------------------------------------------------------------------


def matches(expression: Raw, value: str | None) -> bool:
    """The scheduler's rule, written down once more."""
    operator, values = expression["operator"], expression.get("values") or []
    is_in = value is not None and value in values
    return {"In": is_in, "NotIn": not is_in, "Exists": value is not None, "DoesNotExist": value is None}[operator]


def admits(terms: list[Raw] | None, labels: dict[str, str], name: str) -> bool:
    """ORed terms of ANDed expressions; an empty term matches nothing; no terms match all."""
    return terms is None or any(
        (term.get("matchExpressions") or term.get("matchFields"))
        and all(matches(each, labels.get(each["key"])) for each in term.get("matchExpressions") or [])
        and all(matches(each, name) for each in term.get("matchFields") or [])
        for term in terms
    )


NODES = [
    (
        {
            key: value
            for key, value in zip((names.CAPACITY, KARPENTER, "disk"), values, strict=True)
            if value is not None
        },
        name,
    )
    for *values, name in product(
        (None, "spot", "on-demand", "ssd"), (None, "spot", "on-demand"), (None, "ssd"), ("node-1", "node-2")
    )
]


@many
@given(cases)
def test_a_node_is_admitted_if_the_user_and_the_class_admit_it(case: tuple[Raw, Decision]) -> None:
    """Over all nodes that these labels can make: the patched affinity is the user's AND the class, no more, no less."""
    raw_pod, decision = case
    ours = required_terms_of(decision) or None
    old, new = required_terms(raw_pod), required_terms(placed_pod(raw_pod, decision))
    for labels, name in NODES:
        assert admits(new, labels, name) == (admits(old, labels, name) and admits(ours, labels, name))
        if new is not None and decision.injection.required and admits(new, labels, name):
            classes = (
                TWO if len(decision.injection.required) > 1 or len(decision.injection.required[0]) > 1 else ONE
            ).classes
            assert (classes.of_node(labels) or Class.ON_DEMAND) is decision.placed


@many
@given(cases)
def test_no_constraint_is_doubled(case: tuple[Raw, Decision]) -> None:
    """A second one with the same topology and strictness refuses the pod; ours keep off the users' topologies."""
    raw_pod, decision = case
    constraints = placed_pod(raw_pod, decision)["spec"].get("topologySpreadConstraints") or []
    pairs = [(each["topologyKey"], each["whenUnsatisfiable"]) for each in constraints]
    assert len(pairs) == len(set(pairs))
    written = {each["topologyKey"] for each in raw_pod["spec"].get("topologySpreadConstraints") or []}
    ours = constraints[len(raw_pod["spec"].get("topologySpreadConstraints") or []) :]
    assert written.isdisjoint(each["topologyKey"] for each in ours)


@many
@given(cases)
def test_the_pod_carries_its_decision_and_no_other(case: tuple[Raw, Decision]) -> None:
    """Read back as an informer reads it: what came with a copied template does not pass for ours."""
    raw_pod, decision = case
    metadata = placed_pod(raw_pod, decision)["metadata"]
    owner = PodOwner("ReplicaSet", "web-abc", "rs")
    labels, annotations = metadata.get("labels") or {}, metadata["annotations"]
    pod = Pod("shop", "x", owner=owner, labels=labels, annotations=annotations, decision=annotations[names.DECISION])
    assert (pod.decision_id, pod.slot) == ("id", decision.slot)
    assert (names.SOFT in pod.annotations) is decision.soft
    assert pod.annotations[names.REASON] == decision.explanation
    assert pod.is_live
    assert decision.placed is None or pod.labels[names.CLASS] == decision.placed
    if decision.deletion_cost is not None:
        assert pod.annotations[names.DELETION_COST] == str(decision.deletion_cost)


# --- by example ------------------------------------------------------------------------------------------------------

SPOT = Decision(
    "id",
    "rs",
    Reason.SLOT,
    "because",
    Class.SPOT,
    4,
    injection=Injection(required=ONE.classes.terms(Class.SPOT), tolerations=ONE.classes.tolerations),
    deletion_cost=-4,
)
WRITTEN = {
    names.DECISION: "rs/id",
    names.REASON: "because",
    names.SLOT: "4",
    names.DELETION_COST: "-4",
}
IN_SPOT = {"key": names.CAPACITY, "operator": "In", "values": ["spot"]}


def test_the_patch_of_a_bare_pod() -> None:
    """Each part that differs is added as a whole, so nothing has to be there before."""
    assert patch(raw_object(), SPOT) == [
        {"op": "add", "path": "/metadata/labels", "value": {names.CLASS: "spot"}},
        {"op": "add", "path": "/metadata/annotations", "value": WRITTEN},
        {
            "op": "add",
            "path": "/spec/affinity",
            "value": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [IN_SPOT]}]}}},
        },
        {
            "op": "add",
            "path": "/spec/tolerations",
            "value": [{"key": names.CAPACITY, "operator": "Equal", "value": "spot"}],
        },
    ]


def test_a_contradiction_is_only_noted() -> None:
    """The pod that is left alone gets the decision and the reason as annotations, and nothing in its spec."""
    decision = Decision("id", "rs", Reason.CONTRADICTION, "left alone: because")
    noted = {names.DECISION: "rs/id", names.REASON: "left alone: because", names.LEFT_ALONE: "true"}
    own = raw_object({"labels": {"app": "web"}}, nodeSelector={names.CAPACITY: "spot"})
    assert patch(own, decision) == [{"op": "add", "path": "/metadata/annotations", "value": noted}]


DISK = {"key": "disk", "operator": "In", "values": ["ssd"]}
GPU = {"key": "gpu", "operator": "Exists"}
IN_KARPENTER = {"key": KARPENTER, "operator": "In", "values": ["spot"]}
FIELDS = [{"key": "metadata.name", "operator": "In", "values": ["n"]}]
PRODUCTS: dict[str, tuple[list[Raw], Configuration, list[Raw]]] = {
    "no terms: one is made": ([], ONE, [{"matchExpressions": [IN_SPOT]}]),
    "ours goes into every ORed term": (
        [{"matchExpressions": [DISK]}, {"matchExpressions": [GPU]}],
        ONE,
        [{"matchExpressions": [DISK, IN_SPOT]}, {"matchExpressions": [GPU, IN_SPOT]}],
    ),
    "several presets: the product": (
        [{"matchExpressions": [DISK]}, {"matchExpressions": [GPU]}],
        TWO,
        [
            {"matchExpressions": [DISK, IN_SPOT]},
            {"matchExpressions": [DISK, IN_KARPENTER]},
            {"matchExpressions": [GPU, IN_SPOT]},
            {"matchExpressions": [GPU, IN_KARPENTER]},
        ],
    ),
    "an empty term matches nothing, and goes on to": (
        [{}, {"matchExpressions": [DISK]}],
        ONE,
        [{}, {"matchExpressions": [DISK, IN_SPOT]}],
    ),
    "fields are kept": ([{"matchFields": FIELDS}], ONE, [{"matchFields": FIELDS, "matchExpressions": [IN_SPOT]}]),
    "a term that says it already": (
        [{"matchExpressions": [IN_SPOT, DISK]}],
        TWO,
        [{"matchExpressions": [IN_SPOT, DISK]}],
    ),
}


@pytest.mark.parametrize(("written", "configuration", "expected"), PRODUCTS.values(), ids=PRODUCTS.keys())
def test_required_terms_are_users_times_ours(
    written: list[Raw], configuration: Configuration, expected: list[Raw]
) -> None:
    """Terms are ORed: an alternative of ours beside the users' would open what they closed."""
    own = raw_object(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": written}}})
    decision = replace(SPOT, injection=Injection(required=configuration.classes.terms(Class.SPOT)))
    assert required_terms(placed_pod(own, decision)) == expected


OWN_TERMS: dict[str, tuple[Raw, tuple[tuple[NodeRequirement, ...], ...]]] = {
    "neither": ({}, ()),
    "null": ({"nodeSelector": None, "affinity": None}, ()),
    "a selector": ({"nodeSelector": {"a": "b"}}, ((NodeRequirement("a", "In", ("b",)),),)),
    "a selector is ANDed with every term": (
        {
            "nodeSelector": {"a": "b"},
            "affinity": {
                "nodeAffinity": {
                    REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": [DISK]}, {"matchExpressions": [GPU]}]}
                }
            },
        },
        (
            (NodeRequirement("a", "In", ("b",)), NodeRequirement("disk", "In", ("ssd",))),
            (NodeRequirement("a", "In", ("b",)), NodeRequirement("gpu", "Exists")),
        ),
    ),
    "an empty term is no alternative": (
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{}, {"matchExpressions": [GPU]}]}}}},
        ((NodeRequirement("gpu", "Exists"),),),
    ),
    "a term of fields names nodes": (
        {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [{"matchFields": FIELDS}]}}}},
        ((NodeRequirement("metadata.name", "In", ("n",)),),),
    ),
}


@pytest.mark.parametrize(("spec", "expected"), OWN_TERMS.values(), ids=OWN_TERMS.keys())
def test_the_users_own_terms(spec: Raw, expected: tuple[tuple[NodeRequirement, ...], ...]) -> None:
    """Node selector and required affinity together, as ORed terms."""
    assert own_terms(spec) == expected


CLASS_OP = {"op": "add", "path": "/spec/priorityClassName", "value": "spotweave-overflow"}
NO_PRIORITY = {"op": "remove", "path": "/spec/priority"}
NO_POLICY = {"op": "remove", "path": "/spec/preemptionPolicy"}
PRIORITY_OPERATIONS: dict[str, tuple[Raw, list[Raw]]] = {
    "computed already: both must go": (
        {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"},
        [CLASS_OP, NO_PRIORITY, NO_POLICY],
    ),
    "with a globalDefault's class": (
        {"priorityClassName": "global", "priority": 7, "preemptionPolicy": "Never"},
        [CLASS_OP, NO_PRIORITY, NO_POLICY],
    ),
    "only one is there": ({"priority": 0}, [CLASS_OP, NO_PRIORITY]),
    "none is there": ({}, [CLASS_OP]),
    "it has the class": ({"priorityClassName": "spotweave-overflow", "priority": -5}, []),
}


@pytest.mark.parametrize(("spec", "expected"), PRIORITY_OPERATIONS.values(), ids=PRIORITY_OPERATIONS.keys())
def test_a_new_class_takes_the_computed_priority_away(spec: Raw, expected: list[Raw]) -> None:
    """The API server refuses the pod if it stays, and if an absent path is removed."""
    overflow = replace(SPOT, injection=replace(SPOT.injection, priority_class="spotweave-overflow"))
    operations = patch(raw_object(**spec), overflow)
    assert [each for each in operations if "riority" in each["path"] or "preemption" in each["path"]] == expected
    assert not [each for each in patch(raw_object(**spec), SPOT) if "riority" in each["path"]]


def valid_parts(raw_pod: Raw) -> bool:
    """The API server never hands us what its own schema refuses; `None` for a list or map is the same as absent."""
    terms = required_terms(raw_pod)
    affinity = (raw_pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}
    return terms is not None or not affinity.get(REQUIRED)


def without_unknown(raw: Any) -> Any:
    if isinstance(raw, dict):
        return {
            key: without_unknown(value)
            for key, value in raw.items()
            if value is not None and not key.startswith("unknown")
        }
    return [without_unknown(each) for each in raw] if isinstance(raw, list) else raw


@few
@given(cases.filter(lambda case: valid_parts(case[0])))
def test_patched_pods_follow_the_schema(case: tuple[Raw, Decision]) -> None:
    """Checked strictly against the OpenAPI schema of Kubernetes 1.36."""
    raw_pod, decision = case
    patched = without_unknown(applied(raw_pod, patch(raw_pod, decision)))
    kubernetes_validate.validate({**patched, "apiVersion": "v1", "kind": "Pod"}, "1.36", strict=True)
