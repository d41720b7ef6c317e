"""Certificates and kubeconfigs of one cluster. They live as long as its directory does."""

import ipaddress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from localcluster.kwok import USER as KWOK_USER
from localcluster.layout import LOOPBACK, Layout

LIFETIME = timedelta(days=365)
SERVER_NAMES = (
    "localhost",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
)

# Client certificates: file name → (CN = user, O = group). The groups are what RBAC's built-in bindings know. Neighbours
# have the names that they have in a cluster, so that others can tell who asked; they need no roles of their own here.
CLIENTS = {
    "admin": ("spotweave-admin", "system:masters"),
    "kube-controller-manager": ("system:kube-controller-manager", "system:kube-controller-manager"),
    "kube-scheduler": ("system:kube-scheduler", "system:kube-scheduler"),
    "kwok": (KWOK_USER, "system:masters"),
    "karpenter": ("system:serviceaccount:kube-system:karpenter", "system:masters"),
    "descheduler": ("system:serviceaccount:kube-system:descheduler", "system:masters"),
}


@dataclass(frozen=True)
class Authority:
    """A certificate authority: what it signs with and under which name."""

    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate


def write_pki(layout: Layout, now: datetime) -> None:
    """Write all certificates, keys and kubeconfigs of the cluster."""
    layout.pki.mkdir(parents=True, mode=0o700)
    cluster, front_proxy = _authority("spotweave-local", now), _authority("spotweave-local-front-proxy", now)
    _write(layout, "ca", cluster.key, cluster.certificate)
    _write(layout, "front-proxy-ca", front_proxy.key, front_proxy.certificate)
    _issue(layout, "server", cluster, _name("kube-apiserver"), now, _server_extension(layout))
    _issue(layout, "front-proxy-client", front_proxy, _name("front-proxy-client"), now)
    for client, (user, group) in CLIENTS.items():
        _issue(layout, client, cluster, _name(user, group), now)
        _write_private(layout.client_kubeconfig(client), yaml.safe_dump(kubeconfig(layout, client)).encode())
    _write_private(layout.key("service-account"), _private_pem(_new_key()))
    _write_private(layout.kubeconfig, yaml.safe_dump(kubeconfig(layout, "admin"), sort_keys=False).encode())


def kubeconfig(layout: Layout, client: str) -> dict[str, Any]:
    """Names the certificates' files: from inline data the Python client would write temporary files that stay."""
    user = {"client-certificate": str(layout.certificate(client)), "client-key": str(layout.key(client))}
    cluster = {"server": layout.server, "certificate-authority": str(layout.certificate("ca"))}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "spotweave-local", "cluster": cluster}],
        "users": [{"name": client, "user": user}],
        "contexts": [{"name": "spotweave-local", "context": {"cluster": "spotweave-local", "user": client}}],
        "current-context": "spotweave-local",
    }


def _new_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


def _name(common: str, organization: str | None = None) -> x509.Name:
    attributes = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization:
        attributes.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(attributes)


def _authority(common: str, now: datetime) -> Authority:
    key = _new_key()
    builder = _builder(_name(common), _name(common), key, now)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    return Authority(key, builder.sign(key, hashes.SHA256()))


def _issue(
    layout: Layout,
    name: str,
    authority: Authority,
    subject: x509.Name,
    now: datetime,
    extension: x509.SubjectAlternativeName | None = None,
) -> None:
    key = _new_key()
    usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = _builder(subject, authority.certificate.subject, key, now)
    builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    builder = builder.add_extension(
        x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.key.public_key()), critical=False
    )
    if extension is not None:
        builder = builder.add_extension(extension, critical=False)
    _write(layout, name, key, builder.sign(authority.key, hashes.SHA256()))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + LIFETIME)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _server_extension(layout: Layout) -> x509.SubjectAlternativeName:
    addresses = [ipaddress.ip_address(LOOPBACK), ipaddress.ip_address(layout.first_service_address)]
    names: list[x509.GeneralName] = [x509.DNSName(name) for name in SERVER_NAMES]
    return x509.SubjectAlternativeName([*names, *(x509.IPAddress(address) for address in addresses)])


def _write(layout: Layout, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> None:
    layout.certificate(name).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_private(layout.key(name), _private_pem(key))


def _private_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write_private(path: Path, content: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(content)
