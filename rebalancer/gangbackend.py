"""The seam between plans for gangs and the scheduler that places their members: two verbs, *reserve* and *release*.

A plan keeps room for each gated member (`reserve`), and when room is kept for all of them, it lets the scheduler place
them (`release`). Each verb has its way back: `unreserve` gives room back, `ungate` releases without a plan. What a plan
rests on is said here, and nothing else; ADR 26 says what another back end would have to do.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from placement.model import Key, Pod
from placement.outcome import Outcome

Written = Mapping[str, str | None]  # annotations that go with it, in the same write; None removes one


class GangBackend(Protocol):
    """How room is kept for members, and how they are let go. Each call is one write, repeatable, bound to the UID."""

    def reserve(self, pod: Pod, node: str, written: Written) -> Outcome:
        """From now on nothing of the same or a lower priority gets this room. It may be in use by victims still.

        What was reserved can be read from the pod, so that another leader goes on from there.
        """
        ...

    def unreserve(self, pod: Pod, written: Written) -> Outcome:
        """The room is everybody's again."""
        ...

    def release(self, pod: Pod, nodes: Sequence[str], written: Written) -> Outcome:
        """The scheduler may place it, on one of these nodes; none: on any. It keeps its room until it has a node."""
        ...

    def ungate(self, pod: Pod) -> Outcome:
        """The scheduler may place it like any other pod: there is no plan."""
        ...


class PodWrites(Protocol):
    """What nominations need of `kube.podwriter.PodWriter`."""

    def reserve(self, key: Key, uid: str, node: str, annotations: dict[str, str | None]) -> Outcome: ...
    def unreserve(self, key: Key, uid: str, annotations: dict[str, str | None]) -> Outcome: ...
    def start_member(self, pod: Pod, nodes: Sequence[str], annotations: Written) -> Outcome: ...
    def ungate(self, pod: Pod) -> Outcome: ...


class Nominations:
    """On the unmodified scheduler: `status.nominatedNodeName` reserves, taking our scheduling gate off releases."""

    def __init__(self, writer: PodWrites) -> None:
        self._writer = writer

    def reserve(self, pod: Pod, node: str, written: Written) -> Outcome:
        return self._writer.reserve(pod.key, pod.uid, node, dict(written))

    def unreserve(self, pod: Pod, written: Written) -> Outcome:
        return self._writer.unreserve(pod.key, pod.uid, dict(written))

    def release(self, pod: Pod, nodes: Sequence[str], written: Written) -> Outcome:
        return self._writer.start_member(pod, nodes, written)

    def ungate(self, pod: Pod) -> Outcome:
        return self._writer.ungate(pod)
