"""What is saved, and where the prices come from."""

from __future__ import annotations

from dataclasses import replace

import pytest

from placement import names
from placement.model import NO_NEEDS, Class, Needs, Node
from report.savings import (
    LEAST,
    Prices,
    PriceSource,
    PriceTable,
    Rate,
    Savings,
    charged,
    parse_prices,
    savings,
    total,
    weight_of,
)
from tests.builders.model import NEEDS, node, pod
from tests.builders.plan import ground, group

HEADER = "EndTimestamp,InstanceID,Region,AssetClass,InstanceIDField,InstanceType,MarketPriceHourly,Version\n"
NODES = (node("od"), node("spot", Class.SPOT))


def rate_of_spot(prices: Prices, spot: Node = NODES[1]) -> Rate:
    return prices.rates(ground(NODES[0], spot).sites)["spot"]


def test_ten_replicas_with_seven_on_spot_save_45_percent() -> None:
    """3 + 7 × 0.35 = 5.45 of 10."""
    pods = [pod(f"p{slot}", slot, "od" if slot < 3 else "spot") for slot in range(10)]
    found = savings(group(pods), Prices().rates(ground(*NODES).sites))
    assert found.share == pytest.approx(0.455)
    assert found.raw == {"share": 0.455, "cost": 0.545, "sources": {"default": 7}}


def test_surge_and_fallback_are_charged() -> None:
    """An eleventh pod while one is moved: 4 + 7 × 0.35 of 10. All on on-demand with one too many: more than full."""
    rates = Prices().rates(ground(*NODES).sites)
    moving = [(NEEDS, "od")] * 4 + [(NEEDS, "spot")] * 7
    assert charged(moving, 10, rates).share == pytest.approx(0.355)
    assert charged([(NEEDS, "od")] * 11, 10, rates).share == pytest.approx(-0.1)


def test_replicas_without_a_node_cost_and_save_nothing() -> None:
    """Five of ten are pending: the share is that of the five."""
    pods = [pod(f"p{slot}", slot, "spot" if slot < 5 else "") for slot in range(10)]
    assert savings(group(pods), Prices().rates(ground(*NODES).sites)).share == pytest.approx(0.65)
    assert charged([], 3, {}).raw == {"share": None, "cost": None, "sources": {}}


def test_the_source_that_knows_best_counts() -> None:
    """Price table, node annotation, cluster ratio, default."""
    table = parse_prices(
        f"{HEADER},od,,node,metadata.name,m,0.40,\n,spot,,node,metadata.labels.{names.CAPACITY},m,0.10,\n"
    ).rows
    annotated = replace(NODES[1], annotations={names.PRICE_RATIO: "31%"})
    garbled = replace(NODES[1], annotations={names.PRICE_RATIO: "cheap"})
    assert rate_of_spot(Prices(table, 0.5), annotated) == Rate(0.25, PriceSource.TABLE)
    assert rate_of_spot(Prices((), 0.5), annotated) == Rate(0.31, PriceSource.ANNOTATION)
    assert rate_of_spot(Prices((), 0.5), garbled) == Rate(0.5, PriceSource.CLUSTER)
    assert rate_of_spot(Prices()) == Rate(0.35, PriceSource.DEFAULT)


def test_a_row_for_both_classes_tells_nothing_of_spot() -> None:
    """A price by instance type alone would say that spot saves nothing; nor is a price of another region taken."""
    both = parse_prices(f"{HEADER},m,,node,{names.INSTANCE_TYPE},m,0.40,\n").rows
    assert rate_of_spot(Prices(both)).source is PriceSource.DEFAULT
    elsewhere = parse_prices(f"{HEADER},od,moon,node,metadata.name,m,0.4,\n,spot,moon,node,metadata.name,m,0.1,\n").rows
    assert rate_of_spot(Prices(elsewhere)).source is PriceSource.DEFAULT


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "are missing"),
        ("InstanceID,InstanceIDField\nx,y\n", "MarketPriceHourly are missing"),
        (
            f"{HEADER},x,,node,metadata.name,m,free,\n",
            "line 2: MarketPriceHourly 'free' is not a price; expected a number above 0",
        ),
        (f"{HEADER},x,,node,metadata.name,m,-1,\n", "line 2"),
    ],
)
def test_a_table_that_cannot_be_read_says_where(text: str, told: str) -> None:
    """Before anything starts."""
    with pytest.raises(ValueError, match=told):
        parse_prices(text)


