"""Which answer a path has. Paths are compared as they were sent: `/%6dutate` is not `/mutate`."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Mapping

from serving.messages import Answer, Request, Response, text

_PATH = re.compile(r"[!$%&'()*+,\-./0-9:;=@A-Z_a-z~]*")  # RFC 3986


class Routes:
    """Answers by path and method. HEAD is answered as GET is; its body is not sent."""

    def __init__(self, answers: Mapping[str, Mapping[str, Answer]]) -> None:
        self._answers = answers

    def answer(self, request: Request) -> Response | Awaitable[Response]:
        answers = self._answers.get(request.path)
        if answers is None:
            return _unknown(request.path)
        answer = answers.get("GET" if request.method == "HEAD" else request.method)
        if answer is None:
            return text(405, f"expected {' or '.join(answers)}", ("allow", ", ".join(answers)))
        return answer(request)


def _unknown(path: str) -> Response:
    if _PATH.fullmatch(path) is None:
        return text(400, "malformed request: the path contains invalid characters")
    return text(404, "there is no such path")
