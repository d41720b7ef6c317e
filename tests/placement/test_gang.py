"""What members say, and what state a gang is in by its pods alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from placement import names
from placement.gang.bare import copied
from placement.gang.belonging import gang_key
from placement.gang.gang import Gang, State, gang_of, status_of
from placement.gang.life import ONE_OF_SEVERAL
from placement.gang.podgroup import GroupStatus, NoPodGroup, PodGroup, status_for
from placement.gang.reservation import Reservation, plan_id, reservation_of
from placement.gang.terms import GangTerms, WaitTimeout, declared, sentence, terms_of
from placement.lack import Lack
from placement.model import NOTHING, Class, Key, Needs, Owner, Pod
from tests.builders.model import NOW, pod

JOB = Owner("Job", "train", "job", "batch")
KEY = Key("shop", "train")
GROUP = {names.POD_GROUP: "train"}
EIGHT = {**GROUP, names.POD_GROUP_MIN_MEMBER: "8"}


def member(number: int, where: str = "", *, is_gated: bool | None = None, **fields: Any) -> Pod:
    """A member that was created five seconds ago; gated unless it has a node."""
    gated = not where if is_gated is None else is_gated
    made = {
        "owner": JOB,
        "annotations": EIGHT,
        "labels": {names.GANG_LABEL: names.GANG_MEMBER},
        "gates": (names.GANG_GATE,) if gated else (),
        "created": NOW - 5,
    }
    return pod(f"m{number}", None, where, **{**made, **fields})


def kept(number: int, node: str = "n1", plan: str = "p1", **fields: Any) -> Pod:
    """A member for which room is kept; or one that started by that plan, with `is_gated=False`."""
    return member(number, gang_plan=Reservation(plan, NOW - 1, node).text(), nominated=node, **fields)


def eight(*first: Pod) -> list[Pod]:
    return [*first, *(member(number) for number in range(len(first), 8))]


def gang(pods: list[Pod], parallelism: int | None = None) -> Gang:
    found = gang_of(KEY, pods, lambda _owner: parallelism)
    assert found is not None
    return found


# --- annotations -----------------------------------------------------------------------------------------------------

VALID = {
    "nothing but the name": ({}, GangTerms()),
    "how many start together": ({names.POD_GROUP_MIN_MEMBER: "8"}, GangTerms(min_member=8)),
    "how many there will be": ({names.POD_GROUP_SIZE: "10"}, GangTerms(size=10)),
    "it is reported after 30 minutes": (
        {names.POD_GROUP_WAIT_TIMEOUT: "30m"},
        GangTerms(wait_timeout=WaitTimeout(timedelta(minutes=30))),
    ),
    "it starts after 30 minutes": (
        {names.POD_GROUP_WAIT_TIMEOUT: "30m:start"},
        GangTerms(wait_timeout=WaitTimeout(timedelta(minutes=30), "start")),
    ),
    "it fails after 30 minutes": (
        {names.POD_GROUP_WAIT_TIMEOUT: "30m:fail"},
        GangTerms(wait_timeout=WaitTimeout(timedelta(minutes=30), "fail")),
    ),
    "its life": (
        {names.TIME_LIMIT: "4h", names.ON_PARTIAL_FAILURE: "fail-gang"},
        GangTerms(time_limit=timedelta(hours=4), on_partial_failure="fail-gang"),
    ),
    "an order of classes": (
        {names.POD_GROUP_CLASS: "spot,on-demand"},
        GangTerms(classes=(Class.SPOT, Class.ON_DEMAND)),
    ),
    "the rest": (
        {names.EXPECTED_RUNTIME: "2h", names.PREEMPTIBLE: "false", names.PRIORITY: "-5"},
        GangTerms(expected_runtime=timedelta(hours=2), preemptible=False, priority=-5),
    ),
}


@pytest.mark.parametrize(("written", "expected"), VALID.values(), ids=VALID.keys())
def test_valid_annotations(written: dict[str, str], expected: GangTerms) -> None:
    """Each value is read as it is documented, without a mistake."""
    assert terms_of({**GROUP, **written}) == (expected, ())


WRONG = (
    (names.POD_GROUP_MIN_MEMBER, "0"),
    (names.POD_GROUP_MIN_MEMBER, "eight"),
    (names.POD_GROUP_MIN_MEMBER, "1_0"),
    (names.POD_GROUP_SIZE, "-1"),
    (names.POD_GROUP_WAIT_TIMEOUT, "30"),
    (names.POD_GROUP_WAIT_TIMEOUT, "30m:soon"),
    (names.POD_GROUP_WAIT_TIMEOUT, "0s"),
    (names.POD_GROUP_CLASS, "spot,spot"),
    (names.POD_GROUP_CLASS, "cheap"),
    (names.EXPECTED_RUNTIME, "long"),
    (names.PREEMPTIBLE, "no"),
    (names.PRIORITY, "high"),
    (names.ON_PARTIAL_FAILURE, "explode"),
    (names.TIME_LIMIT, "0h"),
    (names.EXCLUSIVE_NODE, "node"),
)


@pytest.mark.parametrize(("annotation", "value"), WRONG)
def test_wrong_annotations_are_told_with_what_would_be_valid(annotation: str, value: str) -> None:
    """The mistake names annotation, value and what is expected; the field keeps its default."""
    terms, (mistake,) = terms_of({**GROUP, annotation: value})
    assert terms == GangTerms()
    assert (mistake.annotation, mistake.value) == (annotation, value)
    assert f"{annotation}: {value!r} is invalid; expected " in sentence(mistake)


def test_all_mistakes_are_listed_at_once() -> None:
    """Also that fewer are to exist than are to start together."""
    written = {**GROUP, names.POD_GROUP_MIN_MEMBER: "8", names.POD_GROUP_SIZE: "4", names.POD_GROUP_CLASS: "cheap"}
    found = declared([written])
    assert [each.annotation for each in found.mistakes] == [names.POD_GROUP_CLASS, names.POD_GROUP_MIN_MEMBER]
    assert names.POD_GROUP_CLASS in found.obstacle


def test_members_may_leave_the_number_to_one_of_them() -> None:
    """A launcher says how many start together; its workers say nothing. The highest priority counts for all."""
    found = declared([{**EIGHT, names.PRIORITY: "1"}, GROUP, {**GROUP, names.PRIORITY: "7"}])
    assert (found.terms.min_member, found.terms.priority, found.obstacle) == (8, 7, "")


def test_members_that_contradict_each_other_do_not_start() -> None:
    """One reason, which names the annotation and the values."""
    found = gang([member(0), member(1, annotations={**GROUP, names.POD_GROUP_MIN_MEMBER: "4"})])
    status = status_of(found, NOW)
    assert status.state is State.BLOCKED
    assert status.reason == f"members contradict each other: {names.POD_GROUP_MIN_MEMBER} is '4' and '8'"


def test_a_reservation_is_read_as_it_was_written() -> None:
    """What others wrote there is none."""
    written = Reservation(plan_id(NOW), NOW, "node-7", is_undone=True)
    assert reservation_of(member(0, gang_plan=written.text())) == written
    waits = replace(written, is_undone=False, awaits_victims=True)
    assert reservation_of(member(0, gang_plan=waits.text())) == waits
    assert reservation_of(member(0, gang_plan="p1/1750000000.250/n1")) == Reservation("p1", 1750000000.25, "n1")
    assert [reservation_of(member(0, gang_plan=text)) for text in ("x", "p1//n1", "p1/nan/n1", "p/1/n/other")] == [
        None
    ] * 4


# --- states ----------------------------------------------------------------------------------------------------------

CLAIMING = Needs(unmodelled=Lack.UNKNOWN_CLAIMS)
STATES: dict[str, tuple[list[Pod], State, str]] = {
    "members are missing": (eight()[:5], State.ASSEMBLING, "5 of 8 members exist"),
    "all are there": (eight(), State.WAITING, "8 members wait to start together"),
    "room is kept for all": (
        [kept(number) for number in range(8)],
        State.RESERVED,
        "room is kept for 8 members",
    ),
    "a plan that was cut short": (eight(kept(0)), State.WAITING, "8 members wait to start together"),
    "half of it has started": (
        [kept(0, is_gated=False), *(kept(number) for number in range(1, 8))],
        State.PLACING,
        "0 of 8 members have a node",
    ),
    "all have started": (
        [kept(number, is_gated=False) for number in range(8)],
        State.PLACING,
        "0 of 8 members have a node",
    ),
    "all run": ([member(number, "n1") for number in range(8)], State.RUNNING, ""),
    "one was lost": (
        [member(0), *(member(number, "n1") for number in range(1, 8))],
        State.WAITING,
        "1 members wait to join 7 that have started",
    ),
    "two were lost, and one has come back": (
        [member(0), *(member(number, "n1") for number in range(1, 7))],
        State.ASSEMBLING,
        "7 of 8 members exist",
    ),
    "some have succeeded": (
        [*(member(number, "n1", phase="Succeeded") for number in range(3)), *(member(n) for n in range(3, 8))],
        State.WAITING,
        "5 members wait to start together",
    ),
    "another gate": (
        eight(member(0, gates=("kueue.x-k8s.io/admission", names.GANG_GATE))),
        State.BLOCKED,
        "ForeignGate: pod m0 has the scheduling gate kueue.x-k8s.io/admission",
    ),
    "resource claims": (
        eight(member(0, needs=CLAIMING)),
        State.BLOCKED,
        "ResourceClaims: pod m0 has resource claims, for which no room can be reserved",
    ),
    "one came without the gate": (
        eight(member(0, is_gated=False)),
        State.BLOCKED,
        "Ungated: pod m0 was created without the gate, and has no node",
    ),
    "the start is undone": (
        [
            member(number, is_gated=False, gang_plan=Reservation("p1", NOW - 90, "n1", is_undone=True).text())
            for number in range(8)
        ],
        State.ROLLING_BACK,
        "0 of 8 members have a node",
    ),
}


@pytest.mark.parametrize(("pods", "state", "reason"), STATES.values(), ids=STATES.keys())
def test_states(pods: list[Pod], state: State, reason: str) -> None:
    """The state and its reason follow from the pods alone."""
    status = status_of(gang(pods), NOW)
    assert (status.state, status.reason) == (state, reason)


def test_a_gang_whose_pods_are_gone_is_none() -> None:
    """Members on their way out, and those that have finished, make no gang."""
    assert gang_of(KEY, [member(0, terminating=True), member(1, "n1", phase="Failed")], lambda _owner: 8) is None


def bare(number: int, age: float) -> Pod:
    return member(number, owner=None, annotations=GROUP, created=NOW - age)


NUMBERS = {
    "the annotation before all else": ([member(0)], 3, None),
    "the parallelism of its Job": ([member(n, annotations=GROUP) for n in range(3)], 3, 3),
    "a Job whose other pods are still to come": ([member(n, annotations=GROUP) for n in range(2)], 3, None),
    "a Job that is gone": ([member(n, annotations=GROUP, created=NOW - 60) for n in range(2)], None, None),
    "bare pods of which one came just now": ([bare(0, 10), bare(1, 1)], None, None),
    "bare pods that came a while ago": ([bare(0, 10), bare(1, 4)], None, 2),
    "bare pods that come one by one for long": ([bare(0, 16), bare(1, 0)], None, 2),
}


@pytest.mark.parametrize(("pods", "parallelism", "least"), NUMBERS.values(), ids=NUMBERS.keys())
def test_how_many_start_together(pods: list[Pod], parallelism: int | None, least: int | None) -> None:
    """Annotation, else size, else the owner's number, else those that are there once no new one comes."""
    assert gang(pods, parallelism).least(NOW) == least


