"""The dashboard as a Flask application: one page, its files, and a read API."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Lock
from typing import Any

from flask import Flask, Response, request

from dashboard import answers, drills
from dashboard.answers import Page, Raw, Unclear, Unknown
from dashboard.guard import HEADERS, Guard
from dashboard.history import History
from dashboard.view import View, Viewer
from placement.exposure import Domain

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
API = "/api/v1/"
MOST_KEPT = 16 * 1024**2  # bytes of answers of one view
LARGEST_PLAIN = 1024  # bytes; longer answers are compressed for who takes that
LONGEST_TEXT = 200

Answer = Callable[[View], Raw]


def create_app(viewer: Viewer, history: History, guard: Guard) -> Flask:
    app = Flask("dashboard", static_folder=None)
    desk = Desk(viewer)

    @app.before_request
    def refuse() -> Response | None:
        refusal = guard.refusal(request.method, request.headers, is_data=request.path.startswith(API))
        if refusal is None:
            return None
        answer = _json(refusal.status, {"error": refusal.text})
        if refusal.status == 401:
            answer.headers["WWW-Authenticate"] = "Bearer"
        return answer

    @app.after_request
    def forbid(response: Response) -> Response:
        response.headers.update(HEADERS)
        response.headers.setdefault("Cache-Control", "no-store")
        return response

    @app.errorhandler(404)
    def unknown(_error: Exception) -> Response:
        return _json(404, {"error": "there is no such page"})

    _add_pages(app)
    _add_api(app, desk, history)
    return app


def _add_pages(app: Flask) -> None:
    files = {path.name: _File(path) for path in STATIC.iterdir() if path.suffix in TYPES}

    @app.get("/")
    def index() -> Response:
        return files["index.html"].answer()

    @app.get("/static/<name>")
    def static(name: str) -> Response:
        return files[name].answer() if name in files else _json(404, {"error": "there is no such file"})


def _add_api(app: Flask, desk: Desk, history: History) -> None:
    @app.get(API + "overview")
    def overview() -> Response:
        return desk.answer(lambda view: answers.overview(view, history))

    @app.get(API + "workloads")
    def workloads() -> Response:
        return desk.answer(lambda view: answers.workloads(view, _page()))

    @app.get(API + "workloads/<namespace>/<kind>/<name>")
    def workload(namespace: str, kind: str, name: str) -> Response:
        return desk.answer(lambda view: answers.workload(view, history, (namespace, kind, name)))

    @app.get(API + "pools")
    def pools() -> Response:
        return desk.answer(answers.pools)

    @app.get(API + "drill")
    def drill() -> Response:
        return desk.answer(_drill)


def _page() -> Page:
    asked = request.args
    limit = _count("limit", None)
    return Page(
        asked.get("q", "")[:LONGEST_TEXT],
        asked.get("only", ""),
        asked.get("sort", ""),
        asked.get("order") == "desc",
        _count("offset", 0) or 0,
        limit,
    )


def _count(name: str, default: int | None) -> int | None:
    text = request.args.get(name)
    if text is None:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Unclear(f"{name}= takes a whole number, not {text[:LONGEST_TEXT]!r}")
    return int(text)


def _drill(view: View) -> Raw:
    """`?node=N`, `?pool=Z/T`, `?zone=Z`, `?spot=1`, or `?workload=NS/KIND/NAME&ratio=50%`; nothing: what there is."""
    asked = request.args
    if "workload" in asked or "ratio" in asked:
        key = asked.get("workload", "").split("/")
        if len(key) != 3 or "ratio" not in asked:
            raise Unclear("expected workload=NAMESPACE/KIND/NAME and ratio=50%")
        return drills.what_if(view, (key[0], key[1], key[2]), asked["ratio"][:LONGEST_TEXT], view.taken.at)
    chosen = [domain for domain in Domain if domain in asked]
    if len(chosen) > 1:
        raise Unclear("expected one of node=, pool=, zone= and spot=1")
    if not chosen:
        return drills.choices(view)
    return drills.drill(view, chosen[0], "" if chosen[0] is Domain.SPOT else asked[chosen[0]])


class Desk:
    """Answers from the latest view. What was asked before is not worked out again until there is another view."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer = viewer
        self._lock = Lock()  # one at a time: answering must not take the processor from the loop
        self._view: View | None = None
        self._kept: dict[str, bytes] = {}
        self._size = 0

    def answer(self, work_out: Answer) -> Response:
        view = self._viewer.view()
        state = self._state(view)
        if view is None:
            return _json(503, {**state, "error": "not synced yet: nothing was read so far"})
        try:
            body = self._body(view, work_out)
        except Unknown as error:
            return _json(404, {**state, "error": str(error)})
        except Unclear as error:
            return _json(400, {**state, "error": str(error)})
        return _bytes(200, json.dumps(state).encode()[:-1] + b", " + body[1:])

    def _state(self, view: View | None) -> Raw:
        """How much the rest is worth: how old it is, and whether this replica leads and hears from the API server."""
        around = self._viewer.around
        at = None if view is None else view.taken.at
        return {
            "generatedAt": None if at is None else datetime.fromtimestamp(at, UTC).isoformat(),
            "ageSeconds": None if at is None else round(max(0.0, around.now() - at), 1),
            "leading": around.is_leading(),
            "synced": view is not None and around.is_synced(),
        }

    def _body(self, view: View, work_out: Answer) -> bytes:
        with self._lock:
            if view is not self._view or self._size > MOST_KEPT:
                self._view, self._kept, self._size = view, {}, 0
            asked = request.full_path
            known = self._kept.get(asked)
            if known is not None:
                return known
            body = json.dumps(work_out(view), separators=(",", ":")).encode()
            self._kept[asked] = body
            self._size += len(asked) + len(body)
            return body


class _File:
    """A file of the page, read once."""

    def __init__(self, path: Path) -> None:
        self._content = path.read_bytes()
        self._type = TYPES[path.suffix]
        self._etag = sha256(self._content).hexdigest()[:16]

    def answer(self) -> Response:
        response = Response(self._content, content_type=self._type)
        response.headers["Cache-Control"] = "no-cache"
        response.set_etag(self._etag)
        return response.make_conditional(request)  # type: ignore[return-value]


def _json(status: int, raw: dict[str, Any]) -> Response:
    return _bytes(status, json.dumps(raw).encode())


def _bytes(status: int, body: bytes) -> Response:
    response = Response(body, status, content_type="application/json")
    if len(body) > LARGEST_PLAIN and request.accept_encodings.quality("gzip"):
        response.set_data(gzip.compress(body, 1))
        response.headers["Content-Encoding"] = "gzip"
    response.headers["Vary"] = "Accept-Encoding"
    return response
