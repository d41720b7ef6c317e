"""A client without a network: requests go through the real parser to whatever answers them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from werkzeug.wrappers import Response as WerkzeugResponse

from serving.messages import Answer, Request, Response, text
from serving.parser import Limits, Parser, Rejection


async def answered(answer: Answer, request: Request) -> Response:
    """At once or later."""
    response = answer(request)
    return response if isinstance(response, Response) else await response


class Answered(WerkzeugResponse):
    """A response that is easy to look at."""

    @property
    def text(self) -> str:
        return self.get_data(as_text=True)


class Visitor:
    """Asks one answering callable."""

    def __init__(self, answer: Answer, limits: Limits | None = None, host: str = "localhost") -> None:
        self._answer = answer
        self._limits = limits or Limits()
        self._host = host

    def get(self, target: str, headers: Mapping[str, str] | None = None) -> Answered:
        return self.open(target, "GET", headers)

    def head(self, target: str) -> Answered:
        return self.open(target, "HEAD")

    def post(self, target: str, data: bytes = b"", content_type: str = "") -> Answered:
        return self.open(target, "POST", {"content-type": content_type} if content_type else {}, data)

    def open(self, target: str, method: str, headers: Mapping[str, str] | None = None, data: bytes = b"") -> Answered:
        fields = {"host": self._host, "content-length": str(len(data))}
        fields |= {name.lower(): value for name, value in (headers or {}).items()}
        head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return _answered(asyncio.run(self._ask(f"{method} {target} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + data)))

    async def _ask(self, sent: bytes) -> Response:
        (event,) = Parser(self._limits).feed(sent, room=1)
        if isinstance(event, Rejection):
            return text(event.status, event.why)
        assert isinstance(event, Request)
        return await answered(self._answer, event)


def _answered(response: Response) -> Answered:
    headers: Any = [*response.headers, ("Content-Type", response.content_type)]
    return Answered(response.body, response.status, headers)
