"""Releases a real pod and puts it back as the rebalancer does, without one: what is written is the product's own."""

from __future__ import annotations

import time
from contextlib import suppress

from kube.client import Client
from kube.errors import NotFound
from kube.podwriter import PodWriter
from kube.resources import DEPLOYMENTS, PODS_IN_FULL, REPLICA_SETS
from placement import names
from placement.availability import Availability, Basis
from placement.model import Class, Key, Pod, ReplicaSet, Workload
from placement.outcome import Outcome
from placement.plan.actions import Action, Why
from placement.plan.annotate import LEAVES_FIRST
from placement.plan.group import Cohort, Group
from placement.plan.marks import former_owner
from placement.plan.release import put_back_to, release
from placement.policy import Policy

SECONDS = 60.0
SPARED_SECONDS = 90


def path_of(key: Key) -> str:
    return f"/api/v1/namespaces/{key.namespace}/pods/{key.name}"


def read_pod(client: Client, key: Key) -> Pod:
    return PODS_IN_FULL.shape.single(client.get(path_of(key)))


def read_revision(client: Client, pod: Pod) -> ReplicaSet:
    """The ReplicaSet that its decision names."""
    path = f"/apis/apps/v1/namespaces/{pod.namespace}/replicasets"
    found = REPLICA_SETS.shape.page(client.get(path)).items
    return next(each for each in found if each.uid == former_owner(pod))


def read_deployment(client: Client, revision: ReplicaSet) -> Workload:
    assert revision.owner is not None
    path = f"/apis/apps/v1/namespaces/{revision.namespace}/deployments/{revision.owner.name}"
    found = DEPLOYMENTS.shape.single(client.get(path))
    assert found.uid == revision.owner.uid
    return found


def release_action(client: Client, pod: Pod) -> Action:
    """With all that a release may write: as from a node that Karpenter removes."""
    revision = read_revision(client, pod)
    cohort = Cohort(revision.uid, revision.replicas, True, revision.template, (pod,))
    group = Group(read_deployment(client, revision), Policy(), Availability(0, Basis.ASSUMED), cohorts=(cohort,))
    return release(group, pod, time.time() + SECONDS, Why.RATIO, None, Class.SPOT, spared_seconds=SPARED_SECONDS)


def carry_out(writer: PodWriter, action: Action) -> Outcome:
    assert action.owner is not None
    return writer.hand_over(action.pod, action.owner, action.annotations, action.labels)


def release_pod(client: Client, writer: PodWriter, key: Key) -> Outcome:
    return carry_out(writer, release_action(client, read_pod(client, key)))


def put_back(client: Client, writer: PodWriter, key: Key) -> Outcome:
    """Its newcomers are marked to leave first: of two that serve, their ReplicaSet would end either."""
    pod = read_pod(client, key)
    revision = read_revision(client, pod)
    path = f"/api/v1/namespaces/{key.namespace}/pods"
    for sibling in PODS_IN_FULL.shape.page(client.get(path)).items:
        if sibling.owner is not None and sibling.owner.uid == revision.uid:
            cost = {"metadata": {"annotations": {names.DELETION_COST: LEAVES_FIRST}}}
            with suppress(NotFound):
                client.patch(path_of(Key(sibling.namespace, sibling.name)), cost)
    return carry_out(writer, put_back_to(pod, revision, ""))