def by_label(number: int, where: str = "", annotations: Mapping[str, str] = NOTHING, **fields: Any) -> Pod:
    """A member that names a PodGroup object."""
    labels = {names.GANG_LABEL: names.GANG_MEMBER, names.POD_GROUP_LABEL: "train"}
    return member(number, where, labels=labels, annotations=annotations, **fields)


SEVEN = PodGroup("shop", "train", "u", 7, 600)
SAYS_FIVE = {names.POD_GROUP_MIN_MEMBER: "5", names.POD_GROUP_WAIT_TIMEOUT: "1h:start"}
UNREAD, MISSING, UNSERVED = NoPodGroup.UNREAD, NoPodGroup.MISSING, NoPodGroup.UNSERVED
GROUPED: dict[str, tuple[list[Pod], PodGroup | NoPodGroup, int | None]] = {
    "the PodGroup says seven": ([by_label(n) for n in range(7)], SEVEN, 7),
    "six of seven are there": ([by_label(n) for n in range(6)], SEVEN, None),
    "an annotation before it": ([by_label(n, annotations=SAYS_FIVE) for n in range(5)], SEVEN, 5),
    "it before the size": ([by_label(n, annotations={names.POD_GROUP_SIZE: "9"}) for n in range(7)], SEVEN, 7),
    "it says nothing": ([by_label(n) for n in range(3)], PodGroup("shop", "train"), 3),
    "not read yet: no plan": ([by_label(n) for n in range(3)], UNREAD, None),
    "missing: it may still come": ([by_label(n, created=NOW - 99) for n in range(3)], MISSING, None),
    "missing, and not needed": ([by_label(n, annotations=SAYS_FIVE) for n in range(5)], MISSING, 5),
    "missing while others run": ([by_label(0, "n1"), by_label(1, "n1"), by_label(2)], MISSING, 1),
    "no such objects: the parallelism of its Job": ([by_label(n) for n in range(3)], UNSERVED, 3),
    "nobody names it": ([member(n, annotations=GROUP) for n in range(3)], SEVEN, 3),
}


