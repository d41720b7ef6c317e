"""ReplicaSets change hands: whatever the order in which replicas hear of it, no slot is given twice."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

import pytest

from placement import names
from placement.model import Key
from serving.messages import Request
from tests.jumpingclock import run_at_once
from tests.webhook.replicas import UID, Network, WebhookReplica
from webhook.peers import ranked

FIRST, SECOND, THIRD, FOURTH = ranked(UID, "abcd")
Scenario = Callable[[Network], Coroutine[Any, Any, None]]


def played(scenario: Scenario, members: str = FIRST + SECOND + THIRD) -> Network:
    """Plays a scenario among replicas that all know each other, and whose watches bring nothing by themselves."""
    network = Network()
    for name in members:
        WebhookReplica(network, name, *members)
    run_at_once(scenario(network))
    return network


def leave(network: Network, name: str, heard_by: str = "") -> None:
    """SIGTERM: it decides no more, its Lease goes; some have heard of it."""
    network.replicas[name].peers.is_leaving = True
    for each in heard_by:
        network.replicas[each].see_leave(name)


def decided(network: Network) -> dict[str, int]:
    return {name: replica.decided for name, replica in network.replicas.items() if replica.decided}


HEARD = ["".join(heard) for size in range(4) for heard in itertools.combinations((FIRST, SECOND, THIRD), size)]


@pytest.mark.parametrize("at", [FIRST, SECOND, THIRD])
@pytest.mark.parametrize("heard_by", HEARD)
def test_when_the_owner_leaves_the_next_one_learns_its_decisions(at: str, heard_by: str) -> None:
    """Whoever is called and whoever has heard of it: slots go on where they were, with the second in rank deciding."""

    async def scenario(network: Network) -> None:
        assert [await network.create(each) for each in (FIRST, SECOND, THIRD)] == [0, 1, 2]
        leave(network, FIRST, heard_by)
        assert [await network.create(at) for _ in range(2)] == [3, 4]

    network = played(scenario)
    assert decided(network) == {FIRST: 3, SECOND: 2}


def test_the_new_owner_waits_for_what_the_old_one_has_seen() -> None:
    """A decision that the old owner has seen is in its ledger no more; the new one's cache has to come that far."""

    async def scenario(network: Network) -> None:
        assert await network.create(FIRST) == 0
        network.replicas[FIRST].see_pods()
        leave(network, FIRST, SECOND)
        call = asyncio.ensure_future(network.create(SECOND))
        await asyncio.sleep(0.02)
        assert not call.done()
        network.replicas[SECOND].see_pods()
        assert await call == 1

    played(scenario)


def test_calls_that_come_together_ask_once() -> None:
    """Each of the other two is asked once, for fifty calls."""

    async def scenario(network: Network) -> None:
        slots = await asyncio.gather(*(network.create(FIRST) for _ in range(50)))
        assert sorted(slots) == list(range(50))

    assert played(scenario).posts == {names.HAND_OVER_PATH: 2}


def test_what_is_held_is_not_asked_for_again() -> None:
    """One question for each other replica and ReplicaSet, not for each pod; alone, none at all."""

    async def scenario(network: Network) -> None:
        for _ in range(3):
            await network.create(FIRST)

    assert played(scenario).posts == {names.HAND_OVER_PATH: 2}
    assert played(scenario, FIRST).posts == {}


def test_one_that_joins_is_told_when_its_lease_is_seen() -> None:
    """The newcomer ranks first and knows it before the owner does: it gets its answer when both know."""

    async def scenario(network: Network) -> None:
        everybody = (FIRST, SECOND, THIRD)
        assert await network.create(SECOND) == 0
        WebhookReplica(network, FIRST, *everybody)
        call = asyncio.ensure_future(network.create(FIRST))
        await asyncio.sleep(0.02)
        assert await network.create(SECOND) == 1  # it has not handed over yet
        for name in (SECOND, THIRD):
            network.replicas[name].members[FIRST] = FIRST
        assert await call == 2
        assert [await network.create(name) for name in everybody] == [3, 4, 5]

    assert decided(played(scenario, SECOND + THIRD)) == {FIRST: 4, SECOND: 2}


