"""`spotweave explain`: why a pod or a workload is where it is, what will move next, and what blocks it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.text import Text

from cli import access, explaingang, hints, output
from cli.errors import UsageError
from cli.plan import Picture, Planned, planned, take_picture, view_of
from placement import names
from placement.eviction import asked
from placement.model import Key, Kind, Pod, Snapshot
from placement.plan.actions import Blocked
from placement.plan.assess import Assessment
from placement.plan.ground import Site
from placement.plan.group import Member
from placement.plan.marks import moment, moved, released, undone
from report import answers
from report.exposure import Domain
from report.history import History
from report.unplaced import Unplaced, unplaced

POD = "pod"
GANG = "gang"
KINDS = {  # as kubectl takes them
    **dict.fromkeys(("gang", "gangs"), GANG),
    **dict.fromkeys(("po", "pod", "pods"), POD),
    **dict.fromkeys(("deploy", "deployment", "deployments", "deployment.apps"), str(Kind.DEPLOYMENT)),
    **dict.fromkeys(("sts", "statefulset", "statefulsets", "statefulset.apps"), str(Kind.STATEFUL_SET)),
    # Those that are not placed: somebody may wonder why.
    **dict.fromkeys(("ds", "daemonset", "daemonsets", "daemonset.apps"), "DaemonSet"),
    **dict.fromkeys(("rs", "replicaset", "replicasets", "replicaset.apps"), "ReplicaSet"),
    **dict.fromkeys(("job", "jobs", "job.batch"), "Job"),
    **dict.fromkeys(("cj", "cronjob", "cronjobs", "cronjob.batch"), "CronJob"),
    **dict.fromkeys(("rollout", "rollouts", "rollout.argoproj.io"), "Rollout"),
    **dict.fromkeys(("cloneset", "clonesets", "clone", "cloneset.apps.kruise.io"), "CloneSet"),
}
OF_PLACED = ("", POD, *map(str, Kind))


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    parser = commands.add_parser(
        "explain",
        parents=[common],
        help="explain why a pod, workload or gang runs where it does",
        description="Explain why a pod, workload or gang runs where it does, what comes next and what blocks it.",
    )
    access.add_options(parser)
    parser.add_argument("name", metavar="POD|WORKLOAD|GANG", help="NAME, NS/NAME or, as in kubectl, KIND/NAME")
    parser.add_argument("-n", "--namespace", help="namespace of NAME (default: the namespace of the context)")
    parser.add_argument("--config", type=Path, help="configuration file (default: the ConfigMap spotweave-config)")
    output.add_option(parser, "text")
    output.add_watch(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 where it is not where it should be."""
    return output.show(args, lambda: look(args))


def look(args: argparse.Namespace) -> output.Result:
    with access.client_for(args) as client:
        picture = take_picture(client, args.config)
        kind, name = split(args.name, picture.snapshot)
        if kind == GANG or (not kind and _is_gang_alone(args, picture, name)):
            return explaingang.look(args, client, picture, name)
    return explained(picture, name if "/" in name else f"{access.namespace_for(args)}/{name}", kind)


def _is_gang_alone(args: argparse.Namespace, picture: Picture, name: str) -> bool:
    """There is a gang of that name, and nothing else that is placed: its Job is none."""
    space, slash, rest = name.partition("/")
    key = Key(space, rest) if slash else Key(access.namespace_for(args), name)
    placed = {each.key for each in picture.snapshot.workloads} | {pod.key for pod in picture.snapshot.pods}
    return key in explaingang.known_in(picture) and key not in placed


def split(text: str, snapshot: Snapshot) -> tuple[str, str]:
    """`deploy/web` is the Deployment web, unless there is a namespace of that name; "": of any kind."""
    kind, slash, name = text.partition("/")
    if slash and kind not in snapshot.namespaces and kind.lower() in KINDS:
        return KINDS[kind.lower()], name
    return "", text


