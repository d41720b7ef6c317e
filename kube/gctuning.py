"""Spares the garbage collector what lasts: a full collection of large caches stops a program for a while."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable

THRESHOLDS = (50_000, 20, 20)  # model objects hold no cycles, so there is little to find
PATIENCE_SECONDS = 600.0


def spare_caches(wait_synced: Callable[[float], bool]) -> threading.Event:
    """While all is read nothing is collected: it would only be walked through. What was read is not looked at again.

    The wait is on a thread of its own. Then all is collected once, which stops the program for a tenth of a second or
    more. The event is set when that is over.
    """
    gc.disable()
    gc.set_threshold(*THRESHOLDS)
    done = threading.Event()

    def freeze() -> None:
        if wait_synced(PATIENCE_SECONDS):
            gc.collect()  # what is frozen is never collected
            gc.freeze()
        gc.enable()
        done.set()

    threading.Thread(target=freeze, name="memory", daemon=True).start()
    return done
