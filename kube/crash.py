"""A thread that dies leaves caches that are no longer updated. So the program ends, and is restarted."""

from __future__ import annotations

import logging
import os
import threading

log = logging.getLogger(__name__)


def end_with_any_thread() -> None:
    threading.excepthook = _end


def _end(failure: threading.ExceptHookArgs) -> None:
    name = failure.thread.name if failure.thread else "?"
    trace = (failure.exc_type, failure.exc_value or failure.exc_type(), failure.exc_traceback)
    log.critical("thread %s crashed; stopping the program", name, exc_info=trace)
    os._exit(1)
