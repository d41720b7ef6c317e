"""Renewal: which step comes next, and what would a caller accept, asked about any date."""

import itertools
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from hypothesis import given
from hypothesis import strategies as st

from certs.authority import CA_LIFETIME, CLOCK_SKEW, LEAF_LIFETIME, Issued, issue, new_authority
from certs.renewal import (
    CA_LOOK_AHEAD,
    LEAF_LOOK_AHEAD,
    OVERLAP,
    ROTATE_CA,
    ROTATE_LEAF,
    Bundle,
    Change,
    Published,
    Renewal,
    authorities,
    expiry,
    is_accepted,
    next_step,
    serves,
    signer,
    successor,
    verifies,
)
from cli.certs import described
from tests.certs.garble import garbled
from tests.examples import examples

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOSTS = ("spotweave-webhook.spotweave-system.svc",)
DAY = timedelta(days=1)


def seen(*published: bytes, standing: timedelta = OVERLAP) -> Published:
    """What these entries publish, unchanged for as long as is asked for."""
    return Published(frozenset(published), standing, standing)


def step(bundle: Bundle, now: datetime = NOW, standing: timedelta = OVERLAP) -> Renewal:
    """The next step where the bundle is published and nobody remembers anything."""
    return next_step(bundle, seen(bundle.trusted, standing=standing), None, HOSTS, now)


FRESH = step(Bundle()).bundle
OTHER = step(Bundle()).bundle
BEGUN = step(replace(FRESH, wish=ROTATE_CA)).bundle
SWITCHED = step(BEGUN).bundle
DROPPED = step(SWITCHED).bundle


def test_a_fresh_bundle_verifies() -> None:
    """One authority, and a leaf that a caller who trusts it accepts now."""
    assert step(Bundle()).why is Change.REISSUED
    assert verifies(FRESH, HOSTS, NOW)
    assert len(authorities(FRESH.trusted)) == 1
    assert expiry(FRESH.leaf) == NOW + LEAF_LIFETIME
    assert expiry(FRESH.trusted) == NOW + CA_LIFETIME


MOMENTS = {
    "an hour ago, for readers whose clock is behind": (NOW - CLOCK_SKEW, True),
    "before that": (NOW - CLOCK_SKEW - timedelta(seconds=1), False),
    "on its last day": (NOW + LEAF_LIFETIME - DAY, True),
    "after its end": (NOW + LEAF_LIFETIME + timedelta(seconds=1), False),
}


@pytest.mark.parametrize(("at", "expected"), MOMENTS.values(), ids=MOMENTS.keys())
def test_a_leaf_is_accepted_for_its_lifetime(at: datetime, expected: bool) -> None:
    """And a little before, since clocks differ."""
    assert verifies(FRESH, HOSTS, at) is expected


def test_nothing_due_gives_the_same_object() -> None:
    """So that the caller knows that nothing has to be written."""
    assert step(FRESH) == Renewal(FRESH, Change.NOTHING)
    assert step(FRESH, NOW + LEAF_LIFETIME - LEAF_LOOK_AHEAD - DAY).bundle is FRESH


LEAF_DUE = {
    "a month ahead": (FRESH, NOW + LEAF_LIFETIME - LEAF_LOOK_AHEAD + DAY),
    "when it has expired": (FRESH, NOW + LEAF_LIFETIME + DAY),
    "when somebody asks for it": (replace(FRESH, wish=ROTATE_LEAF), NOW),
}


@pytest.mark.parametrize(("bundle", "now"), LEAF_DUE.values(), ids=LEAF_DUE.keys())
def test_a_leaf_is_renewed_by_the_same_authority(bundle: Bundle, now: datetime) -> None:
    """Callers trust the authority already: nobody has to be told."""
    new = step(bundle, now)
    assert new.why is Change.RENEWED
    assert (new.bundle.trusted, new.bundle.authority_key) == (FRESH.trusted, FRESH.authority_key)
    assert new.bundle.leaf != FRESH.leaf
    assert expiry(new.bundle.leaf) == now + LEAF_LIFETIME
    assert step(new.bundle, now).why is Change.NOTHING


# --- the authority's rotation ----------------------------------------------------------------------------------------


