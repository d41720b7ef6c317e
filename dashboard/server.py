"""Serves the dashboard: access checks, answers from the cache, and answers computed on other threads.

Fifty pages that ask every few seconds must not cost as much as the rebalancer itself. Repeated requests are answered on
the event loop, from the cache. Everything else goes through Flask's WSGI callable on other threads, once for all
clients that ask the same, so that a drill does not delay other viewers.
"""

from __future__ import annotations

import asyncio
import io
import sys
from collections.abc import Awaitable
from contextlib import AbstractContextManager
from typing import Any, cast
from urllib.parse import unquote

from werkzeug.wrappers import Response as FlaskResponse

from dashboard.access import HEADERS, Guard, Refusal
from dashboard.answercache import AnswerCache
from dashboard.app import API, create_app
from serving.listener import Listener
from serving.messages import TEXT, Request, Response
from serving.parser import KIB, MIB, Limits
from serving.threads import on_a_thread

LARGEST_HEAD = 32 * KIB
LIMITS = Limits(LARGEST_HEAD, body_bytes=KIB, waiting=16, held_bytes=MIB, idle_seconds=75.0)  # no client sends bodies
WORKERS = 4
_FIXED = tuple(HEADERS.items())
_FRESH = (*_FIXED, ("Cache-Control", "no-store"))
_BY_THE_SERVER = ("content-type", "content-length")


class PageServer:
    """Answers the page's requests. All that it answers goes through `_sealed`, and has the headers."""

    def __init__(self, cache: AnswerCache, guard: Guard) -> None:
        self._cache = cache
        self._guard = guard
        self._app = create_app(cache)
        self._working: dict[str, asyncio.Future[Response]] = {}  # by target

    def answer(self, request: Request) -> Response | Awaitable[Response]:
        refusal = self._guard.refusal(request, is_data=_path(request).startswith(API))
        if refusal is not None:
            return _sealed(_refused(refusal))
        return self._quick(request) or self._slow(request)

    def _quick(self, request: Request) -> Response | None:
        """None: it takes longer."""
        known = self._cache.quick(
            request.target,
            takes_gzip="gzip" in request.header("accept-encoding"),
            known=request.header("if-none-match"),
        )
        return None if known is None else _sealed(known)

    async def _slow(self, request: Request) -> Response:
        """On another thread. What many ask for at the same moment is worked out for the first of them.

        If a client goes meanwhile, the work goes on: others may wait for it.
        """
        while (under_way := self._working.get(request.target)) is not None:
            await asyncio.wait([under_way])
            quick = self._quick(request)
            if quick is not None:
                return quick
        work = asyncio.get_running_loop().run_in_executor(None, self._through_flask, request)
        self._working[request.target] = work
        work.add_done_callback(lambda _: self._working.pop(request.target))
        await asyncio.wait([work])
        return _sealed(work.result())

    def _through_flask(self, request: Request) -> Response:
        answer = FlaskResponse.from_app(cast(Any, self._app), _environ(request), buffered=True)
        headers = tuple(each for each in answer.headers.items() if each[0].lower() not in _BY_THE_SERVER)
        return Response(answer.status_code, answer.get_data(), answer.content_type or TEXT, headers)


def _path(request: Request) -> str:
    """As Flask sees it."""
    return unquote(request.path, "latin-1")


def _sealed(response: Response) -> Response:
    """With the headers that restrict browsers. Nothing is stored, unless the answer says otherwise."""
    is_stored = any(name == "Cache-Control" for name, _ in response.headers)
    return response._replace(headers=(_FIXED if is_stored else _FRESH) + response.headers)


def _refused(refusal: Refusal) -> Response:
    asks = (("WWW-Authenticate", "Bearer"),) if refusal.status == 401 else ()
    return Response(refusal.status, refusal.body, headers=asks)


def _environ(request: Request) -> dict[str, Any]:
    """For WSGI. HEAD is answered as GET is; its body is not sent."""
    fields = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers.items()}
    return {
        **{f"HTTP_{name.upper().replace('-', '_')}": value for name, value in fields.items()},
        "REQUEST_METHOD": "GET",
        "SCRIPT_NAME": "",
        "PATH_INFO": _path(request),
        "QUERY_STRING": request.query,
        "SERVER_NAME": "dashboard",
        "SERVER_PORT": "0",
        "SERVER_PROTOCOL": "HTTP/1.1",
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": "http",
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }


def serving_page(cache: AnswerCache, guard: Guard, address: str) -> AbstractContextManager[int]:
    """Serves it at HOST:PORT meanwhile; gives the port."""
    listener = Listener(PageServer(cache, guard).answer, LIMITS, cache.count_watchers)
    return on_a_thread(listener, address, "page", WORKERS)
