"""`spot-ratio: auto`: as much spot as the availability target bears."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement import names
from placement.autoratio import Need, auto_ratio, ratio_at, settled, sizes
from placement.availability import Availability, Basis
from placement.model import Class, Kind, Rollout
from placement.observation import Observed, PoolRecord, Rates
from placement.policy import Amount, Limit, Policy, resolve
from placement.risk import Peril, risk
from placement.slots import Slots
from report.exposure import exposure
from tests.builders.model import budget, workload
from tests.builders.plan import site
from tests.placement.invariants import many

FOUR_NINES, THREE_NINES = Fraction(9999, 10_000), Fraction(999, 1000)
SIZES: dict[str, tuple[int, int, tuple[float, ...], Fraction, int]] = {
    "four pools, none may go: two in each": (10, 8, (1.0,) * 4, FOUR_NINES, 85),
    "a lower target bears them all": (10, 8, (1.0,) * 4, THREE_NINES, 95),
    "half as many pools, half as much": (10, 8, (1.0,) * 2, FOUR_NINES, 45),
    "one of three is rare enough: one pod more": (10, 8, (2.0, 2.0, 0.25), FOUR_NINES, 65),
    "all are rare enough": (10, 8, (0.125, 0.125), FOUR_NINES, 95),
    "all must serve": (10, 10, (1.0,) * 4, FOUR_NINES, 5),
    "twenty, all of which must serve": (20, 20, (1.0,) * 4, FOUR_NINES, 0),
    "a single replica is on on-demand by its floor": (1, 1, (1.0,), FOUR_NINES, 95),
    "none must serve": (10, 0, (1.0,), FOUR_NINES, 95),
    "no replicas": (0, 0, (1.0,), FOUR_NINES, 95),
}


@pytest.mark.parametrize(("replicas", "must_serve", "rates", "target", "expected"), SIZES.values(), ids=SIZES.keys())
def test_as_much_spot_as_the_target_bears(
    replicas: int, must_serve: int, rates: tuple[float, ...], target: Fraction, expected: int
) -> None:
    """In steps of 5 %, up to 95 %."""
    assert ratio_at(replicas, must_serve, 1, tuple(sorted(rates, reverse=True)), target) * 100 == expected


SHARE = Need(Kind.DEPLOYMENT, Rollout(), Amount(share=Fraction(3, 4)))


def test_an_autoscaler_changes_nothing_between_two_powers_of_two() -> None:
    """The most cautious answer over all of these sizes holds for each of them."""
    each = [ratio_at(size, SHARE.of(size), 1, (1.0, 1.0), FOUR_NINES) * 100 for size in range(8, 16)]
    assert each == [60, 55, 45, 45, 55, 50, 45, 45]
    assert {auto_ratio(size, SHARE, 1, (1.0, 1.0), FOUR_NINES) * 100 for size in range(8, 16)} == {45}


EIGHT = Need(Kind.DEPLOYMENT, Rollout(), Amount(8))
ALIKE: dict[str, tuple[Need, int, range]] = {
    "a share": (SHARE, 11, range(8, 16)),
    "a count": (EIGHT, 11, range(10, 12)),
    "a larger count": (EIGHT, 18, range(16, 20)),
    "a small one": (EIGHT, 7, range(7, 8)),
    "one": (SHARE, 1, range(1, 2)),
    "none": (SHARE, 0, range(1)),
    "a budget's count": (Need(Kind.DEPLOYMENT, Rollout(), None, ((None, 1),)), 9, range(8, 10)),
    "a budget's share": (Need(Kind.STATEFUL_SET, Rollout(), None, (("80%", None),)), 9, range(8, 16)),
    "two budgets": (Need(Kind.DEPLOYMENT, Rollout(), None, (("80%", None), (None, 1))), 9, range(8, 10)),
    "a rollout's share": (Need(Kind.DEPLOYMENT, Rollout(), None), 9, range(8, 16)),
    "a rollout's count": (Need(Kind.DEPLOYMENT, Rollout(max_unavailable=1), None), 9, range(8, 10)),
    "a StatefulSet's one": (Need(Kind.STATEFUL_SET, Rollout(), None), 9, range(8, 10)),
}


@pytest.mark.parametrize(("need", "replicas", "expected"), ALIKE.values(), ids=ALIKE.keys())
def test_sizes_that_count_as_one(need: Need, replicas: int, expected: range) -> None:
    """Wide ones where the answer hardly depends on the size, narrow ones where it does by nature."""
    assert sizes(replicas, need) == expected


def test_with_a_count_that_must_serve_spot_grows_with_the_size() -> None:
    """Eight must serve: what is more may be on spot, as much in each pool."""
    ratios = [auto_ratio(size, EIGHT, 1, (1.0, 1.0), FOUR_NINES) for size in range(8, 17)]
    assert [ratio * 100 for ratio in ratios] == [10, 10, 45, 45, 70, 70, 90, 90, 95]
    assert [Slots(ratio, 1).spot(size) for size, ratio in enumerate(ratios, 8)] == [0, 0, 4, 4, 8, 9, 12, 13, 15]


def test_budgets_tell_how_many_must_serve_at_every_size() -> None:
    """Where no annotation does; else the rollout."""
    policy = Policy(spot_ratio=None, availability_target=FOUR_NINES)
    rates = Rates(1, {"a/m5": 1.0, "b/m5": 1.0})
    web = workload()
    declared = budget(max_unavailable=1)
    assert settled(policy, web, (), rates).ratio == Fraction(9, 20)
    assert settled(policy, web, (declared,), rates).ratio == Fraction(1, 4)


def test_it_is_only_asked_where_it_may_answer() -> None:
    """A ratio that somebody wrote stays, and so does auto, at 70 %, while no rates are known."""
    web = workload()
    written, auto = Policy(spot_ratio=Fraction(1, 5)), Policy(spot_ratio=None)
    assert settled(written, web, (), Rates(1, {"a/m5": 1.0})) is written
    assert settled(auto, web, (), Rates()) is auto
    assert auto.explain() == "spot-ratio auto (70%), min-on-demand 1"


def test_it_explains_itself_and_a_limit_holds() -> None:
    """With the number of pools, their losses and the target."""
    web = workload()
    rates = Rates(1, {"a/m5": 4.0, "b/m5": 2.0})
    annotations = {names.SPOT_RATIO: "auto"}
    free, _ = resolve(annotations)
    assert settled(free, web, (), rates).explain() == (
        "spot-ratio auto (50%: 2 pools, 6 losses a month, target 99.9%), min-on-demand 1"
    )
    limited, mistakes = resolve(annotations, limits=[Limit(Fraction(2, 5)), Limit(Fraction(3, 5))])
    found = settled(limited, web, (), Rates(1, {"a/m5": 8.0}))
    assert (found.slots, mistakes) == (Slots(Fraction(1, 4), 1), ())
    found = settled(limited, web, (), rates)
    assert (found.slots, found.spot_ratio, mistakes) == (Slots(Fraction(2, 5), 1), None, ())
    assert found.explain() == (
        "spot-ratio auto (40%, limited by the configuration: 2 pools, 6 losses a month, target 99.9%), min-on-demand 1"
    )


tables = st.lists(st.sampled_from([0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0]), min_size=1, max_size=6)
needs = st.one_of(
    st.integers(0, 40).map(Amount), st.integers(0, 100).map(lambda part: Amount(share=Fraction(part, 100)))
).map(lambda amount: Need(Kind.DEPLOYMENT, Rollout(), amount))
targets = st.sampled_from([Fraction(9, 10), Fraction(99, 100), THREE_NINES, FOUR_NINES, Fraction(99_999, 100_000)])


@many
@given(st.integers(1, 200), needs, st.integers(0, 3), tables, targets)
def test_what_it_answers_keeps_the_target(
    replicas: int, need: Need, floor: int, rates: list[float], target: Fraction
) -> None:
    """With the spot pods spread evenly over the pools, those left over in the worst."""
    falling = tuple(sorted(rates, reverse=True))
    ratio = auto_ratio(replicas, need, floor, falling, target)
    each, more = divmod(Slots(ratio, floor).spot(replicas), len(falling))
    perils = [Peril(rate, each + (number < more)) for number, rate in enumerate(falling)]
    assert risk(perils, replicas - need.of(replicas)).unavailability <= float(1 - target) + 1e-12


@many
@given(st.integers(1, 200), needs, st.integers(0, 3), tables, targets)
def test_one_step_more_would_not_at_some_size(
    replicas: int, need: Need, floor: int, rates: list[float], target: Fraction
) -> None:
    """It is as much as may be."""
    falling = tuple(sorted(rates, reverse=True))
    ratio = auto_ratio(replicas, need, floor, falling, target)
    if ratio == Fraction(19, 20):
        return

    def breaks(size: int) -> bool:
        each, more = divmod(Slots(ratio + Fraction(1, 20), floor).spot(size), len(falling))
        perils = [Peril(rate, each + (number < more)) for number, rate in enumerate(falling)]
        return risk(perils, size - need.of(size)).unavailability > float(1 - target)

    assert any(breaks(size) for size in sizes(replicas, need))


@many
@given(st.integers(1, 200), needs, tables, targets)
def test_pools_that_go_more_often_never_mean_more_spot(
    replicas: int, need: Need, rates: list[float], target: Fraction
) -> None:
    """Nor does a higher target."""
    falling = tuple(sorted(rates, reverse=True))
    here = auto_ratio(replicas, need, 1, falling, target)
    assert auto_ratio(replicas, need, 1, tuple(2 * rate for rate in falling), target) <= here
    assert auto_ratio(replicas, need, 1, falling, (1 + target) / 2) <= here


def test_exposure_agrees_with_auto_where_pods_are_spread_evenly() -> None:
    """Ten, of which eight must serve, at 85 % over four pools: no loss of a pool is an incident."""
    spot = [site(f"s{slot}", Class.SPOT, "a", str(slot % 4)) for slot in range(8)]
    ready = [*spot, site("d0"), site("d1")]
    observed = Observed(pools={f"a/{pool}": PoolRecord(720, losses=3) for pool in range(4)})
    assert exposure(ready, Availability(8, Basis.DECLARED), observed).risk.incidents == 0


@pytest.mark.parametrize(("pools", "expected"), [(2, 45), (3, 60), (4, 80)])
def test_the_table_in_the_documentation(pools: int, expected: int) -> None:
    """Ten replicas of a Deployment that declares nothing; every pool is lost once in 30 days."""
    plain = Need(Kind.DEPLOYMENT, Rollout(), None)
    assert auto_ratio(10, plain, 1, (1.0,) * pools, FOUR_NINES) * 100 == expected
    assert auto_ratio(10, plain, 1, (1.0,) * pools, THREE_NINES) * 100 == 95


@pytest.mark.parametrize("declared", [Amount(share=Fraction(3, 4)), Amount(5)], ids=["a share", "a count"])
def test_a_mistyped_size_stops_nobody(declared: Amount) -> None:
    """All the sizes that count as one would be a thousand million; some of them are tried."""
    need = Need(Kind.DEPLOYMENT, Rollout(), declared)
    assert len(sizes(2**31 - 1, need)) >= 2**28
    assert 0 <= auto_ratio(2**31 - 1, need, 1, (1.0,) * 4, FOUR_NINES) <= 1