def test_an_authority_is_exchanged_in_steps() -> None:
    """Trust both, sign with the new one, trust the new one alone; then there is nothing to do."""
    assert [step(each).why for each in (BEGUN, SWITCHED, DROPPED)] == [
        Change.SWITCHED,
        Change.DROPPED,
        Change.NOTHING,
    ]
    assert authorities(BEGUN.trusted)[0] == authorities(FRESH.trusted)[0]
    assert (BEGUN.leaf, BEGUN.authority_key, BEGUN.wish) == (FRESH.leaf, FRESH.authority_key, b"")
    assert SWITCHED.trusted == BEGUN.trusted
    assert (SWITCHED.authority_key, SWITCHED.next_key) == (BEGUN.next_key, b"")
    assert authorities(DROPPED.trusted) == authorities(BEGUN.trusted)[1:]
    assert DROPPED.leaf == SWITCHED.leaf


def test_whoever_is_one_step_behind_is_accepted() -> None:
    """Every replica serves this or the last step's leaf, every caller trusts this or the last step's authorities."""
    states = [FRESH, BEGUN, SWITCHED, DROPPED]
    for before, after in itertools.pairwise(states):
        for leaf in (before, after):
            for trust in (before, after):
                assert verifies(replace(leaf, trusted=trust.trusted), HOSTS, NOW)
    assert not verifies(replace(DROPPED, trusted=FRESH.trusted), HOSTS, NOW)  # so the steps are needed


HASTY: dict[str, tuple[Bundle, Published]] = {
    "begun, and published a moment ago": (BEGUN, seen(BEGUN.trusted, standing=OVERLAP / 2)),
    "begun, and not published": (BEGUN, seen(FRESH.trusted)),
    "begun, and one entry lacks it": (BEGUN, seen(FRESH.trusted, BEGUN.trusted)),
    "begun, and there is no entry": (BEGUN, seen()),
    "begun, and the Secret has just changed": (BEGUN, Published(frozenset({BEGUN.trusted}), OVERLAP, OVERLAP / 2)),
    "switched a moment ago": (SWITCHED, Published(frozenset({SWITCHED.trusted}), OVERLAP, timedelta())),
    "switched, and the caBundle is overwritten": (SWITCHED, seen(OTHER.trusted)),
}


@pytest.mark.parametrize(("bundle", "sight"), HASTY.values(), ids=HASTY.keys())
def test_no_step_is_taken_too_early(bundle: Bundle, sight: Published) -> None:
    """Before the last step has been seen, whole and unchanged, for the overlap."""
    assert next_step(bundle, sight, bundle, HOSTS, NOW) == Renewal(bundle, Change.NOTHING)


def test_an_authority_is_due_half_a_year_ahead() -> None:
    """And a leaf that outlives its authority is not renewed for ever."""
    late = NOW + CA_LIFETIME - CA_LOOK_AHEAD + DAY
    leaf = step(FRESH, late - 2 * DAY).bundle
    assert step(leaf, late).why is Change.BEGUN
    very_late = NOW + CA_LIFETIME - 10 * DAY
    leaf = step(FRESH, very_late).bundle
    assert step(leaf, very_late).why is Change.BEGUN


WISHES = {
    "nonsense is removed": (replace(FRESH, wish=b"\xff"), Change.UNKNOWN_WISH),
    "a new authority waits for the rotation that is under way": (
        replace(SWITCHED, wish=ROTATE_CA),
        Change.DROPPED,
    ),
    "and is issued after it": (replace(DROPPED, wish=ROTATE_CA), Change.BEGUN),
    "a leaf is issued at once, even so": (replace(BEGUN, wish=ROTATE_LEAF), Change.RENEWED),
}


@pytest.mark.parametrize(("bundle", "why"), WISHES.values(), ids=WISHES.keys())
def test_wishes_are_carried_out_once(bundle: Bundle, why: Change) -> None:
    """Each is removed by the step that carries it out."""
    assert step(bundle).why is why
    new = step(bundle).bundle
    assert new.wish == (ROTATE_CA if why is Change.DROPPED else b"")


# --- damage ----------------------------------------------------------------------------------------------------------


# Of a curve (secp160r1) that the library does not know: neither garbled nor of any use.
STRANGE_KEY = b"""-----BEGIN EC PRIVATE KEY-----
MFECAQEEFQBlB1j3nFH9Wff38O38RomR634WOKAHBgUrgQQACKEsAyoABL1Aj74C
9Em45qs/dHUlMEU+bIJtyDN6uCcVtdN3ZF9cj9ztM5r4/30=
-----END EC PRIVATE KEY-----
"""


