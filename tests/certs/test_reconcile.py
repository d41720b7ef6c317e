"""Passes of one replica and of several: racing, crashing, with clocks that differ, after every kind of damage."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cache
from random import Random
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from certs import publish
from certs.authority import LEAF_LIFETIME, issue, new_authority
from certs.publish import CONFIGURATION, HOSTS, SECRET, bundle_of
from certs.reconcile import Issuer, Keeper
from certs.renewal import ROTATE_CA, ROTATE_LEAF, Bundle, Published, authorities, next_step, successor, verifies
from kube.client import Client
from placement import names
from tests.certs.fakeapi import FakeApi
from tests.certs.garble import garbled
from tests.certs.test_publish import BUNDLE, NOW, configuration, secret
from tests.examples import examples
from webhook.peers import HttpsLines
from webhook.server import TlsIdentity

OVERLAP = timedelta(seconds=20)
PASS_SECONDS = 2.0


@dataclass
class DayClock:
    """Seconds since the start, as all replicas' timers and days go by."""

    seconds: float = 0.0

    def __call__(self) -> float:
        return self.seconds

    @property
    def now(self) -> datetime:
        return NOW + timedelta(seconds=self.seconds)


def keeper(api: FakeApi, clock: DayClock | None = None, source: Issuer = Issuer.OWN) -> Keeper:
    return Keeper(cast(Client, api), source, OVERLAP, clock or DayClock())


def healthy() -> FakeApi:
    return FakeApi({SECRET: secret(BUNDLE), CONFIGURATION: configuration(BUNDLE.trusted)})


def published(api: FakeApi) -> set[str | None]:
    return {entry["clientConfig"].get("caBundle") for entry in api.objects[CONFIGURATION]["webhooks"]}


def is_in_order(api: FakeApi, now: datetime = NOW) -> bool:
    bundle = bundle_of(api.objects.get(SECRET))
    return verifies(bundle, HOSTS, now) and published(api) == {b64encode(bundle.trusted).decode()}


# --- one replica -----------------------------------------------------------------------------------------------------


def test_nothing_to_do_writes_nothing() -> None:
    """A pass every two seconds by every replica costs two reads."""
    api = healthy()
    replica = keeper(api)
    assert replica.look(NOW) == BUNDLE
    assert replica.look(NOW) == BUNDLE
    assert api.writes == []
    assert replica.missing(NOW) is None


def test_the_first_pass_issues_and_publishes() -> None:
    """To every entry, after the Secret."""
    api = FakeApi({CONFIGURATION: configuration(None, b"old")})
    assert keeper(api).look(NOW) == bundle_of(api.objects[SECRET])
    assert api.writes == [("POST", names.TLS_SECRET), ("PATCH", "spotweave")]
    assert is_in_order(api)


@pytest.mark.parametrize("there", [{}, {SECRET: secret(Bundle())}], ids=["none", "an empty one"])
def test_a_faster_writer_of_the_secret_wins(there: dict[str, Any]) -> None:
    """A conflict is read again, and what the other wrote is served: two replicas never serve two authorities."""
    api = FakeApi({**there, CONFIGURATION: configuration(b"")})
    api.before_write = lambda: api.store(SECRET, secret(BUNDLE))
    assert keeper(api).look(NOW) == BUNDLE
    assert is_in_order(api)


def test_a_changed_configuration_is_read_again() -> None:
    """Somebody put an entry before ours between our read and our write: the right one is written all the same."""
    api = FakeApi({SECRET: secret(BUNDLE), CONFIGURATION: configuration(b"old")})
    api.before_write = lambda: api.store(CONFIGURATION, configuration(BUNDLE.trusted, b"old"))
    keeper(api).look(NOW)
    assert is_in_order(api)