def explained(picture: Picture, name: str, kind: str = "") -> output.Result:
    made = planned(picture)
    for found in made.index.assessments.values():
        if str(found.group.workload.key) == name and kind in ("", found.group.workload.kind):
            lines, is_fine = list(_workload(made, found)), found.actual == found.wanted
            return _finding(lines, is_fine, _json(made, picture, found, None))
        for pod, member in _pods(found):
            if str(pod.key) == name and kind in ("", POD):
                lines = list(_pod(made, found, pod, member))
                is_fine = not any(wish.member.pod.uid == pod.uid for wish in found.wishes)
                return _finding(lines, is_fine, _json(made, picture, found, pod))
    alone = unplaced(picture.snapshot, Key(*name.split("/", 1)), "Pod" if kind == POD else kind)
    if alone is not None and _may_tell(alone, picture.snapshot):
        return _left_alone(made, alone)
    raise UsageError(*_why_not(name, picture.snapshot, kind))


def _may_tell(alone: Unplaced, snapshot: Snapshot) -> bool:
    """Of what an opt-in would place, that is said first."""
    namespace = snapshot.namespaces.get(alone.key.namespace)
    is_opted_in = namespace is not None and namespace.is_opted_in
    return is_opted_in or not (alone.kind in tuple(Kind) or alone.owner.startswith(tuple(Kind)))


def _left_alone(made: Planned, alone: Unplaced) -> output.Result:
    """Nothing is wrong with it, and there is nothing to do."""
    lines = [f"{alone.kind} {alone.key}{f' of {alone.owner}' if alone.owner else ''}: not placed by Spotweave"]
    sites = made.index.ground.sites
    lines += [alone.why, *(f"  {pod.name} {_where(sites.get(pod.node), pod)}" for pod in alone.pods)]
    raw = {"name": str(alone.key), "kind": alone.kind, "placed": False, "reason": alone.why}
    return _finding(lines, True, raw)


def _finding(lines: list[str], is_fine: bool, raw: dict[str, Any]) -> output.Result:
    return output.Result({"fine": is_fine, **raw, "lines": lines}, lambda: Text("\n".join(lines)), 0 if is_fine else 1)


def _why_not(name: str, snapshot: Snapshot, kind: str = "") -> tuple[str, str]:
    """What is wrong with a name, and what to do next."""
    where = name.partition("/")[0]
    namespace = snapshot.namespaces.get(where)
    known = [str(each.key) for each in snapshot.workloads if kind in ("", each.kind)]
    known += [str(each.key) for each in snapshot.pods if kind in ("", POD)]
    if namespace is None:
        elsewhere = [each for each in known if each.partition("/")[2] == name.partition("/")[2]]
        hint = hints.meant(name, elsewhere) if elsewhere else hints.meant(where, snapshot.namespaces)
        return f"{name}: the namespace does not exist", hint
    if kind not in OF_PLACED:
        return f"{name}: no {kind} of that name has pods", f"Spotweave leaves the pods of a {kind} alone"
    if name not in known:
        here = [each for each in known if each.startswith(f"{where}/")]
        elsewhere = [each for each in known if each.partition("/")[2] == name.partition("/")[2]]
        hint = hints.meant(name, elsewhere) if elsewhere else hints.meant(name, here)
        return (
            f"{name}: no such {kind or 'pod, Deployment or StatefulSet'}",
            hint or "use -n NAMESPACE or NS/NAME to look in another namespace",
        )
    if not namespace.is_opted_in:
        label = f"{names.PLACEMENT}={names.ENABLED}"
        return f"{name}: the namespace is not opted in", f"opt in with: kubectl label namespace {where} {label}"
    return f"{name}: Spotweave could not assess it", "the log of the rebalancer says why"


def _json(made: Planned, picture: Picture, found: Assessment, pod: Pod | None) -> dict[str, Any]:
    """As the dashboard's API tells of a workload, of one pod what concerns it. `blockers` is `blocked` in parts."""
    workload = found.group.workload
    key = (workload.namespace, str(workload.kind), workload.name)
    raw = answers.workload(view_of(made, picture), History(), key)
    del raw["events"]  # which only the rebalancer has seen
    raw["blockers"] = list(_blockers(made, found, pod))
    if pod is None:
        return {"name": str(workload.key), **raw}
    raw["workload"]["pods"] = [each for each in raw["workload"]["pods"] if each["name"] == pod.name]
    raw["released"] = [each for each in raw["released"] if each["pod"] == pod.name]
    raw["next"] = [each for each in raw["next"] if each["uid"] == pod.uid]
    raw["blocked"] = [line.removeprefix("blocked: ") for line in _blocked(found, pod)]
    return {"name": str(pod.key), **raw}


