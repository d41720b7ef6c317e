"""What `spotweave plan` shows to people."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any
from urllib.parse import quote

from rich.console import Console

from cli import outage, plan
from placement.model import Class, Kind, Pod, Workload
from placement.outage import Evidence, Outage, Outages, Shape
from placement.plan.actions import Action, How, Plan, Why
from report.foretold import prices_line, workload_json, workloads_table
from tests.builders.model import NOW
from tests.builders.snapshots import SHOP
from tests.cli.printed import printed
from tests.dashboard.dashboardharness import dashboard_of

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


def answered(picture: plan.Picture, *workloads: str) -> list[dict[str, Any]]:
    made, rest = plan.planned(picture), plan.foretold(picture)
    now, then = plan.view_of(made, picture), plan.view_of(replace(made, index=rest.index), picture)
    endings = (each for each in rest.endings.values() if each.assessment.group.workload.name in workloads)
    return [workload_json(now, then, each) for each in endings]


def test_another_ratio_is_answered_as_the_dashboard_answers_it() -> None:
    """Mix, moves, exposure and savings, now and then. The dashboard estimates what the plan is run forward for."""
    picture = plan.with_settings(plan.Picture(SHOP, now=NOW), "shop/web", ["spot-ratio=30%"])
    (told,) = answered(picture, "web")
    answer = dashboard_of().get(f"drill?workload=shop/Deployment/web&ratio={quote('30%')}")
    for key in ("wanted", "actual", "then", "moves", "blocked", "exposure", "savings", "savingsAfter", "unplaced"):
        assert told[key] == answer[key], key
    text = printed(workloads_table([told]), 80)
    assert [line.split() for line in text.splitlines()[2:]] == [
        ["shop/web", "now", "6+4", "2", "not", "survived", "61%"],
        ["then", "3+7", "2", "survived", "80%", "3"],
    ]
    assert prices_line([told]) == "COST is relative to all on-demand; spot prices: default 0.35"


def test_a_question_about_long_names_fits_eighty_columns() -> None:
    """They are folded."""
    picture = plan.with_settings(plan.Picture(SHOP, now=NOW), "shop/web", ["spot-ratio=30%"])
    told = answered(picture, "web", "one")
    long = [{**each, "namespace": "a-namespace-with-a-long-name", "name": f"{each['name']}-" * 9} for each in told]
    text = printed(workloads_table(long), 80)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert text.count("then") == len(told) > 1