def test_endless_conflicts_are_told() -> None:
    """The caller tries again later; it must not hang here."""
    api = FakeApi({SECRET: secret(Bundle()), CONFIGURATION: configuration(b"")})

    def disturb() -> None:
        api.store(SECRET, secret(Bundle()))
        api.before_write = disturb

    api.before_write = disturb
    with pytest.raises(TimeoutError):
        keeper(api).look(NOW)


READINESS: dict[str, tuple[FakeApi, Issuer, datetime, str | None]] = {
    "all is well": (healthy(), Issuer.OWN, NOW, None),
    "no configuration": (FakeApi({}), Issuer.OWN, NOW, "the webhook configuration has no entries"),
    "nobody has issued one yet": (
        FakeApi({CONFIGURATION: configuration(b"")}),
        Issuer.SECRET,
        NOW,
        "no certificate yet",
    ),
    "nobody has published it yet": (
        FakeApi({SECRET: secret(BUNDLE), CONFIGURATION: configuration(b"")}),
        Issuer.SECRET,
        NOW,
        "the served certificate does not verify against the published bundle",
    ),
    "nobody has renewed it": (
        healthy(),
        Issuer.SECRET,
        NOW + LEAF_LIFETIME,
        "the served certificate expired at 2026-08-30T12:00:00+00:00",
    ),
}


@pytest.mark.parametrize(("api", "source", "now", "expected"), READINESS.values(), ids=READINESS.keys())
def test_readiness_says_what_is_wrong(api: FakeApi, source: Issuer, now: datetime, expected: str | None) -> None:
    """So that no call comes to a replica whose certificate callers would refuse."""
    replica = keeper(api, source=source)
    replica.look(now)
    assert replica.missing(now) == expected


def test_before_the_first_pass_nothing_is_ready() -> None:
    """There is nothing to serve."""
    assert keeper(healthy()).missing(NOW) == "no certificate yet"


def test_certificates_of_others_are_served_and_never_written() -> None:
    """Whatever state they are in. A garbled one is not taken; the next one is."""
    api = healthy()
    replica = keeper(api, source=Issuer.SECRET)
    assert replica.look(NOW) == BUNDLE
    for bundle in (Bundle(), replace(BUNDLE, leaf_key=b"x")):
        api.store(SECRET, secret(bundle))
        assert replica.look(NOW) == BUNDLE
    api.store(CONFIGURATION, configuration(b"junk"))
    authority = new_authority(NOW)
    leaf = issue(authority, HOSTS, NOW)
    api.store(SECRET, secret(Bundle(authority.certificate, leaf=leaf.certificate, leaf_key=leaf.key)))
    served = replica.look(NOW)
    assert served is not None
    assert served.leaf == leaf.certificate
    assert api.writes == []


def test_peers_trust_whatever_a_peer_may_serve() -> None:
    """What is published and what will be, each once, and nothing that is no certificate."""
    api = FakeApi({SECRET: secret(BUNDLE), CONFIGURATION: configuration(b"\xffjunk", BUNDLE.trusted)})
    replica = keeper(api, source=Issuer.SECRET)
    replica.look(NOW)
    assert replica.trusted == BUNDLE.trusted


def test_a_rotation_takes_two_overlaps() -> None:
    """Of 20 s, with a pass every 2 s: published at 0 s, switched after 20 s, dropped after 40 s."""
    api, clock = healthy(), DayClock()
    replica = keeper(api, clock)
    api.store(SECRET, secret(replace(BUNDLE, wish=ROTATE_CA)))
    changes: dict[float, int] = {}
    leaf = BUNDLE.leaf
    while clock.seconds < 60:
        served = replica.look(clock.now)
        assert served is not None
        changes[clock.seconds] = len(authorities(served.trusted))
        if served.leaf != leaf:
            assert clock.seconds == 20
            leaf = served.leaf
        clock.seconds += PASS_SECONDS
    assert [changes[at] for at in (0, 20, 38, 40, 58)] == [2, 2, 2, 1, 1]
    assert len(api.writes) == 5  # three of the Secret, two of the configuration


