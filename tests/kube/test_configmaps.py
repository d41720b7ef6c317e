"""The state that the programs share: read, changed by several at once, and never lost."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest

from kube.client import Client
from kube.configmaps import (
    PATH,
    ObservedMemory,
    change_observed,
    change_outages,
    change_pause,
    read_observed,
    read_outages,
    read_pause,
    write_autostate,
)
from kube.errors import Conflict
from kube.resources import ConfigMap
from kube.store import Store
from placement import autostate, names
from placement.autostate import MOST_BYTES, AutoState, WorkloadRecord, autostate_text
from placement.model import Class
from placement.observation import KEY, NOTHING_OBSERVED, Interruption, Observed, extended, observed_text
from placement.outage import Outage, Outages, noted
from placement.pause import Pause
from placement.promise import AutoStanding
from tests.certs.fakeapi import FakeApi

STATE = f"{PATH}/{names.STATE_MAP}"
SPOT = Outage(Class.SPOT, 0.0)
PAUSE = Pause(100.0, 200.0, "alice", "black friday")


def api(**data: str) -> tuple[FakeApi, Client]:
    """With a state of so much data; none where there is nothing."""
    raw = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": names.STATE_MAP}, "data": data}
    fake = FakeApi({STATE: raw} if data else {})
    return fake, cast(Client, fake)


def data(fake: FakeApi) -> dict[str, Any]:
    found: dict[str, Any] = fake.objects[STATE].get("data") or {}
    return found


def paused(client: Client) -> Pause | None:
    return change_pause(client, lambda _: PAUSE)


def test_without_a_state_nothing_is_noted() -> None:
    """The ConfigMap is made by the first note."""
    fake, client = api()
    assert read_pause(client) is None
    assert read_outages(client) == (Outages(), None)
    assert paused(client) == PAUSE
    assert read_pause(client) == PAUSE
    assert fake.writes == [("POST", names.STATE_MAP)]


def test_pause_and_outages_do_not_disturb_each_other() -> None:
    """Each has a key of its own; a third one stays."""
    fake, client = api(other="kept")
    change_outages(client, lambda known: noted(known, SPOT, 100.0, 60.0))
    paused(client)
    change_outages(client, lambda known: noted(known, SPOT, 110.0, 60.0))
    assert read_pause(client) == PAUSE
    assert read_outages(client)[0].version == 2
    change_pause(client, lambda _: None)
    assert set(data(fake)) == {"other", "outages.json"}
    assert read_pause(client) is None


def test_a_garbled_outage_does_not_hinder_a_pause() -> None:
    """In need, the emergency brake works whatever stands beside it."""
    _, client = api(**{"outages.json": "{"})
    paused(client)
    assert read_pause(client) == PAUSE


def test_a_garbled_pause_is_told_and_can_be_cleared() -> None:
    """It counts as a pause until somebody resumes."""
    fake, client = api(**{"pause.json": "{"})
    told = read_pause(client)
    assert told is not None
    assert told.is_garbled
    change_pause(client, lambda _: None)
    assert data(fake) == {}


def test_what_is_so_already_is_not_written() -> None:
    """Resuming where nothing is paused leaves the ConfigMap alone, or unmade."""
    for fake, client in (api(), api(other="kept")):
        assert change_pause(client, lambda _: None) is None
        assert fake.writes == []


def test_who_comes_second_reads_again() -> None:
    """Between our read and our write another notes an outage: both are there in the end."""
    for fake, client in (api(), api(other="kept")):
        fake.before_write = lambda client=client: change_outages(client, lambda known: noted(known, SPOT, 1.0, 60.0))
        paused(client)
        assert set(data(fake)) - {"other"} == {"outages.json", "pause.json"}
        assert json.loads(data(fake)["outages.json"])["version"] == 1


def test_who_is_always_second_gives_up() -> None:
    """With the API's own error, which commands turn into an exit code."""
    fake, client = api(other="kept")

    def busy(_: Pause | None) -> Pause:
        fake.store(STATE, fake.objects[STATE])
        return PAUSE

    with pytest.raises(Conflict, match="other writers changed it 5 times in a row"):
        change_pause(client, busy)