def _blockers(made: Planned, found: Assessment, pod: Pod | None) -> Iterator[dict[str, Any]]:
    """What should be done to which pod and is not; or to how many, where limits on all workloads are in the way."""
    told = set()
    for wish in found.wishes:
        if wish.blocked is not None and (pod is None or wish.member.pod.uid == pod.uid):
            told.add((wish.why, wish.blocked))
            to, reason = str(wish.to), str(wish.why)
            yield {"pod": wish.member.pod.name, "pods": 1, "to": to, "reason": reason, "blocked": str(wish.blocked)}
    for each in made.plan.skipped if pod is None else ():
        if each.workload.uid == found.group.workload.uid and (each.why, each.blocked) not in told:
            yield {"pod": None, "pods": each.pods, "to": None, "reason": str(each.why), "blocked": str(each.blocked)}


def _pods(found: Assessment) -> Iterator[tuple[Pod, Member | None]]:
    yield from ((member.pod, member) for member in found.members)
    yield from ((pod, None) for cohort in found.group.cohorts for pod in cohort.released)


def _workload(made: Planned, found: Assessment) -> Iterator[str]:
    group, seen = found.group, made.exposure_of(found)
    mix = f"{found.actual}, wanted {found.wanted} ({group.policy.explain()})"
    yield f"{group.workload.kind} {group.workload.key}: {mix}"
    assumed = " (assumed)" if seen.is_assumed else ""
    needed = f"{seen.availability.needed} of {group.workload.replicas} replicas must serve{assumed}"
    yield f"{needed}; headroom {seen.headroom}"
    yield seen.risk.explain()
    if seen.headroom < 0:
        yield f"too few are ready: {seen.ready}, but {seen.availability.needed} must serve"
    for domain in Domain:
        if seen.headroom >= 0 and not seen.survives(domain):
            lost = "all spot" if domain is Domain.SPOT else f"a {domain}"
            yield f"would not survive the loss of {lost}: {seen.explain(domain)}"
    for member in sorted(found.members, key=lambda each: each.slot or 0):
        site = member.site
        alone = f"; left alone: {Blocked.OWN_TERMS}"
        is_alone = names.LEFT_ALONE in member.pod.annotations
        yield f"  slot {member.slot}: {member.pod.name} {_where(site, member.pod)}{alone if is_alone else ''}"
    yield from _next(made, found, None)


def _where(site: Site | None, pod: Pod) -> str:
    """`on node-1 (spot, zone-a/m5)`, or why it is on no node."""
    if site is not None:
        return f"on {site.node.name} ({site.of}, {site.pool})"
    if pod.node:
        return f"on {pod.node}, which is gone"
    return f"has no node{f': {pod.why_pending}' if pod.why_pending else ''}"


def _pod(made: Planned, found: Assessment, pod: Pod, member: Member | None) -> Iterator[str]:
    workload = found.group.workload
    yield f"Pod {pod.key} of {workload.kind} {workload.name}"
    yield pod.annotations.get(names.REASON) or "missed by admission"
    if member is not None:
        site, soft = member.site, ", soft" if names.SOFT in pod.annotations else ""
        where = f"on node {site.node.name}: {site.of}, pool {site.pool}" if site else _where(None, pod)
        yield f"slot {member.slot}{soft}, {where}"
    state, before, tried, question = released(pod), moved(pod), undone(pod), asked(pod)
    if question is not None:
        until = moment(question.at + found.group.policy.eviction_hold.total_seconds())
        yield f"its eviction was first asked for at {moment(question.at)} by {question.by}: held until {until} at most"
    if state is not None:
        yield "released: it serves until its replacement is ready"
    if before is not None:
        yield f"it replaced a pod that was moved off {before.origin}"
    if tried is not None:
        yield f"its move was undone {tried.tries} times; Spotweave retries later"
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
    yield from _blocked(found, pod)
    told = {(wish.why, wish.blocked) for wish in found.wishes}
    for each in made.plan.skipped if pod is None else ():
        if each.workload.uid == found.group.workload.uid and (each.why, each.blocked) not in told:
            yield f"blocked: {each.text}"


def _blocked(found: Assessment, pod: Pod | None) -> Iterator[str]:
    for wish in found.wishes:
        if wish.blocked is not None and (pod is None or wish.member.pod.uid == pod.uid):
            yield f"blocked: {wish.explain()}"
