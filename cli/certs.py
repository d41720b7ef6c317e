"""`spotweave certs`: how the webhook's certificates stand, and a rotation ahead of time."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

from certs import publish
from certs.read import LONG_AGO, end
from certs.renewal import (
    ROTATE_CA,
    ROTATE_LEAF,
    Bundle,
    Published,
    authorities,
    expiry,
    has_its_key,
    is_accepted,
    signer,
    successor,
)
from cli import access

MISSING = "missing or unreadable"


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "certs",
        help="show or rotate the webhook's certificates",
        description="Show or rotate the webhook's certificates.",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    show = actions.add_parser(
        "show", parents=[common], help="show the served certificate, the trusted authorities and their expiry"
    )
    rotate = actions.add_parser("rotate", parents=[common], help="request a new certificate from the webhooks")
    rotate.add_argument(
        "--ca", action="store_true", help="also replace the authority; the old one stays trusted for a while"
    )
    for action, function in ((show, run_show), (rotate, run_rotate)):
        access.add_options(action)
        action.set_defaults(run=function)


def run_rotate(args: argparse.Namespace) -> int:
    """Writes the wish into the Secret; a webhook carries it out within seconds."""
    wish = ROTATE_CA if args.ca else ROTATE_LEAF
    with access.client_for(args) as client:
        client.patch(publish.SECRET, {"stringData": {publish.ROTATE_KEY: wish.decode()}})
    print("Rotation requested. `spotweave certs show` reports its progress.")
    return 0


def run_show(args: argparse.Namespace) -> int:
    """Exit code 1 where callers would not accept the leaf."""
    with access.client_for(args) as client:
        bundle = publish.bundle_of(publish.read_secret(client))
        entries = publish.read_all_entries(client)
        seen = Published(frozenset(published for each in entries for published in each.published))
    accepted = is_accepted(bundle, seen, publish.HOSTS, datetime.now(UTC))
    print("\n".join(described(bundle, seen, accepted=accepted)))
    return 0 if accepted else 1


def described(bundle: Bundle, seen: Published, *, accepted: bool) -> list[str]:
    """A line for each part. An unreadable part is shown like a missing one."""
    leaf = _until(expiry(bundle.leaf)) if has_its_key(bundle) else MISSING
    trusted = [_until(end(each)) for each in authorities(bundle.trusted)] or [MISSING]
    published = "the same as in the Secret" if seen.published == {bundle.trusted} else "not the same as in the Secret"
    return [
        f"leaf         {leaf}",
        *(f"authority    {each}" for each in trusted),
        *([] if signer(bundle) else [f"its key      {MISSING}, or managed by others"]),
        f"published    {published}",
        f"rotation     {_rotation(bundle)}",
        f"callers      {'accept the leaf' if accepted else 'do not accept the leaf'}",
    ]


def _until(moment: datetime) -> str:
    return MISSING if moment == LONG_AGO else f"until {moment.isoformat()}"


def _rotation(bundle: Bundle) -> str:
    if successor(bundle):
        return "the new authority is being published"
    if len(authorities(bundle.trusted)) > 1:
        return "the new authority signs; the old one is removed later"
    return f"requested: {bundle.wish.decode(errors='replace')}" if bundle.wish else "none"
