"""Reads certificates and keys that may be garbled. Pure and total: what cannot be read is none, and nothing raises.

A flipped byte need not be seen when a certificate is loaded: some parts are looked at only when they are asked for
(the public key, the names, the extensions), and each complains in its own way.
"""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509 import verification

# All that the library says of a certificate or a key that is not as it should be.
GARBLED = (
    ValueError,
    TypeError,
    OverflowError,
    UnsupportedAlgorithm,
    InvalidSignature,
    x509.InvalidVersion,
    x509.DuplicateExtension,
    x509.UnsupportedGeneralNameType,
    x509.ExtensionNotFound,
    verification.VerificationError,
)
LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def certificates(text: bytes) -> tuple[x509.Certificate, ...]:
    """The certificates of a PEM; none where any of them is garbled."""
    try:
        return tuple(x509.load_pem_x509_certificates(text))
    except GARBLED:
        return ()


def private_key(text: bytes) -> PrivateKeyTypes | None:
    """The key of a PEM; None where it is garbled or of a kind that nobody can use."""
    try:
        return serialization.load_pem_private_key(text, password=None)
    except GARBLED:
        return None


def is_key_of(key: PrivateKeyTypes, certificate: x509.Certificate) -> bool:
    """Whether they belong together."""
    try:
        return certificate.public_key() == key.public_key()
    except GARBLED:
        return False


def end(certificate: x509.Certificate) -> datetime:
    """When it expires; long ago where that cannot be told."""
    try:
        return certificate.not_valid_after_utc
    except GARBLED:
        return LONG_AGO


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it says of itself that it may sign others."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except GARBLED:
        return False


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
