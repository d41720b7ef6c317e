"""Access checks: the right Host and Origin, and a token if one is configured; and headers with browser restrictions.

Host is checked against a list because of DNS rebinding. Otherwise a foreign page whose name is made to point at
127.0.0.1 could read all of this through a visitor's browser.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import urlsplit

from placement import names
from serving.messages import Request

LOOPBACK = ("localhost", "127.0.0.1", "::1")
HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a request is denied."""

    status: int
    why: str

    @property
    def body(self) -> bytes:
        return json.dumps({"error": self.why}).encode()


@dataclass(frozen=True, slots=True)
class Guard:
    """The names that it answers to, and the file with the token, if one is asked for."""

    hosts: frozenset[str] = frozenset(LOOPBACK)
    token_file: Path | None = None

    def refusal(self, request: Request, *, is_data: bool) -> Refusal | None:
        """Pages hold nothing worth a token; data does."""
        if request.method not in ("GET", "HEAD"):
            return Refusal(405, "read-only: only GET and HEAD are allowed")
        host = request.header("host")
        if name_of(host) not in self.hosts:
            return Refusal(403, f"unknown host name {name_of(host)!r}: allow it with --dashboard-host")
        origin = request.header("origin")
        if origin and urlsplit(origin).netloc != host:
            return Refusal(403, "requests from other origins are not allowed")
        if is_data and request.header("sec-fetch-site") in ("cross-site", "same-site"):
            return Refusal(403, "requests from other sites are not allowed")
        if is_data and self.token_file is not None and not self._is_token(request.header("authorization")):
            return Refusal(401, "a bearer token is required")
        return None

    def _is_token(self, authorization: str) -> bool:
        """The file is read for each request, so that a new token applies at once. An empty file denies all requests."""
        assert self.token_file is not None
        try:
            token = self.token_file.read_bytes().strip()
        except OSError:
            return False
        scheme, _, given = authorization.partition(" ")
        is_same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token)
        return bool(token) and scheme.lower() == "bearer" and is_same


def name_of(host: str) -> str:
    """Without its port: `[::1]:8090` is `::1`."""
    name = host.strip().lower()
    if name.startswith("["):
        return name[1:].partition("]")[0]
    return name.partition(":")[0].rstrip(".")


def known_hosts(pod_ip: str | None, more: Iterable[str] = ()) -> frozenset[str]:
    """Loopback, the pod's address, the Service by all its names, and what is configured."""
    service, namespace = names.DASHBOARD_SERVICE, names.SYSTEM_NAMESPACE
    local = f"{service}.{namespace}"
    own = (service, local, f"{local}.svc", f"{local}.svc.cluster.local")
    address = () if not pod_ip else (str(ip_address(pod_ip)),)
    return frozenset((*LOOPBACK, *own, *address, *map(name_of, more)))