@pytest.mark.parametrize(("pods", "group", "least"), GROUPED.values(), ids=GROUPED.keys())
def test_what_a_pod_group_says(pods: list[Pod], group: PodGroup | NoPodGroup, least: int | None) -> None:
    """It comes after the annotation and before the size; members that name it wait until it is known."""
    found = gang_of(KEY, pods, lambda _owner: 3, lambda _key: group)
    assert found is not None
    assert (found.least(NOW), found.obstacle) == (least, "")
    assert found.is_settled is (group is not UNREAD)


def test_its_timeout_stands_in_for_the_annotation() -> None:
    """After ten minutes the gang is reported; the annotation says something else, and counts."""
    for pods, expected in (
        ([by_label(0)], WaitTimeout(timedelta(minutes=10))),
        ([by_label(0, annotations=SAYS_FIVE)], WaitTimeout(timedelta(hours=1), "start")),
    ):
        found = gang_of(KEY, pods, lambda _owner: 1, lambda _key: SEVEN)
        assert found is not None
        assert found.terms.wait_timeout == expected


def test_what_is_missing_is_said() -> None:
    found = gang_of(KEY, [by_label(0)], lambda _owner: 1, lambda _key: MISSING)
    assert found is not None
    assert (status_of(found, NOW).state, status_of(found, NOW).reason) == (State.ASSEMBLING, MISSING.value)


