"""Requests to the API server: bytes and JSON in, bytes and JSON out, typed errors, bounds on everything."""

from __future__ import annotations

import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import msgspec
import urllib3
from kubernetes.client import Configuration
from kubernetes.client.rest import RESTClientObject
from kubernetes.config import ConfigException

from kube.bounds import Bounds, TooMuch, bind, within
from kube.errors import AnswerTooLarge, ApiError, Garbled, KubeconfigError, NotFound, Unreachable, error_from
from kube.kubeconfig import MemoryFiles, load_configuration

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 30.0  # for all of an answer, however it comes
# The API server takes objects of 3 MiB, and stores less than half of that; as JSON they may grow a little.
ANSWER_BYTES = 8 << 20
LINE_BYTES = ANSWER_BYTES  # of a watch: one object
CONNECTIONS = 32  # about ten watches, and writes beside them; more are opened when needed, but not kept

JSON = "application/json"
# The answer to a write may be its metadata alone: a pod's is a fifth of it.
METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"  # merges lists by their keys; built-in resources only
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML

Query = Mapping[str, str | int]


def connect(kubeconfig: Path | None = None, *, user_agent: str, context: str | None = None) -> Client:
    """A client for the given kubeconfig; else for $KUBECONFIG or ~/.kube/config; else for the pod we run in.

    Nothing is sent yet, so a server that is down shows with the first request, not here.
    """
    memory = MemoryFiles()
    try:
        return Client(load_configuration(kubeconfig, context, memory), user_agent=user_agent, memory=memory)
    except KubeconfigError:
        memory.close()
        raise


class Client:
    """One API server, spoken to over one pool of connections. Safe to use from many threads."""

    def __init__(self, configuration: Configuration, *, user_agent: str, memory: MemoryFiles | None = None) -> None:
        configuration.connection_pool_maxsize = CONNECTIONS
        configuration.keep_alive = True
        self._configuration = configuration
        self._pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
        bind(self._pool)
        self._user_agent = user_agent
        self._memory = memory or MemoryFiles()

    @property
    def server(self) -> str:
        """The server's URL, for people to read."""
        return str(self._configuration.host)

    def close(self) -> None:
        self._pool.clear()
        self._memory.close()

    def get(
        self,
        path: str,
        query: Query | None = None,
        *,
        timeout_seconds: float = ANSWER_SECONDS,
        most_bytes: int = ANSWER_BYTES,
    ) -> bytes:
        """All of it within so many seconds. Lists may be larger than one object; their readers say how large."""
        return self._request("GET", path, query, timeout_seconds=timeout_seconds, most_bytes=most_bytes)

    def get_json(
        self,
        path: str,
        query: Query | None = None,
        *,
        timeout_seconds: float = ANSWER_SECONDS,
        most_bytes: int = ANSWER_BYTES,
    ) -> Any:
        return _parsed(f"GET {path}", self.get(path, query, timeout_seconds=timeout_seconds, most_bytes=most_bytes))

    def post(
        self, path: str, body: object, query: Query | None = None, *, timeout_seconds: float = ANSWER_SECONDS
    ) -> Any:
        return self._write("POST", path, query, body, timeout_seconds=timeout_seconds)

    def put(
        self, path: str, body: object, query: Query | None = None, *, timeout_seconds: float = ANSWER_SECONDS
    ) -> Any:
        return self._write("PUT", path, query, body, timeout_seconds=timeout_seconds)

    def patch(
        self,
        path: str,
        body: object,
        query: Query | None = None,
        *,
        content_type: str = MERGE_PATCH,
        timeout_seconds: float = ANSWER_SECONDS,
        accept: str = JSON,
    ) -> Any:
        """`content_type` is one of the constants above; APPLY_PATCH needs `fieldManager` in the query."""
        return self._write("PATCH", path, query, body, content_type, timeout_seconds, accept)

    def delete(
        self, path: str, body: object = None, query: Query | None = None, *, timeout_seconds: float = ANSWER_SECONDS
    ) -> Any:
        """`body` may be DeleteOptions, e.g. with a UID precondition."""
        return self._write("DELETE", path, query, body, timeout_seconds=timeout_seconds)

    def remove(self, path: str, *, timeout_seconds: float = ANSWER_SECONDS) -> bool:
        """Deletes it if it is there. Whether it was."""
        try:
            self.delete(path, timeout_seconds=timeout_seconds)
        except NotFound:
            return False
        return True

    def stream(self, path: str, query: Query | None = None, *, read_timeout_seconds: float) -> Stream:
        """An open answer that is read line by line, as watches are. Silence beyond the time-out is Unreachable."""
        asked, bounds = f"GET {path}", Bounds(read_timeout_seconds, ANSWER_BYTES)
        response = self._send("GET", path, query, bounds, preload_content=False)
        if response.status == 200:
            bounds.let_go(read_timeout_seconds)
            return Stream(asked, response)
        try:
            raise _error(asked, response, _rest_of(asked, response))
        finally:
            response.close()

    def _write(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: object,
        content_type: str = JSON,
        timeout_seconds: float = ANSWER_SECONDS,
        accept: str = JSON,
    ) -> Any:
        encoded = None if body is None else msgspec.json.encode(body)
        answer = self._request(method, path, query, encoded, content_type, timeout_seconds, accept=accept)
        return _parsed(f"{method} {path}", answer)

    def _request(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: bytes | None = None,
        content_type: str | None = None,
        timeout_seconds: float = ANSWER_SECONDS,
        most_bytes: int = ANSWER_BYTES,
        accept: str = JSON,
    ) -> bytes:
        bounds = Bounds(timeout_seconds, most_bytes)
        response = self._send(method, path, query, bounds, body, content_type, accept=accept)
        if response.status >= 300:
            raise _error(f"{method} {path}", response, response.data)
        return response.data

    def _send(
        self,
        method: str,
        path: str,
        query: Query | None,
        bounds: Bounds,
        body: bytes | None = None,
        content_type: str | None = None,
        preload_content: bool = True,
        accept: str = JSON,
    ) -> urllib3.BaseHTTPResponse:
        """One request, never repeated here: only the caller knows whether that would be safe."""
        try:
            seconds = bounds.seconds_left()
            with within(bounds):
                return self._pool.request(
                    method,
                    self._url(path, query),
                    body=body,
                    headers=self._headers(content_type, accept),
                    timeout=urllib3.Timeout(connect=min(CONNECT_SECONDS, seconds), read=seconds),
                    retries=False,
                    preload_content=preload_content,
                    decode_content=False,  # none is asked for, and what is unpacked may be larger than any bounds
                )
        except (TooMuch, MemoryError, OverflowError) as error:  # the last two: it says itself that it will be huge
            raise AnswerTooLarge(f"{method} {path}", _text(error)) from error
        except (urllib3.exceptions.HTTPError, OSError, ConfigException) as error:  # the last: a token file went away
            raise Unreachable(f"{method} {path}", _text(error)) from error

    def _url(self, path: str, query: Query | None) -> str:
        return f"{self.server}{path}?{urlencode(query)}" if query else f"{self.server}{path}"

    def _headers(self, content_type: str | None, accept: str) -> dict[str, str]:
        """Asks the configuration each time, since tokens are refreshed by asking."""
        headers = {"accept": accept, "user-agent": self._user_agent}
        if content_type is not None:
            headers["content-type"] = content_type
        settings: Mapping[str, Any] = self._configuration.auth_settings()
        for setting in settings.values():
            headers[setting["key"]] = setting["value"]
        return headers


