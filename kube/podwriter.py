"""Every write of the rebalancer to pods, each with its `Outcome`.

Each write names the UID of its pod. If the pod is gone, or another one has its name (as in a StatefulSet), that is no
error: the work is already done.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import Any

from cachetools import TTLCache

from kube.client import JSON_PATCH, MERGE_PATCH, METADATA, STRATEGIC_PATCH, Client
from kube.crashpoints import NO_FAULTS, Call, Faults
from kube.errors import (
    ApiError,
    Conflict,
    Forbidden,
    Garbled,
    Invalid,
    NotFound,
    ServerError,
    TooManyRequests,
    Unauthorized,
    Unreachable,
)
from kube.paths import path_of
from kube.resources import NODES, PODS
from placement import names
from placement.handover import Patch, patches
from placement.model import FINISHED, NOTHING, Key, NodeRequirement, NodeTerm, Owner, Pod
from placement.outcome import Outcome

log = logging.getLogger(__name__)

# A leader stops 5 s before another may lead (`election.Terms`), so a write that began while we led is over by then.
CALL_SECONDS = 4.0
# If others write to the same budget, the API server tries an eviction 20 times, half a second apart. A client that
# hangs up sooner may leave the budget used up, for two minutes, by a pod that stays.
END_SECONDS = 12.0
TWO_BUDGETS = "more than one PodDisruptionBudget"  # the API has no reason or cause for this, only the sentence
GONE_SECONDS = 1.0  # how long a Node counts as gone without another look; a returning one takes longer to be ready


class PodWriter:
    """Writes to pods. Callers check first whether we lead. Writes of several calls check again in between.

    Safe to use from many threads.
    """

    def __init__(
        self,
        client: Client,
        faults: Faults = NO_FAULTS,
        call_seconds: float = CALL_SECONDS,
        gone_seconds: float = GONE_SECONDS,
        is_leading: Callable[[], bool] = lambda: True,
    ) -> None:
        self._client = client
        self._faults = faults
        self._call_seconds = call_seconds
        self._is_leading = is_leading
        self._gone: TTLCache[str, bool] = TTLCache(10_000, gone_seconds)
        self._gone_lock = Lock()  # such a cache is not made for threads

    def annotate(
        self,
        key: Key,
        uid: str,
        annotations: Mapping[str, str | None],
        labels: Mapping[str, str | None] = NOTHING,
    ) -> Outcome:
        """Sets these annotations and labels, all in one; None removes one."""
        patch = {"metadata": {"uid": uid, "annotations": annotations, "labels": labels}}
        return self._write(Call.ANNOTATE, key, uid, lambda: self._patch(_path(key), patch))

    def hand_over(
        self,
        pod: Pod,
        owner: Owner,
        annotations: Mapping[str, str | None],
        labels: Mapping[str, str | None],
    ) -> Outcome:
        """Makes this owner its controller and sets these annotations and labels, all in one, if it still is that pod.

        BUSY where one of them is not what it was when that was decided on: nothing is written then.
        """
        wanted = list(patches(pod, owner, annotations, labels))
        return self._write(Call.ANNOTATE, pod.key, pod.uid, lambda: self._patch_first(pod.key, wanted))

    def _patch_first(self, key: Key, wanted: Sequence[Patch]) -> None:
        """Of several patches, the first that is not refused."""
        for patch in wanted[:-1]:
            try:
                return self._patch_json(key, patch)
            except (Forbidden, Invalid):
                if not self._is_leading():
                    raise
        return self._patch_json(key, wanted[-1])

    def _patch_json(self, key: Key, patch: Patch) -> None:
        self._patch(_path(key), patch, JSON_PATCH)

    def _patch(self, path: str, patch: object, content_type: str = MERGE_PATCH) -> None:
        seconds = self._call_seconds
        self._client.patch(path, patch, content_type=content_type, timeout_seconds=seconds, accept=METADATA)

    def evict(self, key: Key, uid: str) -> Outcome:
        """Asks for its end, as its disruption budget allows."""
        return self._write(Call.EVICT, key, uid, lambda: self._post_eviction(key, {"uid": uid}, self._call_seconds))

    def evict_replaced(self, key: Key, uid: str) -> Outcome:
        """The same for a released pod, as long as it is released: BUSY where it was put back meanwhile.

        It may take longer than a leader leads. So it is read first, and evicted only as it was read: to put it back
        changes it, and an eviction that is still under way then does it no harm.
        """
        return self._evict_as_read(key, uid, _is_released, END_SECONDS)

    def evict_waiting(self, key: Key, uid: str) -> Outcome:
        """The same for a pod that waits for a node. BUSY where it has got one by now: then it is another matter.

        No budget keeps such a pod, so it is read first, and evicted only as it was read.
        """
        return self._evict_as_read(key, uid, _is_waiting, self._call_seconds)

    def _evict_as_read(self, key: Key, uid: str, is_meant: Callable[[Any], bool], seconds: float) -> Outcome:
        """Where somebody writes to it in between, such as its kubelet, it is read again, twice at most."""
        for is_last in (False, False, True):
            try:
                raw = self._client.get_json(_path(key), timeout_seconds=self._call_seconds)
            except ApiError as error:
                return _told(Call.EVICT, key, error)
            if raw["metadata"]["uid"] != uid:
                return Outcome.GONE
            if not is_meant(raw):
                return Outcome.BUSY
            as_read = {"uid": uid, "resourceVersion": raw["metadata"]["resourceVersion"]}
            try:
                with self._faults.around(Call.EVICT):
                    self._post_eviction(key, as_read, seconds)
                return Outcome.DONE
            except Conflict as error:
                if is_last or not self._is_leading():
                    return _told(Call.EVICT, key, error)
            except ApiError as error:
                return _told(Call.EVICT, key, error)
        raise AssertionError("the last try returns")

    def _post_eviction(self, key: Key, preconditions: Mapping[str, str], seconds: float) -> None:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": key.name, "namespace": key.namespace},
            "deleteOptions": {"preconditions": preconditions},
        }
        self._client.post(f"{_path(key)}/eviction", eviction, timeout_seconds=seconds)

    # --- members of gangs --------------------------------------------------------------------------------------------

    def reserve(self, key: Key, uid: str, node: str, annotations: Mapping[str, str | None]) -> Outcome:
        """The scheduler keeps room for it there, against pods of the same or lower priority. Both in one write."""
        return self._nominate(Call.RESERVE, key, uid, node, annotations)

    def unreserve(self, key: Key, uid: str, annotations: Mapping[str, str | None]) -> Outcome:
        return self._nominate(Call.UNRESERVE, key, uid, None, annotations)

    def _nominate(
        self, call: Call, key: Key, uid: str, node: str | None, annotations: Mapping[str, str | None]
    ) -> Outcome:
        patch = {"metadata": {"uid": uid, "annotations": annotations}, "status": {"nominatedNodeName": node}}
        path = f"{_path(key)}/status"
        return self._write(call, key, uid, lambda: self._patch(path, patch))

    def start_member(self, pod: Pod, nodes: Sequence[str], annotations: Mapping[str, str | None] = NOTHING) -> Outcome:
        """Takes our gate off and narrows its node affinity to these nodes (none: it stays as it is), all in one.

        The API server refuses it where somebody has narrowed the affinity in another way meanwhile.
        """
        spec: dict[str, Any] = {**_UNGATED, **_on_nodes(pod, nodes)}
        return self._respecify(Call.START, pod, spec, annotations)

    def ungate(self, pod: Pod) -> Outcome:
        return self._respecify(Call.UNGATE, pod, _UNGATED)

    def suspend(self, owner: Owner, namespace: str) -> Outcome:
        """A Job or JobSet: its controller deletes its pods, and creates none until somebody resumes it."""
        plural, api = _SUSPENDABLE[owner.kind]
        path = path_of(f"/apis/{api}/{plural}", owner.name, namespace)
        patch = {"metadata": {"uid": owner.uid}, "spec": {"suspend": True}}
        try:
            with self._faults.around(Call.SUSPEND):
                self._client.patch(path, patch, timeout_seconds=self._call_seconds)
        except ApiError as error:
            return _told(Call.SUSPEND, Key(namespace, owner.name), error)
        return Outcome.DONE

    def _respecify(
        self, call: Call, pod: Pod, spec: Mapping[str, Any], annotations: Mapping[str, str | None] = NOTHING
    ) -> Outcome:
        """A strategic patch: it takes one gate by its name and leaves others."""
        noted = {"annotations": annotations} if annotations else {}
        patch = {"metadata": {"uid": pod.uid, **noted}, "spec": spec}
        path = _path(pod.key)
        return self._write(
            call,
            pod.key,
            pod.uid,
            lambda: self._patch(path, patch, STRATEGIC_PATCH),
        )

    def delete(self, key: Key, uid: str, grace_seconds: int | None = None) -> Outcome:
        """Deletes it, whatever its budget says; without `grace_seconds` it gets what it asked for itself."""
        options: dict[str, Any] = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": uid}}
        if grace_seconds is not None:
            options["gracePeriodSeconds"] = grace_seconds
        return self._write(
            Call.DELETE, key, uid, lambda: self._client.delete(_path(key), options, timeout_seconds=self._call_seconds)
        )

    def fail_lost(self, key: Key, uid: str, why: str) -> Outcome:
        """Ends a pod whose Node is gone as pod GC would: Failed and marked as disrupted first, then deleted at once.

        The Node is looked up before each of the two, unless that was done a moment ago. If it exists (again), or we no
        longer lead, the outcome is BUSY, and the next plan decides again.
        """
        try:
            raw = self._client.get_json(_path(key), timeout_seconds=self._call_seconds)
            if raw["metadata"]["uid"] != uid:
                return Outcome.GONE
            node = raw["spec"].get("nodeName", "")
            if not self._is_lost(key, node) or not self._is_leading():
                return Outcome.BUSY
            if (raw.get("status") or {}).get("phase") not in FINISHED:
                failed = self._fail(key, uid, why)
                if failed is not Outcome.DONE:
                    return failed
                if not self._is_lost(key, node) or not self._is_leading():
                    return Outcome.BUSY
        except NotFound:
            return Outcome.GONE
        except ApiError as error:
            return _told(Call.FAIL, key, error)
        return self.delete(key, uid, grace_seconds=0)

    def node_is_gone(self, name: str) -> bool:
        """By a read that bypasses caches. Raises ApiError if that fails."""
        try:
            self._client.get(path_of(NODES.path, name), timeout_seconds=self._call_seconds)
        except NotFound:
            return True
        return False

    def _is_lost(self, key: Key, node: str) -> bool:
        """A pod without a node is not lost, it waits for one. Pods of one node go together, so it is asked for once."""
        if node and (self._was_gone(node) or self.node_is_gone(node)):
            with self._gone_lock:
                self._gone.setdefault(node, True)
            return True
        log.warning("pod %s: not lost: %s", key, f"its node {node} is there" if node else "it has no node")
        return False

    def _was_gone(self, node: str) -> bool:
        with self._gone_lock:
            return node in self._gone

    def _fail(self, key: Key, uid: str, why: str) -> Outcome:
        """A strategic patch: it adds one condition and leaves the others."""
        condition = {
            "type": names.DISRUPTION_TARGET,
            "status": "True",
            "reason": names.DISRUPTION_REASON,
            "message": why,
            "lastTransitionTime": datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
        }
        patch = {"metadata": {"uid": uid}, "status": {"phase": "Failed", "conditions": [condition]}}
        path = f"{_path(key)}/status"
        return self._write(
            Call.FAIL,
            key,
            uid,
            lambda: self._patch(path, patch, STRATEGIC_PATCH),
        )

    def _write(self, call: Call, key: Key, uid: str, request: Callable[[], object]) -> Outcome:
        try:
            with self._faults.around(call):
                request()
        except (Conflict, Invalid, Unreachable) as refusal:
            return self._after_refusal(call, key, uid, refusal)
        except ApiError as error:
            return _told(call, key, error)
        return Outcome.DONE

    def _after_refusal(self, call: Call, key: Key, uid: str, refusal: ApiError) -> Outcome:
        """Either another pod has its name, or the refusal is real. Reading the pod shows which.

        Another UID is a conflict (409) for evictions and deletions, but an immutable field (422) for patches. The
        server itself retries evictions of a pending pod for 10 s before it reports a conflict: longer than we wait.
        """
        try:
            raw = self._client.get_json(_path(key), timeout_seconds=self._call_seconds)
        except ApiError as error:
            return _told(call, key, error)
        return Outcome.GONE if raw["metadata"]["uid"] != uid else _told(call, key, refusal)


_SUSPENDABLE = {"Job": ("jobs", "batch/v1"), "JobSet": ("jobsets", "jobset.x-k8s.io/v1alpha2")}
_UNGATED: Mapping[str, Any] = {"schedulingGates": [{"$patch": "delete", "name": names.GANG_GATE}]}
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def _on_nodes(pod: Pod, nodes: Sequence[str]) -> Mapping[str, Any]:
    """Terms are ORed, expressions in a term ANDed: every term gets one more. The list is replaced as a whole."""
    if not nodes:
        return NOTHING
    only = {"key": names.HOSTNAME, "operator": "In", "values": list(nodes)}
    terms = [_raw_term(term, only) for term in pod.required_terms or ((),)]
    return {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": terms}}}}


def _raw_term(term: NodeTerm, added: dict[str, Any]) -> dict[str, Any]:
    """As it was written: the API server compares the expressions with those that were there, in their order."""
    fields = [_raw_requirement(each) for each in term if each.key == names.NODE_NAME]
    labels = [_raw_requirement(each) for each in term if each.key != names.NODE_NAME]
    return {**({"matchFields": fields} if fields else {}), "matchExpressions": [*labels, added]}


def _raw_requirement(each: NodeRequirement) -> dict[str, Any]:
    values = {"values": list(each.values)} if each.values else {}
    return {"key": each.key, "operator": each.operator, **values}


def _is_waiting(raw: Any) -> bool:
    return not raw["spec"].get("nodeName")


def _is_released(raw: Any) -> bool:
    label = (raw["metadata"].get("labels") or {}).get(names.POD_TEMPLATE_HASH, "")
    return isinstance(label, str) and label.startswith(names.RELEASED_HASH)


def _path(key: Key) -> str:
    return path_of(PODS.path, key.name, key.namespace)


def _told(call: Call, key: Key, error: ApiError) -> Outcome:
    outcome = outcome_of(error)
    level = logging.WARNING if outcome is Outcome.IMPOSSIBLE else logging.INFO
    log.log(level, "pod %s: %s: %s: %s", key, call, outcome, error)
    return outcome


_PASSING = (Conflict, TooManyRequests, ServerError, Unreachable, Garbled, Unauthorized)


def outcome_of(error: ApiError) -> Outcome:
    """The one table from what the API said to what can be done about it."""
    if isinstance(error, NotFound):
        return Outcome.GONE
    if isinstance(error, TooManyRequests) and error.is_disruption_budget:
        return Outcome.BLOCKED
    if isinstance(error, ServerError) and TWO_BUDGETS in error.message:
        return Outcome.IMPOSSIBLE
    if isinstance(error, Invalid) and error.is_stale_patch:
        return Outcome.BUSY
    return Outcome.BUSY if isinstance(error, _PASSING) else Outcome.IMPOSSIBLE