# --- several replicas ------------------------------------------------------------------------------------------------


class CrashedError(Exception):
    """The process ended at this line."""


@cache
def accepts(trusted: bytes, leaf: bytes, leaf_key: bytes) -> bool:
    return verifies(Bundle(trusted=trusted, leaf=leaf, leaf_key=leaf_key), HOSTS, NOW)


LAG_SECONDS = 4.0  # how far an API server may be behind; a quarter of the overlap is 5 s


@dataclass(eq=False)
class KeeperReplica:
    """A webhook process: its keeper, how far its clock is off, and whether its last pass was held up (SIGSTOP)."""

    keeper: Keeper
    skew: timedelta
    is_held_up: bool = False
    pauses: int = 0

    def look(self, clock: DayClock) -> None:
        self.keeper.look(clock.now + self.skew)


@dataclass
class Fleet:
    """Replicas, and API servers that may be behind. Notes every pair that would not get on."""

    draw: Callable[[int], int]  # a number below this one
    api: FakeApi = field(default_factory=healthy)
    clock: DayClock = field(default_factory=DayClock)
    replicas: list[KeeperReplica] = field(default_factory=list)
    history: list[tuple[float, bytes]] = field(default_factory=list)
    depth: int = 0
    current: KeeperReplica | None = None
    crashes: bool = True
    strict: bool = True

    def __post_init__(self) -> None:
        self.api.before_call = self.interfere

    def start(self) -> KeeperReplica:
        """A new process, in one pass ready; it is not called before."""
        replica = KeeperReplica(keeper(self.api, self.clock), timedelta(minutes=self.draw(41) - 20))
        while replica.keeper.missing(self.clock.now) is not None:
            self.attempt(replica)
        return replica

    def attempt(self, replica: KeeperReplica) -> bool:
        self.depth += 1
        pauses = replica.pauses
        try:
            replica.look(self.clock)
        except (CrashedError, TimeoutError):
            return False
        finally:
            self.depth -= 1
        serving = replica.keeper.serving
        caught_up = serving is not None and serving.leaf == self.bundle.leaf
        replica.is_held_up = replica.pauses != pauses or (replica.is_held_up and not caught_up)
        self.check()
        return True

    def hold_up(self, replica: KeeperReplica) -> None:
        """The others go on for a while. It answers no call, and when it wakes it is behind until it has caught up.

        That is the limit of the promise: one that was stopped for most of an overlap is too late for the next step.
        """
        replica.is_held_up = True
        replica.pauses += 1
        for _ in range(25):
            self.round()

    def interfere(self) -> None:
        """Before a call of one replica: now and then another one's whole pass, a long pause, or the end of this one."""
        self.check()
        if self.depth != 1:
            return
        event = self.draw(60)
        if event == 0 and self.replicas:
            self.attempt(self.replicas[self.draw(len(self.replicas))])
        elif event == 1 and self.crashes:
            raise CrashedError
        elif event == 2 and self.current in self.replicas and len(self.replicas) > 1:
            self.hold_up(self.current)

    def round(self) -> None:
        """All replicas look, in some order; one that crashes is started anew."""
        first = self.draw(len(self.replicas))
        for replica in (*self.replicas[first:], *self.replicas[:first]):
            if self.depth and replica.is_held_up:
                continue
            self.current = replica if not self.depth else self.current
            if not self.attempt(replica):
                self.replicas[self.replicas.index(replica)] = self.start()
        self.clock.seconds += PASS_SECONDS
        self.check()

    def check(self) -> None:
        """Each replica's leaf is accepted by each API server, whichever of the last seconds' bundles it has."""
        if not self.strict:
            return
        (value,) = published(self.api)
        bundles = bundle_of({"data": {"ca.crt": value}}).trusted
        if not self.history or self.history[-1][1] != bundles:
            self.history.append((self.clock.seconds, bundles))
        for index, (_, trusted) in enumerate(self.history):
            until = self.history[index + 1][0] if index + 1 < len(self.history) else float("inf")
            if until + LAG_SECONDS > self.clock.seconds:
                for replica in self.replicas:
                    served = None if replica.is_held_up else replica.keeper.serving
                    assert served is None or accepts(trusted, served.leaf, served.leaf_key), self.clock.seconds

    @property
    def bundle(self) -> Bundle:
        return bundle_of(self.api.objects.get(SECRET))

    def write(self, **changes: bytes) -> None:
        self.api.store(SECRET, secret(replace(self.bundle, **changes)))

    def garble(self, part: str) -> None:
        """Bytes inside the DER of this part of the Secret."""
        self.write(**{part: garbled(getattr(self.bundle, part), self.draw)})

    @property
    def is_steady(self) -> bool:
        bundle = self.bundle
        settled = len(authorities(bundle.trusted)) == 1 and not successor(bundle) and not bundle.wish
        return is_in_order(self.api) and settled and all(map(self.is_well, self.replicas))

    def is_well(self, replica: KeeperReplica) -> bool:
        """It serves a certificate that callers accept; OpenSSL can load that, and what peers are judged by."""
        if replica.keeper.serving is None or replica.keeper.missing(self.clock.now) is not None:
            return False
        TlsIdentity().load(replica.keeper.serving.leaf, replica.keeper.serving.leaf_key)
        HttpsLines().trust(replica.keeper.trusted)
        return True


