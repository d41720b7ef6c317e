"""The command `spotweave`: reads the arguments, runs one command, turns errors into sentences and exit codes."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from cli import (
    __version__,
    certs,
    cluster,
    completion,
    demo,
    doctor,
    drill,
    explain,
    hints,
    lint,
    logs,
    metrics,
    optin,
    outage,
    pause,
    plan,
    queue,
    rebalancer,
    replay,
    run,
    status,
    uninstall,
    webhook,
)
from cli.errors import BAD_INPUT, UsageError
from kube.errors import ApiError, KubeconfigError
from localcluster.errors import ClusterError
from placement.configuration import ConfigurationError

FINE, FINDING, UNREACHABLE = 0, 1, 3


PROGRAM = "spotweave"
PLUGIN = "kubectl spotweave"


def parser(program: str = PROGRAM) -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog=program, description="Run as much as possible on spot nodes without interrupting services."
    )
    top.add_argument("--version", action="version", version=f"spotweave {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    common = logs.options()
    everyday = (status, plan, explain, drill, queue, doctor, lint, optin, outage, pause, replay, uninstall)
    for command in (*everyday, certs, metrics, run, webhook, rebalancer, demo):
        command.add_parser(commands, common)
    cluster.add_parser(commands)
    completion.add_parser(commands, parser)
    version = commands.add_parser("version", help="print the version")
    version.set_defaults(run=_version)
    return top


def plugin() -> int:
    """The program `kubectl-spotweave`, by which kubectl knows the command `kubectl spotweave`."""
    return main(program=PLUGIN)


def complete(arguments: Sequence[str] | None = None) -> int:
    """The program `kubectl_complete-spotweave`, which kubectl asks for what may follow."""
    words = sys.argv[1:] if arguments is None else arguments
    print(completion.lines_for_kubectl(completion.command_of(parser()), words))
    return FINE


def main(arguments: Sequence[str] | None = None, program: str = PROGRAM) -> int:
    args = parser(program).parse_args(arguments)
    logs.configure(getattr(args, "log_format", "text"), getattr(args, "log_level", "info"))
    try:
        code: int = args.run(args)
        sys.stdout.flush()
    except ConfigurationError as error:
        return _fail("the configuration is invalid:\n  " + "\n  ".join(error.mistakes), BAD_INPUT)
    except KubeconfigError as error:
        return _fail(
            f"{error}\nset --kubeconfig or KUBECONFIG; `spotweave cluster kubeconfig` prints the path of a local one",
            BAD_INPUT,
        )
    except ApiError as error:
        return _fail(hints.told(error, writes=getattr(args, "writes", False)), UNREACHABLE)
    except (UsageError, ClusterError) as error:
        return _fail(str(error), error.exit_code)
    except BrokenPipeError:  # `| head` has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FINE
    except KeyboardInterrupt:
        return 130
    return code


def _version(_args: argparse.Namespace) -> int:
    print(f"spotweave {__version__}")
    return FINE


def _fail(message: str, code: int) -> int:
    print(f"spotweave: error: {message}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
