"""Profiles: what is read, and that every mistake is told at once with what would be right."""

from pathlib import Path
from typing import Any

import pytest

from localcluster.errors import BAD_INPUT, ClusterError
from localcluster.profile import NodePool, Profile, ProfileTaint, demo_profile, load_profile, parse_profile

GOOD: dict[str, Any] = {"name": "a", "zone": "z", "instanceType": "m5.large", "count": 2, "cpu": 8, "memory": "32Gi"}

MISTAKES: dict[str, tuple[object, str]] = {
    "not a mapping": ([1], "must be a mapping with the key `pools`"),
    "no pools": ({}, "`pools` must be a list of at least one pool"),
    "an empty list": ({"pools": []}, "`pools` must be a list of at least one pool"),
    "an unknown key": ({"pools": [GOOD], "pool": 1}, "unknown key `pool`; known are pools, region"),
    "a bad region": ({"pools": [GOOD], "region": 7}, "region: 7 must be a label value such as local"),
    "a pool that is no mapping": ({"pools": ["x"]}, "pools[0]: 'x' must be a mapping with name, zone"),
    "a missing field": (
        {"pools": [{**GOOD} | {"zone": None}]},
        "pools[0] (a): `zone` is None; it must be a label value",
    ),
    "an unknown field": ({"pools": [{**GOOD, "instance": 1}]}, "pools[0] (a): unknown key `instance`; known are name,"),
    "an unknown class": ({"pools": [{**GOOD, "class": "Spot"}]}, "`class` is 'Spot'; it must be on-demand or spot"),
    "a negative count": ({"pools": [{**GOOD, "count": -1}]}, "`count` is -1; it must be a whole number from 0"),
    "a count that is true": ({"pools": [{**GOOD, "count": True}]}, "`count` is True; it must be a whole number"),
    "a bad quantity": ({"pools": [{**GOOD, "memory": "32 GB"}]}, "`memory` is '32 GB'; it must be a quantity"),
    "a bad name": ({"pools": [{**GOOD, "name": "A_b"}]}, "`name` is 'A_b'; it must be up to 50 lower-case"),
    "a label that is no text": ({"pools": [{**GOOD, "labels": {"a": True}}]}, "quote numbers and true/false"),
    "a taint without effect": ({"pools": [{**GOOD, "taints": [{"key": "a"}]}]}, "effect one of NoSchedule"),
    "a name used twice": ({"pools": [GOOD, GOOD]}, "pool name `a` is used more than once"),
}


@pytest.mark.parametrize(("raw", "told"), MISTAKES.values(), ids=MISTAKES.keys())
def test_mistake_is_told_with_what_would_be_right(raw: object, told: str) -> None:
    """Each kind of mistake is named where it is, with the value found and the one expected."""
    with pytest.raises(ClusterError) as caught:
        parse_profile(raw)
    assert told in caught.value.message
    assert "1 mistake(s)" in caught.value.message
    assert caught.value.exit_code == BAD_INPUT


def test_all_mistakes_are_told_at_once() -> None:
    """Nobody should have to fix a profile one error message at a time."""
    with pytest.raises(ClusterError) as caught:
        parse_profile({"pools": [{"name": "a", "count": "x"}, {**GOOD, "cpu": "lots"}]})
    message = caught.value.message
    assert "7 mistake(s)" in message
    for field in ("zone", "instanceType", "cpu", "memory"):
        assert f"pools[0] (a): `{field}` is missing" in message
    assert "pools[0] (a): `count` is 'x'" in message
    assert "pools[1] (a): `cpu` is 'lots'" in message
    assert "pool name `a` is used more than once" in message


def test_all_fields_are_read() -> None:
    """Every field of the YAML arrives in the pool; numbers of cpu become quantities."""
    raw = {**GOOD, "class": "spot", "pods": 7, "labels": {"k": "v"}, "taints": [{"key": "t", "effect": "NoExecute"}]}
    expected = NodePool("a", "z", "m5.large", 2, "8", "32Gi", "spot", 7, {"k": "v"}, (ProfileTaint("t", "NoExecute"),))
    assert parse_profile({"pools": [raw], "region": "r"}) == Profile((expected,), "r")


def test_pool_without_class_has_none() -> None:
    """A pool may leave its class out: such nodes carry no capacity label."""
    assert parse_profile({"pools": [GOOD]}).pools[0].capacity_class is None


def test_demo_has_twelve_nodes_in_three_zones() -> None:
    """The profile that ships is the one that the demo's texts speak of."""
    profile = demo_profile()
    assert len(profile.node_names) == len(set(profile.node_names)) == 12
    assert {pool.zone for pool in profile.pools} == {"zone-a", "zone-b", "zone-c"}
    spot = {(pool.zone, pool.instance_type) for pool in profile.pools if pool.capacity_class == "spot"}
    assert len(spot) == 5


@pytest.mark.parametrize(
    ("content", "told"), [(None, "cannot be read"), ("a: [", "is not YAML"), ("\xff", "cannot be read")]
)
def test_unreadable_file_is_named(tmp_path: Path, content: str | None, told: str) -> None:
    """A missing, binary or broken file is an input error that names the file."""
    path = tmp_path / "p.yaml"
    if content is not None:
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(ClusterError, match=told) as caught:
        load_profile(path)
    assert str(path) in caught.value.message
    assert caught.value.exit_code == BAD_INPUT
