"""Whether hostile callers cost real ones anything: admission's latency under attack, and without.

The attack is 2,000 silent connections, 60 that send a byte a second, and 80 bodies of 7 MiB in parallel (`attack`), all
from the same address as the real calls. Measured are reviews one after the other, on a connection that is kept and on a
new one for each, and the most memory that the webhook has had.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from benchmarks.admission.compare import load, prepare, serving
from benchmarks.attack import Attack, attacking, most_memory
from benchmarks.report import rounds_wanted, tell

ROUNDS = 5
SECONDS = 3.0
ATTACK = Attack(silent=2000, slow=60, large=80)
WITHOUT, WITH = "none", "attack"
FIGURES = {
    "kept_p50_ms": "kept connection: p50, ms",
    "kept_p99_ms": "kept connection: p99, ms",
    "anew_p50_ms": "new connections: p50, ms",
    "anew_p99_ms": "new connections: p99, ms",
    "failed": "failed",
    "memory_mib": "most memory, MiB",
    "bodies": "7 MiB bodies answered",
}


def main() -> None:
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        prepare(directory)
        rounds = [_round(directory, number) for number in range(rounds_wanted(ROUNDS))]
    tell("hostile", "admission over TLS under attack", rounds, FIGURES, [(WITH, WITHOUT)])


def _round(directory: Path, number: int) -> dict[str, dict[str, float]]:
    order = (WITHOUT, WITH) if number % 2 else (WITH, WITHOUT)
    found = {which: _measure(directory, ATTACK if which == WITH else Attack()) for which in order}
    return {which: found[which] for which in (WITHOUT, WITH)}


def _measure(directory: Path, attack: Attack) -> dict[str, float]:
    """A server of its own for each, because memory is never given back."""
    with serving(directory) as (address, process_id):
        load(directory, address, 1, SECONDS)
        with attacking(directory / "ca.crt", address, attack) as done:
            kept = load(directory, address, 1, SECONDS)
            anew = load(directory, address, 1, SECONDS, anew=True)
        memory = most_memory(process_id)
    return {
        "kept_p50_ms": kept["p50_ms"],
        "kept_p99_ms": kept["p99_ms"],
        "anew_p50_ms": anew["p50_ms"],
        "anew_p99_ms": anew["p99_ms"],
        "failed": kept["failed"] + anew["failed"],
        "memory_mib": memory,
        "bodies": sum(count for kind, count in done.items() if kind.startswith("large: ")),
    }
