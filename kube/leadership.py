"""Whether somebody leads, as those see it that depend on a rebalancer: by its Lease, and by our own clock.

What the Lease says of time does not matter, that it changes does: clocks differ. A hand-over is no gap, since the next
leader's first renewal is a change like any other. A Lease that is gone, or that was given up, says nothing: it does
not change by a renewal.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from kube.resources import Lease
from kube.store import Store


class Leadership:
    """For how long nobody has led. Fed by an informer, asked from any thread.

    Where the API server is out of reach for us, we cannot know, and it counts as if nobody led: that is the safe side.
    """

    def __init__(self, store: Store[Lease], timer: Callable[[], float] = time.monotonic) -> None:
        self._timer = timer
        self._renewed_at = timer()  # we have just begun to look
        store.subscribe(self._observe)

    def unled_seconds(self) -> float:
        return self._timer() - self._renewed_at

    def _observe(self, _old: Lease | None, new: Lease | None) -> None:
        if new is not None and new.address:  # the holder's name
            self._renewed_at = self._timer()