def test_the_jobs_of_a_job_set_are_one_gang() -> None:
    """No Job's number is that of the gang: while only the first Job has its pods, nothing starts."""
    first = [member(n, annotations=GROUP, created=NOW - 1) for n in range(3)]
    assert gang(first, ONE_OF_SEVERAL).least(NOW) is None
    other = Owner("Job", "driver", "driver", "batch")
    later = [member(3, annotations=GROUP, created=NOW - 1, owner=other)]
    assert gang([*first, *later], ONE_OF_SEVERAL).least(NOW) is None
    assert gang([*first, *later], ONE_OF_SEVERAL).least(NOW + 3) == 4


def test_a_gang_of_one() -> None:
    """Admission has made it a member, and it names no group: it waits for no other."""
    solo = member(0, annotations={})
    assert gang_key(solo) == Key("shop", "pod/m0")
    found = gang_of(Key("shop", "pod/m0"), [solo], lambda _owner: 3)
    assert found is not None
    assert (found.least(NOW), found.obstacle) == (1, "")


BELONGING: dict[str, tuple[Pod, Key | None]] = {
    "by annotation": (member(0), KEY),
    "by label": (by_label(0), KEY),
    "the annotation before the label": (by_label(0, annotations={names.POD_GROUP: "other"}), Key("shop", "other")),
    "a blank annotation": (by_label(0, annotations={names.POD_GROUP: " "}), KEY),
    "a gang of one that has started": (kept(0, is_gated=False, annotations={}), Key("shop", "pod/m0")),
    "another tool's member": (member(0, annotations={}, labels={names.POD_GROUP_LABEL: "train"}), None),
    "a gate and no label": (member(0, annotations={}, labels={}), None),
    "a label and no gate": (member(0, "n1", annotations={}), None),
    "opted out": (member(0, labels={names.PLACEMENT: names.DISABLED}), None),
}


