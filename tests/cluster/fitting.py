"""The fit test beside the real scheduler: the same random clusters, asked here and scheduled there.

Pods that look for a place are created with a gate, so that they are read as the API server has them. We are asked. Then
the node that we name is nominated, the gate goes, and the scheduler tries that node first: if the pod is bound
elsewhere or nowhere, the promise was false. Where we name none, and the scheduler binds the pod, a place was missed.

Half of the cases ask for all pods together, and keep to the places that were promised then. The others ask for one pod
after the other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kube.client import Client, connect
from kube.errors import NotFound
from kube.resources import CLAIMS, NODES, PODS_IN_FULL
from kube.snapshot import read_all, read_snapshot
from localcluster import LocalCluster, Options
from localcluster.profile import NodePool, Profile
from placement.configuration import Configuration
from placement.lack import NoPlace
from placement.model import Key, Pod, Snapshot
from placement.plan.room import Room
from report.rolloutroom import room_in
from tests.cluster.fitcases import AMOUNTS, ASKED, CASE, MOST_NODES, FitCase, drawn, labels_of, namespaces_of

BATCH = 60  # cases at a time
CALLERS = 6
PATIENCE_SECONDS = 240.0
ROUNDS = 4  # as many pods as a case asks for at most
NO_CASE = "none"
PAUSE_SECONDS = 0.2
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"


@dataclass
class Compared:
    """What came of all questions."""

    cases: int = 0
    questions: int = 0
    kept: int = 0  # places that we named and the scheduler took
    false: list[str] = field(default_factory=list)
    agreed: int = 0  # no place, said both
    missed: Counter[str] = field(default_factory=Counter)  # by the reason that we gave
    missed_together: int = 0  # of those, pods that were left out of a joint question
    reasons: Counter[str] = field(default_factory=Counter)  # that we gave where both agreed
    seconds: float = 0.0

    def __str__(self) -> str:
        missed = sum(self.missed.values())
        lines = [
            f"{self.cases} clusters, {self.questions} pods in {self.seconds:.0f} s: {self.kept} places kept,",
            f"  {len(self.false)} false promises, {self.agreed} agreed that there is no place,",
            f"  {missed} places missed ({self.missed_together} of them by joint questions)",
            *(f"  missed {count} × {text}" for text, count in self.missed.most_common()),
            *(f"  agreed {count} × {text}" for text, count in self.reasons.most_common()),
        ]
        return "\n".join(lines)


@contextmanager
def fitting_ground() -> Iterator[Client]:
    """A control plane with nodes for a whole batch, in namespaces that take pods."""
    pool = NodePool("fit", "z-a", "m", BATCH * MOST_NODES, "1", "1Gi", labels={CASE: NO_CASE})
    options = Options(controller_qps=200, controller_burst=400)
    with LocalCluster.start(Profile((pool,)), options=options, timeout_seconds=PATIENCE_SECONDS) as cluster:
        client = connect(Path(cluster.kubeconfig), user_agent="spotweave-tests")
        with ThreadPoolExecutor(CALLERS) as callers:
            list(callers.map(lambda slot: _make_namespaces(client, slot), range(BATCH)))
        yield client
        client.close()


def _make_namespaces(client: Client, slot: int) -> None:
    for name, kind in zip(namespaces_of(slot), ("home", "other"), strict=True):
        client.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": {"fit.example/kind": kind}}})
    for name in namespaces_of(slot):
        path = f"/api/v1/namespaces/{name}/serviceaccounts"
        wait_for("accounts", lambda path=path: client.get_json(path)["items"])  # type: ignore[misc]


def wait_for(what: str, condition: Callable[[], object]) -> None:
    """With pauses: each look lists much, on a machine that has other work."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited {PATIENCE_SECONDS:.0f} s in vain for {what}"
        time.sleep(PAUSE_SECONDS)


def compare(client: Client, count: int, seed: int, first: int = 0) -> Compared:
    """So many cases, one batch after the other."""
    found, began = Compared(), time.monotonic()
    with ThreadPoolExecutor(CALLERS) as callers:
        for start in range(first, first + count, BATCH):
            serials = range(start, min(start + BATCH, first + count))
            cases = [drawn(slot, serial, seed) for slot, serial in enumerate(serials)]
            _Batch(client, callers, cases, found).run()
    found.seconds = time.monotonic() - began
    return found


