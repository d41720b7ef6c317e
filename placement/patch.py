"""A decision as JSON patch on the raw pod.

`Ignore` covers a failed call, not a patch that does not apply: that refuses the pod. So the patch is never written by
hand: the pod is changed in memory, and each part of it that differs is added as a whole, which replaces what was
there. Fields that we do not know are carried along.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placement import names
from placement.decide import Decision
from placement.inject import Injection, Preference
from placement.model import DEFAULT_SCHEDULER, NOTHING, NodeRequirement, NodeTaint, NodeTerm

Raw = Mapping[str, Any]
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def patch(raw_pod: Raw, decision: Decision, of_spec: Sequence[Any] | None = None) -> list[Any]:
    """The JSON patch that turns the pod into `placed_pod(raw_pod, decision)`; empty where nothing differs.

    `of_spec` is what `spec_patch` gives, where that is known already, in the form that its operations are wanted in.
    """
    if of_spec is None:
        of_spec = spec_patch(raw_pod["spec"], decision.injection)
    return [*metadata_patch(raw_pod["metadata"], decision), *of_spec]


def placed_pod(raw_pod: Raw, decision: Decision) -> dict[str, Any]:
    """The pod as the decision wants it, its priority apart (the API server computes that from the class)."""
    raw_metadata, raw_spec = raw_pod["metadata"], raw_pod["spec"]
    metadata = {**raw_metadata, **_written_metadata(raw_metadata, decision)}
    return {**raw_pod, "metadata": metadata, "spec": {**raw_spec, **_written_spec(raw_spec, decision.injection)}}


def metadata_patch(raw_metadata: Raw, decision: Decision) -> list[dict[str, Any]]:
    """The part of the patch that differs from pod to pod."""
    return _differences("metadata", raw_metadata, _written_metadata(raw_metadata, decision))


def spec_patch(raw_spec: Raw, injection: Injection) -> list[dict[str, Any]]:
    """The part of the patch that is the same for pods with the same spec, class and pool."""
    differences = _differences("spec", raw_spec, _written_spec(raw_spec, injection))
    return differences + priority_patch(raw_spec, injection.priority_class)


def gate_patch(raw_pod: Raw, annotations: Mapping[str, str] = NOTHING) -> list[dict[str, Any]]:
    """Gate and label of a member, and these annotations. Other gates stay; it waits for the default scheduler."""
    raw_metadata, raw_spec = raw_pod["metadata"], raw_pod["spec"]
    gates = _listed(raw_spec, "schedulingGates")
    has_gate = any(each.get("name") == names.GANG_GATE for each in gates)
    labels = {**(raw_metadata.get("labels") or {}), names.GANG_LABEL: names.GANG_MEMBER}
    spec: dict[str, Any] = {} if has_gate else {"schedulingGates": [*gates, {"name": names.GANG_GATE}]}
    if raw_spec.get("schedulerName"):
        spec["schedulerName"] = DEFAULT_SCHEDULER
    return [
        *_differences("metadata", raw_metadata, {"labels": labels}),
        *annotations_patch(raw_pod, annotations),
        *_differences("spec", raw_spec, spec),
    ]


def exclusive_patch(raw_spec: Raw, taint: NodeTaint, *, per_pod: bool) -> list[dict[str, Any]]:
    """A member tolerates the taint of its gang's nodes; `per_pod`: and shares its node with no other member.

    A pod that waits behind a gate can still be narrowed to nodes, and gets neither of these any more.
    """
    tolerated = {"key": taint.key, "operator": "Equal", "value": taint.value, "effect": taint.effect}
    written: dict[str, Any] = {"tolerations": _with(_listed(raw_spec, "tolerations"), tolerated)}
    if per_pod:
        affinity = raw_spec.get("affinity") or {}
        anti = affinity.get("podAntiAffinity") or {}
        required = _with(_listed(anti, _REQUIRED), _APART)
        written["affinity"] = {**affinity, "podAntiAffinity": {**anti, _REQUIRED: required}}
    return _differences("spec", raw_spec, written)


_APART = {
    "labelSelector": {"matchLabels": {names.GANG_LABEL: names.GANG_MEMBER}},
    "namespaceSelector": {},
    "topologyKey": names.HOSTNAME,
}


def _with(there: list[Any], one: Any) -> list[Any]:
    return there if one in there else [*there, one]


def annotations_patch(raw_pod: Raw, annotations: Mapping[str, str]) -> list[dict[str, Any]]:
    """These annotations, beside those that are there."""
    raw_metadata = raw_pod["metadata"]
    together = {**(raw_metadata.get("annotations") or {}), **annotations}
    return _differences("metadata", raw_metadata, {"annotations": together}) if annotations else []


def _differences(outer: str, raw: Raw, written: Raw) -> list[dict[str, Any]]:
    return [
        {"op": "add", "path": f"/{outer}/{part}", "value": value}
        for part, value in written.items()
        if value != raw.get(part)
    ]


def _written_metadata(raw_metadata: Raw, decision: Decision) -> dict[str, Any]:
    """The parts that we write to, as the decision wants them."""
    annotations = {**_without_ours(raw_metadata.get("annotations") or {}), **_annotations(decision)}
    if decision.placed is None:
        return {"annotations": annotations}
    labels = {**(raw_metadata.get("labels") or {}), names.CLASS: str(decision.placed)}
    return {"labels": labels, "annotations": annotations}


def _written_spec(raw_spec: Raw, injection: Injection) -> dict[str, Any]:
    """The parts that we or the user say anything of, as the decision wants them."""
    written = {
        "affinity": _affinity(raw_spec.get("affinity") or {}, injection),
        "tolerations": _tolerations(_listed(raw_spec, "tolerations"), injection.tolerations),
        "topologySpreadConstraints": _spread(_listed(raw_spec, "topologySpreadConstraints"), injection.spread),
    }
    return {part: value for part, value in written.items() if value}


def own_terms(raw_spec: Mapping[str, Any]) -> tuple[NodeTerm, ...]:
    """The ORed terms of a pod's own node selector and required node affinity; none where it has neither.

    A term without expressions matches no node, so it is left out unless all are like that.
    """
    selector = tuple(
        NodeRequirement(key, "In", (value,)) for key, value in (raw_spec.get("nodeSelector") or {}).items()
    )
    terms = [term for term in _required_terms(raw_spec.get("affinity") or {}) if not _matches_nothing(term)]
    if not terms:
        return (selector,) if selector else ()
    return tuple(selector + _requirements(term) for term in terms)


def _without_ours(written: Mapping[str, str]) -> dict[str, str]:
    """What of ours came with a copied template would pass for this decision's, or for a move's: it goes."""
    return {key: value for key, value in written.items() if key not in names.POD_ANNOTATIONS}


def _annotations(decision: Decision) -> dict[str, str]:
    written = {names.DECISION: f"{decision.controller_uid}/{decision.id}", names.REASON: decision.explanation}
    if decision.slot is not None:
        written[names.SLOT] = str(decision.slot)
    if decision.soft:
        written[names.SOFT] = "true"
    if decision.placed is None:
        written[names.LEFT_ALONE] = "true"
    if decision.deletion_cost is not None:
        written[names.DELETION_COST] = str(decision.deletion_cost)
    return written


def _listed(raw: Raw, part: str) -> list[Any]:
    """A list that the user wrote, or none. The API server would send nothing else: in doubt, no patch."""
    value = raw.get(part) or []
    if not isinstance(value, list):
        raise TypeError(f"{part} is not a list: {value!r:.100}")
    return list(value)


# --- node affinity ---------------------------------------------------------------------------------------------------


def _affinity(raw_affinity: Mapping[str, Any], injection: Injection) -> dict[str, Any]:
    node_affinity = dict(raw_affinity.get("nodeAffinity") or {})
    if injection.required:
        selector = dict(node_affinity.get(_REQUIRED) or {})
        selector["nodeSelectorTerms"] = _with_required(_required_terms(raw_affinity), injection.required)
        node_affinity[_REQUIRED] = selector
    if injection.preferred:
        written = _listed(node_affinity, _PREFERRED)
        ours = [_raw_preference(preference) for preference in injection.preferred]
        node_affinity[_PREFERRED] = written + [each for each in ours if each not in written]
    return {**raw_affinity, "nodeAffinity": node_affinity} if node_affinity else dict(raw_affinity)


def _required_terms(raw_affinity: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    required = (raw_affinity.get("nodeAffinity") or {}).get(_REQUIRED) or {}
    return _listed(required, "nodeSelectorTerms")


def _with_required(written: Sequence[Mapping[str, Any]], ours: Sequence[NodeTerm]) -> list[dict[str, Any]]:
    """The users' terms × ours. Terms are ORed, expressions ANDed: ours go into every term, never beside them."""
    raw_ours = [[_raw_requirement(requirement) for requirement in term] for term in ours]
    if not written:
        return [{"matchExpressions": expressions} for expressions in raw_ours]
    return [product for term in written for product in _products(term, raw_ours)]


