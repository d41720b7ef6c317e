"""Who has to go, whose turn it is, and how much there is room for: pure."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.crowd import Rank, Seat, leaving, source_of
from serving.memory import CONNECTION_BYTES, FEWEST_CONNECTIONS, USUAL_BYTES, fitted, memory_limit
from serving.parser import KIB, MIB, Limits
from serving.turns import Turns

SILENT, SENDING, ARRIVING, IDLE, BUSY = Rank
API, FLOOD = "10.0.0.1", "10.0.0.9"


def test_the_example_of_the_module() -> None:
    """The silent one first, then the oldest idle one of the address that has the most."""
    crowd = {
        "api-1": Seat(API, IDLE, 1.0),
        "api-2": Seat(API, IDLE, 2.0),
        "flood-1": Seat(FLOOD, IDLE, 3.0),
        "flood-2": Seat(FLOOD, IDLE, 4.0),
        "flood-3": Seat(FLOOD, IDLE, 5.0),
        "flood-4": Seat(FLOOD, SILENT, 6.0),
    }
    assert leaving(crowd, 1) == ["flood-4"]
    del crowd["flood-4"]
    assert leaving(crowd, 1) == ["flood-1"]


CROWDS: dict[str, tuple[dict[str, Seat], list[str]]] = {
    "the oldest of those that are silent": (
        {"a": Seat(API, SILENT, 2.0), "b": Seat(API, SILENT, 1.0), "c": Seat(API, SILENT, 3.0)},
        ["b", "a", "c"],
    ),
    "silent ones before those that send, and these before idle ones": (
        {"a": Seat(API, IDLE, 1.0), "b": Seat(API, SENDING, 2.0), "c": Seat(API, SILENT, 3.0)},
        ["c", "b", "a"],
    ),
    "those that have just come stay while another source has more, whatever it has proven": (
        {
            "f1": Seat(FLOOD, IDLE, 1.0),
            "f2": Seat(FLOOD, IDLE, 2.0),
            "f3": Seat(FLOOD, IDLE, 3.0),
            "a1": Seat(API, ARRIVING, 9.0),
        },
        ["f1", "f2", "a1", "f3"],
    ),
    "nobody who is being answered": ({"a": Seat(API, BUSY, 1.0)}, []),
    "sources give one up in turn, once they have as many": (
        {
            "f1": Seat(FLOOD, IDLE, 5.0),
            "f2": Seat(FLOOD, IDLE, 6.0),
            "f3": Seat(FLOOD, IDLE, 7.0),
            "a1": Seat(API, IDLE, 1.0),
            "a2": Seat(API, IDLE, 2.0),
        },
        ["f1", "a1", "f2", "a2", "f3"],
    ),
}


@pytest.mark.parametrize(("crowd", "order"), CROWDS.values(), ids=CROWDS.keys())
def test_who_goes_first(crowd: dict[str, Seat], order: list[str]) -> None:
    """In this order, as far as it takes."""
    assert leaving(crowd, 99) == order
    assert leaving(crowd, 1) == order[:1]


@given(
    st.lists(st.tuples(st.sampled_from([API, FLOOD]), st.sampled_from(Rank), st.floats(0, 9)), max_size=30), st.data()
)
def test_nobody_goes_twice_and_nobody_who_is_answered(raw: list[tuple[str, Rank, float]], data: st.DataObject) -> None:
    """And as many go as are wanted, if there are so many."""
    crowd = {number: Seat(*each) for number, each in enumerate(raw)}
    count = data.draw(st.integers(0, 40))
    gone = leaving(crowd, count)
    may_go = [each for each in crowd.values() if each.rank is not BUSY]
    assert len(gone) == len(set(gone)) == min(count, len(may_go))
    assert all(crowd[each].rank is not BUSY for each in gone)


SOURCES = {
    "10.0.0.1": "10.0.0.1",
    "::ffff:10.0.0.1": "10.0.0.1",
    "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::",
    "2001:db8:1:2::7": "2001:db8:1:2::",
    "fe80::1%eth0": "fe80::",
    "": "",
}


@pytest.mark.parametrize(("address", "source"), SOURCES.items())
def test_addresses_of_one_machine_count_together(address: str, source: str) -> None:
    """Of IPv6 the network counts; and an address is the same however it is written."""
    assert source_of(address) == source


def test_large_bodies_take_turns_and_sources_rotate() -> None:
    """Ten of one source wait; the one of another source comes second, not eleventh."""
    turns: Turns[str] = Turns(1)
    assert turns.ask("f0", FLOOD)
    assert not any(turns.ask(f"f{n}", FLOOD) for n in range(1, 11))
    assert not turns.ask("a", API)
    order = ["f0"]
    while (following := turns.leave(order[-1], FLOOD)) is not None:
        order.append(following)
    assert order == ["f0", "f1", "a", *(f"f{n}" for n in range(2, 11))]


def test_who_waits_may_go_away() -> None:
    """Nobody is called who is gone."""
    turns: Turns[str] = Turns(1)
    asked = [turns.ask("first", API), turns.ask("second", API), turns.is_wanted]
    left = [turns.leave("second", API), turns.is_wanted]
    assert (asked, left) == ([True, False, True], [None, False])
    assert turns.leave("first", API) is None
    assert turns.ask("third", API)


def test_limits_follow_the_memory_of_the_container() -> None:
    """A quarter of it is for connections, a sixteenth for bodies; two bodies always fit."""
    wanted = Limits(body_bytes=7 * MIB)
    usual = fitted(wanted, 512 * MIB, 1_000_000)
    assert (usual.connections, usual.held_bytes) == (682, 32 * MIB)
    assert usual.connections * CONNECTION_BYTES <= 128 * MIB
    assert fitted(wanted, 1024 * MIB, 1_000_000).connections == 1365
    assert fitted(wanted, 512 * MIB, 500).connections == 500 - 128
    tiny = fitted(wanted, 64 * MIB, 100)
    assert (tiny.connections, tiny.held_bytes) == (FEWEST_CONNECTIONS, 14 * MIB)


LIMIT_FILES = {"536870912\n": 512 * MIB, "max\n": USUAL_BYTES, "9223372036854771712\n": 4096 * MIB}


@pytest.mark.parametrize(("written", "expected"), LIMIT_FILES.items())
def test_the_limit_is_read_as_the_kernel_writes_it(tmp_path: Path, written: str, expected: int) -> None:
    """Also where there is none, and where there is no such file."""
    file = tmp_path / "memory.max"
    file.write_text(written)
    assert memory_limit((tmp_path / "absent", file)) == expected
    assert memory_limit((tmp_path / "absent",)) == USUAL_BYTES
    assert USUAL_BYTES // KIB == 512 * KIB
