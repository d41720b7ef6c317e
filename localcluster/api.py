"""The few calls to the API server that this package makes, over the standard library's HTTP.

Why not the official client: importing it takes longer than starting the scheduler, and all we need is JSON in and out.
"""

import http.client
import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from localcluster.errors import ClusterError
from localcluster.layout import LOOPBACK, Layout

TIMEOUT_SECONDS = 10.0
HEALTH_TIMEOUT_SECONDS = 1.0  # polled: another program on the port that never answers must not block us
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

Raw = dict[str, Any]


class CallFailed(ClusterError):
    """The API server refused the call; `status` is its HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"the API server answered {status}: {message}")
        self.status = status


class NoAnswerError(ClusterError):
    """There was no answer, or it was not HTTP."""


@dataclass(frozen=True)
class AdminApi:
    """The API server of one local cluster, spoken to as its administrator."""

    layout: Layout
    kept: http.client.HTTPSConnection | None = None  # only set by `batch`

    @contextmanager
    def batch(self) -> Iterator["AdminApi"]:
        """For many calls in a row from one thread: they share a connection, and its 10 ms of TLS."""
        connection = self._connection()
        try:
            yield replace(self, kept=connection)
        finally:
            connection.close()

    def _connection(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection(
            LOOPBACK, self.layout.ports.apiserver, timeout=TIMEOUT_SECONDS, context=self._context
        )

    @cached_property
    def _context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.layout.certificate("ca")))
        context.load_cert_chain(self.layout.certificate("admin"), self.layout.key("admin"))
        return context

    def get(self, path: str, **parameters: str) -> Raw:
        return self.call("GET", f"{path}?{urlencode(parameters)}" if parameters else path)

    def create(self, path: str, body: Mapping[str, Any]) -> Raw:
        return self.call("POST", path, body)

    def patch(self, path: str, body: Mapping[str, Any], content_type: str = STRATEGIC_PATCH) -> Raw:
        return self.call("PATCH", path, body, content_type)

    def delete(self, path: str) -> None:
        """Delete an object. If it is already gone, that is success."""
        try:
            self.call("DELETE", path)
        except CallFailed as error:
            if error.status != http.client.NOT_FOUND:
                raise

    def exists(self, path: str) -> bool:
        try:
            self.get(path)
        except CallFailed as error:
            if error.status == http.client.NOT_FOUND:
                return False
            raise
        return True

    def call(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, content: str = "application/json"
    ) -> Raw:
        """One call over its own connection: threads need no coordination, and a restart breaks nothing."""
        connection = self.kept or self._connection()
        try:
            connection.request(method, path, None if body is None else json.dumps(body), {"Content-Type": content})
            response = connection.getresponse()
            text = response.read()
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise NoAnswerError(f"the API server at {self.layout.server} does not answer: {error}") from error
        finally:
            if connection is not self.kept:
                connection.close()
        return _decoded(response.status, text)

    def is_healthy(self, url: str) -> bool:
        """Whether a part's health address answers 200."""
        parts = urlsplit(url)
        connection = (
            http.client.HTTPSConnection(LOOPBACK, parts.port, timeout=HEALTH_TIMEOUT_SECONDS, context=self._context)
            if parts.scheme == "https"
            else http.client.HTTPConnection(LOOPBACK, parts.port, timeout=HEALTH_TIMEOUT_SECONDS)
        )
        try:
            connection.request("GET", parts.path)
            return connection.getresponse().status == http.client.OK
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()


def node_path(name: str) -> str:
    return f"/api/v1/nodes/{quote(name)}"


def pod_path(raw_pod: Mapping[str, Any]) -> str:
    metadata = raw_pod["metadata"]
    return f"/api/v1/namespaces/{quote(metadata['namespace'])}/pods/{quote(metadata['name'])}"


def _decoded(status: int, text: bytes) -> Raw:
    try:
        decoded = json.loads(text)
    except ValueError:
        decoded = {"message": text.decode(errors="replace").strip()}
    if status >= http.client.BAD_REQUEST:
        raise CallFailed(status, str(decoded.get("message", "")))
    return dict(decoded)
