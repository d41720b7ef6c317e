"""Log lines on standard error: text for people, JSON for machines."""

from __future__ import annotations

import argparse
import json
import logging
from datetime import UTC, datetime

LEVELS = ("debug", "info", "warning", "error", "critical")


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