class _Batch:
    """Some cases at once, each on nodes of its own."""

    def __init__(self, client: Client, callers: ThreadPoolExecutor, cases: Sequence[FitCase], found: Compared) -> None:
        self._client = client
        self._callers = callers
        self._cases = cases
        self._found = found
        self._joint: dict[int, list[tuple[Key, str | NoPlace]]] = {}  # by serial: what was promised together

    def run(self) -> None:
        self._prepare()
        self._found.cases += len(self._cases)
        snapshot, room = self._look()
        for case in self._cases:
            if case.serial % 2 == 0:
                self._joint[case.serial] = _together(case, snapshot, room)
        for number in range(ROUNDS):
            self._round(number)
        self._clear()

    # --- what is there -----------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        self._each(self._make_volumes, self._cases)
        self._each(self._make_nodes, self._cases)
        self._each(self._make_claims, self._cases)
        wanted = {volume["metadata"]["name"] for case in self._cases for volume in case.volumes}
        wait_for("claims to be bound", lambda: wanted <= self._bound())
        self._each(self._make_pods, self._cases)
        names = {name for case in self._cases for name in case.nodes}
        wait_for("nodes without conditions", lambda: self._are_clean(names))

    def _each(self, act: Callable[[Any], None], on: Iterable[Any]) -> None:
        list(self._callers.map(act, on))

    def _bound(self) -> set[str]:
        return {claim.volume for claim in read_all(self._client, CLAIMS)}

    def _are_clean(self, names: set[str]) -> bool:
        """Kubernetes' own taints come and go a moment after the node was changed."""
        nodes = {node.name: node for node in read_all(self._client, NODES)}
        return all(nodes[name].ready and not _own_taints(nodes[name].taints) for name in names)

    def _make_nodes(self, case: FitCase) -> None:
        """Whatever the case before left there goes."""
        for name, raw in case.nodes.items():
            path, nothing = f"/api/v1/nodes/{name}", dict.fromkeys(labels_of(case.slot))
            labels = {**nothing, **raw["labels"]}
            self._client.patch(path, {"metadata": {"labels": labels}, "spec": {"taints": raw["taints"]}})
            amounts = {**dict.fromkeys(AMOUNTS), **raw["allocatable"]}
            self._client.patch(f"{path}/status", {"status": {"allocatable": amounts, "capacity": raw["allocatable"]}})
        for name, most in case.limits.items():
            driver = {"name": case.driver, "nodeID": name, "allocatable": {"count": most}}
            self._client.post(CSI_NODES, {"metadata": {"name": name}, "spec": {"drivers": [driver]}})

    def _make_volumes(self, case: FitCase) -> None:
        for raw in case.volumes:
            self._client.post("/api/v1/persistentvolumes", raw)

    def _make_claims(self, case: FitCase) -> None:
        """After all volumes: a claim whose volume is not known yet waits for a quarter of a minute."""
        for namespace, raw in case.claims:
            self._client.post(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", raw)

    def _make_pods(self, case: FitCase) -> None:
        for namespace, raw in (*case.there, *case.asked):
            self._client.post(f"/api/v1/namespaces/{namespace}/pods", raw)
        for namespace, name in case.ending:
            self._client.delete(f"/api/v1/namespaces/{namespace}/pods/{name}")

    def _clear(self) -> None:
        self._each(self._clear_case, self._cases)
        wait_for("pods to be gone", lambda: not read_all(self._client, PODS_IN_FULL))

    def _clear_case(self, case: FitCase) -> None:
        for namespace, name in case.ending:
            with suppress(NotFound):
                self._client.patch(f"/api/v1/namespaces/{namespace}/pods/{name}", {"metadata": {"finalizers": None}})
        for namespace in namespaces_of(case.slot):
            self._client.delete(f"/api/v1/namespaces/{namespace}/pods", {"gracePeriodSeconds": 0})
            if case.claims:
                self._client.delete(f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")
        for raw in case.volumes:
            self._client.delete(f"/api/v1/persistentvolumes/{raw['metadata']['name']}")
        for name in case.limits:
            self._client.delete(f"{CSI_NODES}/{name}")

    # --- questions ---------------------------------------------------------------------------------------------------

    def _look(self) -> tuple[Snapshot, Room]:
        """Pods that wait are left out: here each is asked for in its turn."""
        snapshot = read_snapshot(self._client)
        there = tuple(pod for pod in snapshot.pods if pod.node)
        return snapshot, room_in(replace(snapshot, pods=there), Configuration())

    def _round(self, number: int) -> None:
        """One pod of each case: asked here, tried there, compared."""
        snapshot, room = self._look()
        pods = {pod.key: pod for pod in snapshot.pods}
        asked = [(case, *answer) for case in self._cases if (answer := self._answer(case, number, pods, room))]
        self._each(lambda each: self._let_go(each[1], each[2]), asked)
        outcome = self._outcome([key for _, key, _ in asked])
        for case, key, said in asked:
            self._judge(case, key, said, outcome[key])

    def _answer(self, case: FitCase, number: int, pods: dict[Key, Pod], room: Room) -> tuple[Key, str | NoPlace] | None:
        if case.serial in self._joint:
            promised = self._joint[case.serial]
            return promised[number] if number < len(promised) else None
        if number >= len(case.asked):
            return None
        namespace, raw = case.asked[number]
        key = Key(namespace, raw["metadata"]["name"])
        return key, _single(pods[key], room)

    def _let_go(self, key: Key, answer: str | NoPlace) -> None:
        path = f"/api/v1/namespaces/{key.namespace}/pods/{key.name}"
        if not isinstance(answer, NoPlace):
            self._client.patch(f"{path}/status", {"status": {"nominatedNodeName": answer}})
        self._client.patch(path, {"spec": {"schedulingGates": None}})

    def _outcome(self, keys: Sequence[Key]) -> dict[Key, Pod]:
        """How it stands once the scheduler has tried each of them."""
        only = replace(PODS_IN_FULL, query={"labelSelector": ASKED})
        seen: dict[Key, Pod] = {}

        def are_tried() -> bool:
            seen.update({pod.key: pod for pod in read_all(self._client, only)})
            return all(_is_tried(seen[key]) for key in keys)

        wait_for("the scheduler", are_tried)
        return seen

    def _judge(self, case: FitCase, key: Key, answer: str | NoPlace, pod: Pod) -> None:
        found = self._found
        found.questions += 1
        if isinstance(answer, NoPlace):
            if pod.node:
                found.missed[_kind(answer)] += 1
                found.missed_together += case.serial in self._joint
            else:
                found.agreed += 1
                found.reasons[_kind(answer)] += 1
        elif pod.node == answer:
            found.kept += 1
        else:
            there = pod.node or pod.why_pending
            found.false.append(f"case {case.serial}, {key}: promised {answer}, got {there}")


def _together(case: FitCase, snapshot: Snapshot, room: Room) -> list[tuple[Key, str | NoPlace]]:
    """All pods of the case at once: those with a place in the order in which they take it, then the others."""
    keys = {Key(namespace, raw["metadata"]["name"]) for namespace, raw in case.asked}
    pods = {pod.uid: pod for pod in snapshot.pods if pod.key in keys}
    joint = room.together(list(pods.values()))
    answers: list[tuple[Key, str | NoPlace]] = [(pods[uid].key, node) for uid, node in joint.places.items()]
    return [*answers, *((pod.key, refusal) for pod, refusal in joint.refused)]


def _single(pod: Pod, room: Room) -> str | NoPlace:
    joint = room.together([pod])
    return joint.places[pod.uid] if joint.places else joint.refused[0][1]


def _kind(refusal: NoPlace) -> str:
    return refusal.lack.value


def _is_tried(pod: Pod) -> bool:
    return bool(pod.node or pod.unschedulable) or pod.waits.startswith("room on")


def _own_taints(taints: Iterable[Any]) -> bool:
    return any(each.key.startswith("node.kubernetes.io/") for each in taints)
