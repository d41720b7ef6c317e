"""Refusals: who refused a pod, whether our patch may be the reason, and for how long it is left out."""

from __future__ import annotations

import pytest

from placement.refusal import (
    FIRST_SECONDS,
    LONGEST_READ,
    LONGEST_SECONDS,
    LONGEST_TEXT,
    Hold,
    PatchRefusal,
    Refuser,
    begun,
    held,
    in_vain,
    read_refusal,
)

POLICY = (
    "pods \"web-7d9f-x2x9k\" is forbidden: ValidatingAdmissionPolicy 'no-tolerations' with binding 'all' denied "
    "request: tolerations are not allowed here"
)
QUOTA = (
    'pods "web-7d9f-x2x9k" is forbidden: exceeded quota: no-overflow, requested: pods=1, used: pods=0, limited: pods=0'
)

READ: dict[str, tuple[str, Refuser, str]] = {
    "a ValidatingAdmissionPolicy": (POLICY, Refuser.POLICY, "no-tolerations"),
    "a quota": (QUOTA, Refuser.QUOTA, "no-overflow"),
    "a quota that wants requests": (
        'Error creating: pods "web-x" is forbidden: failed quota: compute: must specify cpu for: app',
        Refuser.QUOTA,
        "compute",
    ),
    "a priority class that needs a quota": (
        'pods "web-x" is forbidden: insufficient quota to match these scopes: [{PriorityClass In [x]}]',
        Refuser.QUOTA,
        "",
    ),
    "a webhook": (
        'admission webhook "validate.kyverno.svc-fail" denied the request: resource Pod/shop/web was blocked',
        Refuser.WEBHOOK,
        "validate.kyverno.svc-fail",
    ),
    "Pod Security": (
        'pods "web-x" is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false',
        Refuser.POD_SECURITY,
        "restricted",
    ),
    "an admission plugin": (
        'pods "web-x" is forbidden: error looking up service account shop/web: serviceaccount "web" not found',
        Refuser.OTHER,
        "",
    ),
    "validation": ('Pod "web-x" is invalid: spec.tolerations[0].operator: Invalid value', Refuser.OTHER, ""),
    "a StatefulSet's Event": (
        f"Create Pod db-0 in StatefulSet db failed error: {QUOTA.replace('web-7d9f-x2x9k', 'db-0')}",
        Refuser.QUOTA,
        "no-overflow",
    ),
}


@pytest.mark.parametrize(("message", "by", "name"), READ.values(), ids=READ.keys())
def test_who_refused_is_read_from_the_message(message: str, by: Refuser, name: str) -> None:
    """As the API server writes it, and as controllers repeat it."""
    found = read_refusal(message)
    assert found is not None
    assert (found.by, found.name) == (by, name)


NO_REFUSALS: dict[str, str] = {
    "nothing": "",
    "a time-out": "Timeout: request did not complete within requested timeout - context deadline exceeded",
    "a webhook that cannot be reached": (
        'Internal error occurred: failed calling webhook "validate.example.com": failed to call webhook: Post '
        '"https://validate.example.svc:443/": dial tcp: connection refused'
    ),
    "etcd": "etcdserver: request timed out",
    "a LimitRange, which looks at nothing that we patch": (
        'pods "web-1" is forbidden: maximum cpu usage per Container is 1, but limit is 2'
    ),
    "a message that names a refusal too far behind its beginning": " " * LONGEST_READ + "exceeded quota: full, used",
}


@pytest.mark.parametrize("message", NO_REFUSALS.values(), ids=NO_REFUSALS.keys())
def test_what_fails_by_itself_is_no_refusal(message: str) -> None:
    """An API server in trouble says nothing about our patch, nor does what would refuse the pod without it."""
    assert read_refusal(message) is None


def test_the_text_names_no_pod() -> None:
    """The name is another one with each try, and people want one Event with a count."""
    one, other = read_refusal(POLICY), read_refusal(POLICY.replace("x2x9k", "abcde"))
    assert one == other
    assert one is not None
    assert one.text.startswith("ValidatingAdmissionPolicy 'no-tolerations'")
    assert one.who == 'ValidatingAdmissionPolicy "no-tolerations"'


def test_a_long_text_is_cut() -> None:
    """Policies may list every rule that they have."""
    found = read_refusal(POLICY + " because of this" * 100)
    assert found is not None
    assert len(found.text) == LONGEST_TEXT


CONCERNS: dict[str, tuple[str, str, bool]] = {
    "a policy may dislike anything": (POLICY, "", True),
    "a quota counts our priority class": (QUOTA, "spotweave-overflow", True),
    "a quota counts nothing else that we patch": (QUOTA, "", False),
    "Pod Security looks at nothing of ours": (READ["Pod Security"][0], "spotweave-overflow", False),
}


@pytest.mark.parametrize(("message", "priority_class", "expected"), CONCERNS.values(), ids=CONCERNS.keys())
def test_whether_our_patch_may_be_the_reason(message: str, priority_class: str, expected: bool) -> None:
    """A full quota that has nothing to do with us never changes how pods are admitted."""
    found = read_refusal(message)
    assert found is not None
    assert found.concerns(priority_class) is expected


FOUND = PatchRefusal(Refuser.POLICY, "no-tolerations", "no")


def test_the_patch_is_left_out_for_longer_each_time() -> None:
    """5, 10, 20 minutes, and at most 6 hours."""
    pauses, refusal = [], None
    for _ in range(10):
        refusal = begun(FOUND, refusal, 1000.0)
        pauses.append(refusal.until - 1000.0)
    assert pauses[:3] == [FIRST_SECONDS, 2 * FIRST_SECONDS, 4 * FIRST_SECONDS]
    assert pauses[-1] == LONGEST_SECONDS
    assert begun(FOUND, refusal, 1_000_000.0).times == 0  # days later it is another matter


def test_what_did_not_help_is_not_tried_again_for_a_while() -> None:
    """Pods get the patch again, and that stands as long as leaving it out would have."""
    first = begun(FOUND, None, 1000.0)
    assert first.lets_in(1000.0)
    assert not first.lets_in(1000.0 + FIRST_SECONDS)
    vain = in_vain(first, 1010.0)
    assert not vain.lets_in(1011.0)
    assert vain.is_dismissed(1011.0)
    assert not vain.is_dismissed(1010.0 + FIRST_SECONDS)
    assert begun(FOUND, vain, 2000.0).times == 1


def test_a_workload_is_held_for_longer_each_time_that_a_move_runs_into_a_refusal() -> None:
    """Told again while it is held: from then on. Told after that: for twice as long. A day later: as the first time."""
    first = held(None, 1000.0)
    assert first == Hold(1000.0)
    assert first.until == 1600.0
    assert held(first, 900.0) == first
    assert held(first, 1500.0) == Hold(1500.0)
    again = held(first, 1700.0)
    assert again == Hold(1700.0, 1)
    assert again.until == 1700.0 + 1200.0
    assert held(again, 200_000.0) == Hold(200_000.0)


def test_a_stateful_sets_preamble_is_left_out() -> None:
    """It names a pod twice, and the ordinals of one set make one Event."""
    one = read_refusal(READ["a StatefulSet's Event"][0])
    assert one is not None
    assert one.text == "exceeded quota: no-overflow, requested: pods=1, used: pods=0, limited: pods=0"
