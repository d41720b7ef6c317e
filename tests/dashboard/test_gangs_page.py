"""The page's gangs in a real browser, light and dark, on a desk and on a phone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from placement.model import Snapshot
from tests.builders.model import namespace
from tests.dashboard.browser import DESKTOP, PHONE, Tab, browsing
from tests.dashboard.dashboardharness import dashboard_of
from tests.dashboard.gangfixture import NODES, gang_dashboard, of_gang
from tests.dashboard.test_page import opened, problems

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browsing() as page:
        yield page


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["", "#/gangs", "#/gangs/shop/urgent", "#/gangs/shop/train"])
def test_axe_is_content_and_nothing_is_wider_than_the_screen(tab: Tab, path: str, scheme: str) -> None:
    """Overview, all gangs, and one of them; screenshots are in out/dashboard."""
    with opened(tab, gang_dashboard(), path):
        for word, size in (("desktop", DESKTOP), ("phone", PHONE)):
            tab.looks(scheme, size)
            tab.waits("document.querySelector('tbody tr')")
            assert problems(tab) == []
            assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
            tab.screenshot(f"gangs-{path.rpartition('/')[2] or 'overview'}-{scheme}-{word}")
        assert tab.complaints == []


def test_a_gang_is_a_click_away_and_explains_itself(tab: Tab) -> None:
    """From the overview to the gang: its members, who makes room, and why it waits."""
    with opened(tab, gang_dashboard()):
        tab.shows("5 gangs: 1 Blocked, 1 Waiting, 1 Evicting, 2 Running.")
        tab.shows("1 gang beyond the wait-timeout.")
        tab.evaluate("[...document.querySelectorAll('a')].find((each) => each.textContent === 'shop/urgent').click()")
        tab.shows("Pods that make room (4)")
        tab.shows("shop/low-0 of gang low on od-1")
        tab.shows("kept on od-1")
        tab.evaluate("[...document.querySelectorAll('nav a')].find((each) => each.textContent === 'Gangs').click()")
        tab.shows("1–5 of 5")
        tab.evaluate(
            "const s = document.getElementById('only'); s.value = 'Blocked'; s.dispatchEvent(new Event('change'))"
        )
        tab.shows("1–1 of 1")
        tab.evaluate("[...document.querySelectorAll('tbody a')][0].click()")
        tab.shows("ForeignGate")
        tab.shows("kueue.x-k8s.io/admission")
        assert tab.complaints == []


def test_thousands_of_gangs_are_shown_a_hundred_at_a_time(tab: Tab) -> None:
    """What is drawn does not grow with the queue."""
    many = [pod for number in range(1500) for pod in of_gang(f"g{number:04}", 1)]
    with opened(tab, gang_dashboard(Snapshot({"shop": namespace()}, NODES, pods=tuple(many))), "#/gangs"):
        tab.shows("1–100 of 1,500")
        assert tab.evaluate("document.querySelectorAll('*').length") < 2500
        tab.evaluate("[...document.querySelectorAll('button')].find((each) => each.textContent === 'Next').click()")
        tab.shows("101–200 of 1,500")
        assert tab.complaints == []


def test_where_gangs_are_off_the_page_says_so(tab: Tab) -> None:
    """Nobody wonders why the list is empty."""
    with opened(tab, dashboard_of()) as url:
        tab.shows("Gangs are switched off")
        tab.open(f"{url}#/gangs")
        tab.shows("Gangs are switched off")
        assert tab.complaints == []
