"""The dashboard's routes as a Flask application: one page, its files, and a read API."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

from flask import Flask, Response, request

from dashboard.answercache import JSON, AnswerCache, WorkOut
from placement.model import Key
from report import answers
from report import whatif as drills
from report.answers import Raw, Selection, Unclear
from report.exposure import Domain
from report.view import View

STATIC = Path(__file__).parent / "static"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
API = "/api/v1/"
LONGEST_TEXT = 200


def create_app(cache: AnswerCache) -> Flask:
    """For those who are let in: `server` asks before, and adds the headers that every answer has."""
    app = Flask("dashboard", static_folder=None)

    @app.errorhandler(404)
    def unknown(_error: Exception) -> Response:
        return _json(404, {"error": "page not found"})

    _add_pages(app)
    _add_api(app, cache)
    return app


def _add_pages(app: Flask) -> None:
    files = {path.name: _File(path) for path in STATIC.iterdir() if path.suffix in TYPES}

    @app.get("/")
    def index() -> Response:
        return files["index.html"].answer()

    @app.get("/static/<name>")
    def static(name: str) -> Response:
        return files[name].answer() if name in files else _json(404, {"error": "file not found"})


def _add_api(app: Flask, cache: AnswerCache) -> None:
    history = cache.history

    def answer(work_out: WorkOut) -> Response:
        reply = cache.answer(
            request.full_path.rstrip("?"),
            work_out,
            takes_gzip=bool(request.accept_encodings.quality("gzip")),
            known=request.headers.get("If-None-Match", ""),
        )
        return Response(reply.body, reply.status, reply.headers, content_type=reply.content_type)

    @app.get(API + "overview")
    def overview() -> Response:
        return answer(lambda view: answers.overview(view, history, with_pools=_has_pools()))

    @app.get(API + "workloads")
    def workloads() -> Response:
        return answer(lambda view: answers.workloads(view, history, _page()))

    @app.get(API + "workloads/<namespace>/<kind>/<name>")
    def workload(namespace: str, kind: str, name: str) -> Response:
        return answer(lambda view: answers.workload(view, history, (namespace, kind, name)))

    @app.get(API + "gangs")
    def gangs() -> Response:
        return answer(lambda view: answers.gangs(view, _page()))

    @app.get(API + "gangs/<namespace>/<path:name>")
    def gang(namespace: str, name: str) -> Response:
        return answer(lambda view: answers.gang(view, history, Key(namespace, name)))

    @app.get(API + "pools")
    def pools() -> Response:
        return answer(lambda view: view.floor.raw)

    @app.get(API + "drill")
    def drill() -> Response:
        return answer(_drill)


def _has_pools() -> bool:
    """`?with=pools`: the page wants both, and asks once."""
    asked = request.args.get("with", "")
    if asked not in ("", "pools"):
        raise Unclear("with= accepts pools")
    return asked == "pools"


def _page() -> Selection:
    asked = request.args
    limit = _count("limit", None)
    return Selection(
        asked.get("q", "")[:LONGEST_TEXT],
        asked.get("only", ""),
        asked.get("minimum", ""),
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
        raise Unclear(f"{name}= accepts a whole number, not {text[:LONGEST_TEXT]!r}")
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
    return Response(json.dumps(raw), status, content_type=JSON)
