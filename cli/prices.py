"""What commands know of prices: the options that they share, and what they make of them."""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from kube.configuration import read_text
from placement.configuration import Configuration, ConfigurationError
from placement.policy import parse_share
from report.savings import Prices, PriceTable, parse_prices

log = logging.getLogger(__name__)

MOST_REMARKS = 5  # that are reported one by one


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--price-table", type=Path, metavar="F", help="node prices for savings (CSV in OpenCost's format)"
    )
    parser.add_argument(
        "--spot-price-ratio",
        type=_ratio,
        metavar="R",
        help="spot price as a share of the on-demand price, where no better source exists (default: 0.35)",
    )


def _ratio(text: str) -> float:
    try:
        return float(parse_share(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a share such as 0.31 or 31%, got {text!r}") from error


def prices_for(args: argparse.Namespace, configuration: Configuration, *, must_read: bool = False) -> Prices:
    """From the options, else the configuration. Its table is a file of the rebalancer, which may be missing here."""
    given, configured = args.price_table, configuration.prices
    ratio = args.spot_price_ratio if args.spot_price_ratio is not None else configured.ratio
    path = given or (Path(configured.table) if configured.table else None)
    if path is None:
        return Prices(cluster_ratio=ratio)
    if given is None and not must_read and not path.exists():
        log.warning("price table %s not found: savings are estimated without it (--price-table names another)", path)
        return Prices(cluster_ratio=ratio)
    return Prices(read_table(path).rows, ratio)


def read_table(path: Path) -> PriceTable:
    try:
        table = parse_prices(read_text(path))
    except ConfigurationError:
        raise
    except ValueError as error:
        raise ConfigurationError([f"price table {path}: {error}"]) from error
    for remark in table.remarks[:MOST_REMARKS]:
        log.warning("price table %s: %s", path, remark)
    if len(table.remarks) > MOST_REMARKS:
        log.warning("price table %s: %d lines skipped in total", path, len(table.remarks))
    return table
