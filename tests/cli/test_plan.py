"""What `spotweave plan` shows to people."""

from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from cli import outage, plan
from placement.model import Class, Kind, Pod, Workload
from placement.outage import Outage, Outages, Shape
from placement.plan.actions import Action, How, Plan, Why

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


def test_outages_fit_eighty_columns(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """With zones and shape."""
    monkeypatch.setenv("COLUMNS", "80")
    zones = frozenset({"eu-central-1a", "eu-central-1b", "eu-central-1c"})
    outage._print(Outages(3, (Outage(Class.SPOT, FOREVER, zones, Shape(4000, 8192), by="rebalancer"),)))
    text = capsys.readouterr().out
    assert max(len(line.rstrip()) for line in text.splitlines()) <= 80
    assert zones <= set(text.replace(",", " ").split())
