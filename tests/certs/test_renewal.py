"""Authority and renewal: what would a caller accept, asked about any date."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from certs.authority import CA_LIFETIME, CLOCK_SKEW, LEAF_LIFETIME, Issued, issue, new_authority
from certs.renewal import CA_LOOK_AHEAD, LEAF_LOOK_AHEAD, Bundle, expiry, newest_authority, renewed, verifies

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOSTS = ("spotweave-webhook.spotweave-system.svc",)
DAY = timedelta(days=1)
FRESH = renewed(Bundle(), HOSTS, NOW)
OTHER = renewed(Bundle(), HOSTS, NOW)


def certificates(bundle: Bundle) -> list[x509.Certificate]:
    return x509.load_pem_x509_certificates(bundle.trusted)


def test_a_fresh_bundle_verifies() -> None:
    """One authority, and a leaf that a caller who trusts it accepts now."""
    assert verifies(FRESH, HOSTS, NOW)
    assert len(certificates(FRESH)) == 1
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
    assert renewed(FRESH, HOSTS, NOW) is FRESH
    assert renewed(FRESH, HOSTS, NOW + LEAF_LIFETIME - LEAF_LOOK_AHEAD - DAY) is FRESH


def test_a_leaf_is_renewed_a_month_ahead_by_the_same_authority() -> None:
    """Callers trust the authority already: nobody has to be told."""
    later = NOW + LEAF_LIFETIME - LEAF_LOOK_AHEAD + DAY
    new = renewed(FRESH, HOSTS, later)
    assert (new.trusted, new.authority_key) == (FRESH.trusted, FRESH.authority_key)
    assert new.leaf != FRESH.leaf
    assert expiry(new.leaf) == later + LEAF_LIFETIME
    assert verifies(new, HOSTS, later + LEAF_LOOK_AHEAD)


def test_an_authority_is_renewed_half_a_year_ahead_and_the_old_one_stays_trusted() -> None:
    """Callers that still see the old leaf go on: the overlap is in the bundle."""
    later = NOW + CA_LIFETIME - CA_LOOK_AHEAD + DAY
    serving = renewed(FRESH, HOSTS, later - 10 * DAY)
    assert serving.trusted == FRESH.trusted
    new = renewed(serving, HOSTS, later)
    assert [each.public_key() for each in certificates(new)][1:] == [certificates(FRESH)[0].public_key()]
    assert certificates(new)[0].not_valid_after_utc == later + CA_LIFETIME
    assert new.authority_key != FRESH.authority_key
    assert verifies(new, HOSTS, later)
    assert verifies(replace(new, leaf=serving.leaf, leaf_key=serving.leaf_key), HOSTS, later)
    assert not verifies(replace(serving, leaf=new.leaf, leaf_key=new.leaf_key), HOSTS, later)
    assert renewed(new, HOSTS, later) is new


def test_an_expired_authority_is_trusted_no_more() -> None:
    """And the list of authorities does not grow for ever."""
    bundle = FRESH
    for year in range(0, 60, 9):
        bundle = renewed(bundle, HOSTS, NOW + year * 366 * DAY)
        assert len(certificates(bundle)) <= 3
    much_later = renewed(FRESH, HOSTS, NOW + CA_LIFETIME + DAY)
    assert len(certificates(much_later)) == 1
    assert verifies(much_later, HOSTS, NOW + CA_LIFETIME + DAY)


DAMAGED: dict[str, tuple[Bundle, bool]] = {
    "nothing at all": (Bundle(), False),
    "no authority": (replace(FRESH, trusted=b""), False),
    "a garbled authority": (replace(FRESH, trusted=b"-----BEGIN CERTIFICATE-----\nx"), False),
    "no authority's key": (replace(FRESH, authority_key=b""), False),
    "a garbled authority's key": (replace(FRESH, authority_key=b"\xff\x00"), False),
    "another authority's key": (replace(FRESH, authority_key=OTHER.authority_key), False),
    "no leaf": (replace(FRESH, leaf=b""), True),
    "a garbled leaf": (replace(FRESH, leaf=FRESH.leaf[:-60]), True),
    "no leaf's key": (replace(FRESH, leaf_key=b""), True),
    "a garbled leaf's key": (replace(FRESH, leaf_key=b"key"), True),
    "another leaf's key": (replace(FRESH, leaf_key=OTHER.leaf_key), True),
    "a leaf of a foreign authority": (replace(FRESH, leaf=OTHER.leaf, leaf_key=OTHER.leaf_key), True),
    "the authority itself as leaf": (replace(FRESH, leaf=FRESH.trusted, leaf_key=FRESH.authority_key), True),
}


@pytest.mark.parametrize(("bundle", "keeps_authority"), DAMAGED.values(), ids=DAMAGED.keys())
def test_whatever_is_damaged_is_repaired(bundle: Bundle, keeps_authority: bool) -> None:
    """In one pass, whatever the cause; an authority that is in order is kept."""
    assert not verifies(bundle, HOSTS, NOW) or newest_authority(bundle) is None
    new = renewed(bundle, HOSTS, NOW)
    assert verifies(new, HOSTS, NOW)
    assert renewed(new, HOSTS, NOW) is new
    assert (new.authority_key == FRESH.authority_key) is keeps_authority


def test_an_authority_whose_key_is_lost_stays_trusted() -> None:
    """Its leaf may still be served by another replica."""
    new = renewed(replace(FRESH, authority_key=b""), HOSTS, NOW)
    assert certificates(new)[1:] == certificates(FRESH)
    assert verifies(replace(new, leaf=FRESH.leaf, leaf_key=FRESH.leaf_key), HOSTS, NOW)


def test_other_hosts_need_another_leaf() -> None:
    """A leaf must be good for every host that is asked for."""
    assert not verifies(FRESH, ("elsewhere.svc",), NOW)
    assert not verifies(FRESH, (*HOSTS, "elsewhere.svc"), NOW)
    new = renewed(FRESH, (*HOSTS, "elsewhere.svc"), NOW)
    assert verifies(new, ("elsewhere.svc",), NOW)
    assert new.trusted == FRESH.trusted


def test_addresses_are_hosts_too() -> None:
    """As for a webhook that is reached by URL; nothing is renewed twice."""
    bundle = renewed(Bundle(), ("127.0.0.1", "localhost"), NOW)
    assert verifies(bundle, ("127.0.0.1",), NOW)
    assert not verifies(bundle, ("127.0.0.2",), NOW)
    assert renewed(bundle, ("127.0.0.1", "localhost"), NOW) is bundle


def test_an_authority_from_the_future_is_replaced() -> None:
    """A clock that was ahead when it was issued; else every pass would sign a leaf that nobody accepts."""
    future = renewed(Bundle(), HOSTS, NOW + 30 * DAY)
    new = renewed(future, HOSTS, NOW)
    assert verifies(new, HOSTS, NOW)
    assert renewed(new, HOSTS, NOW) is new


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
    new = renewed(Bundle(foreign.certificate, foreign.key), HOSTS, NOW)
    assert verifies(new, HOSTS, NOW)
    assert certificates(new)[1:] == x509.load_pem_x509_certificates(foreign.certificate)


def test_a_leaf_cannot_sign_and_an_authority_cannot_sign_authorities() -> None:
    """A stolen leaf key makes no further certificates."""
    leaf = x509.load_pem_x509_certificate(FRESH.leaf).extensions
    authority = certificates(FRESH)[0].extensions
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
