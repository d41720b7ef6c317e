"""Batches: pods of one revision with one spec, as a ReplicaSet creates them.

What they have in common is worked out once: 500 pods of a burst get 500 slots, reasons and ids, but only a handful of
different affinities. A batch is found by all that it depends on, compared by content, so it cannot be out of date.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import msgspec
from cachetools import LRUCache

from kube.needs import requests_in
from placement.clusterstate import ClusterState
from placement.decide import Case, Decision, decide
from placement.inject import Injection
from placement.outage import Demand, Shape
from placement.patch import own_terms, patch, spec_patch
from placement.revision import Revision

MOST_BATCHES = 256  # of ReplicaSets that create pods at the same time
LARGEST_SPEC = 16 * 1024  # bytes, of the fields that we look at; larger ones are not kept

encode = msgspec.json.Encoder().encode


class Batch:
    """Pods of one revision with one spec."""

    def __init__(self, revision: Revision, raw_spec: dict[str, Any]) -> None:
        self.revision = revision
        self._raw_spec = raw_spec
        self.own_terms = own_terms(raw_spec)
        self._cluster: ClusterState | None = None
        self._spec_patches: dict[int, list[msgspec.Raw]] = {}

    @cached_property
    def demand(self) -> Demand:
        """As the rebalancer reads it from the pod, or what it notes would not cover it."""
        return Demand(self.revision.workload.namespace, self.own_terms, self._shape())

    def _shape(self) -> Shape:
        """Nothing, if it is garbled."""
        try:
            return Shape.asking(requests_in(encode(self._raw_spec)))
        except msgspec.DecodeError:
            return Shape()

    def place(
        self, decision_id: str, slot: int, raw_pod: dict[str, Any], cluster: ClusterState
    ) -> tuple[Decision, list[Any]]:
        """The decision on one of the pods, and its JSON patch. Of that, operations on the spec are encoded already."""
        if cluster is not self._cluster:
            self._turn_to(cluster)
        decision = decide(decision_id, slot, self._case)
        return decision, patch(raw_pod, decision, self._spec_patch(decision.injection))

    def _turn_to(self, cluster: ClusterState) -> None:
        """Forgets what was worked out, unless the cluster is as it was."""
        if cluster != self._cluster:
            self._case = Case(self.revision, self.own_terms, cluster)
            self._spec_patches = {}
        self._cluster = cluster

    def _spec_patch(self, injection: Injection) -> list[msgspec.Raw]:
        """The case keeps each injection for as long as the patch is kept here, so its `id` stands for it."""
        known = self._spec_patches.get(id(injection))
        if known is None:
            operations = spec_patch(self._raw_spec, injection)
            known = self._spec_patches[id(injection)] = [msgspec.Raw(encode(each)) for each in operations]
        return known


class Batches:
    """The batches of late, by the revision's UID and the spec as JSON."""

    def __init__(self) -> None:
        self._known: LRUCache[tuple[str, bytes], Batch] = LRUCache(MOST_BATCHES)

    def find(self, revision: Revision, raw_spec: dict[str, Any]) -> Batch:
        key = (revision.uid, encode(raw_spec))
        batch = self._known.get(key)
        if batch is None or batch.revision is not revision:
            batch = Batch(revision, raw_spec)
            if len(key[1]) <= LARGEST_SPEC:
                self._known[key] = batch
        return batch
