"""Which path has which answer."""

from __future__ import annotations

import pytest

from serving.messages import Request, Response, text
from serving.routes import Routes

DONE = Response(200, b"done")
ROUTES = Routes({"/a": {"GET": lambda _: DONE}, "/b": {"POST": lambda _: DONE}})
ODD = text(400, "malformed request: the path contains invalid characters")
UNKNOWN = text(404, "there is no such path")
ANSWERS = {
    "a path": (Request("GET", "/a"), DONE),
    "its query does not matter": (Request("GET", "/a?b=[c]"), DONE),
    "HEAD is answered as GET is": (Request("HEAD", "/a"), DONE),
    "another method": (Request("GET", "/b"), text(405, "expected POST", ("allow", "POST"))),
    "another path": (Request("GET", "/a/"), UNKNOWN),
    "a path that is written otherwise": (Request("GET", "/%61"), UNKNOWN),
    "an absolute URL": (Request("GET", "http://localhost/a"), UNKNOWN),
    "what is no path": (Request("GET", "//["), ODD),
    "a path with a quote": (Request("GET", '/a"b'), ODD),
}


@pytest.mark.parametrize(("request_", "answer"), ANSWERS.values(), ids=ANSWERS.keys())
def test_a_path_and_a_method_have_one_answer(request_: Request, answer: Response) -> None:
    """As they were sent."""
    assert ROUTES.answer(request_) == answer
