"""`spotweave queue release`: takes the gate off members of gangs by hand. It needs no rebalancer."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from rich.text import Text

from cli import access, gangnames, output
from cli.errors import UsageError
from cli.gangmachinery import leader_of
from kube.client import Client
from kube.errors import ApiError
from kube.gates import GatedPod, gated_pods, ungate
from placement import names
from placement.model import Key

WRITERS = 8
LOST = (
    "Nothing holds them together any more: the scheduler places what fits, one by one, and may start a part of a gang."
)
COMES_BACK = "A rebalancer leads: pods that are created anew get a gate again."
NOTHING = "No pod has the gate of a gang: nothing to release."


def add_parser(actions: Any, common: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "release",
        parents=[common],
        help="take the gates off a gang by hand, without guarantee",
        description="Take the gate off every waiting member of a gang. The scheduler then places them one by one.",
    )
    access.add_options(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("gang", nargs="?", metavar="GANG", help="NAME or NS/NAME")
    which.add_argument("--all", action="store_true", help="all gangs, in all namespaces or in that of -n")
    parser.add_argument("-n", "--namespace", help="namespace of the gang (default: kubectl's)")
    output.add_option(parser, "text")
    parser.set_defaults(run=run, writes=True)


@dataclass(frozen=True, slots=True)
class ReleasedGang:
    """What became of a gang's gated members."""

    key: Key
    freed: tuple[GatedPod, ...]
    failed: tuple[GatedPod, ...]

    @property
    def foreign(self) -> dict[str, int]:
        """Gates of others that are left, with the number of pods."""
        left: dict[str, int] = defaultdict(int)
        for pod in self.freed:
            for gate in pod.gates:
                if gate != names.GANG_GATE:
                    left[gate] += 1
        return dict(left)

    @property
    def raw(self) -> dict[str, Any]:
        return {
            "namespace": self.key.namespace,
            "name": self.key.name,
            "released": sorted(pod.name for pod in self.freed),
            "failed": sorted(pod.name for pod in self.failed),
            "otherGates": self.foreign,
        }

    @property
    def lines(self) -> Iterable[str]:
        yield f"Took the gate off {_pods(len(self.freed))} of gang {self.key}."
        for gate, count in self.foreign.items():
            yield f"  {_pods(count)} still wait for the gate {gate}, which is not ours."
        if self.failed:
            shown = ", ".join(sorted(pod.name for pod in self.failed)[:5])
            yield f"  {_pods(len(self.failed))} still have it: the API server refused, or did not answer ({shown})."


def run(args: argparse.Namespace) -> int:
    """Exit code 1 where a gate could not be taken off."""
    return output.show(args, lambda: look(args))


def look(args: argparse.Namespace) -> output.Result:
    with access.client_for(args) as client:
        chosen = _chosen(args, list(gated_pods(client)))
        found = [released(client, key, pods) for key, pods in sorted(chosen.items())]
        leads = found and _someone_leads(client)
    notes = [LOST, *([COMES_BACK] if leads else [])] if found else []
    raw = {"gangs": [each.raw for each in found], "notes": notes}
    lines = [line for each in found for line in each.lines] + notes
    code = 1 if any(each.failed for each in found) else 0
    return output.Result(raw, lambda: Text("\n".join(lines or [NOTHING])), code)


def _chosen(args: argparse.Namespace, gated: Sequence[GatedPod]) -> Mapping[Key, list[GatedPod]]:
    by_gang: dict[Key, list[GatedPod]] = defaultdict(list)
    for pod in gated:
        if not args.all or args.namespace in (None, pod.namespace):
            by_gang[pod.gang].append(pod)
    if args.all:
        return by_gang
    if not by_gang:
        raise UsageError(f"{args.gang}: no gang of that name waits", "no pod has the gate of a gang")
    key = gangnames.key_of(args, args.gang, by_gang.keys())
    return {key: by_gang[key]}


def released(client: Client, key: Key, pods: Sequence[GatedPod]) -> ReleasedGang:
    """Each pod is tried twice: a conflict with another writer passes."""
    with ThreadPoolExecutor(WRITERS) as pool:
        done = list(pool.map(lambda pod: ungate(client, pod) or ungate(client, pod), pods))
    freed = tuple(pod for pod, is_off in zip(pods, done, strict=True) if is_off)
    return ReleasedGang(key, freed, tuple(pod for pod, is_off in zip(pods, done, strict=True) if not is_off))


def _someone_leads(client: Client) -> bool:
    """What is only a remark must not fail what is done."""
    try:
        return bool(leader_of(client, time.time()))
    except ApiError:
        return False


def _pods(count: int) -> str:
    return f"{count} pod{'' if count == 1 else 's'}"
