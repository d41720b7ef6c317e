"""Pods that are not placed are counted with their reason; those that are, and those of unknown owners, are not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement import names
from placement.model import Kind, Owner, Pod, ReplicaSet, Template, Workload
from placement.skipped import SkipReason, by_pod, skip_reason, skipped_among

WEB = Workload(Kind.DEPLOYMENT, "shop", "web", "d", 3)
DB = Workload(Kind.STATEFUL_SET, "shop", "db", "ss", 3)
REVISION = ReplicaSet("shop", "web-abc", "rs", Owner("Deployment", "web", "d"), 3)
ROLLOUT = replace(REVISION, uid="ro", owner=Owner("Rollout", "web", "r", "argoproj.io"))
BARE = replace(REVISION, uid="bare", owner=None)
OPERATORS = replace(REVISION, uid="op", owner=Owner("Database", "x", "x", "example.com"))
REVISIONS = {each.uid: each for each in (REVISION, ROLLOUT, BARE, OPERATORS)}
OUT = {names.PLACEMENT: names.DISABLED}

REASONS: dict[str, tuple[Owner | None, Workload, SkipReason | None]] = {
    "a Deployment's": (Owner("ReplicaSet", "web-abc", "rs"), WEB, None),
    "a StatefulSet's": (Owner("StatefulSet", "db", "ss"), DB, None),
    "an Argo Rollout's": (Owner("ReplicaSet", "web-abc", "ro"), WEB, SkipReason.ARGO_ROLLOUT),
    "a bare ReplicaSet's": (Owner("ReplicaSet", "web-abc", "bare"), WEB, SkipReason.BARE_REPLICA_SET),
    "a ReplicaSet's of some operator": (Owner("ReplicaSet", "web-abc", "op"), WEB, SkipReason.OTHER_OWNER),
    "a ReplicaSet's that is not known yet": (Owner("ReplicaSet", "web-abc", "new"), WEB, None),
    "a CloneSet's": (Owner("CloneSet", "x", "x", "apps.kruise.io"), WEB, SkipReason.CLONE_SET),
    "an OpenKruise StatefulSet's": (Owner("StatefulSet", "x", "ss", "apps.kruise.io"), DB, SkipReason.OTHER_OWNER),
    "a Job's": (Owner("Job", "x", "x", "batch"), WEB, SkipReason.JOB),
    "a DaemonSet's": (Owner("DaemonSet", "x", "x"), WEB, SkipReason.DAEMON_SET),
    "a ReplicationController's": (Owner("ReplicationController", "x", "x", ""), WEB, SkipReason.OTHER_OWNER),
    "nobody's": (None, WEB, SkipReason.BARE_POD),
    "of a Deployment that opted out": (
        Owner("ReplicaSet", "web-abc", "rs"),
        replace(WEB, annotations=OUT),
        SkipReason.OPTED_OUT,
    ),
    "of a template with another scheduler": (
        Owner("StatefulSet", "db", "ss"),
        replace(DB, template=Template(is_placed_by_others=True)),
        SkipReason.OTHER_SCHEDULER,
    ),
}


@pytest.mark.parametrize(("owner", "workload", "expected"), REASONS.values(), ids=REASONS.keys())
def test_why_a_pod_is_not_placed(owner: Owner | None, workload: Workload, expected: SkipReason | None) -> None:
    """By its owner, the owner of that, or what its workload says."""
    assert skip_reason(Pod("shop", "x", owner=owner), REVISIONS, {workload.uid: workload}) is expected


def test_a_released_pod_is_placed() -> None:
    """Its Deployment owns it for a while, which is no other controller."""
    pod = Pod(
        "shop",
        "x",
        owner=Owner("Deployment", "web", "d"),
        labels={names.POD_TEMPLATE_HASH: "released-abc"},
        annotations={names.RELEASED: "2026-01-01T00:00:00Z/abc/3"},
        decision="rs/1",
    )
    assert skip_reason(pod, REVISIONS, {"d": WEB}) is None


def test_finished_pods_are_not_counted() -> None:
    """Those of a CronJob stay for days."""
    job = Owner("Job", "x", "x", "batch")
    pods = [Pod("shop", str(number), owner=job) for number in range(3)]
    done = [Pod("shop", "done", owner=job, phase=phase) for phase in ("Succeeded", "Failed")]
    assert skipped_among([*pods, *done], {}, {}) == {("shop", SkipReason.JOB): 3}


def test_every_reason_has_a_text() -> None:
    """A new one that nobody explains fails here."""
    assert all(reason.text for reason in SkipReason)


def test_members_of_a_gang_are_told_as_such() -> None:
    """That a Job owns them would send people to the wrong page."""
    labels = {names.GANG_LABEL: names.GANG_MEMBER}
    of_job = Owner("Job", "train", "t", "batch")
    assert by_pod(Pod("shop", "a", owner=of_job, labels=labels)) is SkipReason.GANG
    assert by_pod(Pod("shop", "a", owner=of_job)) is SkipReason.JOB
    assert skipped_among([Pod("shop", "a", labels=labels)], {}, {}) == {("shop", SkipReason.GANG): 1}
