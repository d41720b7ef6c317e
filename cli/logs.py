"""Log lines on standard error: text for people, JSON for machines."""

from __future__ import annotations

import argparse
import json
import logging
from datetime import UTC, datetime

LEVELS = ("debug", "info", "warning", "error", "critical")
LONGEST_LINE = 2000


class JsonFormatter(logging.Formatter):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class Calm(logging.Filter):
    """Lets each line of code say so much and no more, because anybody's call can make the webhook say it.

    What is left out is counted, and the next line that gets through says how many there were. A line is cut where it
    is too long, and has no line breaks of somebody else's.
    """

    def __init__(self, burst: int = 20, per_second: float = 1.0) -> None:
        super().__init__()
        self._burst = burst
        self._per_second = per_second
        self._said: dict[tuple[str, int], tuple[float, float, int]] = {}  # by place: room, when, how many left out

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno < logging.INFO:
            return True
        place = record.pathname, record.lineno
        room, at, left_out = self._said.get(place, (float(self._burst), record.created, 0))
        room = min(self._burst, room + (record.created - at) * self._per_second)
        if room < 1.0:
            self._said[place] = room, record.created, left_out + 1
            return False
        self._said[place] = room - 1.0, record.created, 0
        more = f" (and {left_out} more like this)" if left_out else ""
        record.msg, record.args = _one_line(record.getMessage()) + more, ()
        return True


def _one_line(message: str) -> str:
    cut = message if len(message) <= LONGEST_LINE else message[:LONGEST_LINE] + "…"
    return cut.replace("\r", "\\r").replace("\n", "\\n")


def calm() -> None:
    """For programs that strangers can make talk."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(Calm())


def options() -> argparse.ArgumentParser:
    """The options that every command takes."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("logs")
    group.add_argument("--log-format", choices=("text", "json"), default="text")
    group.add_argument("--log-level", choices=LEVELS, default="info")
    return parser


def configure(log_format: str, log_level: str) -> None:
    handler = logging.StreamHandler()
    text = logging.Formatter("%(asctime)s %(levelname)-7s %(name)s: %(message)s")
    handler.setFormatter(JsonFormatter() if log_format == "json" else text)
    logging.basicConfig(level=log_level.upper(), handlers=[handler], force=True)
