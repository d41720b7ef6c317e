"""What commands know of prices: the options that they share, and what they make of them."""

from __future__ import annotations

import argparse
from pathlib import Path

from cli.configuration import read_text
from placement.configuration import ConfigurationError
from placement.policy import parse_share
from placement.savings import Prices, parse_prices


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--price-table", type=Path, metavar="F", help="prices of nodes, for savings (CSV, as OpenCost takes it)"
    )
    parser.add_argument(
        "--spot-price-ratio",
        type=_ratio,
        metavar="R",
        help="what spot costs here as a share of on-demand, where nothing says it better (default: 0.35)",
    )


def _ratio(text: str) -> float:
    try:
        return float(parse_share(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a share such as 0.31 or 31%, got {text!r}") from error


def prices_for(args: argparse.Namespace) -> Prices:
    if args.price_table is None:
        return Prices(cluster_ratio=args.spot_price_ratio)
    try:
        return Prices(parse_prices(read_text(args.price_table)), args.spot_price_ratio)
    except ValueError as error:
        raise ConfigurationError([f"--price-table {args.price_table}: {error}"]) from error
