"""The page lets nobody in who should not be, and browsers are told what to forbid."""

from __future__ import annotations

from pathlib import Path

import pytest

from dashboard.access import known_hosts, name_of
from tests.dashboard.dashboardharness import dashboard_of, with_token

PATHS = ("/", "/static/app.js", "/static/style.css", "/api/v1/overview", "/api/v1/nothing", "/nothing")


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_carries_the_headers(path: str) -> None:
    """Scripts and styles from here alone, none inline; not in a frame; no guessing of types."""
    answer = dashboard_of().client.get(path)
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert answer.headers["X-Frame-Options"] == "DENY"
    assert answer.headers["Referrer-Policy"] == "no-referrer"
    assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_it_is_read_only(method: str) -> None:
    """GET and HEAD alone."""
    page = dashboard_of().client
    assert page.open("/api/v1/overview", method=method).status_code == 405
    assert page.open("/", method=method).status_code == 405
    assert page.head("/api/v1/overview").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8090", "localhost.evil.example", "", "10.0.0.9"])
def test_other_names_are_refused(host: str) -> None:
    """A name that is made to point here (DNS rebinding) is not one of ours."""
    page = dashboard_of().client
    for path in ("/", "/api/v1/overview"):
        assert page.get(path, headers={"Host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost", "localhost:8090", "127.0.0.1:1234", "[::1]:8090", "LOCALHOST"])
def test_loopback_is_let_in(host: str) -> None:
    """What a port-forward is reached by."""
    assert dashboard_of().client.get("/api/v1/overview", headers={"Host": host}).status_code == 200


def test_the_pods_address_the_services_names_and_configured_ones_are_known() -> None:
    """In all the ways that a cluster's DNS knows them."""
    hosts = known_hosts("10.1.2.3", ["Spot.Example:443"])
    service = "spotweave-dashboard.spotweave-system"
    assert {"10.1.2.3", "spot.example", service, f"{service}.svc", f"{service}.svc.cluster.local"} <= hosts
    assert name_of("spot.example.") == "spot.example"


@pytest.mark.parametrize(
    "headers",
    [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Sec-Fetch-Site": "cross-site"}],
    ids=["another origin", "no origin", "another site"],
)
def test_pages_of_others_get_no_data(headers: dict[str, str]) -> None:
    """Whatever name they use."""
    assert dashboard_of().client.get("/api/v1/overview", headers=headers).status_code == 403


def test_its_own_page_gets_data() -> None:
    """As browsers ask for it."""
    own = {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"}
    assert dashboard_of().client.get("/api/v1/overview", headers=own).status_code == 200


def test_a_token_is_asked_for_where_one_is_configured(tmp_path: Path) -> None:
    """For data; the page itself holds none, and asks for the token. A new one counts at once, an empty one never."""
    file = tmp_path / "token"
    file.write_text("secret\n")
    page = dashboard_of(guard=with_token(file)).client
    assert page.get("/").status_code == 200
    answer = page.get("/api/v1/overview")
    assert (answer.status_code, answer.headers["WWW-Authenticate"]) == (401, "Bearer")
    for wrong in ("Bearer wrong", "secret", "Basic secret", "Bearer ", "Bearer sécret"):
        assert page.get("/api/v1/overview", headers={"Authorization": wrong}).status_code == 401
    assert page.get("/api/v1/overview", headers={"Authorization": "Bearer secret"}).status_code == 200
    file.write_text("new")
    assert page.get("/api/v1/overview", headers={"Authorization": "Bearer secret"}).status_code == 401
    file.write_text("")
    assert page.get("/api/v1/overview", headers={"Authorization": "Bearer "}).status_code == 401
    file.unlink()
    assert page.get("/api/v1/overview", headers={"Authorization": "Bearer secret"}).status_code == 401


def test_files_have_their_types_and_nothing_inline() -> None:
    """The policy would forbid it; and nothing is fetched from elsewhere."""
    page = dashboard_of().client
    types = {"/": "text/html", "/static/app.js": "text/javascript", "/static/style.css": "text/css"}
    for path, kind in types.items():
        answer = page.get(path)
        assert answer.content_type.startswith(kind)
        assert "http://" not in answer.text.replace("http://www.w3.org/2000/svg", "")
        assert "https://" not in answer.text
    html = page.get("/").text
    assert "<script>" not in html
    assert "style=" not in html
    assert " onclick" not in html
    assert page.get("/static/../app.py").status_code == 404
