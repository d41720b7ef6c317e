"""Which nodes a cluster has: pools of equal nodes, read from YAML. Pure except for reading the file.

region: local
pools:
  - name: spot-a-m5          # nodes are named spot-a-m5-0, spot-a-m5-1, …
    class: spot              # on-demand, spot; left out: no capacity label
    zone: zone-a
    instanceType: m5.large
    count: 2
    cpu: 8
    memory: 32Gi
    pods: 110                # this and what follows may be left out
    labels: {team: blue}
    taints: [{key: spot, value: "true", effect: NoSchedule}]
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from localcluster.errors import BAD_INPUT, ClusterError

DEMO = Path(__file__).with_name("profiles") / "demo.yaml"
CLASSES = ("on-demand", "spot")
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
DEFAULT_PODS = 110
NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,48}[a-z0-9])?")
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|[KMGTP]i?|k)?")


@dataclass(frozen=True)
class ProfileTaint:
    key: str
    effect: str
    value: str = ""


@dataclass(frozen=True)
class NodePool:
    """Nodes that the cloud gives and takes together."""

    name: str
    zone: str
    instance_type: str
    count: int
    cpu: str
    memory: str
    capacity_class: str | None = None  # None: the nodes carry no capacity label
    pods: int = DEFAULT_PODS
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: tuple[ProfileTaint, ...] = ()

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}-{index}" for index in range(self.count))


@dataclass(frozen=True)
class Profile:
    pools: tuple[NodePool, ...]
    region: str = "local"

    @property
    def node_names(self) -> tuple[str, ...]:
        return tuple(name for pool in self.pools for name in pool.node_names)


def demo_profile() -> Profile:
    """12 nodes in 3 zones and 8 pools."""
    return load_profile(DEMO)


def load_profile(path: Path) -> Profile:
    """Read a profile; a bad one is refused with all its mistakes at once."""
    try:
        return parse_profile(yaml.safe_load(path.read_text()), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise ClusterError(f"the profile {path} cannot be read: {error}", exit_code=BAD_INPUT) from error
    except yaml.YAMLError as error:
        raise ClusterError(f"the profile {path} is not YAML: {error}", exit_code=BAD_INPUT) from error


def parse_profile(raw: object, origin: str = "profile") -> Profile:
    """A profile from parsed YAML; raises ClusterError that lists every mistake."""
    mistakes = list(profile_mistakes(raw))
    if mistakes or not isinstance(raw, Mapping):
        listing = "".join(f"\n  {mistake}" for mistake in mistakes)
        raise ClusterError(f"{origin} has {len(mistakes)} mistake(s):{listing}", f"An example: {DEMO}", BAD_INPUT)
    return Profile(tuple(_pool(raw_pool) for raw_pool in raw["pools"]), raw.get("region", "local"))


def profile_mistakes(raw: object) -> Iterator[str]:
    """Everything that is wrong with a raw profile, each with what would be right."""
    if not isinstance(raw, Mapping):
        yield "must be a mapping with the key `pools`"
        return
    yield from (f"unknown key `{key}`; known are pools, region" for key in raw if key not in ("pools", "region"))
    if not _is_label_value(raw.get("region", "local")):
        yield f"region: {raw['region']!r} must be a label value such as local"
    pools = raw.get("pools")
    if not isinstance(pools, list) or not pools:
        yield "`pools` must be a list of at least one pool"
        return
    for index, raw_pool in enumerate(pools):
        yield from (f"pools[{index}]{mistake}" for mistake in _pool_mistakes(raw_pool))
    names = [raw_pool.get("name") for raw_pool in pools if isinstance(raw_pool, Mapping)]
    for name in sorted({name for name in names if isinstance(name, str) and names.count(name) > 1}):
        yield f"pool name `{name}` is used more than once; each must be unique"


def _pool_mistakes(raw: object) -> Iterator[str]:
    if not isinstance(raw, Mapping):
        yield f": {raw!r} must be a mapping with {', '.join(REQUIRED)}"
        return
    label = f" ({raw['name']})" if isinstance(raw.get("name"), str) else ""
    for key in REQUIRED:
        if key not in raw:
            yield f"{label}: `{key}` is missing; it must be {FIELDS[key][1]}"
    for key, value in raw.items():
        if key not in FIELDS:
            yield f"{label}: unknown key `{key}`; known are {', '.join(FIELDS)}"
        elif not FIELDS[key][0](value):
            yield f"{label}: `{key}` is {value!r}; it must be {FIELDS[key][1]}"


def _is_name(value: object) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _is_label_value(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?", value) is not None


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_quantity(value: object) -> bool:
    return not isinstance(value, bool) and QUANTITY.fullmatch(str(value)) is not None


def _is_labels(value: object) -> bool:
    return isinstance(value, Mapping) and all(isinstance(k, str) and isinstance(v, str) for k, v in value.items())


def _is_taints(value: object) -> bool:
    return isinstance(value, list) and all(_is_taint(taint) for taint in value)


def _is_taint(value: object) -> bool:
    return (
        isinstance(value, Mapping)
        and set(value) <= {"key", "value", "effect"}
        and isinstance(value.get("key"), str)
        and isinstance(value.get("value", ""), str)
        and value.get("effect") in EFFECTS
    )


Check = Callable[[object], bool]
FIELDS: Mapping[str, tuple[Check, str]] = {
    "name": (_is_name, "up to 50 lower-case letters, digits and dashes"),
    "class": (lambda value: value in CLASSES, "on-demand or spot, or left out for nodes without a capacity label"),
    "zone": (_is_label_value, "a label value such as zone-a"),
    "instanceType": (_is_label_value, "a label value such as m5.large"),
    "count": (_is_count, "a whole number from 0"),
    "cpu": (_is_quantity, "a quantity such as 8 or 500m"),
    "memory": (_is_quantity, "a quantity such as 32Gi"),
    "pods": (_is_count, "a whole number from 0"),
    "labels": (_is_labels, "a mapping from text to text (quote numbers and true/false)"),
    "taints": (_is_taints, f"a list of {{key, value, effect}} with text values and effect one of {', '.join(EFFECTS)}"),
}
REQUIRED = ("name", "zone", "instanceType", "count", "cpu", "memory")


def _pool(raw: Mapping[str, Any]) -> NodePool:
    return NodePool(
        name=raw["name"],
        zone=raw["zone"],
        instance_type=raw["instanceType"],
        count=raw["count"],
        cpu=str(raw["cpu"]),
        memory=str(raw["memory"]),
        capacity_class=raw.get("class"),
        pods=raw.get("pods", DEFAULT_PODS),
        labels=raw.get("labels", {}),
        taints=tuple(
            ProfileTaint(taint["key"], taint["effect"], taint.get("value", "")) for taint in raw.get("taints", ())
        ),
    )
