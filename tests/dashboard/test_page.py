"""The page in a real browser, over boards made by hand: thousands of workloads, none, no answer, a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import axe_core_python
import pytest

from dashboard.server import serving
from tests.dashboard.boards import Shown, deployment, shown, snapshot, with_token
from tests.dashboard.browser import PHONE, Tab, browsing

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browsing() as page:
        yield page


@contextmanager
def opened(tab: Tab, page: Shown, path: str = "") -> Iterator[str]:
    """Where it is served."""
    with serving(page.desk, page.guard, "127.0.0.1:0") as port:
        tab.complaints.clear()
        tab.looks()
        tab.open(f"http://127.0.0.1:{port}/{path}")
        yield f"http://127.0.0.1:{port}/"
        tab.open("about:blank")


def rows(tab: Tab) -> list[str]:
    found: list[str] = tab.evaluate("[...document.querySelectorAll('tbody th a')].map((each) => each.textContent)")
    return found


def test_an_empty_cluster_says_what_to_do(tab: Tab) -> None:
    """No workload, no node; no error either."""
    with opened(tab, shown(snapshot(nodes=()))) as url:
        tab.shows("There are no nodes.")
        tab.shows("No pod has served yet.")
        tab.open(f"{url}#/workloads")
        tab.shows("kubectl label namespace")
        assert tab.complaints == []


def test_thousands_of_workloads_are_shown_a_hundred_at_a_time(tab: Tab) -> None:
    """Filtered and sorted by the server; what is drawn does not grow with the cluster."""
    many = snapshot(*(deployment(f"w{number:04}", ("od-a", "spot-a", "spot-b")) for number in range(2000)))
    with opened(tab, shown(many), "#/workloads"):
        tab.shows("1–100 of 2,000")
        assert len(rows(tab)) == 100
        assert tab.evaluate("document.querySelectorAll('*').length") < 3500
        tab.evaluate("[...document.querySelectorAll('button')].find((each) => each.textContent === 'Next').click()")
        tab.shows("101–200 of 2,000")
        tab.evaluate("document.querySelector('[data-key=name]').click()")
        tab.waits("document.querySelector('tbody th')?.textContent === 'shop/w1999'")
        assert tab.evaluate("document.querySelector('th[aria-sort=descending]').textContent") == "Workload"
        tab.evaluate("const q = document.getElementById('q'); q.value = 'w001'; q.dispatchEvent(new Event('input'))")
        tab.shows("1–10 of 10 (2,000 in all)")
        tab.screenshot("thousands")
        assert tab.complaints == []


def test_it_says_how_much_the_data_is_worth(tab: Tab) -> None:
    """Old, not synced, not the leader, no answer: in words, not by a colour alone."""
    page = shown()
    with opened(tab, page):
        tab.shows("Live")
        page.is_leading = False
        tab.shows("Live, not the leader")
        page.is_synced = False
        tab.shows("Not synced")
        page.is_synced = True
        page.now += 25
        tab.shows("Old data")
        assert tab.complaints == []
    assert page.viewer.view() is not None


def test_a_token_is_asked_for_once(tab: Tab, tmp_path: Path) -> None:
    """In a dialog, which Escape does not close; then the page goes on by itself. The overview asks twice at once."""
    file = tmp_path / "token"
    file.write_text("secret")
    is_open = "document.getElementById('door')?.open"
    with opened(tab, shown(guard=with_token(file))):
        tab.waits(is_open)
        for _ in range(2):
            tab.press("Escape")
        tab.waits(f"{is_open} && sessionStorage.getItem('spotweave-token') === null")
        for wrong_or_right in ("wrong", "secret"):
            tab.waits("document.activeElement.id === 'token'")
            tab.types(wrong_or_right)
            tab.evaluate("document.querySelector('#door button').click()")
            if wrong_or_right == "wrong":
                tab.shows("That one is not taken.")
        tab.waits("document.querySelector('tbody tr')")
        tab.shows("Live")
        tab.shows("shop/web")
        assert not tab.evaluate(is_open)
        assert tab.evaluate("sessionStorage.getItem('spotweave-token')") == "secret"


def test_the_keyboard_reaches_everything_and_keeps_its_place(tab: Tab) -> None:
    """The first stop skips to the content; focus on a link stays there while data comes in."""
    page = shown()
    with opened(tab, page):
        tab.waits("document.querySelector('tbody a')")
        tab.press("Tab")
        assert tab.evaluate("document.activeElement.textContent") == "Skip to content"
        tab.evaluate("document.querySelector('#s-most-exposed-workloads + div a').focus()")
        focused = tab.evaluate("document.activeElement.getAttribute('href')")
        page.sees(snapshot(deployment("more", ["spot-a", "spot-a"], min_available="2")))
        page.now += 2
        page.passes()
        tab.shows("shop/more")
        assert tab.evaluate("document.activeElement.getAttribute('href')") == focused


def test_the_theme_follows_the_system_until_somebody_chooses(tab: Tab) -> None:
    """Auto, light, dark."""
    with opened(tab, shown()):
        tab.waits("document.styleSheets.length && document.querySelector('tbody tr')")
        assert tab.evaluate("document.getElementById('theme').textContent") == "Theme: auto"
        paper = "getComputedStyle(document.body).backgroundColor"
        light = tab.evaluate(paper)
        tab.looks("dark")
        dark = tab.evaluate(paper)
        assert light != dark
        tab.evaluate("document.getElementById('theme').click()")
        assert tab.evaluate(paper) == light
        tab.evaluate("document.getElementById('theme').click()")
        assert tab.evaluate(paper) == dark
        tab.evaluate("document.getElementById('theme').click()")


@pytest.mark.parametrize("path", ["", "#/workloads", "#/workloads/shop/Deployment/web", "#/drill?zone=a"])
def test_a_phone_shows_it_without_scrolling_sideways(tab: Tab, path: str) -> None:
    """Tables scroll in their own frames."""
    with opened(tab, shown(), path):
        tab.looks(size=PHONE)
        tab.waits("document.querySelector('tbody tr')")
        assert tab.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [390, 390]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["", "#/workloads", "#/workloads/shop/Deployment/web", "#/drill?zone=a"])
def test_axe_finds_no_serious_problem(tab: Tab, path: str, scheme: str) -> None:
    """Names, roles, contrast, table headers, landmarks; by what most auditors use."""
    script = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text()
    with opened(tab, shown(), path):
        tab.looks(scheme)
        tab.waits("document.querySelector('tbody tr')")
        tab.evaluate(f"{script}; 0")
        found = tab.evaluate(
            "axe.run().then((told) => told.violations.map((each) => [each.impact, each.id, "
            "each.nodes.map((node) => node.html.slice(0, 150))]))"
        )
        assert [each for each in found if each[0] in ("serious", "critical")] == []


def test_names_from_the_cluster_are_never_markup(tab: Tab) -> None:
    """Whatever somebody wrote into an annotation."""
    evil = deployment("web", ["spot-a"], spot_ratio="<img src=x onerror=alert(1)>")
    with opened(tab, shown(snapshot(evil)), "#/workloads/shop/Deployment/web"):
        tab.shows("<img src=x onerror=alert(1)>")
        assert tab.evaluate("document.querySelectorAll('main img').length") == 0
        assert tab.complaints == []
