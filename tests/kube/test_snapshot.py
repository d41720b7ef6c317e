"""Snapshots: what is read once, each fact in its place."""

import pytest

from kube.client import Client
from kube.errors import AnswerTooLarge, ApiError, Forbidden, Garbled, Gone, ServerError
from kube.resources import PODS, pages
from kube.snapshot import STARTS, facts_of, read_all, read_snapshot, snapshot_from
from placement.model import (
    AttachLimits,
    Budget,
    Claim,
    Kind,
    Namespace,
    Node,
    Pod,
    PriorityClass,
    Quota,
    ReplicaSet,
    Snapshot,
    Volume,
    Workload,
)
from tests.builders.api import page, raw_pod, status
from tests.kube.scripted import Answer, Endless, Script

META = {"name": "x", "namespace": "shop", "uid": "u"}


def test_a_snapshot_is_one_list_of_each(script: Script, client: Client) -> None:
    """Deployments and StatefulSets are both workloads."""
    bare = {"metadata": META}
    script.answer(*[page(bare)] * 11)
    snapshot = read_snapshot(client)
    assert [workload.kind for workload in snapshot.workloads] == [Kind.DEPLOYMENT, Kind.STATEFUL_SET]
    assert (set(snapshot.namespaces), set(snapshot.nodes)) == ({"x"}, {"x"})
    assert (len(snapshot.replica_sets), len(snapshot.pods)) == (1, 1)
    assert (len(snapshot.budgets), len(snapshot.quotas)) == (1, 1)
    assert [type(each) for each in snapshot.others] == [Claim, Volume, AttachLimits]


def test_pages_are_followed_by_their_token(script: Script, client: Client) -> None:
    """Each page asks with the token of the one before; the first asks for the most recent state."""
    script.answer(page(raw_pod("a"), token="t1"), page(raw_pod("b"), token="t2"), page(raw_pod("c")))
    assert [pod.name for pod in read_all(client, PODS)] == ["a", "b", "c"]
    queries = [script.next_request().query for _ in range(3)]
    assert queries == [{"limit": "500"}, {"limit": "500", "continue": "t1"}, {"limit": "500", "continue": "t2"}]


HUGE = Endless(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000000\r\n\r\n", b" " * (1 << 20))


def test_of_large_objects_fewer_are_asked_for_at_once(script: Script, client: Client) -> None:
    """A page has a limit in bytes; what was read before it is kept, and the list goes on from there."""
    script.answer(page(raw_pod("a"), token="t1"), HUGE, page(raw_pod("b"), token="t2"), page(raw_pod("c")))
    assert [pod.name for pod in read_all(client, PODS)] == ["a", "b", "c"]
    limits = [script.next_request().query["limit"] for _ in range(4)]
    assert limits == ["500", "500", "250", "250"]


def test_one_object_that_is_larger_than_a_page_is_an_error(script: Script, client: Client) -> None:
    """There is no smaller page than that."""
    script.answer(HUGE)
    with pytest.raises(AnswerTooLarge):
        list(pages(client, PODS, page_size=1))


def test_an_expired_token_starts_the_list_over(script: Script, client: Client) -> None:
    """Pages of two moments are never mixed."""
    expired = Answer(status(410, "Expired"), status=410)
    script.answer(page(raw_pod("old"), token="t1"), expired, page(raw_pod("new")))
    assert [pod.name for pod in read_all(client, PODS)] == ["new"]


def test_a_list_that_always_expires_is_given_up(script: Script, client: Client) -> None:
    """The command line says so instead of trying for ever."""
    script.answer(*[Answer(status(410, "Expired"), status=410)] * STARTS)
    with pytest.raises(Gone):
        read_all(client, PODS)


FAILURES: dict[str, tuple[Answer, type[ApiError]]] = {
    "refused": (Answer(status(403, "Forbidden"), status=403), Forbidden),
    "the server fails": (Answer(b"", status=503), ServerError),
    "an empty object": (Answer(b"{}"), Garbled),
    "a page of text": (Answer(b"<html>"), Garbled),
    "half of a list": (Answer(page(raw_pod("a"))[:-5]), Garbled),
}


@pytest.mark.parametrize(("answer", "expected"), FAILURES.values(), ids=FAILURES.keys())
def test_a_failed_list_is_never_an_empty_one(
    script: Script, client: Client, answer: Answer, expected: type[ApiError]
) -> None:
    """Whatever is not a list raises, also on a later page."""
    script.answer(page(raw_pod("a"), token="t1"), answer)
    with pytest.raises(expected):
        read_all(client, PODS)


def test_a_snapshot_has_each_fact_in_its_place_and_gives_all_of_them_back() -> None:
    """By type, in whatever order they come; what has no place of its own is kept for the index."""
    namespace, node = Namespace("shop"), Node("n1")
    deployment = Workload(Kind.DEPLOYMENT, "shop", "a", "u1", 1)
    stateful_set = Workload(Kind.STATEFUL_SET, "shop", "a", "u2", 1)
    replica_set, pod = ReplicaSet("shop", "a-1", "u3", None, 1), Pod("shop", "a-1-x")
    budget, quota, priority = Budget("shop", "a"), Quota("shop", "a"), PriorityClass("high", 7)
    facts = (namespace, node, deployment, stateful_set, replica_set, pod, budget, quota, priority)
    expected = Snapshot(
        namespaces={"shop": namespace},
        nodes={"n1": node},
        workloads=(deployment, stateful_set),
        replica_sets=(replica_set,),
        pods=(pod,),
        budgets=(budget,),
        quotas=(quota,),
        others=(priority,),
    )
    assert snapshot_from(facts) == snapshot_from((*facts[4:], *facts[:4])) == expected
    assert tuple(facts_of(expected)) == facts
