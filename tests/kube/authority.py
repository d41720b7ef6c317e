"""A certificate authority for tests: a server on loopback, and a client that it knows."""

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = datetime.timedelta(days=1)


@dataclass(frozen=True)
class LoopbackAuthority:
    """PEM throughout."""

    ca: bytes
    server: bytes
    server_key: bytes
    client: bytes
    client_key: bytes

    def server_context(self, directory: Path) -> ssl.SSLContext:
        """TLS for a server that demands a certificate of its clients."""
        for name, content in (("ca", self.ca), ("server", self.server), ("server-key", self.server_key)):
            (directory / name).write_bytes(content)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(directory / "server", directory / "server-key")
        context.load_verify_locations(directory / "ca")
        context.verify_mode = ssl.CERT_REQUIRED
        return context


def make_authority() -> LoopbackAuthority:
    ca_key = ec.generate_private_key(ec.SECP256R1())
    server_key, client_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    return LoopbackAuthority(
        ca=_certificate("ca", ca_key, ca_key, is_ca=True),
        server=_certificate("server", server_key, ca_key),
        server_key=_pem(server_key),
        client=_certificate("client", client_key, ca_key),
        client_key=_pem(client_key),
    )


def _certificate(
    name: str, key: ec.EllipticCurvePrivateKey, issuer_key: ec.EllipticCurvePrivateKey, *, is_ca: bool = False
) -> bytes:
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    builder = (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]))
        .issuer_name(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "ca")]))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - DAY)
        .not_valid_after(now + DAY)
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
    )
    return builder.sign(issuer_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
