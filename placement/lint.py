"""Lint: mistakes in what people write, reported before a pod is placed.

There are two ways, from one source. `findings_in` reads objects offline, for `spotweave lint`. `policies` are
ValidatingAdmissionPolicies that report the same when an object is applied; they warn and never refuse.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from placement import names
from placement.gang.terms import LONGEST_NAME, terms_of
from placement.gang.terms import ROWS as GANG_ROWS
from placement.gang.terms import Row as GangRow
from placement.model import Kind, Namespace, Workload, nothing
from placement.policy import LONGEST_VALUE, NOT_POLICY, SETTINGS, Level, Mistake, Policy, Setting, mistakes_in
from placement.policy import unavailable as taken_by_rollout

Place = Literal["annotations", "labels", "template annotations", "template labels"]

IGNORED = "is ignored"
PLACEMENTS = (names.ENABLED, names.DISABLED)
PLACEMENT_EXPECTED = " or ".join(PLACEMENTS)
SETTING_NAMES = frozenset(setting.annotation for setting in SETTINGS)
GANG_ANNOTATIONS = (names.POD_GROUP, *GANG_ROWS)  # what belongs on a pod template (design §6)
INVALID = "is invalid"  # of a gang's: with some of these mistakes it does not start
NAME_EXPECTED = "a name"
JOB_COUNTS_EVICTIONS = (
    "the Job counts each eviction of a member as a failure, towards its backoffLimit; "
    "let its podFailurePolicy ignore the condition DisruptionTarget"
)
GROUP_EXPECTED = f"{names.POD_GROUP} beside it; it has no effect alone"
TEMPLATE_EXPECTED = "it on the workload itself; it has no effect on a pod template"
LABEL_EXPECTED = "an annotation of that name; it has no effect as a label"
KNOWN_EXPECTED = f"{names.PREFIX} followed by one of {', '.join(setting.name for setting in SETTINGS)}"


@dataclass(frozen=True, slots=True)
class LintedObject:
    """What people wrote on a workload or a namespace; a namespace has no template."""

    level: Level
    annotations: Mapping[str, str]
    labels: Mapping[str, str]
    template_annotations: Mapping[str, str]
    template_labels: Mapping[str, str]

    @classmethod
    def on_namespace(cls, namespace: Namespace) -> LintedObject:
        return cls("namespace", namespace.annotations, namespace.labels, nothing(), nothing())

    @classmethod
    def on_workload(cls, workload: Workload, template_annotations: Mapping[str, str]) -> LintedObject:
        return cls("workload", workload.annotations, workload.labels, template_annotations, workload.template.labels)


@dataclass(frozen=True, slots=True)
class Finding:
    """A finding for the author: where it is, what is wrong and what would be right."""

    place: Place
    annotation: str
    value: str
    expected: str
    verdict: str = IGNORED

    def __str__(self) -> str:
        return f"{self.annotation}: {self.value!r} {self.verdict}; expected {self.expected}"

    @classmethod
    def of(cls, mistake: Mistake) -> Finding:
        return cls("annotations", mistake.annotation, mistake.value, mistake.expected)


def findings_in(written: LintedObject) -> Iterator[Finding]:
    """Every value that does not count, wherever it stands on the object. The Warn policies say the same."""
    yield from map(Finding.of, mistakes_in(written.annotations, written.level))
    placements: tuple[tuple[Place, Mapping[str, str]], ...] = (
        ("labels", written.labels),
        ("annotations", {} if written.level == "namespace" else written.annotations),
        ("template labels", written.template_labels),
    )
    for place, texts in placements:
        if texts.get(names.PLACEMENT, names.ENABLED) not in PLACEMENTS:
            yield Finding(place, names.PLACEMENT, texts[names.PLACEMENT], PLACEMENT_EXPECTED)
    for label in sorted(written.labels.keys() & SETTING_NAMES):
        yield Finding("labels", label, written.labels[label], LABEL_EXPECTED)
    for annotation, text in sorted(written.template_annotations.items()):
        if annotation.startswith(names.PREFIX) and annotation not in GANG_ANNOTATIONS:
            yield Finding("template annotations", annotation, text, TEMPLATE_EXPECTED)
    yield from _gang_findings(written.template_annotations, written.template_labels)


def _gang_findings(template: Mapping[str, str], labels: Mapping[str, str]) -> Iterator[Finding]:
    """What the parser finds in the template of a gang's members; without a group, all that was meant for one."""
    if names.POD_GROUP in template or names.POD_GROUP_LABEL in labels:
        for each in terms_of(template)[1]:
            yield Finding("template annotations", each.annotation, each.value, each.expected, INVALID)
        return
    for annotation in sorted(template.keys() & set(GANG_ANNOTATIONS)):
        yield Finding("template annotations", annotation, template[annotation], GROUP_EXPECTED)