def test_one_that_joins_may_be_called_before_it_sees_its_own_lease() -> None:
    """By the API server: it forwards. By another replica, which has seen it: it decides."""

    async def scenario(network: Network) -> None:
        WebhookReplica(network, FIRST, SECOND, THIRD)
        assert await network.create(FIRST) == 0
        assert network.replicas[SECOND].decided == 1
        network.replicas[SECOND].members[FIRST] = FIRST
        network.replicas[THIRD].members[FIRST] = FIRST
        assert [await network.create(SECOND), await network.create(THIRD)] == [1, 2]

    assert decided(played(scenario, SECOND + THIRD)) == {FIRST: 2, SECOND: 1}


def test_one_that_joins_does_not_send_calls_round_in_circles() -> None:
    """All but itself have seen its Lease, and the API server calls it: it forwards, and claims nothing."""

    async def scenario(network: Network) -> None:
        WebhookReplica(network, FIRST, SECOND, THIRD)
        for name in (SECOND, THIRD):
            network.replicas[name].see_join(FIRST)
        assert [await network.create(FIRST) for _ in range(3)] == [0, 1, 2]

    network = played(scenario, SECOND + THIRD)
    assert decided(network) == {SECOND: 3}
    assert network.posts == {names.WEBHOOK_PATH: 3, names.HAND_OVER_PATH: 2}


def test_an_owner_that_was_given_up_by_mistake_goes_on_deciding() -> None:
    """Its Lease was not renewed in time, but it is there and does not leave: it refuses, and is forwarded to."""

    async def scenario(network: Network) -> None:
        assert await network.create(FIRST) == 0
        for name in (SECOND, THIRD):
            network.replicas[name].see_leave(FIRST)
        assert [await network.create(name) for name in (FIRST, SECOND, THIRD)] == [1, 2, 3]

    assert decided(played(scenario)) == {FIRST: 4}


def test_an_owner_that_is_dead_costs_a_moment() -> None:
    """It cannot be asked any more; the caches are given a moment, and the pod is placed."""

    async def scenario(network: Network) -> None:
        assert await network.create(FIRST) == 0
        for name in (SECOND, THIRD):
            network.replicas[name].see_pods()
        del network.replicas[FIRST]
        assert sorted(await asyncio.gather(*map(network.create, (SECOND, THIRD)))) == [1, 2]

    assert decided(played(scenario)) == {SECOND: 2}


def test_a_call_that_waits_for_the_caches_is_not_decided_on_after_a_hand_over() -> None:
    """The owner waits for the ReplicaSet to be seen; meanwhile it hands over; then it forwards."""

    async def scenario(network: Network) -> None:
        replica_sets = network.replicas[FIRST].harness.stores.replica_sets
        web = replica_sets.get(Key("shop", "web-abc"))
        assert web is not None
        replica_sets.remove(web.key)
        call = asyncio.ensure_future(network.create(FIRST))
        await asyncio.sleep(0.02)
        leave(network, FIRST, SECOND)
        assert await network.create(SECOND) == 0
        replica_sets.put(web)
        assert await call == 1

    assert decided(played(scenario)) == {SECOND: 2}


def test_when_all_leave_the_last_calls_are_decided_on_all_the_same() -> None:
    """Each asks the other, and one of them gives way: no slot is given twice."""

    async def scenario(network: Network) -> None:
        assert await network.create(FIRST) == 0
        for name in (FIRST, SECOND, THIRD):
            leave(network, name, FIRST + SECOND + THIRD)
        slots = await asyncio.gather(*(network.create(name) for name in (SECOND, FIRST, THIRD)))
        assert sorted(slots) == [1, 2, 3]

    played(scenario)


