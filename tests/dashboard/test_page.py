"""The page in a real browser, over snapshots made by hand: thousands of workloads, none, no answer, a token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import axe_core_python
import pytest

from dashboard.server import serving_page
from placement import names
from placement.eviction import EvictionAsked
from placement.model import Class, Owner, Pod, ReplicaSet
from placement.outage import Outage, Outages
from placement.pause import Pause
from tests.builders.model import NOW
from tests.builders.snapshots import NODES, SHOP, deployment, snapshot
from tests.dashboard.browser import DESKTOP, PHONE, Tab, browsing
from tests.dashboard.dashboardharness import DashboardHarness, dashboard_of, drained, with_token, without

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def tab() -> Iterator[Tab]:
    with browsing() as page:
        yield page


@contextmanager
def opened(tab: Tab, page: DashboardHarness, path: str = "") -> Iterator[str]:
    """Where it is served."""
    with serving_page(page.cache, page.guard, "127.0.0.1:0") as port:
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
    with opened(tab, dashboard_of(snapshot(nodes=()))) as url:
        tab.shows("The cluster has no nodes.")
        tab.shows("No pod has been ready yet.")
        tab.open(f"{url}#/workloads")
        tab.shows("kubectl label namespace")
        assert tab.complaints == []


def test_pods_that_are_not_placed_are_shown_with_the_reason(tab: Tab) -> None:
    """One row for each namespace and reason; where there are none, that is said."""
    rollout = ReplicaSet("shop", "ui-1", "ui", Owner("Rollout", "ui", "ui-rollout", "argoproj.io"), 3)
    pods = tuple(Pod("shop", f"ui-{number}", f"ui-{number}", Owner("ReplicaSet", "ui-1", "ui")) for number in range(3))
    seen = replace(SHOP, replica_sets=(*SHOP.replica_sets, rollout), pods=(*SHOP.pods, *pods))
    with opened(tab, dashboard_of(seen)):
        tab.shows("Not placed")
        tab.shows("owned by an Argo Rollout")
        tab.screenshot("not-placed")
        assert tab.complaints == []
    with opened(tab, dashboard_of()):
        tab.shows("Every pod of the opted-in namespaces is placed.")


def test_held_evictions_are_shown(tab: Tab) -> None:
    """On the overview and on the workload's page: which pod, and who asked."""
    made, revision, pods = deployment("web", ("od-a", "spot-a", "spot-b"))
    note = {names.EVICTION_ASKED: EvictionAsked(NOW - 1, "alice").text()}
    asked = replace(pods[1], annotations={**pods[1].annotations, **note})
    with opened(tab, dashboard_of(snapshot((made, revision, [pods[0], asked, pods[2]])))) as url:
        tab.shows("Evictions held (1)")
        tab.shows("at the latest; asked for by alice")
        tab.open(f"{url}#/workloads/shop/Deployment/web")
        tab.shows("Evictions held")
        tab.shows("at the latest; asked for by alice")
        assert tab.complaints == []


def test_thousands_of_workloads_are_shown_a_hundred_at_a_time(tab: Tab) -> None:
    """Filtered and sorted by the server; what is drawn does not grow with the cluster."""
    many = snapshot(*(deployment(f"w{number:04}", ("od-a", "spot-a", "spot-b")) for number in range(2000)))
    with opened(tab, dashboard_of(many), "#/workloads"):
        tab.shows("1–100 of 2,000")
        assert len(rows(tab)) == 100
        assert tab.evaluate("document.querySelectorAll('*').length") < 3500
        tab.evaluate("[...document.querySelectorAll('button')].find((each) => each.textContent === 'Next').click()")
        tab.shows("101–200 of 2,000")
        tab.evaluate("document.querySelector('[data-key=name]').click()")
        tab.waits("document.querySelector('tbody th')?.textContent === 'shop/w1999'")
        assert tab.evaluate("document.querySelector('th[aria-sort=descending]').textContent") == "Workload"
        tab.evaluate("const q = document.getElementById('q'); q.value = 'w001'; q.dispatchEvent(new Event('input'))")
        tab.shows("1–10 of 10 (2,000 in total)")
        tab.screenshot("thousands")
        assert tab.complaints == []


