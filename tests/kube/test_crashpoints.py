"""Deaths on purpose: at the right call, on the right side of it, and never by a typing error."""

from __future__ import annotations

import pytest

from kube.crashpoints import VARIABLE, Call, Fault, Faults, Moment, parse_fault
from kube.errors import NotFound
from placement.configuration import ConfigurationError
from tests.kube.sigkill import Died, die

BAD = ["x", "before", "before:evict", "before:evict:", "before:evict:0", "before:evict:-1", "before:evict:1.5"]
BAD += [
    "during:evict:1",
    "after:sleep:1",
    "after:evict:1:2",
    "after:evict:٣",
    "after:evict:1234567890",
    "Before:evict:1",
]


@pytest.mark.parametrize("text", BAD)
def test_a_typing_error_is_told(text: str) -> None:
    """A test that waits for a death that never comes would pass for the wrong reason."""
    with pytest.raises(ConfigurationError) as caught:
        Faults.told_by({VARIABLE: text})
    calls = "annotate|evict|delete|fail|reserve|unreserve|start|ungate|suspend|outage|lease|any"
    assert f"{VARIABLE}: expected before|after:{calls}:N" in caught.value.mistakes[0]
    assert repr(text) in caught.value.mistakes[0]


@pytest.mark.parametrize("call", [*Call, "any"])
def test_every_call_can_be_named(call: str) -> None:
    """And any of them."""
    assert parse_fault(f"after:{call}:12") == Fault(Moment.AFTER, call, 12)


def record(faults: Faults, calls: list[Call]) -> list[str]:
    """The requests that were sent before the process died."""
    sent: list[str] = []
    try:
        for call in calls:
            with faults.around(call):
                sent.append(call)
    except Died:
        sent.append("died")
    return sent


CALLS = [Call.ANNOTATE, Call.EVICT, Call.ANNOTATE, Call.EVICT]
DEATHS: dict[str, list[str]] = {
    "before:evict:1": ["annotate", "died"],
    "after:evict:1": ["annotate", "evict", "died"],
    "before:evict:2": ["annotate", "evict", "annotate", "died"],
    "after:any:3": ["annotate", "evict", "annotate", "died"],
    "after:delete:1": ["annotate", "evict", "annotate", "evict"],
}


@pytest.mark.parametrize(("text", "sent"), DEATHS.items(), ids=DEATHS.keys())
def test_it_dies_at_the_call_that_was_named(text: str, sent: list[str]) -> None:
    """Before: the request is not sent. After: it is."""
    assert record(Faults(parse_fault(text), die), CALLS) == sent


def test_without_the_variable_nobody_dies() -> None:
    """As in every real cluster."""
    assert record(Faults.told_by({}), CALLS) == [str(call) for call in CALLS]


def test_an_error_is_an_answer_too() -> None:
    """It dies after a call that was refused, before anybody could act on the refusal."""
    with pytest.raises(Died), Faults(parse_fault("after:evict:1"), die).around(Call.EVICT):
        raise NotFound("POST /x", 404, "NotFound", "")
