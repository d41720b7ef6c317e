"""Where commands take prices from: options, else the configuration."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from cli.prices import MOST_REMARKS, add_options, prices_for
from placement.configuration import Configuration, ConfigurationError, PriceSources
from report.savings import Price, Prices

HEADER = "InstanceID,InstanceIDField,MarketPriceHourly\n"
ROW = Price("metadata.name", "a", "", 0.4)


def asked(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_options(parser)
    return parser.parse_args(arguments)


def configured(table: Path | str = "", ratio: float | None = None) -> Configuration:
    return Configuration(prices=PriceSources(str(table), ratio))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "prices.csv"
    path.write_text(f"{HEADER}a,metadata.name,0.4\n")
    return path


def test_options_count_before_the_configuration(table: Path) -> None:
    """Each by itself."""
    assert prices_for(asked(), Configuration()) == Prices()
    assert prices_for(asked(), configured(table, 0.3)) == Prices((ROW,), 0.3)
    assert prices_for(asked("--spot-price-ratio", "20%"), configured(table, 0.3)) == Prices((ROW,), 0.2)
    assert prices_for(asked("--price-table", str(table)), configured("/nowhere", 0.3)) == Prices((ROW,), 0.3)


def test_a_table_that_is_elsewhere_stops_the_program_and_not_who_looks(caplog: pytest.LogCaptureFixture) -> None:
    """The path is one where the rebalancer runs; who looks is told."""
    assert prices_for(asked(), configured("/nowhere/prices.csv", 0.3)) == Prices((), 0.3)
    assert "price table /nowhere/prices.csv not found" in caplog.text
    with pytest.raises(ConfigurationError, match="cannot be read"):
        prices_for(asked(), configured("/nowhere/prices.csv"), must_read=True)
    with pytest.raises(ConfigurationError, match="cannot be read"):
        prices_for(asked("--price-table", "/nowhere/prices.csv"), Configuration())


def test_a_wrong_price_is_told_with_its_line(table: Path) -> None:
    """And the file."""
    table.write_text(f"{HEADER}a,metadata.name,free\n")
    with pytest.raises(
        ConfigurationError,
        match=r"prices\.csv: line 2: MarketPriceHourly 'free' is not a price; expected a number above 0",
    ):
        prices_for(asked(), configured(table))


def test_lines_that_are_left_out_are_told_and_not_all_of_thousands(
    table: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Some one by one, then how many."""
    table.write_text(f"{HEADER}# a comment\na,metadata.name,0.4\n" + "x,spec.unknown,1\n" * 1000)
    assert prices_for(asked(), configured(table)) == Prices((ROW,))
    assert len(caplog.records) == MOST_REMARKS + 1
    assert "line 4: skipped: InstanceIDField 'spec.unknown' is not supported" in caplog.text
    assert "1000 lines skipped in total" in caplog.text
