"""The rebalancer makes the twins that members need, and reads PriorityClasses no more often than it has to."""

from __future__ import annotations

from dataclasses import replace

from kube.errors import Forbidden
from kube.twins import TwinWriter
from placement import names
from placement.gang.twins import TwinChange, twin_name
from placement.model import Needs, Pod, PriorityClass
from rebalancer.twins import LOOK_SECONDS, RETRY_SECONDS, Twins
from tests.kube.scripted import Answer, scripted_api

MEMBER = Pod("shop", "a", "u", labels={names.GANG_LABEL: names.GANG_MEMBER}, needs=Needs(priority_class="high"))


class RecordedTwins(TwinWriter):
    """A cluster with two classes, and what was asked of it."""

    def __init__(self) -> None:
        self.known = [PriorityClass("high", 1000), PriorityClass("low", 1)]
        self.looks = 0
        self.is_denied = False

    def classes(self) -> list[PriorityClass]:
        self.looks += 1
        return self.known

    def make(self, change: TwinChange) -> None:
        if self.is_denied:
            raise Forbidden("POST priorityclasses", 403, "Forbidden", "no")
        self.known = [*self.known, PriorityClass(change.name, change.value, never=True)]

    @property
    def made(self) -> set[str]:
        return {each.name for each in self.known if each.never}


def test_a_twin_is_made_once_a_member_uses_the_class() -> None:
    """That of pods without a class is made at once; other pods count for nothing."""
    cluster = RecordedTwins()
    twins = Twins(cluster)
    twins.observe(None, replace(MEMBER, labels={}, needs=Needs(priority_class="low")))
    twins.look(0.0)
    assert cluster.made == {twin_name("")}
    twins.observe(None, MEMBER)
    twins.look(1.0)
    assert cluster.made == {twin_name(""), twin_name("high")}


def test_other_pods_count_too_while_solo_pods_are_guarded() -> None:
    """Not those of the cluster's own namespaces."""
    cluster = RecordedTwins()
    twins = Twins(cluster, is_guarding=True)
    twins.observe(None, replace(MEMBER, namespace="kube-system", labels={}))
    twins.look(0.0)
    assert cluster.made == {twin_name("")}
    twins.observe(None, replace(MEMBER, labels={}, needs=Needs(priority_class="low")))
    twins.look(1.0)
    assert cluster.made == {twin_name(""), twin_name("low")}


def test_classes_are_read_once_a_minute_at_rest() -> None:
    """As many members as you like come and go; those that have a twin use no class of their own."""
    cluster = RecordedTwins()
    twins = Twins(cluster)
    twins.observe(None, MEMBER)
    twins.look(0.0)
    for number in range(100):
        member = replace(MEMBER, name=f"p{number}")
        twins.observe(None, member)
        twins.observe(member, replace(member, node="n"))
        twins.observe(None, replace(member, needs=Needs(priority_class=twin_name("high"))))
        twins.observe(replace(member, node="n"), None)
        twins.look(float(number) / 10)
    assert cluster.looks == 1
    twins.look(LOOK_SECONDS)
    assert cluster.looks == 2


def test_a_refusal_is_tried_again_a_little_later() -> None:
    """Without the component's role the rebalancer goes on with the rest."""
    cluster = RecordedTwins()
    cluster.is_denied = True
    twins = Twins(cluster)
    twins.look(0.0)
    twins.look(RETRY_SECONDS - 1)
    assert cluster.looks == 1
    cluster.is_denied = False
    twins.look(RETRY_SECONDS)
    assert cluster.made == {twin_name("")}


def test_a_twin_is_written_as_the_api_takes_it() -> None:
    """An outdated one goes first; that somebody else made it is as good."""
    with scripted_api() as (script, client):
        script.answer(b"{}", Answer(b'{"kind": "Status", "reason": "AlreadyExists"}', 409))
        TwinWriter(client).make(TwinChange("high", twin_name("high"), 1000, replaces=True))
        assert script.next_request().method == "DELETE"
        written = script.next_request()
        assert written.method == "POST"
        for part in (b'"preemptionPolicy":"Never"', b'"value":1000', b'"spotweave.dev/twin-of":"high"'):
            assert part in written.body.replace(b": ", b":")
