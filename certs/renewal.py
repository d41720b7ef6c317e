"""Decides what the certificates should be now. Pure: observations and the time in, the next step out.

A leaf is renewed when it would not verify at now + look-ahead, whatever the cause: missing, damaged, expiring, for
other hosts, signed by another authority. An authority is exchanged in four steps. Each is safe for callers and
replicas that are one step behind (A is the old authority, B the new one):

    step        Secret trusts   published   leaf of   next step when
    steady      A               A           A         A is due, or a rotation is requested
    begun       A B             A, then AB  A         AB has been published, unchanged, for the overlap
    switched    A B             AB          B         unchanged for the overlap: every replica serves the new leaf
    dropped     B               AB, then B  B         –

The acting replica measures by its own clock how long it has seen a state unchanged. So no time is ever compared with
another replica's, and a replica that has just started waits a full overlap: it can be late, never early.

Whatever the Secret or a caBundle contains, nothing here raises: an unreadable or unusable part counts as none.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import verification

from certs.authority import Issued, alternative_name, issue, new_authority
from certs.read import GARBLED, LONG_AGO, certificates, end, is_authority, is_key_of, pem, private_key

LEAF_LOOK_AHEAD = timedelta(days=30)
CA_LOOK_AHEAD = timedelta(days=180)
OVERLAP = timedelta(seconds=60)
ROTATE_LEAF, ROTATE_CA = b"leaf", b"ca"  # what people may request
_SECOND = timedelta(seconds=1)


@dataclass(frozen=True, slots=True)
class Bundle:
    """All that the Secret holds: the authorities that callers should trust, and the leaf to serve."""

    trusted: bytes = b""
    authority_key: bytes = b""  # of the authority that signs; the key identifies it
    next_key: bytes = b""  # of the authority that will sign when callers trust it; empty outside a rotation
    leaf: bytes = b""
    leaf_key: bytes = b""
    wish: bytes = b""  # ROTATE_LEAF or ROTATE_CA, written by people; removed when it is carried out


@dataclass(frozen=True, slots=True)
class Published:
    """What one replica sees published (one value, unless entries differ), and how long it has been unchanged."""

    published: frozenset[bytes] = frozenset()
    published_for: timedelta = timedelta()
    secret_for: timedelta = timedelta()

    def has_stood(self, trusted: bytes, overlap: timedelta) -> bool:
        return self.published == {trusted} and min(self.published_for, self.secret_for) >= overlap


class Change(StrEnum):
    """What a step does; the text is for the log."""

    NOTHING = "nothing to do"
    RESTORED = "the Secret was empty: restored it from this replica's memory"
    TRUSTED = "the Secret was replaced: the authority of the served leaf stays trusted for a while"
    RENEWED = "issued a new leaf"
    REISSUED = "issued a new authority and leaf, because none was usable"
    BEGUN = "issued a new authority; it will sign when callers trust it"
    ABANDONED = "dropped a new authority's key that belongs to no trusted authority"
    SWITCHED = "the new authority is trusted: it signed a new leaf"
    DROPPED = "the old authority is no longer trusted"
    UNKNOWN_WISH = "removed a request that is neither leaf nor ca"


@dataclass(frozen=True, slots=True)
class Renewal:
    """The bundle that should be in the Secret. If there is nothing to do, it is the same object that was passed in."""

    bundle: Bundle
    why: Change


def next_step(
    bundle: Bundle,
    seen: Published,
    serving: Bundle | None,
    hosts: tuple[str, ...],
    now: datetime,
    overlap: timedelta = OVERLAP,
) -> Renewal:
    """What the Secret should hold. `serving` is what this replica serves: its memory in case the Secret is lost."""
    if verifies(bundle, hosts, now) and (signer(bundle) or successor(bundle)):
        if serving is not None and _would_be_cut_off(serving, bundle, seen, hosts, now):
            return Renewal(_trusting(bundle, [*authorities(serving.trusted)], now), Change.TRUSTED)
        return _rotated(bundle, seen, hosts, now, overlap)
    if serving is not None and serving != bundle and verifies(serving, hosts, now) and signer(serving):
        return Renewal(replace(serving, wish=bundle.wish), Change.RESTORED)
    return _repaired(bundle, seen, hosts, now)


def serves(
    serving: Bundle | None, bundle: Bundle, seen: Published, hosts: tuple[str, ...], now: datetime, overlap: timedelta
) -> Bundle | None:
    """What a replica should serve: the Secret's leaf as soon as callers accept it, until then the one that it has.

    "Callers accept it" means that its authority has been published for a quarter of the overlap. So a replica changes
    over long before the old authority is dropped.
    """
    if not has_its_key(bundle):
        return serving
    if serving is None or serving.leaf == bundle.leaf or not is_accepted(serving, seen, hosts, now):
        return bundle
    return bundle if is_accepted(bundle, seen, hosts, now) and seen.published_for >= overlap / 4 else serving


# --- steps -----------------------------------------------------------------------------------------------------------


def _rotated(bundle: Bundle, seen: Published, hosts: tuple[str, ...], now: datetime, overlap: timedelta) -> Renewal:
    """The next step for a bundle with a valid leaf."""
    current, upcoming = signer(bundle), successor(bundle)
    if current and (bundle.wish == ROTATE_LEAF or not _lasts(bundle, current, hosts, now)):
        if renewed := _with_leaf(bundle, current, hosts, now):
            return Renewal(renewed, Change.RENEWED)
        current = None  # it cannot issue
    if upcoming:
        if not seen.has_stood(bundle.trusted, overlap):
            return Renewal(bundle, Change.NOTHING)
        switched = replace(bundle, authority_key=bundle.next_key, next_key=b"")
        if switched_leaf := _with_leaf(switched, upcoming, hosts, now):
            return Renewal(switched_leaf, Change.SWITCHED)
    if bundle.next_key:
        return Renewal(replace(bundle, next_key=b""), Change.ABANDONED)
    if current and len(authorities(bundle.trusted)) > 1:
        if not seen.has_stood(bundle.trusted, overlap):
            return Renewal(bundle, Change.NOTHING)
        return Renewal(replace(bundle, trusted=current.certificate), Change.DROPPED)
    return _begun(bundle, current, now)


def _begun(bundle: Bundle, current: Issued | None, now: datetime) -> Renewal:
    if current and bundle.wish != ROTATE_CA and expiry(current.certificate) > now + CA_LOOK_AHEAD:
        known = bundle.wish in (b"", ROTATE_LEAF)
        return Renewal(bundle, Change.NOTHING) if known else Renewal(replace(bundle, wish=b""), Change.UNKNOWN_WISH)
    new = new_authority(now)
    wish = b"" if bundle.wish == ROTATE_CA else bundle.wish
    begun = replace(_trusting(bundle, authorities(new.certificate), now), next_key=new.key, wish=wish)
    return Renewal(begun, Change.BEGUN)


def _repaired(bundle: Bundle, seen: Published, hosts: tuple[str, ...], now: datetime) -> Renewal:
    """The next step for a bundle with an invalid leaf, or in which only the leaf is valid."""
    if verifies(bundle, hosts, now):
        return _begun(bundle, None, now)
    for authority in (signer(bundle), successor(bundle)):
        if authority:
            next_key = b"" if authority.key == bundle.next_key else bundle.next_key
            own = replace(bundle, authority_key=authority.key, next_key=next_key)
            if renewed := _with_leaf(own, authority, hosts, now):
                return Renewal(renewed, Change.RENEWED)
    new = new_authority(now)
    older = [each for known in (bundle.trusted, *sorted(seen.published)) for each in authorities(known)]
    fresh = _trusting(Bundle(trusted=new.certificate, authority_key=new.key), older, now)
    return Renewal(_served_by(fresh, issue(new, hosts, now)), Change.REISSUED)


def _with_leaf(bundle: Bundle, authority: Issued, hosts: tuple[str, ...], now: datetime) -> Bundle | None:
    """The bundle with a new leaf; None if no caller would accept it: its authority is damaged or not valid yet.

    The leaf is checked against its signer alone, which may be the only one that stays trusted.
    """
    try:
        renewed = _served_by(bundle, issue(authority, hosts, now))
    except GARBLED:
        return None
    return renewed if verifies(replace(renewed, trusted=authority.certificate), hosts, now) else None


def _served_by(bundle: Bundle, leaf: Issued) -> Bundle:
    wish = b"" if bundle.wish == ROTATE_LEAF else bundle.wish
    return replace(bundle, leaf=leaf.certificate, leaf_key=leaf.key, wish=wish)


def _trusting(bundle: Bundle, others: Iterable[x509.Certificate], now: datetime) -> Bundle:
    """The bundle, also trusting those of the others that are valid authorities, each of them once."""
    held = list(authorities(bundle.trusted))
    for each in others:
        if each not in held and len(held) < 8 and is_authority(each) and end(each) > now:
            held.append(each)
    return replace(bundle, trusted=b"".join(pem(each) for each in held))


def _would_be_cut_off(serving: Bundle, bundle: Bundle, seen: Published, hosts: tuple[str, ...], now: datetime) -> bool:
    """Callers accept the served leaf now, but would not if the bundle's authorities were published."""
    return (
        serving.leaf != bundle.leaf
        and is_accepted(serving, seen, hosts, now)
        and not verifies(replace(serving, trusted=bundle.trusted), hosts, now)
    )


