"""`spotweave uninstall`: what must be done before the manifests are deleted, so that nothing of ours is left on pods.

First nothing new begins: no pod gets the gate of gangs any more, moves are paused, and the API server does not call the
webhook. Then what is released is put back: such a pod belongs to its Deployment directly until its move is over, and
Kubernetes neither scales nor rolls it. Members of gangs that wait lose their gate; each of them starts by itself then.
Last, pods lose our labels and annotations; in another order new pods would come with them. Pods run on as they are.
Their node affinity cannot be changed, and goes when they are created anew.
"""

from __future__ import annotations

import argparse
import logging
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from certs.publish import CONFIGURATION, EVICTION_CONFIGURATION
from cli import access
from kube.client import Client
from kube.configmaps import change_pause
from kube.errors import NotFound
from kube.gates import GatedPod, gated_pods, remove_gate, ungate
from kube.nodetaints import remove_taints
from kube.podwriter import END_SECONDS, PodWriter
from kube.snapshot import read_snapshot
from kube.twins import TwinWriter
from placement import names
from placement.model import Pod, Snapshot
from placement.pause import Pause
from report.residue import PutBack, has_our_affinity, put_back, remnants

log = logging.getLogger(__name__)

PAUSE_SECONDS = 2.0  # until rebalancers and the API server have read it, and what they were writing is written
ROUNDS = 5
MOST_TOLD = 20
WRITERS = 8


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "uninstall",
        parents=[common],
        help="undo all moves under way and clean up all pods",
        description="Stop admission, undo all moves, and clean up all pods. Run it before you delete the manifests.",
    )
    access.add_options(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0: nothing of ours is under way or on pods any more; 1: something is left that somebody has to look at."""
    with access.client_for(args) as client:
        steps = (("gangs", remove_gate), ("moves", pause), ("admission", stop_admission))
        stopped = [word for word, stop in steps if stop(client)]
        seen = read_snapshot(client)
        if not stopped and not remnants(seen) and not put_back(seen) and not any(gated_pods(client)):
            print("Spotweave is not installed, and no pod carries anything of it.")
            return 0
        if stopped:
            print(f"Stopped {_listed(stopped)}.")
        count, left = undo(client)
        freed, gated = ungate_all(client)
        snapshot = read_snapshot(client)
        _tell_waiting(snapshot)  # before what shows it is cleaned up
        cleaned, failed = clean(client, snapshot)
        twins = TwinWriter(client).remove_all()
        tainted = remove_taints(client)
    if freed or gated:
        print(f"Took the gate off {_pods(freed)} that waited for a gang. They start one by one.")
    if twins:
        print(f"Deleted {twins} PriorityClass{'' if twins == 1 else 'es'} of members of gangs.")
    if tainted:
        print(f"Removed the taint of exclusive gangs from {tainted} node{'' if tainted == 1 else 's'}.")
    if count:
        print(f"Put back {_pods(count)} that {'was' if count == 1 else 'were'} released for a move.")
    _tell(f"{_pods(len(left))} could not be put back. Delete them once enough other replicas serve:", left)
    print(f"Removed labels and annotations of Spotweave from {_pods(cleaned)}{_affine(snapshot)}.")
    if failed or gated:
        print(f"{_pods(len(failed) + len(gated))} could not be cleaned up: run `spotweave uninstall` again.")
    _tell_rest(snapshot)
    return 1 if left or failed or gated else 0


def pause(client: Client) -> bool:
    """Whether there is anything to pause; the namespace may be gone, and pods still be released."""
    try:
        change_pause(client, lambda _: Pause(time.time(), None, "spotweave uninstall", "being uninstalled"))
    except NotFound:
        return False
    return True


def stop_admission(client: Client) -> bool:
    """Whether there was any. New pods would get what is taken from the others, and so would pods that are evicted."""
    deleted = [client.remove(path) for path in (CONFIGURATION, EVICTION_CONFIGURATION)]
    return any(deleted)


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


def ungate_all(client: Client) -> tuple[int, list[GatedPod]]:
    """Takes our gate off all pods, until none has it; from how many, and which still have it."""
    done = 0
    for _ in range(ROUNDS):
        found = list(gated_pods(client))
        if not found:
            return done, []
        with ThreadPoolExecutor(WRITERS) as pool:
            done += sum(pool.map(lambda each: ungate(client, each), found))
    return done, list(gated_pods(client))


def clean(client: Client, snapshot: Snapshot) -> tuple[int, list[Pod]]:
    """Takes our labels and annotations off all pods but released ones; how many, and which not."""
    writer, found = PodWriter(client), remnants(snapshot)
    with ThreadPoolExecutor(WRITERS) as pool:
        outcomes = pool.map(
            lambda each: writer.annotate(each.pod.key, each.pod.uid, each.annotations, each.labels), found
        )
        failed = [each.pod for each, outcome in zip(found, outcomes, strict=True) if not outcome.is_settled]
    return len(found) - len(failed), failed


def _affine(snapshot: Snapshot) -> str:
    count = sum(map(has_our_affinity, snapshot.pods))
    if not count:
        return ""
    keep = "keeps its node affinity until it is" if count == 1 else "keep their node affinity until they are"
    return f"; {count} of them {keep} recreated"


def _tell_waiting(snapshot: Snapshot) -> None:
    required = (pod for pod in snapshot.pods if has_our_affinity(pod) and names.SOFT not in pod.annotations)
    waiting = [pod for pod in required if not pod.node]
    _tell(
        "These pods are pending and cannot fall back any more. Delete them; their replacements run anywhere:", waiting
    )


def _tell_rest(snapshot: Snapshot) -> None:
    opted_in = sorted(each.name for each in snapshot.namespaces.values() if each.is_opted_in)
    print("Now delete the installed objects, the way you applied them:")
    print("  kubectl delete -k manifests/base --ignore-not-found")
    if opted_in:
        print(f"  kubectl label namespace {' '.join(opted_in)} {names.PLACEMENT}-")


def _tell(sentence: str, pods: Sequence[Pod]) -> None:
    if pods:
        print(sentence)
        _list(pods[:MOST_TOLD])
        if len(pods) > MOST_TOLD:
            print(f"  and {len(pods) - MOST_TOLD} more")


def _list(pods: Iterable[Pod]) -> None:
    for pod in pods:
        print(f"  kubectl delete pod -n {pod.namespace} {pod.name}")


def _listed(words: Sequence[str]) -> str:
    return " and ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} and {words[-1]}"


def _pods(count: int) -> str:
    return "1 pod" if count == 1 else f"{count} pods"
