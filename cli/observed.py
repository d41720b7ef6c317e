"""What the rebalancer has observed of pools, for commands that only look."""

from __future__ import annotations

import logging

from kube.client import Client
from kube.configmaps import read_observed
from kube.errors import Forbidden
from placement import names
from placement.observation import NOTHING_OBSERVED, Observed

log = logging.getLogger(__name__)


def observed_for_reading(client: Client) -> Observed:
    """Warns if the user may not read the ConfigMap."""
    try:
        return read_observed(client)
    except Forbidden:
        log.warning(
            "not allowed to read the ConfigMap %s: risks are assumed, and auto is shown as 70%%", names.STATE_MAP
        )
        return NOTHING_OBSERVED
