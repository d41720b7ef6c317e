"""`spotweave explain`: why a pod or a workload is where it is, what will move next, and what blocks it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cli import access, show
from cli.plan import Planned, planned, take_picture
from localcluster.errors import ClusterError
from placement import names
from placement.exposure import Domain
from placement.model import Pod
from placement.plan.assess import Assessment
from placement.plan.group import Member, moved, released, undone


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser("explain", parents=[common], help="why a pod or workload is where it is")
    access.add_options(parser)
    parser.add_argument("name", metavar="POD|WORKLOAD", help="NAME or NS/NAME")
    parser.add_argument("-n", "--namespace", default="default", help="where NAME is (default: default)")
    parser.add_argument("--config", type=Path, help="configuration file (default: the ConfigMap spotweave-config)")
    show.add_option(parser, "text")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 where it is not where it should be."""
    name = args.name if "/" in args.name else f"{args.namespace}/{args.name}"
    with access.client_for(args) as client:
        picture = take_picture(client, args.config)
    made = planned(picture)
    for found in made.board.assessments.values():
        if str(found.group.workload.key) == name:
            return _show(args, list(_workload(made, found)), found.actual == found.wanted)
        for pod, member in _pods(found):
            if str(pod.key) == name:
                lines = list(_pod(made, found, pod, member))
                return _show(args, lines, not any(wish.member.pod.uid == pod.uid for wish in found.wishes))
    raise ClusterError(_why_not(name, picture.snapshot), exit_code=2)


def _why_not(name: str, snapshot: Any) -> str:
    namespace = snapshot.namespaces.get(name.partition("/")[0])
    if namespace is None:
        return f"{name}: there is no such namespace"
    known = [*snapshot.pods, *snapshot.workloads]
    if not any(str(each.key) == name for each in known):
        return f"{name}: there is no such pod, Deployment or StatefulSet"
    if not namespace.is_opted_in:
        return f"{name}: its namespace is not opted in (label {names.PLACEMENT}={names.ENABLED})"
    return f"{name}: it is opted out, or belongs to no Deployment or StatefulSet"


def _show(args: argparse.Namespace, lines: list[str], is_fine: bool) -> int:
    if args.output == "text":
        print("\n".join(lines))
    else:
        show.write({"name": args.name, "fine": is_fine, "lines": lines}, args.output)
    return 0 if is_fine else 1


def _pods(found: Assessment) -> Iterator[tuple[Pod, Member | None]]:
    yield from ((member.pod, member) for member in found.members)
    yield from ((pod, None) for cohort in found.group.cohorts for pod in cohort.released)


def _workload(made: Planned, found: Assessment) -> Iterator[str]:
    group, seen = found.group, made.exposure_of(found)
    mix = f"{found.actual}, wanted {found.wanted} ({group.policy.explain()})"
    yield f"{group.workload.kind} {group.workload.key}: {mix}"
    assumed = ", assumed" if seen.is_assumed else ""
    yield f"{seen.availability.needed} of {group.workload.replicas} must serve{assumed}; headroom {seen.headroom}"
    yield seen.risk.explain()
    for domain in Domain:
        if not seen.survives(domain):
            yield f"would not survive the loss of a {domain}: {seen.explain(domain)}"
    for member in sorted(found.members, key=lambda each: each.slot or 0):
        site = member.site
        where = f"{site.node.name} ({site.of}, {site.pool})" if site else member.pod.unschedulable or "no node"
        yield f"  slot {member.slot}: {member.pod.name} on {where}"
    yield from _next(made, found, None)


def _pod(made: Planned, found: Assessment, pod: Pod, member: Member | None) -> Iterator[str]:
    workload = found.group.workload
    yield f"Pod {pod.key} of {workload.kind} {workload.name}"
    yield pod.annotations.get(names.REASON) or "admission missed it"
    if member is not None:
        where = (
            f"on {member.site.node.name}: {member.site.of}, pool {member.site.pool}" if member.site else "on no node"
        )
        yield f"slot {member.slot}, {where}" + (", soft" if names.SOFT in pod.annotations else "")
    if pod.unschedulable:
        yield f"unschedulable: {pod.unschedulable}"
    state, before, tried = released(pod), moved(pod), undone(pod)
    if state is not None:
        yield "released: it serves until its replacement does"
    if before is not None:
        yield f"its predecessor was moved away from {before.origin}"
    if tried is not None:
        yield f"its move was undone {tried.tries} times; it is tried again later"
    yield from _next(made, found, pod)


def _next(made: Planned, found: Assessment, pod: Pod | None) -> Iterator[str]:
    """What will be done, and what should be and is not."""
    actions = [
        each
        for each in made.plan.actions
        if each.workload is not None and each.workload.uid == found.group.workload.uid
    ]
    for action in actions:
        if pod is None or action.pod.uid == pod.uid:
            yield f"next: {action.how} {action.pod.name} ({action.why}): {action.text}"
    for wish in found.wishes:
        if wish.blocked is not None and (pod is None or wish.member.pod.uid == pod.uid):
            yield f"blocked: {wish.member.pod.name} should be on {wish.to} ({wish.why}): {wish.blocked}"
    if pod is None:
        yield from (
            f"blocked: {each.text}" for each in made.plan.skipped if each.workload.uid == found.group.workload.uid
        )