def test_rows_of_volumes_are_left_out() -> None:
    """OpenCost has them in the same table."""
    assert parse_prices(f"{HEADER},x,,pv,metadata.name,,0.01,\n") == PriceTable()


def test_what_opencost_skips_is_skipped_and_told() -> None:
    """Comments in silence, lines of another length by their number; what follows them counts."""
    first, second = ",od,,node,metadata.name,m,0.40,", ",spot,,node,metadata.name,m,0.1,"
    table = parse_prices(f"# made by hand\n{HEADER}# on-demand\n{first}\n\nshort,line\n{second}\n")
    assert [row.value for row in table.rows] == ["od", "spot"]
    assert table.remarks == ("line 6: skipped: it has 2 fields, the header has 8",)
    assert rate_of_spot(Prices(table.rows)) == Rate(0.25, PriceSource.TABLE)


@pytest.mark.parametrize("field", ["metadata.annotations.example.com/price", "spec.podCIDR", "metadata.uid", ""])
def test_a_field_that_is_not_looked_at_is_told(field: str) -> None:
    """Rather than a default in silence."""
    table = parse_prices(f"{HEADER},x,,node,{field},m,0.4,\n")
    assert table.rows == ()
    (remark,) = table.remarks
    assert remark.startswith(
        f"line 2: skipped: InstanceIDField {field!r} is not supported; expected one of metadata.name, spec.providerID"
    )


PROVIDERS: dict[str, tuple[str, str]] = {
    "of AWS: the instance's": ("aws:///eu-central-1a/i-0FEA4fd46592d050b", "i-0fea4fd46592d050b"),
    "of Azure: without the prefix": ("azure:///Subscriptions/x/vm-1", "/subscriptions/X/vm-1"),
    "of others: the whole": ("gce://shop/europe-west1-b/spot-1", "gce://shop/europe-west1-b/spot-1"),
}


@pytest.mark.parametrize(("provider_id", "listed"), PROVIDERS.values(), ids=PROVIDERS.keys())
def test_a_node_is_known_by_its_clouds_id(provider_id: str, listed: str) -> None:
    """As OpenCost takes it, and whatever the case."""
    rows = f",{listed},,node,spec.providerID,m,0.1,\n,OD,,node,metadata.name,m,0.4,\n"
    spot = replace(NODES[1], provider_id=provider_id)
    assert rate_of_spot(Prices(parse_prices(HEADER + rows).rows), spot) == Rate(0.25, PriceSource.TABLE)
    assert rate_of_spot(Prices(parse_prices(HEADER + rows).rows)).source is PriceSource.DEFAULT


def test_a_node_is_known_by_an_annotation_of_ours() -> None:
    """Others' are not read."""
    field = f"metadata.annotations.{names.PREFIX}lot"
    rows = f",cheap,,node,{field},m,0.1,\n,od,,node,metadata.name,m,0.4,\n"
    spot = replace(NODES[1], annotations={f"{names.PREFIX}lot": "cheap"})
    assert rate_of_spot(Prices(parse_prices(HEADER + rows).rows), spot) == Rate(0.25, PriceSource.TABLE)


def test_the_last_row_counts() -> None:
    """As in OpenCost: by the same field, by another one, and with a region or without."""
    first = ",od,,node,metadata.name,m,0.4,\n,spot,,node,metadata.name,m,0.3,\n"
    again = ",spot,,node,metadata.name,m,0.2,\n"
    by_label = f",spot,Here,node,metadata.labels.{names.CAPACITY},m,0.1,\n"
    there = replace(NODES[1], labels={**NODES[1].labels, names.REGION: "here"})
    for rows, ratio in ((first, 0.75), (first + again, 0.5), (first + again + by_label, 0.25)):
        assert rate_of_spot(Prices(parse_prices(HEADER + rows).rows), there).ratio == pytest.approx(ratio)


def test_pods_weigh_what_they_ask_for() -> None:
    """In cores; who asks for nothing weighs a little, not nothing."""
    assert weight_of(Needs(requests={"cpu": 2000})) == 2.0
    assert weight_of(NO_NEEDS) == LEAST
    assert total([Savings(1, 2, {PriceSource.TABLE: 1})] * 2) == Savings(2, 4, {PriceSource.TABLE: 2})
    assert total([]) == Savings()
