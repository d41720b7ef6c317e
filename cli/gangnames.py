"""Names of gangs on the command line: `train`, `shop/train`; a gang's own name may have slashes."""

from __future__ import annotations

import argparse
from collections.abc import Collection

from cli import access, hints
from cli.errors import UsageError
from placement.model import Key


def key_of(args: argparse.Namespace, name: str, known: Collection[Key]) -> Key:
    """The gang that is meant, which exists. Raises UsageError with those that do."""
    namespace, slash, rest = name.partition("/")
    tries = [Key(namespace, rest)] if slash and args.namespace in (None, namespace) else []
    if not tries or tries[0] not in known:
        tries.append(Key(access.namespace_for(args), name))
    found = next((each for each in tries if each in known), None)
    if found is None:
        hint = hints.meant(str(tries[0]), map(str, known)) or _listed(known)
        raise UsageError(f"{tries[0]}: no gang of that name has pods", hint)
    return found


def _listed(known: Collection[Key]) -> str:
    if not known:
        return "no pod is a member of a gang"
    first = sorted(map(str, known))[:10]
    return f"gangs are {', '.join(first)}{' …' if len(known) > len(first) else ''}"
