"""Events that the rebalancer goes by, for commands that only look."""

from __future__ import annotations

import logging

from kube.client import Client
from kube.errors import ApiError
from kube.resources import SNAPSHOT, rows_of
from kube.snapshot import read_all
from placement.model import Sign

log = logging.getLogger(__name__)


def signs_for_reading(client: Client) -> tuple[Sign, ...]:
    """Nothing depends on them but a plan's last word: what cannot be read is left out, with a warning."""
    try:
        heard = [row for row in rows_of(SNAPSHOT) if not row.is_awaited]
        return tuple(sign for row in heard for sign in read_all(client, row))
    except ApiError as error:
        log.warning("cannot read Events: notices of the cloud and of autoscalers are not shown: %s", error)
        return ()
