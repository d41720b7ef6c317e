"""Reads an installation from outside: our objects, Leases, rights, and whether the API server gets answers.

It writes nothing: pods and ConfigMaps are created as dry runs. What the user may not read is named and left out.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from kube.client import Client
from kube.errors import ApiError, Forbidden, NotFound, Unreachable
from kube.paths import collection_in, path_of
from placement import names
from placement.installation import GrantedRight, Heartbeat, Identity, Raw, WebhookAnswer

T = TypeVar("T")

NAMESPACE = names.SYSTEM_NAMESPACE
READERS = 8
LONGEST_METRICS = 64 << 20
# Leaders renew every two seconds, webhooks every three.
BETWEEN_LOOKS_SECONDS = 6.0
FRESH_SECONDS = 20.0
PLURALS: Mapping[str, str] = {"NetworkPolicy": "networkpolicies", "PriorityClass": "priorityclasses"}


@dataclass(slots=True)
class Reader:
    """Reads what it may, and remembers what it may not."""

    client: Client
    unchecked: list[str] = field(default_factory=list)
    unread: set[Identity] = field(default_factory=set)  # expected objects that may exist

    def may(self, what: str, read: Callable[[], T], otherwise: T) -> T:
        """`otherwise` if RBAC forbids it; anything else that fails is no answer, and ends the look."""
        try:
            return read()
        except Forbidden as error:
            self._refused(what, error)
            return otherwise

    # --- objects -----------------------------------------------------------------------------------------------------

    def live(self, expected: Iterable[Raw]) -> dict[Identity, Raw]:
        """Those of the expected objects that exist; what may not be read is in `unread`."""
        found: dict[Identity, Raw] = {}
        for raw in expected:
            kind, name = raw["kind"], raw["metadata"]["name"]
            path = path_of(_collection(raw), name, raw["metadata"].get("namespace"))
            try:
                there = self._get(path)
            except Forbidden as error:
                self.unread.add((kind, name))
                self._refused(f"{kind} {name}", error)
                continue
            if there is not None:
                found[kind, name] = there
        return found

    def _refused(self, what: str, error: Forbidden) -> None:
        self.unchecked.append(f"{what}: not allowed ({error.asked})")

    def _get(self, path: str) -> Raw | None:
        try:
            return dict(self.client.get_json(path))
        except NotFound:
            return None

    def ours(self, what: str, collection: str, selector: str = "") -> tuple[Raw, ...] | None:
        """Objects of our namespace; None if that is forbidden."""
        path, query = collection_in(collection, NAMESPACE), {"labelSelector": selector} if selector else None
        empty: tuple[Raw, ...] | None = None
        return self.may(what, lambda: tuple(self.client.get_json(path, query).get("items") or ()), empty)

    def endpoints(self) -> int | None:
        """Ready addresses of the webhook's Service."""
        selector = f"kubernetes.io/service-name={names.WEBHOOK_SERVICE}"
        slices = self.ours("endpoints", "/apis/discovery.k8s.io/v1/endpointslices", selector)
        if slices is None:
            return None
        every = [each for part in slices for each in part.get("endpoints") or ()]
        return sum((each.get("conditions") or {}).get("ready") is not False for each in every)

    def priority_classes(self) -> frozenset[str] | None:
        def read() -> frozenset[str] | None:
            items = self.client.get_json("/apis/scheduling.k8s.io/v1/priorityclasses")["items"]
            return frozenset(each["metadata"]["name"] for each in items)

        return self.may("priority classes", read, None)

    # --- life --------------------------------------------------------------------------------------------------------

    def server_offset(self) -> float | None:
        """How far the API server's clock is ahead of ours: it stamps what is created, also in a dry run.

        None if that is forbidden.
        """
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "spotweave-doctor-"}}

        def read() -> float | None:
            before = time.time()
            made = self.client.post(collection_in("/api/v1/configmaps", NAMESPACE), body, {"dryRun": "All"})
            middle = (before + time.time()) / 2
            return seconds_of(made["metadata"]["creationTimestamp"]) + 0.5 - middle  # whole seconds: half too early

        return self.may("the API server's clock", read, None)

    def heartbeats(
        self, offset: float, between_seconds: float
    ) -> tuple[tuple[Heartbeat, ...], Heartbeat | None] | None:
        """Webhooks and leader, from two looks at their Leases; None if that is forbidden."""
        first = self._leases()
        if first is None:
            return None
        time.sleep(between_seconds if first else 0.0)
        second, now = self._leases() or {}, time.time() + offset
        beats = {name: _heartbeat(raw, first.get(name), now) for name, raw in second.items()}
        webhooks = tuple(beat for name, beat in beats.items() if _component(second[name]) == names.WEBHOOK_COMPONENT)
        return webhooks, beats.get(names.LEASE)

    def _leases(self) -> dict[str, Raw] | None:
        found = self.ours("leases", _COORDINATION)
        return None if found is None else {each["metadata"]["name"]: each for each in found}

    # --- rights ------------------------------------------------------------------------------------------------------

    def lacking(self, wanted: Sequence[GrantedRight]) -> tuple[GrantedRight, ...]:
        """Those that an account has not, by access reviews."""

        def allowed(right: GrantedRight) -> bool:
            asked = {"spec": _review(right), "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
            return bool(self.client.post(_REVIEWS, asked)["status"].get("allowed"))

        def read() -> tuple[GrantedRight, ...]:
            with ThreadPoolExecutor(READERS) as pool:
                return tuple(right for right, yes in zip(wanted, pool.map(allowed, wanted), strict=True) if not yes)

        return self.may("rights", read, ())

    # --- admission ---------------------------------------------------------------------------------------------------

    def answer(self, namespaces: Sequence[str]) -> WebhookAnswer:
        """Creates a pod as a dry run in an opted-in namespace, and reads the server's own count of calls."""
        if not namespaces:
            self.unchecked.append("whether the webhook answers: no namespace is opted in")
            return WebhookAnswer.UNKNOWN
        return self.may("whether the webhook answers", lambda: self._asked(namespaces[0]), WebhookAnswer.UNKNOWN)

    def _asked(self, namespace: str) -> WebhookAnswer:
        before = self._calls()
        try:
            self.client.post(collection_in("/api/v1/pods", namespace), _CANARY, {"dryRun": "All"})
        except Unreachable:
            raise
        except ApiError as error:  # another webhook or a quota may refuse it, after ours was asked
            if "cannot create resource" in error.message:
                raise
        after = self._calls()
        if after[1] > before[1]:
            return WebhookAnswer.FAILED_OPEN
        return WebhookAnswer.ANSWERED if after[0] > before[0] else WebhookAnswer.UNKNOWN

    def _calls(self) -> tuple[int, int]:
        """Calls to our webhook that were answered, and those that failed: the pod went through without it."""
        text = self.client.get("/metrics", most_bytes=LONGEST_METRICS).decode()
        answered = sum(
            int(float(each[2]))
            for each in _REQUESTS.finditer(text)
            if f'name="{names.WEBHOOK_ENTRY}"' in each[1] and 'code="200"' in each[1]
        )
        failed = sum(
            int(float(each[2])) for each in _FAILURES.finditer(text) if f'name="{names.WEBHOOK_ENTRY}"' in each[1]
        )
        return answered, failed


_COORDINATION = "/apis/coordination.k8s.io/v1/leases"
_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
_REQUESTS = re.compile(r"^apiserver_admission_webhook_request_total\{(.*)\} (\S+)$", re.MULTILINE)
_FAILURES = re.compile(r"^apiserver_admission_webhook_fail_open_count\{(.*)\} (\S+)$", re.MULTILINE)
# It belongs to nobody that we know, so it is not placed; and it meets the strictest rules for pods.
_CANARY: Mapping[str, Any] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"generateName": "spotweave-doctor-"},
    "spec": {
        "automountServiceAccountToken": False,
        "schedulerName": "none",
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "doctor",
                "image": "doctor",
                "resources": {
                    "requests": {"cpu": "1m", "memory": "1Mi"},
                    "limits": {"cpu": "1m", "memory": "1Mi"},
                },
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    },
}