class Stream:
    """The lines of an open answer. One thread reads; any thread may `close`, which ends the reading at once."""

    def __init__(self, asked: str, response: urllib3.BaseHTTPResponse) -> None:
        self._asked = asked
        self._response = response
        self._closed = False

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from _lines(self._asked, self._response)
        except (
            urllib3.exceptions.HTTPError,
            OSError,
            ValueError,
        ) as error:  # the last: TLS closed while reading
            if not self._closed:
                raise Unreachable(self._asked, _text(error)) from error
        finally:
            self._response.close()

    def close(self) -> None:
        """Wakes the reader. The TLS layer is passed by where possible: it is not made for a second thread.

        A server that said "connection: close", as one that is shutting down does, has parted answer and connection;
        then only urllib3 still knows the socket.
        """
        self._closed = True
        sock = getattr(self._response.connection, "sock", None)
        with suppress(OSError, ValueError, RuntimeError):  # closed already, or given back to the pool
            if sock is not None:
                socket.socket.shutdown(sock, socket.SHUT_RDWR)
            else:
                self._response.shutdown()


def _lines(asked: str, response: urllib3.BaseHTTPResponse) -> Iterator[bytes]:
    """Whole lines, as soon as they are there. A line that the end cuts short is dropped."""
    pending: list[bytes] = []
    size = 0
    while piece := response.read1(1 << 16):
        first, *others = piece.split(b"\n")
        pending.append(first)
        for other in others:
            yield b"".join(pending)
            pending, size = [other], 0
        size += len(pending[-1])
        if size > LINE_BYTES:
            raise AnswerTooLarge(asked, f"a line of more than {LINE_BYTES} bytes")


def _rest_of(asked: str, response: urllib3.BaseHTTPResponse) -> bytes:
    try:
        return response.data
    except (TooMuch, MemoryError, OverflowError) as error:
        raise AnswerTooLarge(asked, _text(error)) from error
    except (urllib3.exceptions.HTTPError, OSError) as error:
        raise Unreachable(asked, _text(error)) from error


def _error(asked: str, response: urllib3.BaseHTTPResponse, body: bytes) -> ApiError:
    return error_from(asked, response.status, body, response.headers.get("retry-after"))


def _parsed(asked: str, body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        raise Garbled(asked, str(error)) from error


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"