DAMAGED: dict[str, tuple[Bundle, Change]] = {
    "nothing at all": (Bundle(), Change.REISSUED),
    "no authority": (replace(FRESH, trusted=b""), Change.REISSUED),
    "a garbled authority": (replace(FRESH, trusted=b"-----BEGIN CERTIFICATE-----\nx"), Change.REISSUED),
    "no authority's key": (replace(FRESH, authority_key=b""), Change.BEGUN),
    "a garbled authority's key": (replace(FRESH, authority_key=b"\xff\x00"), Change.BEGUN),
    "another authority's key": (replace(FRESH, authority_key=OTHER.authority_key), Change.BEGUN),
    "an authority's key of a strange curve": (replace(FRESH, authority_key=STRANGE_KEY), Change.BEGUN),
    "no leaf": (replace(FRESH, leaf=b""), Change.RENEWED),
    "a garbled leaf": (replace(FRESH, leaf=FRESH.leaf[:-60]), Change.RENEWED),
    "no leaf's key": (replace(FRESH, leaf_key=b""), Change.RENEWED),
    "a garbled leaf's key": (replace(FRESH, leaf_key=b"key"), Change.RENEWED),
    "a leaf's key of a strange curve": (replace(FRESH, leaf_key=STRANGE_KEY), Change.RENEWED),
    "another leaf's key": (replace(FRESH, leaf_key=OTHER.leaf_key), Change.RENEWED),
    "a leaf of a foreign authority": (replace(FRESH, leaf=OTHER.leaf, leaf_key=OTHER.leaf_key), Change.RENEWED),
    "the authority itself as leaf": (
        replace(FRESH, leaf=FRESH.trusted, leaf_key=FRESH.authority_key),
        Change.RENEWED,
    ),
    "begun, no leaf": (replace(BEGUN, leaf=b""), Change.RENEWED),
    "begun, no leaf and no authority's key": (replace(BEGUN, leaf=b"", authority_key=b""), Change.RENEWED),
    "begun, a garbled next key": (replace(BEGUN, next_key=b"x"), Change.ABANDONED),
    "begun, a next key of a strange curve": (replace(BEGUN, next_key=STRANGE_KEY), Change.ABANDONED),
    "begun, and the next authority is none": (
        replace(BEGUN, trusted=FRESH.trusted + FRESH.leaf, next_key=FRESH.leaf_key),
        Change.ABANDONED,
    ),
    "the key is that of a leaf, which cannot issue": (
        replace(FRESH, trusted=FRESH.trusted + OTHER.leaf, authority_key=OTHER.leaf_key),
        Change.BEGUN,
    ),
    "a leaf of the old authority though the new one signs": (
        replace(SWITCHED, leaf=FRESH.leaf, leaf_key=FRESH.leaf_key),
        Change.RENEWED,
    ),
}


@pytest.mark.parametrize(("bundle", "why"), DAMAGED.values(), ids=DAMAGED.keys())
def test_whatever_is_damaged_is_repaired(bundle: Bundle, why: Change) -> None:
    """In one step to a leaf that verifies, and in a few to one authority and its key."""
    new = step(bundle)
    assert new.why is why
    assert verifies(new.bundle, HOSTS, NOW)
    for _ in range(4):
        new = step(new.bundle)
    assert new.why is Change.NOTHING
    assert len(authorities(new.bundle.trusted)) == 1
    assert signer(new.bundle)
    assert not successor(new.bundle)


FLIPS = st.lists(st.sampled_from(["trusted", "authority_key", "next_key", "leaf", "leaf_key"]), min_size=1, max_size=2)


@pytest.mark.filterwarnings("ignore::cryptography.utils.CryptographyDeprecationWarning")  # a garbled one is odd
@examples(400)
@given(st.sampled_from([FRESH, BEGUN, SWITCHED]), FLIPS, st.booleans(), st.booleans(), st.integers(0, 2**32))
def test_no_byte_of_the_der_stops_a_pass(
    held: Bundle, parts: list[str], remembers: bool, is_published: bool, seed: int
) -> None:
    """In any part of the Secret and in what is published: the next step is a leaf that verifies, or keeps one."""
    bundle, chance = held, Random(seed)
    for part in parts:
        bundle = replace(bundle, **{part: garbled(getattr(bundle, part), chance.randrange)})
    sight = seen(held.trusted if is_published else garbled(held.trusted, chance.randrange))
    serving = held if remembers else None
    new = next_step(bundle, sight, serving, HOSTS, NOW)
    assert verifies(new.bundle, HOSTS, NOW)
    assert serves(serving, bundle, sight, HOSTS, NOW, OVERLAP) in (serving, bundle)
    assert described(bundle, sight, accepted=False)


@pytest.mark.parametrize("bundle", [each for each, _ in DAMAGED.values()][:6], ids=list(DAMAGED)[:6])
def test_a_replica_that_remembers_puts_it_back(bundle: Bundle) -> None:
    """No new authority, so no call is lost; a wish that was written meanwhile is kept."""
    restored = next_step(replace(bundle, wish=ROTATE_CA), seen(FRESH.trusted), FRESH, HOSTS, NOW)
    assert restored == Renewal(replace(FRESH, wish=ROTATE_CA), Change.RESTORED)


