"""`spotweave queue preview`: where a gang would run, and who would be evicted for it, before anything happens."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.text import Text

from cli import access, gangnames, output, prices
from cli.errors import UsageError
from cli.expand import Expanded, PriorityRules, expanded, objects_in
from cli.gangmachinery import machinery
from cli.plan import Picture, index_of, scene_at, take_picture
from kube.client import Client
from kube.errors import Forbidden, NotFound
from kube.resources import JOBS, POD_GROUPS, PRIORITY_CLASSES, SCOPED_QUOTAS, Resource
from kube.snapshot import read_all
from placement import names
from placement.gang.belonging import gang_key
from placement.gang.gang import status_of
from placement.model import Key, Namespace, Pod
from placement.plan.limits import short_quota
from placement.plan.preview import GangPreview, preview
from placement.plan.scene import Scene
from rebalancer.index import Index
from report.gangpreview import ShownPreview, preview_lines
from report.savings import Prices

MOST_LEFT_OUT = 5


def add_parser(actions: Any, common: argparse.ArgumentParser) -> None:
    parser = actions.add_parser(
        "preview",
        parents=[common],
        help="show where a gang would run, and who would be evicted for it",
        description="Show where a gang would run now, and who would be evicted for it. Nothing is written.",
    )
    access.add_options(parser)
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("gang", nargs="?", metavar="GANG", help="a gang in the cluster: NAME or NS/NAME")
    which.add_argument("-f", "--file", metavar="FILE|DIR", help="manifests, - for standard input")
    parser.add_argument("--config", type=Path, help="configuration file (default: the ConfigMap spotweave-config)")
    parser.add_argument("-n", "--namespace", help="namespace of the gang (default: kubectl's)")
    prices.add_options(parser)
    output.add_option(parser, "text")
    output.add_watch(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Exit code 1 where a gang would not start."""
    objects = objects_in(args.file) if args.file else []  # standard input is read once
    return output.show(args, lambda: look(args, objects))


def look(args: argparse.Namespace, objects: Sequence[dict[str, Any]]) -> output.Result:
    with access.client_for(args) as client:
        picture = with_jobs(take_picture(client, args.config), client)
        around = machinery(client, picture.configuration)
        rules, is_known = _rules(client) if objects else (PriorityRules(), True)
    known = prices.prices_for(args, picture.configuration)
    notes = [*around.warnings] + ([] if is_known else ["PriorityClasses could not be read: priorities are taken as 0."])
    if not objects:
        shown, left_out = [of_cluster(args, picture, known, notes)], []
    else:
        found = expanded(objects, access.namespace_for(args), rules, picture.now, picture.configuration.gangs)
        shown, left_out = of_manifests(picture, found, known, notes), found.left_out
    raw = {**around.raw, "gangs": [each.raw for each in shown], "leftOut": left_out}
    code = 0 if all(each.fits for each in shown) else 1
    return output.Result(raw, lambda: Text(preview_lines(shown, _shortened(left_out))), code)


def _shortened(left_out: Sequence[str]) -> list[str]:
    more = len(left_out) - MOST_LEFT_OUT
    return [*left_out[:MOST_LEFT_OUT], *([f"and {more} more"] if more > 0 else [])]


def with_jobs(picture: Picture, client: Client) -> Picture:
    """With PodGroups, too.

    Who may not read Jobs sees their gangs as Assembling, unless annotations say how many members there are.
    """
    others = (*_readable(client, JOBS), *_readable(client, POD_GROUPS))
    return replace(picture, snapshot=replace(picture.snapshot, others=(*picture.snapshot.others, *others)))


def _readable(client: Client, resource: Resource[Any]) -> Iterable[object]:
    try:
        return read_all(client, resource)
    except (Forbidden, NotFound):
        return ()


def _rules(client: Client) -> tuple[PriorityRules, bool]:
    """What gives new pods their priority; whether it could be read."""
    try:
        classes, quotas = read_all(client, PRIORITY_CLASSES), read_all(client, SCOPED_QUOTAS)
        raw = client.get_json(PRIORITY_CLASSES.path)["items"]
    except Forbidden:
        return PriorityRules(), False
    default = next((each["metadata"]["name"] for each in raw if each.get("globalDefault")), "")
    return PriorityRules(classes, default, tuple(each for each in quotas if each.by_priority)), True


# --- a gang that is there --------------------------------------------------------------------------------------------