def _collection(raw: Raw) -> str:
    """The path of its kind, by the rule that Kubernetes' own kinds follow."""
    kind, version = raw["kind"], raw["apiVersion"]
    plural = kind.lower()
    plural = PLURALS.get(kind) or (f"{plural[:-1]}ies" if plural.endswith("y") else f"{plural}s")
    return f"{'/api' if version == 'v1' else '/apis'}/{version}/{plural}"


def _component(raw: Raw) -> str:
    return str((raw["metadata"].get("labels") or {}).get(names.COMPONENT, ""))


def _heartbeat(raw: Raw, before: Raw | None, now: float) -> Heartbeat:
    spec = raw.get("spec") or {}
    renewed = spec.get("renewTime") or ""
    is_renewed = before is not None and renewed != (before.get("spec") or {}).get("renewTime")
    read = (raw["metadata"].get("annotations") or {}).get(names.OUTAGE_VERSION, "0")
    return Heartbeat(
        raw["metadata"]["name"],
        spec.get("holderIdentity") or "",
        is_renewed,
        seconds_of(renewed) - now if renewed else 0.0,
        seconds_of(spec["acquireTime"]) if spec.get("acquireTime") else 0.0,
        int(read) if read.isdigit() else 0,
    )


def _review(right: GrantedRight) -> dict[str, Any]:
    user = f"system:serviceaccount:{NAMESPACE}:{right.account}"
    resource, _, subresource = right.resource.partition("/")
    asked = {
        "verb": right.verb,
        "group": right.group,
        "resource": resource,
        "subresource": subresource,
        "name": right.name,
        "namespace": right.namespace,
    }
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{NAMESPACE}", "system:authenticated"]
    return {"user": user, "groups": groups, "resourceAttributes": {key: each for key, each in asked.items() if each}}