def rollout_finding(workload: Workload, policy: Policy) -> Finding | None:
    """The floor that a rollout may take away in one go (design §4).

    80 % of 10 replicas leave 2 on on-demand. With `maxUnavailable: 2` both may be replaced at once, and for a moment
    only spot serves. No finding where there is no spot, and none for `Recreate`, which takes everything on purpose. Nor
    for a StatefulSet that takes one pod at a time, as all do, where nobody has asked for a floor of its own: our
    defaults are no mistake.
    """
    n = workload.replicas
    mix, taken = policy.slots.mix(n), taken_by_rollout(workload.rollout, n)
    if workload.rollout.recreate or mix.spot == 0 or not 0 < mix.on_demand <= taken:
        return None
    if workload.kind is Kind.STATEFUL_SET and taken == 1 and not _asks_for_a_floor(policy):
        return None
    verdict = f"keeps {mix.on_demand} of {n} replicas on on-demand, but a rollout may remove {taken} at a time"
    smaller = "" if workload.kind is Kind.STATEFUL_SET else ", or a smaller maxUnavailable"
    return Finding(
        "annotations", names.MIN_ON_DEMAND, str(policy.min_on_demand), f"at least {min(n, taken + 1)}{smaller}", verdict
    )


def _asks_for_a_floor(policy: Policy) -> bool:
    """Somebody wrote it, or the ratio: on the workload, its namespace, or in the configuration."""
    written = (policy.source.get(name, "built-in") for name in ("spot-ratio", "min-on-demand"))
    return any(level != "built-in" for level in written)


# --- the same, said by the API server --------------------------------------------------------------------------------

SHOWN_LENGTH = 60  # of a value in a warning
SEVERAL_SHOWN_LENGTH = 300  # of several, with their annotations
CONTROLLERS = (  # they write Deployments too, and read no warnings
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:deployment-controller",
    "system:serviceaccount:kube-system:statefulset-controller",
)
_API = "admissionregistration.k8s.io/v1"
_LABELS = {"app.kubernetes.io/name": "spotweave"}
_ANNOTATIONS = "object.metadata.?annotations"
_LABELS_WRITTEN = "object.metadata.?labels"
_TEMPLATE = "object.spec.?template.?metadata"
WORKLOAD_PLACES = (_LABELS_WRITTEN, _ANNOTATIONS, f"{_TEMPLATE}.?labels")  # as `Workload.is_opted_out` reads


def policies() -> list[dict[str, Any]]:
    """The manifests, in the order in which they are applied."""
    workloads = {"apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments", "statefulsets"]}
    namespaces = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"]}
    conditions = {
        "written-by-people": f"!(request.userInfo.username in {_list(CONTROLLERS)})",
        "not-opted-out": f"!({_text(names.DISABLED)} in [{', '.join(map(_placement, WORKLOAD_PLACES))}])",
    }
    validations = [
        *map(_setting_validation, SETTINGS),
        _none("unknown", KNOWN_EXPECTED),
        _none("labelled", LABEL_EXPECTED),
    ]
    misplaced = _none("misplaced", TEMPLATE_EXPECTED)
    return [
        _policy(
            names.LINT_POLICY,
            [workloads],
            conditions,
            {**_variables("workload"), **_misplaced_variables()},
            [*validations, *map(_placement_validation, WORKLOAD_PLACES), misplaced],
        ),
        _binding(names.LINT_POLICY, {"key": names.PLACEMENT, "operator": "In", "values": [names.ENABLED]}),
        _policy(
            names.LINT_NAMESPACES_POLICY,
            [namespaces],
            {},
            _variables("namespace"),
            [*validations, _placement_validation(_LABELS_WRITTEN)],
        ),
        _binding(names.LINT_NAMESPACES_POLICY, {"key": names.PLACEMENT, "operator": "Exists"}),
        _policy(
            names.LINT_GANGS_POLICY,
            [workloads, {"apiGroups": ["batch"], "apiVersions": ["v1"], "resources": ["jobs"]}],
            conditions,
            _gang_variables(),
            [_group_validation(), *_gang_validations(), _none("lonely", GROUP_EXPECTED), _job_validation()],
        ),
        _binding(names.LINT_GANGS_POLICY, {"key": names.PLACEMENT, "operator": "In", "values": [names.ENABLED]}),
    ]


