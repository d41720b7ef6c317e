"""`spotweave uninstall`: what must be done before the manifests are deleted, and what is left then.

A pod that is released belongs to its Deployment directly until its move is over, and Kubernetes neither scales nor
rolls such a pod: only a rebalancer does. So all of them are put back first. Nothing else has to be undone: pods run on
as they are.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterable, Sequence
from typing import Any

from cli import access
from kube.client import Client
from kube.configmaps import change_pause
from kube.errors import NotFound
from kube.podwriter import END_SECONDS, PodWriter
from kube.snapshot import read_snapshot
from placement import names
from placement.model import Pod, Snapshot
from placement.pause import Pause
from report.residue import PutBack, put_back

log = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0  # until rebalancers have read that they are paused, and what they were writing is written
ROUNDS = 5
MOST_TOLD = 20


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("uninstall", parents=[common], help="undo all moves under way and list what to delete")
    access.add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0: nothing of ours is under way any more; 1: something is left that somebody has to look at."""
    with access.client_for(args) as client:
        if not pause(client) and not put_back(read_snapshot(client)):
            print("Spotweave is not installed: nothing to do.")
            return 0
        count, left = undo(client)
        snapshot = read_snapshot(client)
    print(f"Put back {_pods(count)} that were released for a move.")
    _tell(f"{_pods(len(left))} could not be put back. Delete them once enough other replicas serve:", left)
    _tell_rest(snapshot)
    return 1 if left else 0


def pause(client: Client) -> bool:
    """Whether there is anything to pause; the namespace may be gone, and pods still be released."""
    try:
        change_pause(client, lambda _: Pause(time.time(), None, "spotweave uninstall", "being uninstalled"))
    except NotFound:
        return False
    print("Paused: the rebalancer starts no more moves (`spotweave resume` ends the pause).")
    return True


def undo(client: Client) -> tuple[int, list[Pod]]:
    """Puts back what is released, until nothing is; how many, and which not: their ReplicaSet is gone or wants none."""
    writer, done = PodWriter(client), set[str]()
    found: Sequence[PutBack] = ()
    for number in range(ROUNDS):
        time.sleep(PAUSE_SECONDS)
        found = put_back(read_snapshot(client))
        possible = [(each.pod, each.undo) for each in found if each.undo is not None]
        if not possible:
            break
        if number == 0:
            time.sleep(END_SECONDS)  # an eviction that was begun is over by then: who is left is looked at anew
            continue
        for pod, back in possible:
            assert back.owner is not None
            outcome = writer.hand_over(pod, back.owner, back.annotations, back.labels)
            log.info("%s: put back: %s", pod.key, outcome)
            done.update([pod.uid] if outcome.is_settled else [])
    return len(done), [each.pod for each in found]


def _tell_rest(snapshot: Snapshot) -> None:
    ours = [pod for pod in snapshot.pods if pod.decision]
    opted_in = sorted(each.name for each in snapshot.namespaces.values() if each.is_opted_in)
    print(f"Pods that keep the node affinity from admission until their next rollout: {len(ours)}.")
    waiting = [pod for pod in ours if not pod.node and names.SOFT not in pod.annotations]
    _tell(
        "Some of them are pending and cannot fall back any more. Delete them; their replacements run anywhere:", waiting
    )
    print("Now delete the installed objects, the way you applied them:")
    print("  kubectl delete -k manifests/base")
    for name in opted_in:
        print(f"  kubectl label namespace {name} {names.PLACEMENT}-")


def _tell(sentence: str, pods: Sequence[Pod]) -> None:
    if pods:
        print(sentence)
        _list(pods[:MOST_TOLD])
        if len(pods) > MOST_TOLD:
            print(f"  and {len(pods) - MOST_TOLD} more")


def _list(pods: Iterable[Pod]) -> None:
    for pod in pods:
        print(f"  kubectl delete pod -n {pod.namespace} {pod.name}")


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
