"""`spotweave cluster …`: a real control plane on this machine, by hand."""

import argparse
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from cli import output
from localcluster import programs
from localcluster.api import NoAnswerError
from localcluster.cluster import remove_stale_directories
from localcluster.daemon import DaemonRequest, RunningCluster, launch, stop
from localcluster.errors import BAD_INPUT, ClusterError
from localcluster.owner import read_owner, remove_stale
from localcluster.parts import PARTS, Options
from localcluster.profile import DEMO, load_profile
from localcluster.progress import Progress
from localcluster.reclaim import TERMINATION_TAINT, Choice, Way, reclaim, restore
from localcluster.stages import merged_stages

FINE, FINDING = 0, 1
RESTORE_TIMEOUT_SECONDS = 60.0


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `cluster` and its sub-commands."""
    cluster = subparsers.add_parser("cluster", help="run a real control plane on this machine")
    commands = cluster.add_subparsers(dest="cluster_command", required=True, metavar="COMMAND")
    _add_up(commands)
    _add(commands, "down", run_down, "stop and remove the cluster")
    output.add_option(_add(commands, "status", run_status, "show parts, pids, versions and nodes"), "text")
    shown = _add(commands, "kubeconfig", run_kubeconfig, "print the path of the admin kubeconfig")
    shown.add_argument("--raw", action="store_true", help="print its content instead")
    _add(commands, "clean", run_clean, "remove cached programs and the remains of crashed clusters")
    _add_reclaim(commands)
    _add_restore(commands)
    for verb, what in PART_COMMANDS.items():
        parser = _add(commands, verb, run_part, what)
        parser.add_argument("part", metavar="PART", choices=PARTS, help=", ".join(PARTS))


PART_COMMANDS = {
    "kill": "kill a part (SIGKILL); it stays down until `start`",
    "start": "restart a part that was killed or crashed, with the same arguments",
    "pause": "freeze a part (SIGSTOP)",
    "resume": "resume a frozen part (SIGCONT)",
}

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def _add(commands: Commands, name: str, run: Callable[[argparse.Namespace], int], what: str) -> argparse.ArgumentParser:
    parser = commands.add_parser(name, help=what, description=what[0].upper() + what[1:] + ".")
    parser.add_argument(
        "--dir", type=Path, default=None, metavar="DIR", help="directory of the cluster (default: one per user)"
    )
    parser.set_defaults(run=run)
    return parser


def _add_up(commands: Commands) -> None:
    parser = _add(commands, "up", run_up, "start a cluster that runs until `down`; the first start builds its programs")
    options = Options()
    parser.add_argument(
        "--profile", type=Path, default=DEMO, metavar="FILE", help="node profile (default: 12 nodes in 3 zones)"
    )
    parser.add_argument(
        "--kubernetes",
        choices=programs.KUBERNETES_MINORS,
        help="Kubernetes version (default: $SPOTWEAVE_KUBERNETES or 1.36)",
    )
    parser.add_argument(
        "--service-range",
        type=service_range,
        default=options.service_range,
        metavar="CIDR",
        help="range of Service addresses (default: %(default)s)",
    )
    parser.add_argument("--controller-qps", type=float, metavar="N", help="kube-controller-manager's --kube-api-qps")
    parser.add_argument("--controller-burst", type=int, metavar="N", help="kube-controller-manager's --kube-api-burst")
    parser.add_argument(
        "--stage", type=Path, action="append", default=[], metavar="FILE", help="additional KWOK Stages"
    )


def _add_reclaim(commands: Commands) -> None:
    parser = _add(commands, "reclaim", run_reclaim, "remove nodes as a cloud provider does")
    _add_choice(parser, required=True)
    parser.add_argument(
        "--notice",
        type=seconds,
        default=0.0,
        metavar="120s",
        help="cordon, taint and drain the nodes first, for this long",
    )
    parser.add_argument(
        "--taint",
        default=TERMINATION_TAINT,
        metavar="KEY",
        help="taint that announces the removal (default: %(default)s)",
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument("--bare", dest="way", action="store_const", const=Way.BARE, help="only delete the Node objects")
    way.add_argument(
        "--not-ready", dest="way", action="store_const", const=Way.NOT_READY, help="only stop the kubelets' heartbeats"
    )
    parser.set_defaults(way=Way.CLOUD)


def _add_restore(commands: Commands) -> None:
    parser = _add(commands, "restore", run_restore, "bring removed nodes back (default: all of them)")
    _add_choice(parser, required=False)
    parser.add_argument(
        "--taint",
        default=TERMINATION_TAINT,
        metavar="KEY",
        help="taint that announces the removal (default: %(default)s)",
    )


def _add_choice(parser: argparse.ArgumentParser, required: bool) -> None:
    choice = parser.add_mutually_exclusive_group(required=required)
    choice.add_argument("pool", nargs="?", metavar="POOL", help="a pool of the profile")
    choice.add_argument("--zone", metavar="Z", help="all nodes of a zone")
    choice.add_argument("--all-spot", action="store_true", help="all spot nodes")


def seconds(text: str) -> float:
    """`120s`, `2m`, `1m30s` or a plain number of seconds."""
    found = re.fullmatch(r"(?:(\d+)m)?(?:(\d+(?:\.\d+)?)s?)?", text)
    if not text or found is None:
        raise argparse.ArgumentTypeError(f"expected a duration such as 120s or 2m, got {text!r}")
    return 60.0 * int(found[1] or 0) + float(found[2] or 0)


def service_range(text: str) -> str:
    """A range that `Options` accepts; raises what argparse expects."""
    try:
        return Options(service_range=text).service_range
    except ClusterError as error:
        raise argparse.ArgumentTypeError(error.message) from error


def directory_of(args: argparse.Namespace, environment: Mapping[str, str] = os.environ) -> Path:
    """`--dir`, or the one well-known directory of this user."""
    if args.dir is not None:
        return Path(args.dir).absolute()
    base = environment.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "spotweave" / "cluster"


def run_up(args: argparse.Namespace) -> int:
    """Everything that can be wrong with the input is found before anything is started."""
    directory = directory_of(args)
    owner = read_owner(directory)
    if owner is not None and owner.is_alive:
        print(f"A cluster is already running in {directory}.")
        _print_usage(RunningCluster.find(directory))
        return FINE
    load_profile(args.profile)
    progress = Progress()
    got = programs.get_programs(programs.chosen_kubernetes(args.kubernetes), progress)
    merged_stages(got.stages, args.stage)
    running = launch(_request(args, directory, got.kubernetes), progress)
    _print_usage(running)
    return FINE


def _request(args: argparse.Namespace, directory: Path, kubernetes: str) -> DaemonRequest:
    return DaemonRequest(
        directory=str(directory),
        profile=str(args.profile.absolute()),
        kubernetes=kubernetes,
        service_range=args.service_range,
        controller_qps=args.controller_qps,
        controller_burst=args.controller_burst,
        stage_files=tuple(str(path.absolute()) for path in args.stage),
    )


def _print_usage(running: RunningCluster) -> None:
    option = f" --dir {running.directory}" if running.directory != directory_of(argparse.Namespace(dir=None)) else ""
    print(
        f"export KUBECONFIG={running.layout.kubeconfig}\n"
        f"{running.state['kubectl']} get nodes\n"
        f"spotweave cluster status{option}    # and: reclaim, restore, kill, start, pause, resume, down"
    )


def run_down(args: argparse.Namespace) -> int:
    directory = directory_of(args)
    if stop(directory):
        print(f"Stopped and removed the cluster in {directory}.")
    elif remove_stale(directory):
        print(f"The cluster in {directory} was not running. Removed its remains.")
    else:
        print(f"No cluster is running in {directory}.")
    return FINE


def run_status(args: argparse.Namespace) -> int:
    """0 if all parts run and all nodes are ready, else 1."""
    told = RunningCluster.find(directory_of(args)).ask("status")
    if args.output == "text":
        print(status_text(told))
    else:
        output.write(told, args.output)
    parts_run = all(part["state"] == "running" for part in told["parts"])
    nodes_ready = told["nodes"] is not None and all(node["ready"] for node in told["nodes"])
    return FINE if parts_run and nodes_ready else FINDING


def status_text(told: Mapping[str, Any]) -> str:
    """The status as a person reads it."""
    head = [
        f"Kubernetes {told['kubernetes']} at {told['server']}, daemon {told['daemon']['pid']}",
        f"Services   {told['serviceRange']}",
        f"directory  {told['directory']}",
        f"kubeconfig {told['kubeconfig']}",
        "",
    ]
    parts = [_part_line(part) for part in told["parts"]]
    return "\n".join([*head, *parts, "", *_node_lines(told["nodes"])])


def _part_line(part: Mapping[str, Any]) -> str:
    """A part that died has its last words below it."""
    line = f"{part['name']:<24} {part['version']:<8} {part['state']:<8} {part['pid'] or '-':<8} {part['log']}"
    return f"{line}\n{part['detail']}" if part["detail"] else line


def _node_lines(nodes: list[dict[str, Any]] | None) -> list[str]:
    if nodes is None:
        return ["nodes: unknown, the API server does not answer"]
    return [
        f"{node['name']:<24} {node['class'] or '-':<10} {node['zone'] or '-':<8} {node['instanceType'] or '-':<12} "
        f"{'Ready' if node['ready'] else 'NotReady'}{', cordoned' if node['cordoned'] else ''}"
        for node in nodes
    ]


def run_kubeconfig(args: argparse.Namespace) -> int:
    path = RunningCluster.find(directory_of(args)).layout.kubeconfig
    print(path.read_text() if args.raw else path, end="" if args.raw else "\n")
    return FINE


def run_clean(args: argparse.Namespace) -> int:
    """Programs in use are not removed: a part of that cluster could not be started again."""
    directory = directory_of(args)
    owner = read_owner(directory)
    if owner is not None and owner.is_alive:
        raise ClusterError(f"a cluster is running in {directory}", "Run `spotweave cluster down` first.", BAD_INPUT)
    removed = [*([directory] if remove_stale(directory) else []), *remove_stale_directories()]
    if cache := programs.clean():
        removed.append(cache)
    print("\n".join(f"removed {path}" for path in removed) or "Nothing to remove.")
    return FINE


def run_reclaim(args: argparse.Namespace) -> int:
    """1 if pods were still there when the machines went: the drainer did not get done."""
    running = RunningCluster.find(directory_of(args))
    done = reclaim(running.api, _choice(args), args.way, args.notice, args.taint)
    print(f"Removed {len(done.nodes)} node(s) ({args.way.value}): {', '.join(done.nodes)}")
    print(f"Evicted {len(done.evicted)} pod(s) before the removal; {len(done.left)} pod(s) remained on the nodes")
    return FINDING if args.notice and done.left else FINE


def run_restore(args: argparse.Namespace) -> int:
    running = RunningCluster.find(directory_of(args))
    done = restore(running.api, running.profile, _wait, _choice(args), args.taint)
    print(f"Created {len(done.created)} node(s), revived {len(done.revived)}; all of them accept pods")
    return FINE


def run_part(args: argparse.Namespace) -> int:
    RunningCluster.find(directory_of(args)).ask(args.cluster_command, args.part)
    print(f"{args.part}: {args.cluster_command} done")
    return FINE


def _choice(args: argparse.Namespace) -> Choice:
    return replace(Choice(), pool=args.pool, zone=args.zone, all_spot=args.all_spot)


def _wait(what: str, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + RESTORE_TIMEOUT_SECONDS
    while not _holds(condition):
        if time.monotonic() > deadline:
            raise ClusterError(
                f"timed out waiting for {what}", "`spotweave cluster status` shows whether all parts run."
            )
        time.sleep(0.1)


def _holds(condition: Callable[[], bool]) -> bool:
    try:
        return condition()
    except NoAnswerError:
        return False
