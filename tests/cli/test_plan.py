"""What `spotweave plan` shows to people."""

from __future__ import annotations

from io import StringIO
from urllib.parse import quote

from rich.console import Console

from cli import outage, plan
from placement.model import Class, Kind, Pod, Workload
from placement.outage import Evidence, Outage, Outages, Shape
from placement.plan.actions import Action, How, Plan, Why
from tests.cli.printed import printed
from tests.dashboard.boards import SHOP, shown
from tests.placement.plans import NOW

FOREVER = 4e9


def test_the_actions_fit_eighty_columns_however_long_names_are() -> None:
    """What is too long is folded, and nothing is cut off."""
    pod = Pod("a-namespace-with-a-long-name", "a-deployment-with-a-long-name-7c5ddbdf54-x8k2p", "p")
    workload = Workload(Kind.DEPLOYMENT, pod.namespace, "a-deployment-with-a-long-name", "d", 3)
    action = Action(How.RELEASE, Why.RATIO, workload, pod, origin=Class.ON_DEMAND, to=Class.SPOT)
    out = StringIO()
    Console(file=out, width=80).print(plan._actions_table(Plan(actions=(action,))))
    lines = out.getvalue().splitlines()
    assert max(len(line.rstrip()) for line in lines) <= 80
    first = "".join(line.split()[0] for line in lines[1:])
    assert first == str(pod.key)
    for word in (str(How.RELEASE), str(Why.RATIO), "on-demand", "spot"):
        assert word in lines[1]


def test_outages_fit_eighty_columns() -> None:
    """With zones and shape; the pod that is its evidence is named."""
    zones = frozenset({"eu-central-1a", "eu-central-1b", "eu-central-1c"})
    evidence = Evidence("shop/web-4", "Deployment shop/web")
    out = Outage(Class.SPOT, FOREVER, zones, Shape(4000, 8192), by="rebalancer", namespace="shop", evidence=evidence)
    known = Outages(3, (out,))
    text = printed(outage.as_table(known), 80)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert zones <= set(text.replace(",", " ").split())
    assert "evidence: pod shop/web-4 of Deployment shop/web" in text


def test_another_ratio_is_answered_as_the_dashboard_answers_it() -> None:
    """Mix, moves, exposure and savings, now and then."""
    picture = plan.with_settings(plan.Picture(SHOP, now=NOW), "shop/web", ["spot-ratio=30%"])
    made = plan.planned(picture)
    (web,) = [each for each in made.index.assessments.values() if each.group.workload.name == "web"]
    (told,) = plan.workloads_json(plan.view_of(made, picture), [web])
    answer = shown().get(f"drill?workload=shop/Deployment/web&ratio={quote('30%')}")
    assert told == {key: answer[key] for key in told}
    assert set(told) >= {"exposureAfter", "savings", "savingsAfter", "unplaced"}
    text = printed(plan.workloads_table([told]), 80)
    assert [line.split() for line in text.splitlines()[2:]] == [
        ["shop/web", "now", "6+4", "2", "not", "survived", "61%"],
        ["then", "3+7", "2", "survived", "80%", "3"],
    ]
    assert plan.prices_line([told]) == "COST is relative to all on-demand; spot prices: default 0.35"


def test_a_question_about_long_names_fits_eighty_columns() -> None:
    """They are folded."""
    picture = plan.with_settings(plan.Picture(SHOP, now=NOW), "shop/web", ["spot-ratio=30%"])
    made = plan.planned(picture)
    told = plan.workloads_json(plan.view_of(made, picture), [*made.index.assessments.values()])
    long = [{**each, "namespace": "a-namespace-with-a-long-name", "name": f"{each['name']}-" * 9} for each in told]
    text = printed(plan.workloads_table(long), 80)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert text.count("then") == 2
