"""An installation read from outside: who lives, by whose clock, what is forbidden, and whether the webhook answers."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from kube.client import Client
from kube.errors import ServerError
from kube.installation import Reader, seconds_of, signs_of_life
from placement import names
from placement.installation import GrantedRight, Heartbeat, WebhookAnswer
from tests.builders.api import page, status
from tests.kube.scripted import Answer, Script

FORBIDDEN = Answer(status(403, "Forbidden", "cannot create resource"), 403)


def lease(name: str, age_seconds: float, holder: str = "me", component: str = "") -> dict[str, Any]:
    """Renewed so long ago, by this machine's clock."""
    renewed = datetime.fromtimestamp(time.time() - age_seconds, UTC).isoformat(timespec="microseconds")
    return {
        "metadata": {"name": name, "labels": {names.COMPONENT: component} if component else {}},
        "spec": {"holderIdentity": holder, "renewTime": renewed.replace("+00:00", "Z")},
    }


def webhook(age_seconds: float) -> dict[str, Any]:
    return lease("spotweave-webhook-1", age_seconds, component=names.WEBHOOK_COMPONENT)


LEADER = names.LEASE
# Made when a test begins: what is collected may run minutes later.
LIVES: dict[str, Callable[[], tuple[list[list[dict[str, Any]]], tuple[bool, bool]]]] = {
    "both are fresh": lambda: ([[webhook(1), lease(LEADER, 1)]], (True, True)),
    "nobody was ever there": lambda: ([[]], (False, False)),
    "the leader gave up": lambda: ([[webhook(1), lease(LEADER, 1, holder="")], [webhook(1)]], (True, False)),
    "a killed leader": lambda: ([[webhook(1), (dead := lease(LEADER, 90))], [webhook(0), dead]], (True, False)),
    "a killed webhook": lambda: ([[(gone := webhook(90)), lease(LEADER, 1)], [gone, lease(LEADER, 0)]], (False, True)),
    "our clock is wrong by an hour": lambda: (
        [[webhook(3601), lease(LEADER, 3601)], [webhook(3600), lease(LEADER, 3600)]],
        (True, True),
    ),
}


@pytest.mark.parametrize("name", LIVES)
def test_who_lives_is_seen_by_what_changes(client: Client, script: Script, name: str) -> None:
    """A time that looks old proves nothing, because clocks differ: then the Lease is looked at again."""
    looks, expected = LIVES[name]()
    script.answer(*(page(*each) for each in looks))
    assert signs_of_life(client, 0.0) == expected
    assert script.lists.empty()


def test_who_may_not_look_is_not_told_that_nobody_lives(client: Client, script: Script) -> None:
    """A role of an older version has no right to Leases."""
    script.answer(FORBIDDEN)
    assert signs_of_life(client, 0.0) == (True, True)


def test_heartbeats_say_who_lives_and_whose_clock_is_wrong(client: Client, script: Script) -> None:
    """By the API server's clock, which is 100 s ahead of this machine's here; the webhook's is 60 s ahead of that."""
    dead = lease(LEADER, -90)
    script.answer(page(webhook(-159), dead), page(webhook(-160), dead))
    beats = Reader(client).heartbeats(100.0, 0.0)
    assert beats is not None
    (seen,), leader = beats
    assert (seen.name, seen.is_renewed) == ("spotweave-webhook-1", True)
    assert seen.seconds_off == pytest.approx(60, abs=2)
    assert leader == Heartbeat(LEADER, "me", False, leader.seconds_off if leader else 0.0)


def test_the_servers_clock_is_read_from_what_it_stamps(client: Client, script: Script) -> None:
    """In a dry run, which stores nothing."""
    stamp = datetime.fromtimestamp(time.time() + 50, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    script.answer(json.dumps({"metadata": {"creationTimestamp": stamp}}).encode())
    assert Reader(client).server_offset() == pytest.approx(50, abs=2)
    assert script.next_request().query == {"dryRun": "All"}
    assert seconds_of("1970-01-01T00:00:10.500000Z") == 10.5


def test_rights_are_asked_for_as_the_account_that_needs_them(client: Client, script: Script) -> None:
    """One review for each; a subresource is asked for as such."""
    wanted = (GrantedRight("spotweave-rebalancer", "create", "", "pods/eviction"),)
    script.answer(b'{"status": {"allowed": false}}')
    assert Reader(client).lacking(wanted) == wanted
    asked = json.loads(script.next_request().body)["spec"]
    assert asked["user"] == "system:serviceaccount:spotweave-system:spotweave-rebalancer"
    assert asked["resourceAttributes"] == {"verb": "create", "resource": "pods", "subresource": "eviction"}


def counts(answered: int, failed: int) -> bytes:
    """The API server's own metrics; of other webhooks, too."""
    lines = [
        f'apiserver_admission_webhook_request_total{{code="200",name="{names.WEBHOOK_ENTRY}",operation="CREATE"}} '
        f"{answered}",
        f'apiserver_admission_webhook_request_total{{code="200",name="other",operation="CREATE"}} {answered + failed}',
        f'apiserver_admission_webhook_fail_open_count{{name="{names.WEBHOOK_ENTRY}",type="admit"}} {failed}',
    ]
    return "\n".join(lines).encode()


REFUSED = Answer(status(403, "Forbidden", "exceeded quota: small"), 403)
ASKED: dict[str, tuple[list[bytes | Answer], WebhookAnswer]] = {
    "it answers": ([counts(5, 1), b"{}", counts(6, 1)], WebhookAnswer.ANSWERED),
    "it does not": ([counts(5, 1), b"{}", counts(5, 2)], WebhookAnswer.FAILED_OPEN),
    "another API server was asked": ([counts(5, 1), b"{}", counts(5, 1)], WebhookAnswer.UNKNOWN),
    "it answers, and a quota refuses the pod": ([counts(5, 1), REFUSED, counts(6, 1)], WebhookAnswer.ANSWERED),
    "the user may create no pods": ([counts(5, 1), FORBIDDEN], WebhookAnswer.UNKNOWN),
    "the user may read no metrics": ([FORBIDDEN], WebhookAnswer.UNKNOWN),
}


@pytest.mark.parametrize(("answers", "expected"), ASKED.values(), ids=ASKED.keys())
def test_the_api_server_says_whether_it_got_an_answer(
    client: Client, script: Script, answers: list[bytes | Answer], expected: WebhookAnswer
) -> None:
    """`failurePolicy: Ignore` hides it from whoever creates the pod."""
    script.answer(*answers)
    reader = Reader(client)
    assert reader.answer(["shop"]) is expected
    assert bool(reader.unchecked) == (answers[-1] is FORBIDDEN)


def test_without_an_opted_in_namespace_it_cannot_be_tried(client: Client) -> None:
    """That is said, and is no finding."""
    reader = Reader(client)
    assert reader.answer([]) is WebhookAnswer.UNKNOWN
    assert reader.unchecked == ["whether the webhook answers: no namespace is opted in"]


def test_what_fails_is_no_answer(client: Client, script: Script) -> None:
    """Half a look would look like a broken installation; the command ends with code 3."""
    script.answer(Answer(status(500, "InternalError"), 500))
    with pytest.raises(ServerError):
        Reader(client).live([{"kind": "Secret", "apiVersion": "v1", "metadata": {"name": "a", "namespace": "b"}}])