def test_what_is_remembered_must_be_good() -> None:
    """An expired memory is not put back."""
    late = NOW + LEAF_LIFETIME + DAY
    assert next_step(Bundle(), seen(FRESH.trusted), FRESH, HOSTS, late).why is Change.REISSUED


def test_with_nothing_to_go_on_from_published_authorities_stay_trusted() -> None:
    """Another replica may serve a leaf of theirs: it goes on until it has changed over. Junk is not kept."""
    new = next_step(Bundle(), seen(FRESH.trusted, b"junk", FRESH.leaf), None, HOSTS, NOW).bundle
    assert authorities(new.trusted)[1:] == authorities(FRESH.trusted)
    assert verifies(replace(FRESH, trusted=new.trusted), HOSTS, NOW)


def test_an_expired_authority_is_trusted_no_more() -> None:
    """Nobody can rely on it."""
    late = NOW + CA_LIFETIME + DAY
    assert len(authorities(step(FRESH, late).bundle.trusted)) == 1


def test_a_secret_that_was_exchanged_does_not_cut_off_what_is_served() -> None:
    """Somebody put a backup into place: what we serve stays trusted, and is dropped in the usual way."""
    new = next_step(OTHER, seen(FRESH.trusted), FRESH, HOSTS, NOW)
    assert new.why is Change.TRUSTED
    assert authorities(new.bundle.trusted) == (*authorities(OTHER.trusted), *authorities(FRESH.trusted))
    assert next_step(new.bundle, seen(new.bundle.trusted), FRESH, HOSTS, NOW) == Renewal(
        replace(OTHER, trusted=OTHER.trusted), Change.DROPPED
    )


def test_other_hosts_need_another_leaf() -> None:
    """A leaf must be good for every host that is asked for."""
    assert not verifies(FRESH, ("elsewhere.svc",), NOW)
    both = (*HOSTS, "elsewhere.svc")
    assert not verifies(FRESH, both, NOW)
    new = next_step(FRESH, seen(FRESH.trusted), FRESH, both, NOW).bundle
    assert verifies(new, ("elsewhere.svc",), NOW)
    assert new.trusted == FRESH.trusted


def test_addresses_are_hosts_too() -> None:
    """As for a webhook that is reached by URL; nothing is renewed twice."""
    hosts = ("127.0.0.1", "localhost")
    bundle = next_step(Bundle(), seen(), None, hosts, NOW).bundle
    assert verifies(bundle, ("127.0.0.1",), NOW)
    assert not verifies(bundle, ("127.0.0.2",), NOW)
    assert next_step(bundle, seen(bundle.trusted), None, hosts, NOW).bundle is bundle


def test_an_authority_from_the_future_is_replaced() -> None:
    """A clock that was ahead when it was issued; else every pass would sign a leaf that nobody accepts."""
    future = step(Bundle(), NOW + 30 * DAY).bundle
    new = step(future)
    assert new.why is Change.REISSUED
    assert verifies(new.bundle, HOSTS, NOW)


@pytest.mark.parametrize("minutes", [-30, -5, 5, 30])
def test_clocks_that_differ_by_minutes_do_not_fight(minutes: int) -> None:
    """What one replica issues, another with an earlier or later clock leaves as it is."""
    assert step(FRESH, NOW + timedelta(minutes=minutes)).why is Change.NOTHING


def rsa_authority() -> Issued:
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "somebody's CA")])
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, NOW - DAY, NOW + 3650 * DAY)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    plain = serialization.NoEncryption()
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain)
    return Issued(certificate.public_bytes(pem), private)


def test_an_authority_of_another_kind_is_replaced() -> None:
    """Somebody put an RSA authority into the Secret: ours signs with elliptic curves."""
    foreign = rsa_authority()
    new = step(Bundle(foreign.certificate, foreign.key)).bundle
    assert verifies(new, HOSTS, NOW)
    assert authorities(new.trusted)[1:] == authorities(foreign.certificate)


# --- what a replica serves -------------------------------------------------------------------------------------------


