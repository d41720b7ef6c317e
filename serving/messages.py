"""What goes over a connection: requests, responses, and a response as bytes. Pure."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

TEXT = "text/plain; charset=utf-8"
BODILESS = (204, 304)
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_PHRASES = {status.value: status.phrase for status in HTTPStatus}


class Request(NamedTuple):
    """One request, complete."""

    method: str
    target: str  # path and query as sent, not decoded
    headers: Mapping[bytes, bytes] = {}  # names in lower case
    body: bytes = b""
    is_last: bool = False  # the caller says that it is the last of its connection
    dropped: int = 0  # bytes of the body that were not kept (`Limits.kept_bytes`)

    @property
    def size(self) -> int:
        """Of the body, as it was sent."""
        return len(self.body) + self.dropped

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def query(self) -> str:
        return self.target.partition("?")[2]

    def header(self, name: str) -> str:
        """The header with this name, in lower case; empty if there is none."""
        return self.headers.get(name.encode("latin-1"), b"").decode("latin-1")


class Response(NamedTuple):
    """One answer."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()  # all except type, length and connection


Answer = Callable[[Request], Response | Awaitable[Response]]


def text(status: int, sentence: str, *headers: tuple[str, str]) -> Response:
    """A response in plain text, of one line."""
    return Response(status, f"{sentence}\n".encode(), TEXT, headers)


def written(response: Response, *, is_last: bool, is_head: bool = False) -> bytes:
    """The response as bytes. The answer to a HEAD request has the length of the body, but not the body."""
    status, body, content_type, headers = response
    more = "".join([f"{name}: {value}\r\n" for name, value in headers]) if headers else ""
    length = "" if status in BODILESS else f"content-type: {content_type}\r\ncontent-length: {len(body)}\r\n"
    head = (
        f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\n{length}{more}"
        f"connection: {'close' if is_last else 'keep-alive'}\r\n\r\n"
    ).encode("latin-1")
    return head if is_head or status in BODILESS else head + body