@pytest.mark.parametrize(("pod", "key"), BELONGING.values(), ids=BELONGING.keys())
def test_where_a_pod_belongs(pod: Pod, key: Key | None) -> None:
    assert gang_key(pod) == key


STATUSES: dict[str, tuple[list[Pod], GroupStatus]] = {
    "nobody is there": ([], GroupStatus("Pending")),
    "they wait": ([by_label(n) for n in range(7)], GroupStatus("Pending")),
    "some have nodes": ([by_label(0, "n1", phase="Pending")], GroupStatus("Unknown", 1)),
    "all have nodes": ([by_label(n, "n1", phase="Pending") for n in range(7)], GroupStatus("Scheduling", 7)),
    "all run": ([by_label(n, "n1", phase="Running") for n in range(7)], GroupStatus("Running", 7, 7)),
    "one has failed": (
        [by_label(n, "n1", phase="Failed" if n == 0 else "Running") for n in range(7)],
        GroupStatus("Failed", 7, 6, 0, 1),
    ),
    "all have succeeded": ([by_label(n, "n1", phase="Succeeded") for n in range(7)], GroupStatus("Finished", 7, 0, 7)),
}


@pytest.mark.parametrize(("pods", "status"), STATUSES.values(), ids=STATUSES.keys())
def test_what_a_pod_group_shows(pods: list[Pod], status: GroupStatus) -> None:
    """Its phase is that of seven members together."""
    assert status_for(SEVEN, pods) == status


COPIED: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "group and priority": ({"pod-group": "a", "priority": " 5 "}, {names.POD_GROUP: "a", names.PRIORITY: "5"}),
    "the other spelling": ({"pod_group": "a", "pod-group": " "}, {names.POD_GROUP: "a"}),
    "the prefix counts first": ({"pod-group": "a", "priority": "1", names.POD_GROUP: "b", names.PRIORITY: ""}, {}),
    "too long": ({"pod-group": "a" * 254, "priority": "1" * 21}, {}),
    "nothing": ({"x": "y"}, {}),
}


@pytest.mark.parametrize(("written", "added"), COPIED.values(), ids=COPIED.keys())
def test_annotations_without_a_prefix(written: dict[str, str], added: dict[str, str]) -> None:
    """They become ours, where ours are not there."""
    assert copied(written) == added


def test_members_above_the_number_start_as_they_come() -> None:
    """Eight run, a ninth came: it starts alone."""
    found = gang([*(member(number, "n1") for number in range(8)), member(8)])
    assert (found.missing, found.least(NOW)) == (0, 1)


def test_long_texts_are_not_remembered() -> None:
    """A plan or an annotation of 200 kB is none of ours, is shown in short, and is kept no longer than its pod."""
    long = "a" * 200_000
    assert reservation_of(member(0, gang_plan=f"{long}/1.000/n1")) is None
    contradicting = declared([{**GROUP, names.POD_GROUP_SIZE: f"{long}{number}"} for number in range(2)])
    wrong = declared([{**GROUP, names.POD_GROUP_SIZE: long}])
    assert max(len(contradicting.obstacle), len(wrong.obstacle)) < 400


def test_the_replacement_of_a_lost_member_does_not_wait_for_members_that_have_ended() -> None:
    """Five of eight succeeded, and went with their nodes. One of the other three is lost: its replacement starts."""
    running = [member(number, f"n{number}") for number in range(2)]
    replaced = member(9, created=NOW - 16)
    assert gang([*running, replaced]).least(NOW) == 1
    assert gang([*running, member(9)]).least(NOW) is None  # others may be on their way
    assert gang([replaced]).least(NOW) is None  # nothing of it runs: it is not whole


def test_plans_that_have_started_members_are_known_by_name() -> None:
    """They are looked up for every reservation: a gang may have thousands of both."""
    assert gang(eight(kept(0, is_gated=False), kept(1), kept(2, plan="p2"))).begun == {"p1"}
    assert gang(eight(kept(1))).begun == frozenset()
