"""A real Prometheus (Debian's) that scrapes what it is told to every second, for the time of a test."""

from __future__ import annotations

import json
import math
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from localcluster.process import spawn
from tests.cluster.namespaceuser import wait_for

Samples = dict[frozenset[tuple[str, str]], float]  # labels → value


@dataclass(frozen=True)
class Prometheus:
    """Where it listens."""

    url: str

    def get(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.url}{path}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
            return json.load(answer)["data"]

    def ask(self, expression: str) -> Samples:
        """What a query gives now. What is no number is left out: nothing is known then."""
        found = self.get("/api/v1/query", query=expression)["result"]
        values = {frozenset(each["metric"].items()): float(each["value"][1]) for each in found}
        return {labels: value for labels, value in values.items() if not math.isnan(value)}

    def one(self, expression: str) -> float:
        (value,) = self.ask(expression).values()
        return value

    def is_ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError):
            return False

    def unhealthy(self) -> list[str]:
        """Targets that are not scraped, and rules that could not be evaluated."""
        targets = self.get("/api/v1/targets")["activeTargets"]
        rules = [rule for group in self.get("/api/v1/rules")["groups"] for rule in group["rules"]]
        down = [f"{each['scrapeUrl']}: {each['lastError']}" for each in targets if each["health"] != "up"]
        return down + [f"{each['name']}: {each.get('lastError')}" for each in rules if each["health"] != "ok"]


@contextmanager
def scraping(directory: Path, targets: Mapping[str, str], rules: Path) -> Iterator[Prometheus]:
    """`targets` are URLs of metrics by the name of who serves them."""
    hosts = {name: urllib.parse.urlsplit(url).netloc for name, url in targets.items()}
    configuration = {
        "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": [
            {"job_name": name, "honor_labels": True, "static_configs": [{"targets": [host]}]}
            for name, host in hosts.items()
        ],
    }
    file = directory / "prometheus.yaml"
    file.write_text(yaml.safe_dump(configuration))
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{probe.getsockname()[1]}"
    command = [str(shutil.which("prometheus")), f"--config.file={file}", f"--storage.tsdb.path={directory / 'data'}"]
    options = [f"--web.listen-address={address}", "--log.level=warn"]
    with (directory / "log").open("wb") as log:
        process = spawn([*command, *options], log)
    try:
        running = Prometheus(f"http://{address}")
        wait_for("Prometheus to be ready", lambda: _is_up(process, directory) and running.is_ready())
        wait_for("every target to be scraped", lambda: len(running.ask("up == 1")) == len(targets))
        yield running
    finally:
        process.terminate()
        process.wait(10)


def _is_up(process: subprocess.Popen[bytes], directory: Path) -> bool:
    assert process.poll() is None, (directory / "log").read_text()
    return True
