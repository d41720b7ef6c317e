"""Pods that find no node because we require a class of them are created again (see `placement.plan.stuck`)."""

from __future__ import annotations

from collections.abc import Iterator

from placement.plan.actions import Action
from placement.plan.draft import Draft


def plan(draft: Draft) -> Iterator[Action]:
    yield from draft.freed.replaced