def _variables(level: Level) -> dict[str, str]:
    known = _list((*(setting.annotation for setting in SETTINGS), *sorted(NOT_POLICY)))
    return {
        "level": _text(level),
        "written": f"{_ANNOTATIONS}.orValue({{}})",
        "known": known,
        "unknown": f"variables.written.filter(k, k.startsWith({_text(names.PREFIX)}) && !(k in variables.known))",
        "unknown_told": _told("unknown", "variables.written"),
        "labels": f"{_LABELS_WRITTEN}.orValue({{}})",
        "labelled": f"variables.labels.filter(k, k in {_list(tuple(setting.annotation for setting in SETTINGS))})",
        "labelled_told": _told("labelled", "variables.labels"),
        **{each.field: f"variables.written[?{_text(each.annotation)}].orValue('')" for each in SETTINGS},
    }


def _misplaced_variables() -> dict[str, str]:
    ours = f"k.startsWith({_text(names.PREFIX)}) && !(k in {_list(GANG_ANNOTATIONS)})"
    return {
        "template": f"{_TEMPLATE}.?annotations.orValue({{}})",
        "misplaced": f"variables.template.filter(k, {ours})",
        "misplaced_told": _told("misplaced", "variables.template"),
    }


def _gang_variables() -> dict[str, str]:
    group = _text(names.POD_GROUP)
    return {
        "level": _text("workload"),
        "template": f"{_TEMPLATE}.?annotations.orValue({{}})",
        "grouped": f"{_TEMPLATE}.?labels[?{_text(names.POD_GROUP_LABEL)}].hasValue()",
        "in_group": f"{group} in variables.template || variables.grouped",
        "group": f"variables.template[?{group}].orValue('')",
        "lonely": f"variables.in_group ? [] : variables.template.filter(k, k in {_list(GANG_ANNOTATIONS)})",
        "lonely_told": _told("lonely", "variables.template"),
    }


def _group_validation() -> dict[str, str]:
    value = "variables.group"
    right = f"size({value}) > 0 && size({value}) <= {LONGEST_NAME} && {value}.trim() == {value}"
    return _validation(
        f"!({_text(names.POD_GROUP)} in variables.template) || ({right})",
        names.POD_GROUP,
        value,
        NAME_EXPECTED,
        INVALID,
    )


def _job_validation() -> dict[str, str]:
    """Deployments have no such field, so it is looked up without their schema."""
    rules = "dyn(object).?spec.?podFailurePolicy.?rules.orValue([])"
    is_disrupted = f"c.type == {_text(names.DISRUPTION_TARGET)} && c.?status.orValue('True') == 'True'"
    ignores = f"r.action == 'Ignore' && r.?onPodConditions.orValue([]).exists(c, {is_disrupted})"
    return {
        "expression": f"object.kind != 'Job' || !variables.in_group || {rules}.exists(r, {ignores})",
        "message": JOB_COUNTS_EVICTIONS,
    }


def _gang_validations() -> list[dict[str, str]]:
    return [_gang_validation(annotation, row) for annotation, row in GANG_ROWS.items()]


def _gang_validation(annotation: str, row: GangRow) -> dict[str, str]:
    """True where there is no such annotation, or no group, or every shape matches."""
    value = f"variables.template[?{_text(annotation)}].orValue('')"
    shapes = " && ".join(f"{value}.matches(r'^(?:{shape})$')" for shape in row.shapes)
    absent = f"!variables.in_group || !({_text(annotation)} in variables.template)"
    right = f"{absent} || (size({value}) <= {LONGEST_VALUE} && {shapes})"
    return _validation(right, annotation, value, row.expected, INVALID)