def interrupted(known: Observed) -> Observed:
    return extended(known, {}, [Interruption("a/m5", 4, 100.0)], 100.0)


def test_interruptions_are_noted_beside_the_rest() -> None:
    """In a key of their own, and read again."""
    fake, client = api(other="kept")
    paused(client)
    written = change_observed(client, interrupted)
    assert written.of("a/m5").node_losses == 1
    assert read_observed(client) == written
    assert set(data(fake)) == {"other", "pause.json", KEY}


def test_garbled_interruptions_are_begun_anew() -> None:
    """They must not stand in the way of those to come."""
    _, client = api(**{KEY: "{"})
    assert read_observed(client) == NOTHING_OBSERVED
    assert change_observed(client, interrupted).of("a/m5").node_losses == 1


def test_garbled_outages_are_begun_anew() -> None:
    """Under a version that no webhook has read yet: whoever notes a loss must not wait for a person."""
    _, client = api(**{"outages.json": "{"})
    written = change_outages(client, lambda known: noted(known, SPOT, 100.0))
    assert [each.of for each in written.noted] == [Class.SPOT]
    assert written.version > 1_000_000


def test_what_auto_has_chosen_leaves_room_for_outages() -> None:
    """What is too large is not written: the last note stays, and an outage can still be noted."""
    fake, client = api(other="kept")
    record = WorkloadRecord(AutoStanding(0.0, 0.0, step=9))
    small = AutoState(1, {"a": record})
    large = AutoState(2, {f"{number:012x}": record for number in range(MOST_BYTES // 40)})
    assert write_autostate(client, small)
    assert not write_autostate(client, large)
    change_outages(client, lambda known: noted(known, SPOT, 100.0, 60.0))
    assert data(fake)[autostate.KEY] == autostate_text(small)


def test_who_follows_the_state_keeps_what_it_knew_when_it_is_garbled() -> None:
    """And forgets it when it is gone."""
    states, heard = Store[ConfigMap](), list[Observed]()
    memory = ObservedMemory(states, heard.append)
    known = interrupted(NOTHING_OBSERVED)
    for text in (observed_text(known), "{"):
        states.put(ConfigMap(names.SYSTEM_NAMESPACE, names.STATE_MAP, {KEY: text}))
        assert memory.current == known
    states.put(ConfigMap(names.SYSTEM_NAMESPACE, names.STATE_MAP, {}))
    assert heard == [known, known, NOTHING_OBSERVED]


def test_a_garbled_choice_does_not_count_as_noted() -> None:
    """So the leader writes it again at once; what was read before stays, and another key of the map changes nothing."""
    states = Store[ConfigMap]()
    memory = ObservedMemory(states, lambda _: None)
    good = autostate_text(AutoState(1, {"a": WorkloadRecord(AutoStanding(0.0, 0.0, step=9))}))
    bad = good.replace("[9,", "[99,")
    seen = []
    for text, other in ((bad, ""), (bad, "x"), (good, ""), (good, "x"), (bad, ""), (bad, "x"), (good, ""), ("", "")):
        states.put(ConfigMap(names.SYSTEM_NAMESPACE, names.STATE_MAP, {autostate.KEY: text, "other": other}))
        seen.append((memory.is_auto_noted, memory.auto_text == good))
    assert seen == [*[(False, False)] * 2, *[(True, True)] * 2, *[(False, True)] * 2, (True, True), (False, True)]
    states.put(ConfigMap(names.SYSTEM_NAMESPACE, names.STATE_MAP, {autostate.KEY: bad}))
    fresh = Store[ConfigMap]()
    started = ObservedMemory(fresh, lambda _: None)
    fresh.put(ConfigMap(names.SYSTEM_NAMESPACE, names.STATE_MAP, {autostate.KEY: bad}))
    assert started.auto_text == bad  # what a new leader can read of it