def test_the_overview_of_thousands_is_no_larger_than_that_of_a_few(tab: Tab) -> None:
    """Ten of the exposed are drawn, and how many there are; the rest is a link away."""
    many = snapshot(*(deployment(f"w{number:04}", ("od-a", "spot-a", "spot-b")) for number in range(2000)))
    with opened(tab, dashboard_of(many)):
        tab.shows("2,000 of 2,000")
        tab.shows("All 2,000 exposed workloads")
        assert tab.evaluate("document.querySelectorAll('*').length") < 600
        tab.evaluate("[...document.querySelectorAll('a')].find((each) => each.textContent.startsWith('All')).click()")
        tab.shows("1–100 of 2,000")
        assert tab.complaints == []


def test_a_count_leads_to_the_workloads_that_were_counted(tab: Tab) -> None:
    """Those with a declared minimum from one column, those with an assumed one from the other."""
    with opened(tab, dashboard_of()) as url:
        for minimum, name in (("declared", "shop/web"), ("assumed", "shop/one")):
            tab.open(url)
            tab.waits(f"document.querySelector('a[href=\"#/workloads?only=node&minimum={minimum}\"]')")
            tab.evaluate(f"document.querySelector('a[href=\"#/workloads?only=node&minimum={minimum}\"]').click()")
            tab.shows("1–1 of 1 (2 in total)")
            assert rows(tab) == [name]
            tab.evaluate("location.hash = '#/'")


def cells(tab: Tab, caption: str) -> list[list[str]]:
    """What a table shows, row by row."""
    found: list[list[str]] = tab.evaluate(
        f"[...document.querySelectorAll('[aria-label=\"{caption}\"] tbody tr')]"
        ".map((row) => [...row.children].map((cell) => cell.innerText.trim()))"
    )
    return found


@pytest.mark.parametrize(
    ("domain", "name", "asked"),
    [("node", "spot-a", "node=spot-a"), ("pool", "b/m", "pool=b/m"), ("zone", "b", "zone=b"), ("spot", "", "spot=1")],
)
def test_a_drill_is_operated_and_tells_what_the_api_tells(tab: Tab, domain: str, name: str, asked: str) -> None:
    """What goes is chosen, and named where there are several; every number is compared."""
    page = dashboard_of()
    with opened(tab, page, "#/drill"):
        tab.shows("would be lost")
        tab.evaluate(f"document.querySelector('input[value={domain}]').click()")
        if name:
            tab.evaluate("document.getElementById('what').select(); document.getElementById('what').focus()")
            tab.types(name)
            tab.press("Enter")
            tab.waits(f"decodeURIComponent(location.hash) === '#/drill?{asked}'")
        told = page.get(f"drill?{asked}")
        below = sum(told["fallBelow"].values())
        tab.shows(f"{told['nodes']} node{'s' * (told['nodes'] != 1)} and {told['replicas']} replica")
        tab.shows(
            f"{below} workload{'s' * (below != 1)} would fall below"
            if below
            else "All workloads would keep their minimum."
        )
        tab.shows("by resource requests")
        shown_losses = [row[:4] for row in cells(tab, "What each workload would lose")]
        assert shown_losses == [
            [f"shop/{each['name']}", str(each["lost"]), str(each["left"]), f"{each['needed']}{'*' * each['assumed']}"]
            for each in told["losses"]
        ]
        assert tab.complaints == []


