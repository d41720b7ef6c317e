"""Whether a rebalancer leads, as the webhook sees it: by the Lease, and by our own clock.

The times in the Lease do not matter, because clocks differ. Only its changes do. A hand-over is no gap, since the next
leader's first renewal is a change like any other. A Lease that is gone, or was given up, is not renewed, so it does
not change.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kube.resources import Lease
from kube.store import Store


class Leadership:
    """How long no rebalancer has led. Fed by an informer, callable from any thread.

    If we cannot reach the API server, we cannot know, and assume that no rebalancer leads. That is the safe side.
    """

    def __init__(self, store: Store[Lease], timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._renewed_at = timer()  # counts from the start of this program
        store.subscribe(self._observe)

    def unled_seconds(self) -> float:
        return self._timer() - self._renewed_at

    def _observe(self, _old: Lease | None, new: Lease | None) -> None:
        if new is not None and new.address:  # the holder's name
            self._renewed_at = self._timer()