def of_cluster(args: argparse.Namespace, picture: Picture, known: Prices, notes: Sequence[str]) -> ShownPreview:
    index = index_of(picture)
    there = {key for pod in picture.snapshot.pods if (key := gang_key(pod)) is not None}
    key = gangnames.key_of(args, args.gang, there)
    if key not in index.gangs:
        _unwatched(picture, key)
    return of_gang(picture, index, key, known, notes)


def _unwatched(picture: Picture, key: Key) -> None:
    namespace = picture.snapshot.namespaces.get(key.namespace)
    if namespace is None or not namespace.is_opted_in:
        label = f"{names.PLACEMENT}={names.ENABLED}"
        hint = f"opt in with: kubectl label namespace {key.namespace} {label}"
        raise UsageError(f"{key}: its namespace is not opted in, so it is no gang", hint)
    if not picture.configuration.gangs.enabled:
        raise UsageError(f"{key}: gangs are switched off", "the configuration needs `gangs: {enabled: true}`")
    raise UsageError(f"{key}: all of its pods have ended", "preview its manifest with -f")


def of_gang(picture: Picture, index: Index, key: Key, known: Prices, notes: Sequence[str]) -> ShownPreview:
    found = preview(gang_scene(picture, index), key)
    if found is None:  # it is at rest
        gang = index.gangs[key]
        found = GangPreview(status_of(gang, picture.now), {pod.uid: pod.node for pod in gang.running})
    paused = ["Moves are paused, gangs too: `spotweave resume` ends that."] if picture.paused else []
    return ShownPreview(found, index.ground.sites, picture.observed, known, (*notes, *paused))


def gang_scene(picture: Picture, index: Index) -> Scene:
    """What a plan for gangs is made from: as the rebalancer would find it now."""
    return replace(
        scene_at(picture, index, picture.now),
        gangs=index.restless_gangs(),
        nominated=index.nominated,
        candidates=index.candidates,
        service_of=index.service_of,
        observed=picture.observed,
        marked=list(index.marked.values()),
    )


# --- a gang that is not there yet ------------------------------------------------------------------------------------


def of_manifests(picture: Picture, found: Expanded, known: Prices, notes: Sequence[str]) -> list[ShownPreview]:
    """Each beside the cluster as it is, and beside the others of the same manifests."""
    if not found.members:
        hint = "; ".join(_shortened(found.left_out))
        raise UsageError(f"no pod of these manifests carries {names.POD_GROUP} on its template", hint)
    keys = list(dict.fromkeys(key for pod in found.members if (key := gang_key(pod)) is not None))
    there = {gang_key(pod) for pod in picture.snapshot.pods}
    for key in keys:
        if key in there:
            raise UsageError(f"{key}: there is such a gang already", f"spotweave queue preview {key}")
    with_them, more = _with(picture, found, keys)
    index = index_of(with_them)
    return [
        of_gang(with_them, index, key, known, [*notes, *more.get(key.namespace, ()), *_quota(picture, found, key)])
        for key in keys
    ]


def _with(picture: Picture, found: Expanded, keys: Iterable[Key]) -> tuple[Picture, dict[str, list[str]]]:
    """The cluster as if they had been created, gangs were on and their namespaces opted in; and what that assumes."""
    snapshot, notes = picture.snapshot, dict[str, list[str]]()
    namespaces = dict(snapshot.namespaces)
    for name in dict.fromkeys(key.namespace for key in keys):
        there = namespaces.get(name)
        if name in names.EXCLUDED_NAMESPACES:
            raise UsageError(f"{name}: Spotweave never places pods of this namespace")
        if there is None or not there.is_opted_in:
            lack = "does not exist" if there is None else "is not opted in"
            notes[name] = [f"The namespace {name} {lack}; this assumes that it has {names.PLACEMENT}={names.ENABLED}."]
            labels, written = ({}, {}) if there is None else (there.labels, there.annotations)
            namespaces[name] = Namespace(name, {**labels, names.PLACEMENT: names.ENABLED}, written)
    pods: tuple[Pod, ...] = (*snapshot.pods, *found.members)
    snapshot = replace(snapshot, namespaces=namespaces, pods=pods, others=(*snapshot.others, *found.owners))
    gangs = replace(picture.configuration.gangs, enabled=True)
    return replace(picture, snapshot=snapshot, configuration=replace(picture.configuration, gangs=gangs)), notes


def _quota(picture: Picture, found: Expanded, key: Key) -> list[str]:
    members = [pod for pod in found.members if gang_key(pod) == key]
    quotas = [each for each in picture.snapshot.quotas if each.namespace == key.namespace]
    short = short_quota(quotas, members)
    if short is None:
        return []
    return [f"QuotaShort: the ResourceQuota {short.key} has no room for all {len(members)} members."]
