"""What a rollout needs beforehand."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.model import Kind, Rollout, Workload
from placement.policy import Policy, surge
from placement.slots import Mix
from report.rollout import rollout_need
from tests.builders.model import workload
from tests.placement.invariants import many, ratios

WEB = workload()


def rolled(replicas: int = 10, **rollout: int | str | bool) -> Workload:
    return replace(WEB, replicas=replicas, rollout=Rollout(**rollout))  # type: ignore[arg-type]


NEEDS: dict[str, tuple[Policy, Workload, Mix]] = {
    "70 % of 10 with a surge of 3: on-demand goes from 3 to 5, spot from 7 to 9": (Policy(), rolled(), Mix(2, 2)),
    "no surge: a new on-demand slot before the old one leaves": (
        Policy(),
        rolled(max_surge=0, max_unavailable=1),
        Mix(0, 1),
    ),
    "a surge of 1: 4 new and 7 old are 2 + 3 on on-demand": (Policy(), rolled(max_surge=1), Mix(0, 2)),
    "a surge of all": (Policy(), rolled(max_surge="100%"), Mix(7, 3)),
    "more than all: there are never more than old and new": (Policy(), rolled(max_surge="1000%"), Mix(7, 3)),
    "a single replica": (Policy(), rolled(1), Mix(0, 1)),
    "two": (Policy(), rolled(2), Mix(0, 1)),
    "a floor of 4 is each revision's: 4 new and 9 old are 4 + 4": (Policy(min_on_demand=4), rolled(), Mix(0, 4)),
    "all on on-demand": (Policy(spot_ratio=Fraction(0)), rolled(), Mix(0, 3)),
    "all on spot": (Policy(spot_ratio=Fraction(1), min_on_demand=0), rolled(), Mix(3, 0)),
    "none": (Policy(), rolled(0), Mix()),
    "Recreate replaces pods in their places": (Policy(), rolled(recreate=True), Mix()),
    "and so does a StatefulSet": (Policy(), replace(WEB, kind=Kind.STATEFUL_SET), Mix()),
    "replicas that somebody mistyped": (Policy(), rolled(2_000_000_000, max_surge=1), Mix(0, 2)),
}


@pytest.mark.parametrize(("policy", "workload", "expected"), NEEDS.values(), ids=NEEDS.keys())
def test_how_many_places_a_rollout_needs(policy: Policy, workload: Workload, expected: Mix) -> None:
    """Above what it has, by class."""
    assert rollout_need(policy, workload) == expected


@many
@given(ratios, st.integers(0, 5), st.integers(0, 40), st.integers(0, 40), st.data())
def test_no_moment_of_a_rollout_takes_more(
    ratio: Fraction, floor: int, replicas: int, max_surge: int, data: st.DataObject
) -> None:
    """However many pods are old and new, as long as they are not more than replicas and surge."""
    policy, workload = Policy(ratio, floor), rolled(replicas, max_surge=max_surge)
    new = data.draw(st.integers(0, replicas))
    old = data.draw(st.integers(0, min(replicas, replicas + max_surge - new)))
    peak = policy.slots.mix(replicas) + rollout_need(policy, workload)
    now = policy.slots.mix(new) + policy.slots.mix(old)
    assert now.spot <= peak.spot
    assert now.on_demand <= peak.on_demand


SURGES = {
    "a count": (Rollout(max_surge=3), 10, 3),
    "a share is rounded up": (Rollout(max_surge="25%"), 10, 3),
    "an exact share": (Rollout(max_surge="20%"), 10, 2),
    "none": (Rollout(max_surge=0), 10, 0),
}


@pytest.mark.parametrize(("rollout", "replicas", "expected"), SURGES.values(), ids=SURGES.keys())
def test_a_surge_is_read_as_kubernetes_reads_it(rollout: Rollout, replicas: int, expected: int) -> None:
    """Rounded up, where maxUnavailable is rounded down."""
    assert surge(rollout, replicas) == expected
