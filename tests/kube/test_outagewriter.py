"""Outages are noted, and waited for, but not for long."""

from __future__ import annotations

import json
import time

import pytest

from kube.client import Client
from kube.errors import Unreachable
from kube.outagewriter import READ_SECONDS, Notes
from placement.model import Class
from placement.outage import Outage
from tests.builders.api import status
from tests.kube.scripted import Answer, Script
from tests.timing import timed, within

SPOT = Outage(Class.SPOT, 0.0)
LATE_SECONDS = 5.0  # for an answer
NO_STATE = Answer(status(404, "NotFound"), status=404)


def leases(*versions: int) -> bytes:
    renewed = time.strftime("%Y-%m-%dT%H:%M:%S.000000Z", time.gmtime())
    items = [
        {
            "metadata": {"name": f"w{index}", "annotations": {"spotweave.dev/outage-version": str(version)}},
            "spec": {"renewTime": renewed},
        }
        for index, version in enumerate(versions)
    ]
    return json.dumps({"items": items}).encode()


def noting(client: Client) -> float:
    began = time.monotonic()
    Notes(client, call_seconds=0.3).note([SPOT])
    return time.monotonic() - began


def test_it_goes_on_as_soon_as_every_webhook_has_read_it(script: Script, client: Client) -> None:
    """Its time does not pass: it waits for nothing else."""
    script.answer(NO_STATE, b"{}", leases(0, 1), leases(1, 1))
    Notes(client, timer=lambda: 0.0).note([SPOT])
    assert script.lists.empty()


def test_a_list_of_webhooks_that_does_not_come_is_waited_for_a_second_at_most(script: Script, client: Client) -> None:
    """Pods whose machine is gone wait meanwhile."""
    script.answer(NO_STATE, b"{}", Answer(leases(0), delay_seconds=LATE_SECONDS))
    assert noting(client) < LATE_SECONDS


def test_a_machine_that_stands_still_for_a_second_asks_no_webhook(
    script: Script, client: Client, caplog: pytest.LogCaptureFixture
) -> None:
    """The outage is noted, and the pass goes on."""
    script.answer(NO_STATE, b"{}")
    times = iter((0.0, 2 * READ_SECONDS))
    Notes(client, timer=lambda: next(times)).note([SPOT])
    assert "was not read within 1 s by ['any webhook']" in caplog.text


@timed
@pytest.mark.parametrize("answers", [0, 1], ids=["reading", "writing"])
def test_nor_is_the_note_itself_waited_for(script: Script, client: Client, answers: int) -> None:
    """The pass fails, and is made again."""
    script.answer(*[NO_STATE][:answers], Answer(b"{}", delay_seconds=LATE_SECONDS))
    began = time.monotonic()
    with pytest.raises(Unreachable):
        noting(client)
    within("it gives up", time.monotonic() - began, 2.0)
