"""Becomes another program that dies with its parent: `python launch.py PARENT-PID PROGRAM ARGUMENT…`.

Run as a script of its own between fork and the real program, because `preexec_fn` may deadlock in a process that has
threads. PR_SET_PDEATHSIG survives the second exec, the pid stays the same. Imports as little as it can: it costs every
part's start.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Ask the kernel for SIGKILL when the parent goes; if it went before we asked, go as well."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.exit(f"prctl: {os.strerror(ctypes.get_errno())}")
    if os.getppid() != parent:
        sys.exit("the parent is gone")
    os.execv(command[0], command)  # noqa: S606 - a list from our own parent, no shell


if __name__ == "__main__":
    main()