def seconds_of(text: str) -> float:
    """`2026-11-19T04:00:00Z`, with or without a fraction."""
    return datetime.fromisoformat(text).astimezone(UTC).timestamp()


def signs_of_life(client: Client, between_seconds: float = BETWEEN_LOOKS_SECONDS) -> tuple[bool, bool]:
    """Whether a webhook and a leader live. Only Leases that look old are looked at twice: our clock may be wrong.

    If it may not be known, both are taken to live.
    """
    reader = Reader(client)
    first = reader.ours("leases", _COORDINATION)
    if first is None:
        return True, True
    webhooks = [each for each in first if _component(each) == names.WEBHOOK_COMPONENT]
    leaders = [each for each in first if each["metadata"]["name"] == names.LEASE]
    held = [each for each in (*webhooks, *leaders) if (each.get("spec") or {}).get("holderIdentity")]
    now = time.time()
    if all(any(_is_fresh(each, now) for each in held if each in of) for of in (webhooks, leaders)):
        return True, True
    renewed = _renewed(reader, held, between_seconds) if held else set[str]()
    fresh = {each["metadata"]["name"] for each in held if _is_fresh(each, now)} | renewed
    return any(each["metadata"]["name"] in fresh for each in webhooks), names.LEASE in fresh


def _renewed(reader: Reader, before: Sequence[Raw], between_seconds: float) -> set[str]:
    old = {each["metadata"]["name"]: each["spec"].get("renewTime") for each in before}
    time.sleep(between_seconds)
    later = reader.ours("leases", _COORDINATION) or ()
    times = {each["metadata"]["name"]: (each.get("spec") or {}).get("renewTime") for each in later}
    return {name for name, renewed in old.items() if times.get(name) not in (None, renewed)}


def _is_fresh(raw: Raw, now: float) -> bool:
    renewed = raw["spec"].get("renewTime")
    return bool(renewed) and abs(now - seconds_of(renewed)) < FRESH_SECONDS


def granted(objects: Iterable[Raw]) -> Iterator[GrantedRight]:
    """What the roles of these objects give to the accounts that they are bound to."""
    every = list(objects)
    rules = {(each["kind"], each["metadata"]["name"]): each.get("rules") or () for each in every}
    for binding in (each for each in every if each["kind"] in ("RoleBinding", "ClusterRoleBinding")):
        namespace = binding["metadata"].get("namespace", "")
        for subject in (each for each in binding["subjects"] if each["kind"] == "ServiceAccount"):
            for rule in rules[binding["roleRef"]["kind"], binding["roleRef"]["name"]]:
                yield from _rights_of(rule, subject["name"], namespace)


def _rights_of(rule: Raw, account: str, namespace: str) -> Iterator[GrantedRight]:
    for group in rule["apiGroups"]:
        for resource in rule["resources"]:
            for verb in rule["verbs"]:
                for name in rule.get("resourceNames") or ("",):
                    yield GrantedRight(account, verb, group, resource, name, namespace)