def _products(term: Mapping[str, Any], ours: Sequence[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """One term with each of ours in it. Left as it is: a term that holds one of ours already, and an empty one

    (it matches nothing; with an expression of ours it would match).
    """
    written = _listed(term, "matchExpressions")
    if _matches_nothing(term) or any(all(each in written for each in expressions) for expressions in ours):
        return [dict(term)]
    return [{**term, "matchExpressions": written + expressions} for expressions in ours]


def _matches_nothing(term: Mapping[str, Any]) -> bool:
    return not term.get("matchExpressions") and not term.get("matchFields")


def _requirements(term: Mapping[str, Any]) -> NodeTerm:
    return tuple(
        NodeRequirement(each["key"], each["operator"], tuple(each.get("values") or ()))
        for each in [*(term.get("matchExpressions") or []), *(term.get("matchFields") or [])]
    )


def _raw_requirement(requirement: NodeRequirement) -> dict[str, Any]:
    return {"key": requirement.key, "operator": requirement.operator, "values": list(requirement.values)}


def _raw_preference(preference: Preference) -> dict[str, Any]:
    term = {"matchExpressions": [_raw_requirement(each) for each in preference.term]}
    return {"weight": preference.weight, "preference": term}


# --- the rest of the spec --------------------------------------------------------------------------------------------


def _tolerations(written: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, str]]) -> list[Mapping[str, Any]]:
    return [*written, *(dict(toleration) for toleration in ours if toleration not in written)]


def _spread(written: Sequence[Mapping[str, Any]], ours: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Ours, for the topologies that the user says nothing of."""
    taken = {constraint.get("topologyKey") for constraint in written}
    return [*written, *(constraint for constraint in ours if constraint["topologyKey"] not in taken)]


def priority_patch(raw_spec: Mapping[str, Any], priority_class: str) -> list[dict[str, Any]]:
    """The API server has computed priority and preemption policy already; beside a new class both must go.

    Removing a path that is not there refuses the pod, so each is looked for first.
    """
    if not priority_class or raw_spec.get("priorityClassName") == priority_class:
        return []
    computed = [key for key in ("priority", "preemptionPolicy") if key in raw_spec]
    return [
        {"op": "add", "path": "/spec/priorityClassName", "value": priority_class},
        *({"op": "remove", "path": f"/spec/{key}"} for key in computed),
    ]