def _policy(
    name: str,
    rules: list[dict[str, Any]],
    conditions: dict[str, str],
    variables: dict[str, str],
    validations: list[dict[str, str]],
) -> dict[str, Any]:
    spec: dict[str, Any] = {
        "failurePolicy": "Ignore",
        "matchConstraints": {"resourceRules": [{**rule, "operations": ["CREATE", "UPDATE"]} for rule in rules]},
    }
    if conditions:
        spec["matchConditions"] = _named_expressions(conditions)
    spec["variables"] = _named_expressions(variables)
    spec["validations"] = validations
    return _object("ValidatingAdmissionPolicy", name, spec)


def _named_expressions(expressions: dict[str, str]) -> list[dict[str, str]]:
    return [{"name": name, "expression": expression} for name, expression in expressions.items()]


def _binding(name: str, selected: dict[str, Any]) -> dict[str, Any]:
    select = {"namespaceSelector": {"matchExpressions": [selected]}}
    spec = {"policyName": name, "validationActions": ["Warn"], "matchResources": select}
    return _object("ValidatingAdmissionPolicyBinding", name, spec)


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": _API, "kind": kind, "metadata": {"name": name, "labels": _LABELS}, "spec": spec}


def _setting_validation(setting: Setting) -> dict[str, str]:
    """True where the annotation is absent or every shape of it matches. Length first: it bounds the cost."""
    key = _text(setting.annotation)
    value = f"variables.{setting.field}"
    shapes = " && ".join(f"{value}.trim().matches(r'^(?:{shape})$')" for shape in setting.shapes)
    right = f"!({key} in variables.written) || (size({value}) <= {LONGEST_VALUE} && {shapes})"
    return _validation(right, setting.annotation, value, setting.expected)


def _placement_validation(place: str) -> dict[str, str]:
    value = _placement(place)
    return _validation(f"{value} in {_list(PLACEMENTS)}", names.PLACEMENT, value, PLACEMENT_EXPECTED)


def _placement(place: str) -> str:
    return f"{place}[?{_text(names.PLACEMENT)}].orValue({_text(names.ENABLED)})"


def _validation(right: str, annotation: str, value: str, expected: str, verdict: str = IGNORED) -> dict[str, str]:
    """`message` stands in where the API server finds fault with the expression's result."""
    before, after = f" {annotation}: ", f" {verdict}; expected {expected}"
    told = f"variables.level + {_text(before)} + {_quoted(_shown(value))} + {_text(after)}"
    return {"expression": right, "message": annotation + after, "messageExpression": told}


def _none(variable: str, expected: str) -> dict[str, str]:
    """No annotation may be in the list of a variable. Those that are get reported in one sentence."""
    after = f" {IGNORED}; expected {expected}"
    shown = _shown(f"variables.{variable}_told", SEVERAL_SHOWN_LENGTH)
    return {
        "expression": f"size(variables.{variable}) == 0",
        "message": f"an annotation of {names.PREFIX}{after}",
        "messageExpression": f"variables.level + ' ' + {shown} + {_text(after)}",
    }


def _told(keys: str, texts: str) -> str:
    return f"variables.{keys}.map(k, k + ': ' + {_quoted(f'{texts}[k]')}).join(', ')"


def _shown(value: str, length: int = SHOWN_LENGTH) -> str:
    """The beginning of a value, without control characters: a warning that has any is not sent."""
    beginning = f"(size({value}) > {length} ? {value}.substring(0, {length}) + '…' : {value})"
    return f"{beginning}.findAll(r'[^\\x00-\\x1f\\x7f-\\x9f]+').join('?')"


def _quoted(value: str) -> str:
    return f"'\\'' + {value} + '\\''"


def _list(texts: tuple[str, ...]) -> str:
    return f"[{', '.join(map(_text, texts))}]"


def _text(text: str) -> str:
    """A CEL string. Ours hold neither quotes of this kind nor backslashes."""
    assert "'" not in text
    assert "\\" not in text
    return f"'{text}'"