NEWER = step(replace(FRESH, wish=ROTATE_LEAF)).bundle
SERVED: dict[str, tuple[Bundle | None, Bundle, Published, Bundle | None]] = {
    "the first leaf at once": (None, FRESH, seen(standing=timedelta()), FRESH),
    "a new leaf of the same authority at once": (FRESH, NEWER, seen(FRESH.trusted), NEWER),
    "the new authority's leaf when callers trust it": (BEGUN, SWITCHED, seen(SWITCHED.trusted), SWITCHED),
    "what it has, while callers do not trust the other": (FRESH, OTHER, seen(FRESH.trusted), FRESH),
    "what it has, while callers may not have read it": (
        FRESH,
        OTHER,
        seen(FRESH.trusted + OTHER.trusted, standing=OVERLAP / 10),
        FRESH,
    ),
    "the Secret's, where callers do not trust what it has": (FRESH, OTHER, seen(OTHER.trusted), OTHER),
    "what it has, while the Secret is empty": (FRESH, Bundle(), seen(FRESH.trusted), FRESH),
    "what it has, while the key is another's": (
        FRESH,
        replace(OTHER, leaf_key=NEWER.leaf_key),
        seen(OTHER.trusted),
        FRESH,
    ),
    "nothing, where there is nothing": (None, Bundle(), seen(), None),
}


@pytest.mark.parametrize(("serving", "bundle", "sight", "expected"), SERVED.values(), ids=SERVED.keys())
def test_a_replica_serves(serving: Bundle | None, bundle: Bundle, sight: Published, expected: Bundle | None) -> None:
    """The Secret's leaf as soon as callers accept it; until then the one it has."""
    assert serves(serving, bundle, sight, HOSTS, NOW, OVERLAP) == expected


def made_like_cert_manager(parent: Issued | None, *, is_authority: bool, subject: str = "") -> Issued:
    """As Go's x509 writes them: a root that names no authority, a leaf without a subject and so a critical SAN."""
    key = ec.generate_private_key(ec.SECP256R1())
    parent_key = key if parent is None else serialization.load_pem_private_key(parent.key, None)
    assert isinstance(parent_key, ec.EllipticCurvePrivateKey)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)] if subject else [])
    issuer = name if parent is None else x509.load_pem_x509_certificate(parent.certificate).subject
    builder = (
        x509.CertificateBuilder(issuer, name, key.public_key(), x509.random_serial_number(), NOW, NOW + 90 * DAY)
        .add_extension(key_usage(signs=is_authority), critical=True)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    if is_authority:
        builder = builder.add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    else:
        hosts = x509.SubjectAlternativeName([x509.DNSName(host) for host in HOSTS])
        builder = builder.add_extension(hosts, critical=True)
    if parent is not None:
        public = parent_key.public_key()
        builder = builder.add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
    certificate = builder.sign(parent_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Issued(certificate, private)


def key_usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(True, False, not signs, False, False, signs, False, False, False)


def test_what_cert_manager_writes_is_accepted() -> None:
    """A leaf of its authority; also with an authority in between, which then comes with the leaf."""
    root = made_like_cert_manager(None, is_authority=True, subject="spotweave webhook CA")
    leaf = made_like_cert_manager(root, is_authority=False)
    assert is_accepted(Bundle(leaf=leaf.certificate, leaf_key=leaf.key), seen(root.certificate), HOSTS, NOW)
    between = made_like_cert_manager(root, is_authority=True, subject="between")
    leaf = made_like_cert_manager(between, is_authority=False)
    chained = Bundle(leaf=leaf.certificate + between.certificate, leaf_key=leaf.key)
    assert is_accepted(chained, seen(root.certificate), HOSTS, NOW)
    assert not is_accepted(replace(chained, leaf=leaf.certificate), seen(root.certificate), HOSTS, NOW)


# --- what is issued --------------------------------------------------------------------------------------------------


def test_a_leaf_cannot_sign_and_an_authority_cannot_sign_authorities() -> None:
    """A stolen leaf key makes no further certificates."""
    leaf = x509.load_pem_x509_certificate(FRESH.leaf).extensions
    authority = authorities(FRESH.trusted)[0].extensions
    assert leaf.get_extension_for_class(x509.BasicConstraints).value == x509.BasicConstraints(False, None)
    assert not leaf.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    assert authority.get_extension_for_class(x509.BasicConstraints).value == x509.BasicConstraints(True, 0)
    sub = issue(Issued(FRESH.leaf, FRESH.leaf_key), HOSTS, NOW)
    assert not verifies(replace(FRESH, leaf=sub.certificate, leaf_key=sub.key), HOSTS, NOW)


def test_no_two_authorities_are_alike() -> None:
    """Keys and serial numbers are random."""
    one, two = new_authority(NOW), new_authority(NOW)
    assert one.key != two.key
    serials = {x509.load_pem_x509_certificate(each.certificate).serial_number for each in (one, two)}
    assert len(serials) == 2
