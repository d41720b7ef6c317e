"""Replicas: who owns which ReplicaSet, and what happens when the owner does not answer."""

from __future__ import annotations

import asyncio
from collections import Counter

from placement import names
from tests.builders.api import raw_new_pod, review
from tests.manualclock import ManualClock
from tests.webhook.admissionharness import patched
from tests.webhook.test_reviewer import webhook
from webhook.ownership import Tenure
from webhook.peers import SUSPECT_SECONDS, HttpsLines, Peers, ranked
from webhook.reviewer import Reviewer

MEMBERS = {name: f"127.0.0.1:{port}" for name, port in (("a", 1), ("b", 2), ("c", 3))}
UIDS = [f"uid-{number}" for number in range(300)]


def test_replica_sets_are_shared_out_evenly() -> None:
    """Of 300, each of three owns about a third."""
    shares = Counter(ranked(uid, MEMBERS)[0] for uid in UIDS)
    assert set(shares) == set(MEMBERS)
    assert min(shares.values()) > 70


def test_when_one_goes_only_its_own_change_hands() -> None:
    """Everybody else's owner stays, and the new owner is the next in rank."""
    for uid in UIDS:
        first, second, _ = ranked(uid, MEMBERS)
        left = [name for name in MEMBERS if name != "b"]
        assert ranked(uid, left)[0] == (second if first == "b" else first)


def test_the_order_in_which_members_are_known_does_not_matter() -> None:
    """Every replica ranks alike."""
    assert all(ranked(uid, ["a", "b", "c"]) == ranked(uid, ["c", "a", "b"]) for uid in UIDS)


def test_each_replica_forwards_what_is_not_its_own() -> None:
    """For any ReplicaSet exactly one replica decides itself."""
    peers = [Peers(name, lambda: MEMBERS) for name in MEMBERS]
    for uid in UIDS:
        owners = [each.owner(uid) for each in peers]
        assert owners.count(None) == 1
        assert len({owner for owner in owners if owner}) == 1


def test_alone_nothing_is_forwarded() -> None:
    """Also before its own Lease was seen."""
    assert Peers("a", dict).owner("uid") is None
    assert Peers("a", lambda: {"a": "127.0.0.1:1"}).owner("uid") is None


def test_a_peer_that_does_not_answer_is_passed_over_for_a_while() -> None:
    """Nobody listens there: the next in rank owns it; later it is asked again."""
    clock, lines = ManualClock(), HttpsLines()
    peers = Peers("a", lambda: MEMBERS, lines=lines, timer=clock)
    uid = next(uid for uid in UIDS if ranked(uid, MEMBERS)[:2] == ["b", "a"])

    async def forward() -> bytes | None:
        peer = peers.owner(uid)
        assert peer is not None
        answer = await peers.forward(peer, b"{}")
        await lines.close()
        return answer

    assert asyncio.run(forward()) is None
    assert peers.owner(uid) is None
    clock.now += SUSPECT_SECONDS + 0.1
    assert peers.owner(uid) == ("b", MEMBERS["b"])


def test_one_without_a_lease_owns_nothing_while_there_are_others() -> None:
    """It joins or leaves: others own what it ranks first for, unless they say that it does."""
    uid = next(uid for uid in UIDS if ranked(uid, MEMBERS) == ["a", "b", "c"])
    joining = Peers("a", lambda: {"b": "2", "c": "3"})
    assert joining.owner(uid) == ("b", "2")
    assert joining.owner(uid, ["c"]) is None
    leaving = Peers("a", lambda: MEMBERS)
    leaving.is_leaving = True
    assert leaving.owner(uid) == leaving.owner(uid, ["c"]) == ("b", MEMBERS["b"])
    assert leaving.owner(uid, ["b", "c"]) == ("b", MEMBERS["b"])  # it knows then who leaves
    assert leaving.owner(uid, ["b", "a", "c"]) is None  # that one leaves too


def test_a_call_does_not_go_back_to_who_has_passed_it_on() -> None:
    """Who ranks first and passes it on leaves."""
    uid = next(uid for uid in UIDS if ranked(uid, MEMBERS) == ["a", "b", "c"])
    assert Peers("b", lambda: MEMBERS).owner(uid, ["a"]) is None
    assert Peers("c", lambda: MEMBERS).owner(uid, ["a"]) == ("b", MEMBERS["b"])


def test_where_no_owner_answers_the_pod_is_decided_here() -> None:
    """A dead peer costs a moment, never a pod."""
    hook = webhook()
    own = next(name for name in (f"mine-{number}" for number in range(99)) if ranked("rs", [name, "dead"])[0] == "dead")
    lines = HttpsLines()
    peers = Peers(own, lambda: {own: "x", "dead": "127.0.0.1:9"}, lines=lines)
    reviewer = Reviewer(hook.harness.admission, hook.metrics, tenure=Tenure(peers, hook.harness.admission.ledger))

    async def answer() -> bytes:
        try:
            answer = reviewer.answer(review(raw_new_pod()))
            assert not isinstance(answer, bytes)
            return await answer
        finally:
            await lines.close()

    created = patched(raw_new_pod(), asyncio.run(answer()))
    assert created["metadata"]["labels"] == {names.CLASS: "on-demand"}
    assert b'spotweave_admission_forwarded_total{outcome="failed"} 1.0' in hook.metrics.text()
