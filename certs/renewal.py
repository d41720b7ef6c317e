"""Decides what the certificates should be now. Pure: a bundle and the time in, the bundle that should be out.

"Needs renewal" means "would not verify at now + look-ahead", whatever the cause: missing, garbled, expired soon, for
other hosts, signed by another authority.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509 import verification

from certs.authority import Issued, alternative_name, issue, new_authority

LEAF_LOOK_AHEAD = timedelta(days=30)
CA_LOOK_AHEAD = timedelta(days=180)


@dataclass(frozen=True, slots=True)
class Bundle:
    """All that the Secret holds: the authorities that callers should trust (newest first), and the leaf to serve."""

    trusted: bytes = b""
    authority_key: bytes = b""  # of the newest authority
    leaf: bytes = b""
    leaf_key: bytes = b""


def renewed(bundle: Bundle, hosts: tuple[str, ...], now: datetime) -> Bundle:
    """The bundle that should be in force; the same object where nothing needs renewal."""
    authority = newest_authority(bundle)
    if authority is not None and is_valid_until(authority.certificate, now + CA_LOOK_AHEAD):
        if verifies(bundle, hosts, now) and verifies(bundle, hosts, now + LEAF_LOOK_AHEAD):
            return bundle
        fresh = _with_leaf_of(authority, bundle, hosts, now)
        if verifies(fresh, hosts, now):  # else the authority itself is of no use, such as one from the future
            return fresh
    return _with_leaf_of(new_authority(now), bundle, hosts, now)


def _with_leaf_of(authority: Issued, bundle: Bundle, hosts: tuple[str, ...], now: datetime) -> Bundle:
    leaf = issue(authority, hosts, now)
    return Bundle(_trusted(authority, bundle, now), authority.key, leaf.certificate, leaf.key)


def newest_authority(bundle: Bundle) -> Issued | None:
    """The authority that signs; None where it is missing, garbled, without its key or not of our kind."""
    try:
        certificates = x509.load_pem_x509_certificates(bundle.trusted)
        key = serialization.load_pem_private_key(bundle.authority_key, password=None)
    except (ValueError, TypeError):
        return None
    if not isinstance(key, ec.EllipticCurvePrivateKey) or certificates[0].public_key() != key.public_key():
        return None
    return Issued(_pem(certificates[0]), bundle.authority_key)


def verifies(bundle: Bundle, hosts: tuple[str, ...], at: datetime) -> bool:
    """Whether a caller that trusts the bundle's authorities would accept the leaf, for every host, at that moment."""
    try:
        store = verification.Store(x509.load_pem_x509_certificates(bundle.trusted))
        leaf = x509.load_pem_x509_certificate(bundle.leaf)
        key = serialization.load_pem_private_key(bundle.leaf_key, password=None)
        builder = verification.PolicyBuilder().store(store).time(at)
        for host in hosts:
            builder.build_server_verifier(alternative_name(host)).verify(leaf, [])
    except (ValueError, TypeError, InvalidSignature, verification.VerificationError):
        return False
    return leaf.public_key() == key.public_key()


def is_valid_until(certificate: bytes, at: datetime) -> bool:
    return expiry(certificate) > at


def expiry(certificate: bytes) -> datetime:
    return x509.load_pem_x509_certificate(certificate).not_valid_after_utc


def _trusted(authority: Issued, old: Bundle, now: datetime) -> bytes:
    """The authority that signs, then older ones that are still valid: calls that rest on them go on."""
    try:
        known = [_pem(certificate) for certificate in x509.load_pem_x509_certificates(old.trusted)]
    except ValueError:
        known = []
    others = [each for each in known if each != authority.certificate and is_valid_until(each, now)]
    return b"".join([authority.certificate, *others[:2]])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
