"""The thread of the election: what it sends, and what it tells."""

from __future__ import annotations

import json
import queue
from collections.abc import Iterator
from typing import Any

import pytest

from kube.client import Client
from kube.election import Terms
from kube.lease import PATH, Leader, permit_first_leader
from kube.membership import PATH as LEASES
from tests.builders.api import status
from tests.kube.scripted import Answer, ReceivedRequest, Script

QUICK = Terms(duration_seconds=2, safe_seconds=1.0, renew_seconds=0.05, look_seconds=0.05, retry_seconds=0.02)


class Fixture:
    """A leader on a scripted API, and what it told."""

    def __init__(self, client: Client) -> None:
        self.told: queue.Queue[bool] = queue.Queue()
        self.is_fit = True
        self.leader = Leader(client, "me", on_change=self.told.put, is_fit=lambda: self.is_fit, terms=QUICK)

    def hears(self) -> bool:
        return self.told.get(timeout=5)


@pytest.fixture
def elected(script: Script, client: Client) -> Iterator[Fixture]:
    fixture = Fixture(client)
    yield fixture
    script.closing.set()
    fixture.leader.stop()


def lease(version: int, holder: str = "", seconds: int = 15, **spec: Any) -> bytes:
    raw = {"holderIdentity": holder, "leaseDurationSeconds": seconds, **spec}
    return json.dumps({"metadata": {"resourceVersion": str(version)}, "spec": raw}).encode()


def line(request: ReceivedRequest) -> str:
    return f"{request.method} {request.path}"


def refused(code: int, reason: str) -> Answer:
    return Answer(status(code, reason), status=code)


def test_a_lease_that_was_given_up_is_taken_over_its_version(script: Script, elected: Fixture) -> None:
    """The patch names the version, so that only one can succeed; taking it is counted."""
    script.answer(lease(5, "", 1, leaseTransitions=3), lease(6, "me"))
    elected.leader.start()
    assert elected.hears() is True
    assert elected.leader.is_leading()
    assert elected.leader.holder == "me"
    assert line(script.next_request()) == f"GET {PATH}"
    request = script.next_request()
    body = json.loads(request.body)
    assert line(request) == f"PATCH {PATH}"
    assert body["metadata"] == {"resourceVersion": "5"}
    assert body["spec"].pop("renewTime") == body["spec"].pop("acquireTime")
    assert body["spec"] == {"holderIdentity": "me", "leaseDurationSeconds": 2, "leaseTransitions": 4}


def test_a_renewal_does_not_look_first_and_takes_nothing(script: Script, elected: Fixture) -> None:
    """One request each time, over the version that the last one made."""
    script.answer(lease(5, "", 1), lease(6, "me"), lease(7, "me"))
    elected.leader.start()
    requests = [script.next_request() for _ in range(4)]
    assert [line(each).split()[0] for each in requests] == ["GET", "PATCH", "PATCH", "PATCH"]
    bodies = [json.loads(each.body) for each in requests[2:]]
    assert [each["metadata"]["resourceVersion"] for each in bodies] == ["6", "7"]
    assert "acquireTime" not in bodies[0]["spec"]


def test_who_cannot_renew_stops_by_itself(script: Script, elected: Fixture) -> None:
    """The API says nothing more: after the safe time it leads no more, though nobody told it."""
    script.answer(lease(5, "", 1), lease(6, "me"))
    elected.leader.start()
    assert elected.hears() is True
    assert elected.hears() is False
    assert not elected.leader.is_leading()


def test_who_is_not_fit_does_not_renew_and_leads_again_afterwards(script: Script, elected: Fixture) -> None:
    """The loop hangs: the Lease is looked at, and runs out. When the loop goes on, what is still ours is renewed."""
    script.answer(lease(5, "", 1), lease(6, "me"), *[lease(6, "me")] * 400)
    elected.leader.start()
    assert elected.hears() is True
    elected.is_fit = False
    assert elected.hears() is False
    asked = [script.next_request() for _ in range(script.asked.qsize())]
    assert {request.method for request in asked[-5:]} == {"GET"}
    elected.is_fit = True
    assert elected.hears() is True


def test_another_holder_ends_it_at_once(script: Script, elected: Fixture) -> None:
    """A conflict is looked into; another's name is believed."""
    script.answer(lease(5, "", 1), lease(6, "me"), refused(409, "Conflict"), lease(9, "her"))
    elected.leader.start()
    assert [elected.hears(), elected.hears()] == [True, False]
    assert elected.leader.holder == "her"


def test_a_missing_lease_is_made_blank_and_taken_after_its_time(script: Script, elected: Fixture) -> None:
    """Whoever led might not know that it is missing; so making it makes nobody leader."""
    script.answer(refused(404, "NotFound"), b'{"metadata": {"resourceVersion": "1"}, "spec": {}}')
    script.answer(*[b'{"metadata": {"resourceVersion": "1"}}'] * 200)
    elected.leader.start()
    assert line(script.next_request()) == f"GET {PATH}"
    request = script.next_request()
    assert line(request) == f"POST {LEASES}"
    assert json.loads(request.body)["spec"] == {}
    while (request := script.next_request()).method == "GET":
        assert not elected.leader.is_leading()
    assert line(request) == f"PATCH {PATH}"
    assert json.loads(request.body)["metadata"] == {"resourceVersion": "1"}


def test_a_garbled_answer_is_none(script: Script, elected: Fixture) -> None:
    """It does not make anybody leader, and is asked again."""
    script.answer(b'{"metadata": {}}', b"<html>", lease(5, "", 1), b'{"kind": "Lease"}', lease(6, "me"), lease(7, "me"))
    elected.leader.start()
    methods = [script.next_request().method for _ in range(6)]
    assert methods == ["GET", "GET", "GET", "PATCH", "GET", "PATCH"]
    assert elected.hears() is True


def test_stopping_gives_it_up(script: Script, elected: Fixture) -> None:
    """It leads no more before it says so; the sign is the one that Kubernetes' own programs use."""
    script.answer(lease(5, "", 1), lease(6, "me"), *[lease(7, "me")] * 100)
    elected.leader.start()
    assert elected.hears() is True
    elected.leader.stop()
    assert not elected.leader.is_leading()
    assert elected.hears() is False
    requests = [script.next_request() for _ in range(script.asked.qsize())]
    assert line(requests[-2]) == f"GET {PATH}"
    body = json.loads(requests[-1].body)
    assert body["metadata"] == {"resourceVersion": "7"}
    assert (body["spec"]["holderIdentity"], body["spec"]["leaseDurationSeconds"]) == ("", 1)


def test_stopping_leaves_anothers_lease_alone(script: Script, elected: Fixture) -> None:
    """It is hers."""
    script.answer(*[lease(5, "her")] * 100)
    elected.leader.start()
    script.next_request()
    elected.leader.stop()
    assert {script.next_request().method for _ in range(script.asked.qsize())} == {"GET"}


def test_an_installer_permits_the_first_leader_and_takes_from_none(script: Script, client: Client) -> None:
    """A Lease that is there stays as it is."""
    script.answer(lease(1), refused(409, "AlreadyExists"))
    permit_first_leader(client)
    permit_first_leader(client)
    body = json.loads(script.next_request().body)
    assert body["metadata"]["name"] == "spotweave-rebalancer"
    assert (body["spec"]["holderIdentity"], body["spec"]["leaseDurationSeconds"]) == ("", 1)
