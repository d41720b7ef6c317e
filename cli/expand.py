"""Manifests of gangs as the pods that they would become: for `spotweave queue preview -f`, without a write.

A Job, JobSet, CronJob, Deployment, ReplicaSet or StatefulSet becomes the pods that its controller would create at once.
Each goes through the code that admission uses for members (`webhook.gate`), and is then read like any other pod.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import yaml

from cli.errors import UsageError
from kube.resources import JOBS, POD_GROUPS, PODS_IN_FULL, REPLICA_SETS, STATEFUL_SETS
from kube.store import Store
from placement import names
from placement.decide import Reason
from placement.gang.belonging import gang_key
from placement.gang.gang import MOST_ASSEMBLING_SECONDS
from placement.gang.podgroup import PodGroup
from placement.gang.settings import Gangs
from placement.gang.twins import ScopedQuota
from placement.model import DEFAULT_SCHEDULER, Job, Pod, PriorityClass, ReplicaSet, Workload
from webhook.gangs import GangAdmission, GangCaches
from webhook.gate import gated
from webhook.review import AdmissionCall, MalformedReview

Raw = dict[str, Any]
STDIN = "-"
SUFFIXES = (".yaml", ".yml", ".json")
MOST_PODS = 5000  # of one manifest
PLAIN = Gangs()


@dataclass(frozen=True, slots=True)
class PriorityRules:
    """What gives a new pod its priority: the PriorityClasses, the default one, and quotas that are scoped by them."""

    classes: tuple[PriorityClass, ...] = ()
    default: str = ""
    quotas: tuple[ScopedQuota, ...] = ()

    def admission(self) -> GangAdmission:
        classes, quotas = Store[PriorityClass](), Store[ScopedQuota]()
        for each in self.classes:
            classes.put(each)
        for quota in self.quotas:
            quotas.put(quota)
        return GangAdmission(GangCaches(classes, quotas, lambda: True))

    def resolved(self, spec: Raw) -> Raw:
        """With the priority of its class, as the API server computes it."""
        name = spec.get("priorityClassName") or self.default
        found = next((each for each in self.classes if each.name == name), None)
        if found is None:
            return {**spec, "priority": spec.get("priority", 0)}
        policy = "Never" if found.never else "PreemptLowerPriority"
        return {**spec, "priorityClassName": name, "priority": found.value, "preemptionPolicy": policy}


@dataclass(slots=True)
class Expanded:
    """Members, what says how many there are, and what no member was found in."""

    members: list[Pod] = field(default_factory=list)
    owners: list[Job | ReplicaSet | Workload | PodGroup] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def facts(self) -> Iterator[Pod | Job | ReplicaSet | Workload | PodGroup]:
        yield from self.members
        yield from self.owners


# --- reading ---------------------------------------------------------------------------------------------------------


def objects_in(source: str) -> list[Raw]:
    """All objects of a file, of the files of a directory, or of standard input (-). Raises UsageError."""
    path = Path(source)
    try:
        if source == STDIN:
            texts = [sys.stdin.read()]
        elif path.is_dir():
            texts = [each.read_text("utf-8") for each in sorted(path.rglob("*")) if each.suffix in SUFFIXES]
        else:
            texts = [path.read_text("utf-8")]
        found = [raw for text in texts for document in yaml.safe_load_all(text) for raw in _flat(document)]
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{source}: {error}") from error
    except yaml.YAMLError as error:
        raise UsageError(f"{source}: {' '.join(str(error).split())}") from error
    if not found:
        raise UsageError(f"no manifests found in {'standard input' if source == STDIN else source}")
    return found


def _flat(document: Any) -> Iterator[Raw]:
    if not isinstance(document, dict) or not document.get("kind"):
        return
    if document["kind"] == "List":
        for each in document.get("items") or ():
            yield from _flat(each)
    else:
        yield document


# --- what controllers would create -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TemplateOwner:
    """What would own pods of one template, and how many it would have at once."""

    kind: str
    api_version: str
    name: str
    uid: str
    count: int
    template: Raw
    is_numbered: bool = False  # web-0, web-1, … as of a StatefulSet
    part_of: str = ""  # the JobSet that makes it


def _owners_of(raw: Raw, uid: str) -> Iterator[TemplateOwner]:
    kind, spec, name = raw["kind"], raw.get("spec") or {}, _name(raw)
    match kind:
        case "Job":
            yield _job(name, uid, spec)
        case "CronJob":
            yield _job(f"{name}-next", uid, (spec.get("jobTemplate") or {}).get("spec") or {})
        case "JobSet":
            for each in spec.get("replicatedJobs") or ():
                for number in range(_count(each.get("replicas"), 1)):
                    inner = (each.get("template") or {}).get("spec") or {}
                    part = f"{each.get('name')}-{number}"
                    yield replace(_job(f"{name}-{part}", f"{uid}-{part}", inner), part_of=name)
        case "Deployment" | "ReplicaSet":
            owner = f"{name}-new" if kind == "Deployment" else name
            count = _count(spec.get("replicas"), 1)
            yield TemplateOwner("ReplicaSet", "apps/v1", owner, uid, count, spec.get("template") or {})
        case "StatefulSet":
            count, template = _count(spec.get("replicas"), 1), spec.get("template") or {}
            yield TemplateOwner("StatefulSet", "apps/v1", name, uid, count, _with_claims(template, spec), True)


def _job(name: str, uid: str, spec: Raw) -> TemplateOwner:
    at_once, completions = _count(spec.get("parallelism"), 1), spec.get("completions")
    count = at_once if completions is None else min(at_once, _count(completions, 1))
    return TemplateOwner("Job", "batch/v1", name, uid, count, spec.get("template") or {})


def _with_claims(template: Raw, spec: Raw) -> Raw:
    """Each pod has claims of its own, which do not exist yet."""
    claims = [each["metadata"]["name"] for each in spec.get("volumeClaimTemplates") or ()]
    inner = template.get("spec") or {}
    volumes = [{"name": name, "ephemeral": {}} for name in claims]
    return {**template, "spec": {**inner, "volumes": [*(inner.get("volumes") or ()), *volumes]}} if claims else template


def _count(value: Any, default: int) -> int:
    count = default if value is None else value
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MOST_PODS:
        raise UsageError(f"{value!r} is not a number of pods from 0 to {MOST_PODS}")
    return count


def _grouped(raw: Raw, where: str, uid: str) -> Raw:
    return {**raw, "metadata": {**(raw.get("metadata") or {}), "namespace": where, "uid": uid}}


def _name(raw: Raw) -> str:
    meta = raw.get("metadata") or {}
    return str(meta.get("name") or f"{meta.get('generateName') or raw['kind'].lower()}x")


# --- members ---------------------------------------------------------------------------------------------------------


def expanded(
    objects: Iterable[Raw], namespace: str, rules: PriorityRules, now: float, gangs: Gangs = PLAIN
) -> Expanded:
    """The members of gangs among what these objects would become. `namespace` is for those that name none."""
    found, around = Expanded(), NewPods(rules, rules.admission(), gangs, now - MOST_ASSEMBLING_SECONDS)
    for number, raw in enumerate(objects):
        where = str((raw.get("metadata") or {}).get("namespace") or namespace)
        uid = f"preview-{number}"
        before = len(found.members)
        try:
            if raw["kind"] == "PodGroup":
                found.owners.append(POD_GROUPS.shape.single(msgspec.json.encode(_grouped(raw, where, uid))))
            if raw["kind"] == "Pod":
                _add(found, [raw], where, uid, around)
            for owner in _owners_of(raw, uid):
                if _add(found, _pods_of(owner), where, owner.uid, around):
                    found.owners += _owner_facts(owner, where)
        except (msgspec.ValidationError, MalformedReview, TypeError, KeyError, AttributeError) as error:
            raise UsageError(f"{raw['kind']} {where}/{_name(raw)} cannot be read: {error}") from error
        if len(found.members) == before and raw["kind"] not in ("Namespace", "PodGroup", "Service"):
            found.left_out.append(f"{raw['kind']} {where}/{_name(raw)} has no pods that are members of a gang")
    return found


def _pods_of(owner: TemplateOwner) -> list[Raw]:
    meta = owner.template.get("metadata") or {}
    reference = {"apiVersion": owner.api_version, "kind": owner.kind, "name": owner.name, "uid": owner.uid}
    return [
        {
            "metadata": {
                "name": f"{owner.name}-{number}" if owner.is_numbered else f"{owner.name}-{number:05d}",
                "labels": dict(meta.get("labels") or {}),
                "annotations": dict(meta.get("annotations") or {}),
                "ownerReferences": [{**reference, "controller": True}],
            },
            "spec": owner.template.get("spec") or {},
        }
        for number in range(owner.count)
    ]


@dataclass(frozen=True, slots=True)
class NewPods:
    """What admission goes by, and when the pods are taken to have been created: their gang is complete by now."""

    rules: PriorityRules
    admission: GangAdmission
    gangs: Gangs
    at: float


def _add(found: Expanded, pods: Iterable[Raw], where: str, uid: str, around: NewPods) -> bool:
    """Those that admission would make members of. Whether there are any."""
    created, rules, any_member = datetime.fromtimestamp(around.at, UTC).isoformat(), around.rules, False
    for number, raw in enumerate(pods):
        meta = {**raw["metadata"], "namespace": where, "uid": f"{uid}/{number}", "creationTimestamp": created}
        raw_pod = {"metadata": meta, "spec": rules.resolved(_defaulted(raw.get("spec") or {}))}
        verdict = gated(AdmissionCall(uid, where, raw_pod), around.admission.priority, around.gangs)
        if verdict.reason is not Reason.GATED:
            continue
        raw_pod = applied(raw_pod, verdict.patch)
        raw_pod["spec"] = rules.resolved(raw_pod["spec"])
        pod = PODS_IN_FULL.shape.single(msgspec.json.encode(raw_pod))
        if gang_key(pod) is not None:
            found.members.append(pod)
            any_member = True
    return any_member


def _defaulted(spec: Raw) -> Raw:
    """What the API server fills in, as far as it decides where a pod fits."""
    filled = {"schedulerName": DEFAULT_SCHEDULER, **spec}
    for part in ("containers", "initContainers"):
        if spec.get(part):
            filled[part] = [_with_requests(each) for each in spec[part]]
    return filled


def _with_requests(container: Raw) -> Raw:
    """What has a limit and no request asks for as much."""
    resources = container.get("resources") or {}
    limits = resources.get("limits") or {}
    asked = {key: str(value) for key, value in {**limits, **(resources.get("requests") or {})}.items()}
    if not asked:
        return container
    texts = {key: str(value) for key, value in limits.items()}
    return {**container, "resources": {**resources, "requests": asked, **({"limits": texts} if texts else {})}}


def applied(raw_pod: Raw, patch: Iterable[Mapping[str, Any]]) -> Raw:
    """The pod with admission's patch, whose operations add or remove a part of `metadata` or `spec`."""
    made = {**raw_pod, "metadata": dict(raw_pod["metadata"]), "spec": dict(raw_pod["spec"])}
    for each in patch:
        _, outer, part = each["path"].split("/")
        if each["op"] == "remove":
            made[outer].pop(part, None)
        else:
            made[outer][part] = each["value"]
    return made


_FACTS: Mapping[str, tuple[Callable[[bytes], Any], str]] = {
    "Job": (JOBS.shape.single, "parallelism"),
    "ReplicaSet": (REPLICA_SETS.shape.single, "replicas"),
    "StatefulSet": (STATEFUL_SETS.shape.single, "replicas"),
}


def _owner_facts(owner: TemplateOwner, where: str) -> list[Any]:
    """What says how many pods it has."""
    read, number = _FACTS[owner.kind]
    above = {"kind": "JobSet", "name": owner.part_of, "uid": owner.part_of, "controller": True}
    meta: Raw = {"namespace": where, "name": owner.name, "uid": owner.uid, "labels": {names.PLACEMENT: names.DISABLED}}
    meta |= {"ownerReferences": [above]} if owner.part_of else {}
    return [read(msgspec.json.encode({"metadata": meta, "spec": {number: owner.count}}))]