def test_a_ratio_is_tried_on_the_page(tab: Tab) -> None:
    """A workload and a ratio are typed: moves, mix, cost and exposure are those of the API. Nonsense is explained."""
    page = dashboard_of()
    with opened(tab, page, "#/drill"):
        tab.shows("Choose a workload")
        for field, text in (("who", "shop/Deployment/web"), ("ratio", "30%")):
            tab.evaluate(f"document.getElementById('{field}').select(); document.getElementById('{field}').focus()")
            tab.types(text)
            tab.press("Enter")
        tab.shows("At 30%: 3 moves.")
        told = page.get("drill?workload=shop/Deployment/web&ratio=30%25")
        now, then = told["exposure"], told["exposureAfter"]
        found = {row[0]: row[1:] for row in cells(tab, "Now and with the new ratio")}
        assert found["Wanted mix (spot + on-demand)"] == ["6 + 4", "3 + 7"]
        assert found["Headroom"] == [str(now["headroom"]), str(then["headroom"])]
        cost = [f"{int(100 * told[when]['cost'] + 0.5)} %" for when in ("savings", "savingsAfter")]
        assert found["Cost relative to all on-demand"] == cost
        tab.shows("An estimate, priced at the default 0.35")
        for domain, text in (("node", "A node"), ("pool", "A spot pool"), ("zone", "A zone"), ("spot", "All spot")):
            numbers = [cell.removesuffix(" (too many)") for cell in found[f"{text}: replicas lost"]]
            assert numbers == [str(each["blastRadius"][domain]) for each in (now, then)]
            survived = [not cell.endswith("(too many)") for cell in found[f"{text}: replicas lost"]]
            assert survived == [each["survives"][domain] for each in (now, then)]
        tab.shows("annotate deployment/web spotweave.dev/spot-ratio=30% --overwrite")
        assert tab.complaints == []
        tab.evaluate("document.getElementById('ratio').select(); document.getElementById('ratio').focus()")
        tab.types("30")
        tab.press("Enter")
        tab.shows("expected a percentage")


def test_silence_is_told_and_so_is_its_end(tab: Tab) -> None:
    """The network is gone for a while: what is shown stays, and is said to be old."""
    with opened(tab, dashboard_of()):
        tab.shows("Live")
        offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        tab.call("Network.emulateNetworkConditions", offline=True, **offline)
        tab.shows("No answer")
        tab.shows("shop/web")
        tab.call("Network.emulateNetworkConditions", offline=False, **offline)
        tab.shows("Live")
        assert "No answer" not in tab.text()


def test_it_says_how_much_the_data_is_worth(tab: Tab) -> None:
    """Old, not synced, not the leader, no answer: in words, not by a colour alone."""
    page = dashboard_of()
    with opened(tab, page):
        tab.shows("Live")
        page.is_leading = False
        page.now += 1
        tab.shows("Live, not the leader")
        page.is_synced = False
        page.now += 1
        tab.shows("Not synced")
        page.is_synced = True
        page.now += 25
        tab.shows("Old data")
        assert tab.complaints == []
    assert page.viewer.view() is not None


def test_a_token_is_asked_for_once(tab: Tab, tmp_path: Path) -> None:
    """In a dialog, which Escape does not close; then the page goes on by itself."""
    file = tmp_path / "token"
    file.write_text("secret")
    is_open = "document.getElementById('door')?.open"
    with opened(tab, dashboard_of(guard=with_token(file))):
        tab.waits(is_open)
        for _ in range(2):
            tab.press("Escape")
        tab.waits(f"{is_open} && sessionStorage.getItem('spotweave-token') === null")
        for wrong_or_right in ("wrong", "secret"):
            tab.waits("document.activeElement.id === 'token'")
            tab.types(wrong_or_right)
            tab.evaluate("document.querySelector('#door button').click()")
            if wrong_or_right == "wrong":
                tab.shows("This token is not valid.")
        tab.waits("document.querySelector('tbody tr')")
        tab.shows("Live")
        tab.shows("shop/web")
        assert not tab.evaluate(is_open)
        assert tab.evaluate("sessionStorage.getItem('spotweave-token')") == "secret"


def test_the_keyboard_reaches_everything_and_keeps_its_place(tab: Tab) -> None:
    """The first stop skips to the content; focus on a link stays there while data comes in."""
    page = dashboard_of()
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


@pytest.mark.parametrize("path", ["", "#/workloads", "#/workloads/shop/Deployment/web", "#/drill?zone=a"])
def test_the_keyboard_reaches_all_that_can_be_operated(tab: Tab, path: str) -> None:
    """Tab after Tab, once around: every link, button, field and scrolling frame that is seen."""
    mark = (
        "((each) => [each.tagName, each.id, each.name, each.value, each.getAttribute('href'), "
        "each.getAttribute('aria-label'), each.textContent.slice(0, 40)].join('|'))"
    )
    # Of radio buttons the chosen one is a stop; the arrows go on from there.
    operable = (
        "[...document.querySelectorAll('a[href], button, input, select, summary, [tabindex=\"0\"]')]"
        ".filter((each) => each.checkVisibility() && !each.disabled && !(each.type === 'radio' && !each.checked))"
    )
    with opened(tab, dashboard_of(), path):
        tab.waits("document.querySelector('tbody tr')")
        expected = set(tab.evaluate(f"{operable}.map({mark})"))
        assert len(expected) > 5
        reached: set[str] = set()
        for _ in range(3 * len(expected)):
            tab.press("Tab")
            reached.add(tab.evaluate(f"{mark}(document.activeElement)"))
        assert expected - reached == set()