def drawn_fleet(data: st.DataObject, replicas: int, *, crashes: bool = True, strict: bool = True) -> Fleet:
    """What happens in it goes by a seed: what a garbled byte leads to depends on keys, which are new in each run."""
    chance = Random(data.draw(st.integers(0, 2**32)))
    made = Fleet(chance.randrange, crashes=crashes, strict=strict)
    for _ in range(replicas):
        made.replicas.append(made.start())
    return made


def suffer(fleet: Fleet, data: st.DataObject, events: dict[str, Callable[[Fleet], None]]) -> None:
    """A few of the events, each some passes after the last one; then all comes to rest."""
    for _ in range(data.draw(st.integers(1, 4))):
        events[data.draw(st.sampled_from(sorted(events)))](fleet)
        for _ in range(data.draw(st.integers(0, 15))):
            fleet.round()
    fleet.crashes = False
    come_to_rest(fleet)


def come_to_rest(fleet: Fleet) -> None:
    for _ in range(100):
        fleet.round()
        if fleet.is_steady:
            return
    raise AssertionError("it does not come to rest")


def another() -> Bundle:
    """Such as a backup of another cluster."""
    return next_step(Bundle(), Published(), None, HOSTS, NOW).bundle


def forget(fleet: Fleet) -> None:
    fleet.api.objects.pop(SECRET, None)


WISHES: dict[str, Callable[[Fleet], None]] = {
    "a new leaf is asked for": lambda fleet: fleet.write(wish=ROTATE_LEAF),
    "a new authority is asked for": lambda fleet: fleet.write(wish=ROTATE_CA),
}
LOSSES: dict[str, Callable[[Fleet], None]] = {
    "the Secret is deleted": forget,
    "the Secret is emptied": lambda fleet: fleet.write(
        trusted=b"", authority_key=b"", next_key=b"", leaf=b"", leaf_key=b""
    ),
    "another good one takes its place": lambda fleet: cast(None, fleet.api.store(SECRET, secret(another()))),
    "the authorities are garbled": lambda fleet: fleet.write(trusted=b"junk"),
    "the authority's key is garbled": lambda fleet: fleet.write(authority_key=b"junk"),
    "the next authority's key is lost": lambda fleet: fleet.write(next_key=b""),
    "the leaf is garbled": lambda fleet: fleet.write(leaf=b"junk"),
    "the leaf's key is garbled": lambda fleet: fleet.write(leaf_key=b"junk"),
    "bytes inside the authorities are others": lambda fleet: fleet.garble("trusted"),
    "bytes inside the authority's key are others": lambda fleet: fleet.garble("authority_key"),
    "bytes inside the next authority's key are others": lambda fleet: fleet.garble("next_key"),
    "bytes inside the leaf are others": lambda fleet: fleet.garble("leaf"),
    "bytes inside the leaf's key are others": lambda fleet: fleet.garble("leaf_key"),
}


