"""Something that is done again and again beside a test."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def again_and_again(act: Callable[[], None], pause_seconds: float) -> Iterator[None]:
    """Does it in a thread of its own, with a pause after each time, until the block ends.

    The kernel kills the programs that a thread has started when it ends. So nothing that is to last is started here.
    """
    ended = threading.Event()

    def repeat() -> None:
        while not ended.is_set():
            act()
            ended.wait(pause_seconds)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