def test_the_theme_follows_the_system_until_somebody_chooses(tab: Tab) -> None:
    """Auto, light, dark."""
    with opened(tab, dashboard_of()):
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
    with opened(tab, dashboard_of(), path):
        tab.looks(size=PHONE)
        tab.waits("document.querySelector('tbody tr')")
        assert tab.evaluate("[innerWidth, document.documentElement.scrollWidth]") == [390, 390]


def problems(tab: Tab) -> list[object]:
    """What axe-core finds that is serious: names, roles, contrast, table headers, landmarks."""
    script = (Path(axe_core_python.__file__).parent / "axe.min.js").read_text()
    tab.evaluate(f"{script}; 0")
    found: list[list[object]] = tab.evaluate(
        "axe.run().then((told) => told.violations.map((each) => [each.impact, each.id, "
        "each.nodes.map((node) => node.html.slice(0, 150))]))"
    )
    return [each for each in found if each[0] in ("serious", "critical")]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(
    "path",
    ["", "#/workloads", "#/workloads/shop/Deployment/web", "#/drill?zone=a&workload=shop/Deployment/web&ratio=30%"],
)
def test_axe_finds_no_serious_problem(tab: Tab, path: str, scheme: str) -> None:
    """On any page, on a desk or on a phone."""
    with opened(tab, dashboard_of(), path):
        for size in (DESKTOP, PHONE):
            tab.looks(scheme, size)
            tab.waits("document.querySelector('tbody tr')")
            assert problems(tab) == []


TROUBLE = snapshot(
    deployment("web", ("od-a", "spot-a", "spot-b", "gone"), min_available="4"),
    nodes=(*without(NODES, "spot-b"), drained("spot-b")),
)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_trouble_is_told_on_top(tab: Tab, scheme: str) -> None:
    """A pause with who and why, an outage with where, nodes that leave and nodes that are gone; and axe is content."""
    out = Outages(1, (Outage(Class.SPOT, NOW + 600, frozenset({"b"}), by="alice"),))
    page = dashboard_of(TROUBLE, pause=Pause(NOW, None, "bob", "black friday"), outages=out)
    with opened(tab, page):
        tab.shows("Paused by bob: black friday (until `spotweave resume`)")
        tab.shows("spot is out in b until")
        tab.shows("1 node gone: gone")
        tab.shows("1 node leaving: spot-b")
        for name, size in (("desktop", DESKTOP), ("phone", PHONE)):
            tab.looks(scheme, size)
            assert problems(tab) == []
            tab.screenshot(f"trouble-{scheme}-{name}")
        tab.looks(scheme)
        page.pause, page.outages = None, Outages()
        page.now += 2
        page.passes()
        tab.waits("!document.body.innerText.includes('black friday') && !document.body.innerText.includes('is out in')")
        assert tab.complaints == []


def test_the_door_is_no_obstacle(tab: Tab, tmp_path: Path) -> None:
    """The dialog that asks for a token, on a desk and on a phone, light and dark."""
    file = tmp_path / "token"
    file.write_text("secret")
    with opened(tab, dashboard_of(guard=with_token(file))):
        tab.waits("document.getElementById('door')?.open")
        for scheme in ("light", "dark"):
            for size in (DESKTOP, PHONE):
                tab.looks(scheme, size)
                assert problems(tab) == []
                tab.screenshot(f"door-{scheme}-{size[0]}")


def test_names_from_the_cluster_are_never_markup(tab: Tab) -> None:
    """Whatever somebody wrote into an annotation."""
    evil = deployment("web", ["spot-a"], spot_ratio="<img src=x onerror=alert(1)>")
    with opened(tab, dashboard_of(snapshot(evil)), "#/workloads/shop/Deployment/web"):
        tab.shows("<img src=x onerror=alert(1)>")
        assert tab.evaluate("document.querySelectorAll('main img').length") == 0
        assert tab.complaints == []