def garble_published(fleet: Fleet) -> None:
    fleet.api.store(CONFIGURATION, configuration(garbled(fleet.bundle.trusted, fleet.draw)))


OVERWRITTEN: dict[str, Callable[[Fleet], None]] = {"bytes inside the caBundle are others": garble_published}
ODD = pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")  # a garbled one is odd


@examples(15)
@given(st.data(), st.integers(1, 3))
def test_no_call_fails_in_rotations(data: st.DataObject, replicas: int) -> None:
    """Replicas race, crash at any call and have clocks that are 20 minutes off; API servers are seconds behind.

    After every call of every replica, each leaf that is served is accepted by each API server; in the end there is
    one authority, published.
    """
    suffer(drawn_fleet(data, replicas), data, WISHES)


@ODD
@examples(15)
@given(st.data(), st.integers(1, 3))
def test_no_call_fails_when_the_secret_is_lost(data: st.DataObject, replicas: int) -> None:
    """The same, in any state of a rotation, as long as replicas live that remember it."""
    suffer(drawn_fleet(data, replicas, crashes=False), data, WISHES | LOSSES)


@ODD
@examples(15)
@given(st.data(), st.integers(1, 3))
def test_all_comes_to_rest_when_the_secret_is_lost_and_replicas_crash(data: st.DataObject, replicas: int) -> None:
    """What nobody remembers is issued anew, which costs calls; but it never stays broken."""
    suffer(drawn_fleet(data, replicas, strict=False), data, WISHES | LOSSES | OVERWRITTEN)


@ODD
@examples(40)
@given(st.data(), st.sets(st.sampled_from(sorted(publish.KEYS)), min_size=1), st.booleans(), st.booleans())
def test_whatever_bytes_are_garbled_a_good_certificate_is_served(
    data: st.DataObject, parts: set[str], in_rotation: bool, remembers: bool
) -> None:
    """Inside any parts of the Secret and the caBundle, at any step, by a replica that remembers or one just started."""
    fleet = drawn_fleet(data, 1, crashes=False, strict=False)
    if in_rotation:
        fleet.write(wish=ROTATE_CA)
        for _ in range(data.draw(st.integers(1, 12))):
            fleet.round()
    for part in sorted(parts):
        fleet.garble(part)
    garble_published(fleet)
    if not remembers:
        fleet.replicas = [fleet.start()]
    come_to_rest(fleet)


@pytest.mark.parametrize("value", [None, b"", b"junk", new_authority(NOW).certificate])
def test_an_overwritten_ca_bundle_is_published_again_in_one_pass(value: bytes | None) -> None:
    """In every state of a rotation, by whoever looks first; the Secret is left alone."""
    api, clock = healthy(), DayClock()
    replica = keeper(api, clock)
    replica.look(clock.now)
    api.store(SECRET, secret(replace(BUNDLE, wish=ROTATE_CA)))
    for _ in range(30):
        replica.look(clock.now)
        api.store(CONFIGURATION, configuration(value))
        before = bundle_of(api.objects[SECRET])
        keeper(api, clock).look(clock.now)
        assert bundle_of(api.objects[SECRET]) == before
        assert is_in_order(api)
        clock.seconds += PASS_SECONDS
    assert bundle_of(api.objects[SECRET]).leaf == BUNDLE.leaf  # nothing stood long enough for the next step
