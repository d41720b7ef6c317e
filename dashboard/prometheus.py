"""The spot share of the last day from Prometheus, fetched in the background and only while the page is open.

No answer waits for it. While Prometheus returns nothing, or nothing new, the page shows this replica's own memory.
"""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import urlopen

from placement import names

log = logging.getLogger(__name__)

DAY_SECONDS = 86_400
STEP_SECONDS = 120  # of each step the lowest and the highest: a dip that is shorter is seen all the same
FRESH_SECONDS = 60.0  # so long it is not asked again
GOOD_SECONDS = 300.0  # so long what it said last is shown
TIMEOUT_SECONDS = 5.0
LARGEST_ANSWER = 4 * 1024**2  # bytes

Points = list[tuple[int, float]]  # when, and the share of serving pods on spot
Get = Callable[[str], bytes]


def checked_url(text: str) -> str:
    """Without a slash at its end. Raises ValueError."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(f"expected an address such as http://prometheus.monitoring:9090, got {text!r}")
    return text.rstrip("/")


def questions(url: str, now: float) -> tuple[str, ...]:
    """The lowest and the highest of each step."""
    span = {
        "start": int(now) - DAY_SECONDS,
        "end": int(now),
        "step": STEP_SECONDS,
        "timeout": f"{TIMEOUT_SECONDS:.0f}s",
    }
    return tuple(
        f"{url}/api/v1/query_range?"
        + urlencode({"query": f"{of}_over_time({names.RULE_SPOT_SHARE}[{STEP_SECONDS}s])", **span})
        for of in ("min", "max")
    )


def read(body: bytes) -> Points:
    """What a query_range answers: one series, or none. Raises ValueError where it is anything else."""
    try:
        raw: Any = json.loads(body)
        if raw["status"] != "success":
            raise ValueError(str(raw.get("error", raw["status"])))
        found = raw["data"]["result"]
        if len(found) > 1:
            raise ValueError(f"{len(found)} series of {names.RULE_SPOT_SHARE}: is this the Prometheus of one cluster?")
        points = [(int(at), float(text)) for series in found for at, text in series["values"]]
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not an answer of Prometheus: {body[:80]!r}") from error
    return [(at, round(share, 4)) for at, share in points if math.isfinite(share)]


def merged(*series: Points) -> Points:
    """In the order of time; what two of them say alike, once."""
    return sorted({point for points in series for point in points})


class PrometheusArchive:
    """What Prometheus said last. Any thread may ask; one of its own fetches."""

    def __init__(self, url: str, get: Get | None = None, timer: Callable[[], float] = time.monotonic) -> None:
        self.version = 0  # goes up whenever it says something else
        self._url = url
        self._get = get or _got
        self._timer = timer
        self._points: Points = []
        self._said_at = self._tried_at = -math.inf
        self._is_silent = False
        self._asked = threading.Event()

    def points(self) -> Points | None:
        """None: it says nothing, so far or any more."""
        if self._timer() - self._tried_at >= FRESH_SECONDS:
            self._asked.set()
        is_good = self._points and self._timer() - self._said_at < GOOD_SECONDS
        return self._points if is_good else None

    def start(self) -> None:
        threading.Thread(target=self._run, name="archive", daemon=True).start()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._timer() - self._tried_at >= FRESH_SECONDS:
                self.fetch()

    def fetch(self) -> None:
        """Fetches once, now. A failure is logged when it begins."""
        self._tried_at = self._timer()
        try:
            points = merged(*(read(self._get(each)) for each in questions(self._url, time.time())))
        except (OSError, URLError, HTTPException, ValueError, ArithmeticError) as error:
            if not self._is_silent:
                log.warning("cannot read the spot share from %s, using memory: %s", self._url, error)
            self._is_silent = True
            return
        if self._is_silent:
            log.info("%s provides the spot share again", self._url)
        self._is_silent = False
        self.version += points != self._points
        self._points, self._said_at = points, self._timer()


def _got(url: str) -> bytes:
    with urlopen(url, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - `checked_url` has seen it
        body: bytes = answer.read(LARGEST_ANSWER + 1)
    if len(body) > LARGEST_ANSWER:
        raise ValueError(f"more than {LARGEST_ANSWER:,} bytes")
    return body