def test_what_was_handed_on_while_asking_is_not_held() -> None:
    """The second still waits for the third's answer when the first, which leaves as well, asks it and is told."""

    async def scenario(network: Network) -> None:
        for name in (FIRST, SECOND):
            leave(network, name, FIRST + SECOND)
        network.slow[THIRD] = asyncio.Event()
        for name in (FIRST, SECOND):
            network.replicas[name].see_leave(THIRD)
        slower = asyncio.ensure_future(network.create(SECOND))
        await asyncio.sleep(0.02)
        faster = asyncio.ensure_future(network.create(FIRST))
        await asyncio.sleep(0.02)
        network.slow.pop(THIRD).set()
        assert sorted(await asyncio.gather(slower, faster)) == [0, 1]

    played(scenario)


QUESTIONS: dict[str, tuple[bytes, int]] = {
    "a member that ranks higher": (b'{"uid": "rs", "asker": "%s"}' % FIRST.encode(), 200),
    "a member that ranks lower": (b'{"uid": "rs", "asker": "%s"}' % THIRD.encode(), 409),
    "a stranger": (b'{"uid": "rs", "asker": "stranger-0"}', 409),
    "nonsense": (b'{"uid": 1}', 400),
}


@pytest.mark.parametrize(("body", "status"), QUESTIONS.values(), ids=QUESTIONS.keys())
def test_who_is_told(body: bytes, status: int) -> None:
    """Members that rank higher; others decide on nothing, so there is nothing to tell them."""

    async def scenario(network: Network) -> None:
        headers = {b"content-type": b"application/json"}
        answer = network.replicas[SECOND].ports.tls(Request("POST", names.HAND_OVER_PATH, headers, body))
        assert isinstance(answer, Awaitable)
        assert (await answer).status == status

    played(scenario)


@pytest.mark.parametrize("seed", range(40))
def test_no_slot_is_given_twice_whatever_happens_first(seed: int, caplog: pytest.LogCaptureFixture) -> None:
    """Calls to anybody while two replicas leave and one joins; Leases and pods are seen by each at its own time."""
    chance = random.Random(seed)

    async def later(act: Callable[[], object]) -> None:
        await asyncio.sleep(chance.random() * 0.02)
        act()

    async def scenario(network: Network) -> None:
        here, leaving = {FIRST, SECOND, THIRD, FOURTH}, chance.sample([FIRST, SECOND, THIRD], 2)
        calls: list[asyncio.Future[int]] = []
        views: list[asyncio.Future[None]] = []
        for step in range(60):
            calls += [asyncio.ensure_future(network.create(name)) for name in chance.choices(sorted(here), k=2)]
            if step in (15, 25):
                gone = leaving.pop()
                here.discard(gone)
                calls.append(asyncio.ensure_future(network.create(gone)))
                leave(network, gone)
                views += [asyncio.ensure_future(later(partial(each.see_leave, gone))) for each in all_of(network)]
            if step == 35:
                WebhookReplica(network, "e", *here).see_pods()
                here.add("e")
                views += [asyncio.ensure_future(later(partial(each.see_join, "e"))) for each in all_of(network)]
            for replica in all_of(network):
                if chance.random() < 0.3:
                    replica.see_pods()
            await asyncio.sleep(0.001)
            watched = [asyncio.ensure_future(later(replica.see_pods)) for replica in all_of(network)]
        slots = sorted(await asyncio.gather(*calls))
        await asyncio.gather(*views, *watched)
        assert slots == list(range(len(slots)))

    def all_of(network: Network) -> list[WebhookReplica]:
        return list(network.replicas.values())

    network = played(scenario, FIRST + SECOND + THIRD + FOURTH)
    assert sum(decided(network).values()) == network.uids
    warnings = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert warnings == []  # nobody had to decide without being asked to
