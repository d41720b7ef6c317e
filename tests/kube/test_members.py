"""What is read of members of gangs and of Jobs, and that most pods pay nothing for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kube.resources import JOBS, PODS, PODS_IN_FULL, REBALANCER, rows_of
from placement import names
from placement.gang.claim import RoomClaim, claim_of
from placement.model import Key, Pod
from tests.builders.api import raw_pod_spec


def read(raw: dict[str, Any]) -> Pod:
    return PODS_IN_FULL.shape.single(json.dumps(raw).encode())


def raw_member(number: int = 0, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": f"m{number}",
            "namespace": "shop",
            "uid": f"u{number}",
            "labels": {names.GANG_LABEL: names.GANG_MEMBER},
            "annotations": {names.POD_GROUP: "train", names.POD_GROUP_SIZE: "8", names.GANG_PLAN: f"p/1.000/n{number}"},
        },
        "spec": raw_pod_spec(schedulingGates=[{"name": names.GANG_GATE}], preemptionPolicy="Never", **spec),
        "status": {"phase": "Pending", "nominatedNodeName": f"n{number}"},
    }


def test_a_member_is_read_with_gate_nomination_plan_and_annotations() -> None:
    """The plan is kept apart from the annotations, because it differs for every member."""
    pod = read(raw_member())
    assert (pod.gates, pod.nominated, pod.gang_plan) == ((names.GANG_GATE,), "n0", "p/1.000/n0")
    assert pod.annotations == {names.POD_GROUP: "train", names.POD_GROUP_SIZE: "8"}
    assert (pod.is_member, pod.is_gated, pod.needs.never_preempts) == (True, True, True)


def test_the_mark_of_a_victim_is_read() -> None:
    """Without it the rebalancer would mark it again and again, and evict nothing."""
    raw = raw_member()
    raw["metadata"]["annotations"] = {names.PREEMPTED_BY: "shop/high/p/8"}
    assert claim_of(read(raw)) == RoomClaim(Key("shop", "high"), "p", 8)


def test_siblings_share_all_that_is_the_same() -> None:
    """Ten thousand members cost little more than their names."""
    one, other = read(raw_member(1)), read(raw_member(2))
    assert one.annotations is other.annotations
    assert one.needs is other.needs
    assert one.gates is other.gates
    assert one.labels is other.labels


def test_what_is_too_long_is_read_and_not_remembered() -> None:
    """Else one pod that is changed over and over would fill the memory, long after each change."""
    written = {names.POD_GROUP: "train", names.PRIORITY: "a" * 2000}
    raw = {"metadata": {"name": "m", "annotations": written}, "spec": raw_pod_spec()}
    one, other = read(raw), read(raw)
    assert one.annotations == other.annotations == written
    assert one.annotations is not other.annotations


def test_most_pods_have_nothing_of_it() -> None:
    """And the webhook's short form reads nothing of it at all."""
    plain = read({"metadata": {"name": "web"}, "spec": raw_pod_spec(), "status": {}})
    assert (plain.gates, plain.nominated, plain.gang_plan, plain.is_member) == ((), "", "", False)
    assert plain.gates is read({"metadata": {"name": "web-2"}, "spec": raw_pod_spec()}).gates
    assert not plain.needs.never_preempts
    short = PODS.shape.single(json.dumps(raw_member()).encode())
    assert (short.annotations, short.gang_plan, short.is_member) == ({}, "", True)


@pytest.mark.parametrize(
    ("spec", "at_once"),
    [({}, 1), ({"parallelism": 8}, 8), ({"parallelism": 8, "completions": 3}, 3), ({"parallelism": 0}, 0)],
)
def test_a_job_has_so_many_pods_at_once(spec: dict[str, Any], at_once: int) -> None:
    """No more than are to succeed."""
    raw = {"metadata": {"name": "train", "namespace": "shop", "uid": "j"}, "spec": spec}
    assert JOBS.shape.single(json.dumps(raw).encode()).parallelism == at_once


IGNORED = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
ENDED_BY_CODE = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [143]}}


@pytest.mark.parametrize(
    ("spec", "ignores", "allowed"),
    [
        ({}, False, 6),
        ({"backoffLimit": 2}, False, 2),
        ({"podFailurePolicy": {"rules": [IGNORED, ENDED_BY_CODE]}}, True, 6),
        ({"podFailurePolicy": {"rules": [ENDED_BY_CODE, IGNORED]}}, False, 6),
        ({"backoffLimit": 2147483647, "backoffLimitPerIndex": 1}, False, 0),
    ],
    ids=["nothing said", "a limit", "ignored first", "an exit code first", "a limit for each index"],
)
def test_what_evictions_do_to_a_job(spec: dict[str, Any], ignores: bool, allowed: int) -> None:
    """The first rule that matches counts, and an evicted pod has an exit code. An index may have used up its limit."""
    raw = {"metadata": {"name": "train", "namespace": "shop", "uid": "j"}, "spec": spec}
    job = JOBS.shape.single(json.dumps(raw).encode())
    assert (job.ignores_disruption, job.backoff_limit) == (ignores, allowed)


@pytest.mark.parametrize(
    ("spec", "succeeded", "left"),
    [({"completions": 8}, 0, 8), ({"completions": 8}, 1, 7), ({"completions": 20}, 1, 8), ({}, 0, 8), ({}, 1, 0)],
)
def test_a_job_creates_so_many_pods_again(spec: dict[str, Any], succeeded: int, left: int) -> None:
    """What has succeeded is not wanted any more. Without completions, one success is the beginning of the end."""
    raw = {
        "metadata": {"name": "train", "namespace": "shop", "uid": "j"},
        "spec": {"parallelism": 8, **spec},
        "status": {"succeeded": succeeded},
    }
    assert JOBS.shape.single(json.dumps(raw).encode()).left == left


def test_jobs_are_read_only_while_gangs_are_on() -> None:
    """Else nobody grants the right to."""
    assert JOBS in rows_of(REBALANCER, with_gangs=True)
    assert JOBS not in rows_of(REBALANCER)
