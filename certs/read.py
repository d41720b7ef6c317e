"""Reads certificates and keys that may be damaged. Pure and total: an unreadable part counts as none; nothing raises.

Loading a certificate does not detect every flipped byte. Some parts (the public key, the names, the extensions) are
parsed only when they are accessed, and each raises its own kind of error.
"""

from __future__ import annotations

from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.types import PrivateKeyTypes
from cryptography.x509 import verification

# All errors that the library raises for a damaged certificate or key.
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
    """The certificates of a PEM; none if any of them is damaged."""
    try:
        return tuple(x509.load_pem_x509_certificates(text))
    except GARBLED:
        return ()


def private_key(text: bytes) -> PrivateKeyTypes | None:
    """The key of a PEM; None if it is damaged or of an unusable kind."""
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
    """When it expires; a time long ago if that cannot be read."""
    try:
        return certificate.not_valid_after_utc
    except GARBLED:
        return LONG_AGO


def is_authority(certificate: x509.Certificate) -> bool:
    """Whether it declares that it may sign other certificates."""
    try:
        return certificate.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    except GARBLED:
        return False


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