# --- facts -----------------------------------------------------------------------------------------------------------


def signer(bundle: Bundle) -> Issued | None:
    """The authority that signs; None if it is missing, damaged, without its key or not of our kind."""
    return _authority_of(bundle.trusted, bundle.authority_key)


def successor(bundle: Bundle) -> Issued | None:
    """The authority that will sign; None outside a rotation."""
    return _authority_of(bundle.trusted, bundle.next_key)


def verifies(bundle: Bundle, hosts: tuple[str, ...], at: datetime) -> bool:
    """Whether a caller that trusts the bundle's authorities would accept the leaf, for every host, at that moment."""
    try:
        store = verification.Store(x509.load_pem_x509_certificates(bundle.trusted))
        leaf, *between = x509.load_pem_x509_certificates(bundle.leaf)
        builder = verification.PolicyBuilder().store(store).time(at)
        for host in hosts:
            builder.build_server_verifier(alternative_name(host)).verify(leaf, between)
    except GARBLED:
        return False
    return has_its_key(bundle)


def is_accepted(bundle: Bundle, seen: Published, hosts: tuple[str, ...], now: datetime) -> bool:
    """Whether callers accept the leaf, according to what is published."""
    return bool(seen.published) and all(verifies(replace(bundle, trusted=each), hosts, now) for each in seen.published)


def has_its_key(bundle: Bundle) -> bool:
    """Whether leaf and key are readable and belong together."""
    chain, key = certificates(bundle.leaf), private_key(bundle.leaf_key)
    return bool(chain) and key is not None and is_key_of(key, chain[0])


def authorities(trusted: bytes) -> tuple[x509.Certificate, ...]:
    """The certificates of a PEM; none if it is damaged."""
    return certificates(trusted)


def expiry(certificate: bytes) -> datetime:
    """When the first certificate of a PEM expires; a time long ago if it is damaged."""
    return next(map(end, certificates(certificate)), LONG_AGO)


def _authority_of(trusted: bytes, own_key: bytes) -> Issued | None:
    key = private_key(own_key)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        return None
    own = (each for each in authorities(trusted) if is_key_of(key, each))
    return next((Issued(pem(each), own_key) for each in own), None)


def _lasts(bundle: Bundle, authority: Issued, hosts: tuple[str, ...], now: datetime) -> bool:
    """Whether the leaf, checked against its signer alone, is valid for the look-ahead or as long as the signer."""
    horizon = min(now + LEAF_LOOK_AHEAD, expiry(authority.certificate) - _SECOND)
    return verifies(replace(bundle, trusted=authority.certificate), hosts, horizon)
