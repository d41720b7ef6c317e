"""Policy: what a workload's annotations, its namespace's, the configuration's defaults and limits come to.

A value that cannot be parsed never stops a pod. The next level's value counts instead, and the mistake is reported
together with all the others.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
from difflib import get_close_matches
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

from placement import names
from placement.model import Kind, Rollout, Workload
from placement.slots import Slots
from placement.window import Window, parse_duration, parse_window

LONGEST_SHOWN = 60  # of a wrong value, in a sentence about it
Level = Literal["workload", "namespace", "configuration", "built-in"]

_WHOLE = re.compile(r"\d{1,9}", re.ASCII)
_PERCENT = re.compile(r"(\d{1,3}(?:\.\d{1,6})?)%", re.ASCII)
_ANY_PERCENT = re.compile(r"(\d{1,9})%", re.ASCII)
_DECIMAL = re.compile(r"[01]?\.\d{1,9}|[01]", re.ASCII)


@dataclass(frozen=True, slots=True)
class Amount:
    """A count, or a share of the replicas that is rounded up, as in PodDisruptionBudgets."""

    count: int = 0
    share: Fraction | None = None

    def of(self, replicas: int) -> int:
        return self.count if self.share is None else -(-self.share.numerator * replicas // self.share.denominator)

    def __str__(self) -> str:
        return str(self.count) if self.share is None else percent(self.share)


@dataclass(frozen=True, slots=True, order=True)
class Spread:
    """Even spreading over a topology: `zone`, `host` or `instance-type`."""

    topology: str
    hard: bool = False
    is_asked: bool = False  # somebody named it; the built-in rules are for all

    def __str__(self) -> str:
        return f"{self.topology}:{'hard' if self.hard else 'soft'}"


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something a person wrote that does not count, and what would."""

    level: Level
    annotation: str
    value: str
    expected: str

    def __str__(self) -> str:
        shown = self.value if len(self.value) <= LONGEST_SHOWN else f"{self.value[:LONGEST_SHOWN]}…"
        return f"{self.level} {self.annotation}: {shown!r} is ignored; expected {self.expected}"


@dataclass(frozen=True, slots=True)
class Auto:
    """What `auto` came to (`placement.autoratio`), and what it rests on."""

    ratio: Fraction
    pools: int
    losses: float  # of all of them, in 30 days
    limit: str = ""  # why it is no more, and what would allow more; "": a first estimate


@dataclass(frozen=True, slots=True)
class Policy:
    """A workload's policy. `source` names the level that each setting came from."""

    spot_ratio: Fraction | None = Fraction(7, 10)  # None: auto
    min_on_demand: int = 1
    min_available: Amount | None = None  # None: not declared
    availability_target: Fraction = Fraction(999, 1000)
    spot_fallback: str = "on-demand"
    spot_fallback_after: timedelta = timedelta(seconds=60)
    on_demand_fallback: str | None = None  # None: `spot`, for a single replica `wait`
    spread: tuple[Spread, ...] = (Spread("host"), Spread("zone"))
    rebalance: str = "auto"
    rebalance_window: Window | None = None  # None: always
    replace_lost_pods: str | None = None  # None: by kind
    eviction_hold: timedelta = timedelta(seconds=90)  # nothing: off
    auto: Auto | None = None  # None: not asked for, or no rates are known yet
    auto_limit: Fraction | None = None  # what a limit of the configuration leaves of `auto`
    source: Mapping[str, Level] = field(default_factory=dict, compare=False)

    @property
    def slots(self) -> Slots:
        return Slots(self.ratio, self.min_on_demand)

    @property
    def ratio(self) -> Fraction:
        """`auto` stands for the built-in ratio until interruption rates have been observed."""
        if self.spot_ratio is not None:
            return self.spot_ratio
        ratio = BUILT_IN_RATIO if self.auto is None else self.auto.ratio
        return ratio if self.auto_limit is None else min(ratio, self.auto_limit)

    def explain(self) -> str:
        ratio = percent(self.spot_ratio) if self.spot_ratio is not None else f"auto ({self._explain_auto()})"
        return f"spot-ratio {ratio}, min-on-demand {self.min_on_demand}"

    def _explain_auto(self) -> str:
        """`55%: 4 pools, 0.8 losses a month, target 99.9%`."""
        if self.auto is None:
            return percent(self.ratio)
        limit = ", limited by the configuration" if self.ratio < self.auto.ratio else ""
        pools = "1 pool" if self.auto.pools == 1 else f"{self.auto.pools} pools"
        target = percent(self.availability_target)
        if self.auto.limit:
            return f"{percent(self.ratio)}{limit} for the target {target}: {self.auto.limit}"
        return f"{percent(self.ratio)}{limit}: {pools}, {self.auto.losses:.3g} losses a month, target {target}"


BUILT_IN_RATIO = Fraction(7, 10)


def percent(share: Fraction) -> str:
    return f"{float(share * 100):.6f}".rstrip("0").rstrip(".") + "%"


def needed(policy: Policy, workload: Workload, budgeted: int | None = None) -> int:
    """How many replicas must serve.

    Declared; else what PodDisruptionBudgets want (`availability.needed_by`; None: nothing); else what the workload's
    own rollout would leave (assumed). A single replica must serve, whatever its rollout does: it is the whole service.
    """
    n = workload.replicas
    if policy.min_available is not None:
        return min(n, policy.min_available.of(n))
    if budgeted is not None:
        return budgeted
    taken = 1 if workload.kind is Kind.STATEFUL_SET else unavailable(workload.rollout, n)
    return n if n < 2 else n - taken


def unavailable(rollout: Rollout, replicas: int) -> int:
    """How many a Deployment's rollout may take away: maxUnavailable rounded down, one where nothing else would move."""
    allowed = int(part_of(rollout.max_unavailable, replicas))
    if allowed == 0 and part_of(rollout.max_surge, replicas) == 0:
        allowed = 1
    return min(replicas, allowed)


def surge(rollout: Rollout, replicas: int) -> int:
    """How many pods more than replicas a Deployment's rollout may have: maxSurge rounded up."""
    part = part_of(rollout.max_surge, replicas)
    return -(-part.numerator // part.denominator)


@lru_cache(4096)
def part_of(value: int | str, replicas: int) -> Fraction:
    """A count or a percentage, as Kubernetes takes them: also 1000% and 0050%."""
    matched = _ANY_PERCENT.fullmatch(str(value))
    return Fraction(int(matched[1]) * replicas, 100) if matched else Fraction(int(value))


# --- values ----------------------------------------------------------------------------------------------------------


def parse_share(text: str) -> Fraction:
    """`70%` or a decimal 0–1; a bare `70` is an error, because it might mean 70 % or 0.7."""
    matched = _PERCENT.fullmatch(text)
    if not matched and not _DECIMAL.fullmatch(text):
        raise ValueError(text)
    share = Fraction(matched[1]) / 100 if matched else Fraction(text)
    if share > 1:
        raise ValueError(text)
    return share


def _ratio(text: str) -> Fraction | None:
    return None if text == "auto" else parse_share(text)


def parse_count(text: str) -> int:
    if not _WHOLE.fullmatch(text):
        raise ValueError(text)
    return int(text)


def parse_amount(text: str) -> Amount:
    return Amount(share=parse_share(text)) if text.endswith("%") else Amount(parse_count(text))


def _hold(text: str) -> timedelta:
    return timedelta() if text == "off" else parse_duration(text)


def parse_target(text: str) -> Fraction:
    share = parse_share(text)
    if not 0 < share < 1:
        raise ValueError(text)
    return share


def _spreads(text: str) -> tuple[Spread, ...]:
    """What is asked for on top of zone and host soft; `none` alone asks for no spreading at all."""
    if text == "none":
        return ()
    rules = {topology: Spread(topology) for topology in ("zone", "host")}
    for part in text.split(","):
        topology, _, strength = part.strip().partition(":")
        if topology not in TOPOLOGY_KEYS or strength not in ("", "soft", "hard"):
            raise ValueError(text)
        rules[topology] = Spread(topology, strength == "hard", is_asked=True)
    return tuple(sorted(rules.values()))


TOPOLOGY_KEYS = {"zone": names.ZONE, "host": names.HOSTNAME, "instance-type": names.INSTANCE_TYPE}


# What values look like, in the part of regular expressions that Python and RE2 (the API server's CEL) read alike. The
# parser and the Warn policy (placement/lint.py) are made from the same shapes, so the policy never warns about a value
# that is valid. The parser checks what a shape cannot: whether a time zone exists, or a range runs backwards.
_SHARE_BELOW_ONE = r"0?\d{1,2}(?:\.\d{1,6})?%|0?\.\d{1,9}"
TARGET_SHAPES = (_SHARE_BELOW_ONE, r".*[1-9].*")
_WHOLE_PERCENT = r"0?\d{1,2}(?:\.\d{1,6})?%|100(?:\.0{1,6})?%"
_SHARE = rf"{_WHOLE_PERCENT}|0?\.\d{{1,9}}|1\.0{{1,9}}|[01]"
_TIME = r"(?:\d{1,8}[smhd]){1,6}"
_BLANKS = r"[\x20\t\r\n]"
_TOPOLOGY = rf"{_BLANKS}*(?:{'|'.join(TOPOLOGY_KEYS)})(?::(?:soft|hard)?)?{_BLANKS}*"
_CRON_NUMBERS = (r"[0-5]?\d", r"(?:[01]?\d|2[0-3])", r"(?:0?[1-9]|[12]\d|3[01])", r"(?:0?[1-9]|1[0-2])", r"0?[0-7]")


def _cron_shape(number: str) -> str:
    part = rf"(?:\*|{number}(?:-{number})?)(?:/(?:0?[1-9]|[1-9]\d))?"
    return f"{part}(?:,{part})*"


_WINDOW = f"{_BLANKS}+".join([*map(_cron_shape, _CRON_NUMBERS), _TIME]) + f"(?:{_BLANKS}+[A-Za-z0-9_+/-]{{1,64}})?"

LONGEST_VALUE = 500  # keeps the policy's expressions within the API server's budget, whatever people write
# Unicode's white space, which CEL's trim() takes off too; str.strip() alone would also take \x1c to \x1f.
WHITE_SPACE = "\t\n\v\f\r \x85\xa0\u1680" + "".join(map(chr, range(0x2000, 0x200B))) + "\u2028\u2029\u202f\u205f\u3000"


@dataclass(frozen=True, slots=True)
class Setting:
    """One annotation: the field of Policy that it sets, how it is read, and what a wrong value is answered with.

    A value must match every shape in full, and `read` must accept it.
    """

    annotation: str
    read: Callable[[str], Any]
    expected: str
    shapes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.annotation.removeprefix(names.PREFIX)

    @property
    def field(self) -> str:
        return self.name.replace("-", "_")

    def parse(self, text: str) -> Any:
        """The value. Raises ValueError."""
        trimmed = text.strip(WHITE_SPACE)
        if len(text) > LONGEST_VALUE or not all(re.fullmatch(shape, trimmed, re.ASCII) for shape in self.shapes):
            raise ValueError(text)
        return self.read(trimmed)


def _choice(annotation: str, *values: str) -> Setting:
    *others, last = values
    return Setting(annotation, str, f"{', '.join(others)} or {last}", ("|".join(values),))


SETTINGS: tuple[Setting, ...] = (
    Setting(
        names.SPOT_RATIO,
        _ratio,
        "a percentage such as 70%, a decimal from 0 to 1 such as 0.7, or auto",
        (f"auto|{_SHARE}",),
    ),
    Setting(names.MIN_ON_DEMAND, parse_count, "a whole number such as 1", (_WHOLE.pattern,)),
    Setting(
        names.MIN_AVAILABLE,
        parse_amount,
        "a whole number such as 2 or a percentage such as 80%",
        (f"{_WHOLE.pattern}|{_WHOLE_PERCENT}",),
    ),
    Setting(
        names.AVAILABILITY_TARGET,
        parse_target,
        "a percentage above 0% and below 100% such as 99.9%",
        TARGET_SHAPES,
    ),
    _choice(names.SPOT_FALLBACK, "on-demand", "wait"),
    Setting(names.SPOT_FALLBACK_AFTER, parse_duration, "a duration such as 60s, 5m or 1h30m", (_TIME,)),
    _choice(names.ON_DEMAND_FALLBACK, "spot", "wait"),
    Setting(
        names.SPREAD,
        _spreads,
        "none, or a list of zone, host and instance-type, each optionally with :soft or :hard",
        (f"none|{_TOPOLOGY}(?:,{_TOPOLOGY})*",),
    ),
    _choice(names.REBALANCE, "auto", "plan-only", "off"),
    Setting(
        names.REBALANCE_WINDOW,
        parse_window,
        'a cron line, a duration and an optional time zone (default: UTC) such as "0 22 * * 1-5 8h Europe/Berlin"',
        (_WINDOW,),
    ),
    _choice(names.REPLACE_LOST_PODS, "fast", "kubernetes"),
    Setting(names.EVICTION_HOLD, _hold, "a duration such as 90s, or off", (f"off|{_TIME}",)),
)
_BY_ANNOTATION = {setting.annotation: setting for setting in SETTINGS}
# Ours on workloads and namespaces, but no setting: the last two are about a gang that runs.
NOT_POLICY = {names.PLACEMENT, names.TIME_LIMIT, names.EXPECTED_RUNTIME}


# --- levels and limits -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Limit:
    """What a platform team forbids in the namespaces that it selects (None: does not limit)."""

    max_spot_ratio: Fraction | None = None
    min_on_demand: int | None = None


def resolve(
    workload: Mapping[str, str],
    namespace: Mapping[str, str] | None = None,
    defaults: Mapping[str, str] | None = None,
    limits: Sequence[Limit] = (),
) -> tuple[Policy, tuple[Mistake, ...]]:
    """The policy that annotations of a workload and its namespace come to, and every mistake in them.

    `defaults` are the configuration's; they are checked when it is read, so they hold no mistakes.
    """
    levels: tuple[tuple[Level, Mapping[str, str]], ...] = (
        ("workload", workload),
        ("namespace", namespace or {}),
        ("configuration", defaults or {}),
    )
    mistakes = [mistake for level, written in levels for mistake in mistakes_in(written, level)]
    values: dict[str, Any] = {}
    source: dict[str, Level] = {setting.name: "built-in" for setting in SETTINGS}
    for level, written in reversed(levels):
        for setting, value in _settings_in(written):
            values[setting.field] = value
            source[setting.name] = level
    policy = Policy(**values, source=source)
    for limit in limits:
        policy = _clamped(policy, limit)
    return policy, (*mistakes, *_clamps(Policy(**values, source=source), policy))


def mistakes_in(written: Mapping[str, str], level: Level) -> Iterator[Mistake]:
    """Every annotation of ours at one level that does not count."""
    for annotation, text in sorted(written.items()):
        if not annotation.startswith(names.PREFIX) or annotation in NOT_POLICY:
            continue
        setting = _BY_ANNOTATION.get(annotation)
        if setting is None:
            yield Mistake(level, annotation, text, _known_annotation(annotation))
        elif not _is_valid(setting, text):
            yield Mistake(level, annotation, text, setting.expected)


def _known_annotation(annotation: str) -> str:
    known = [setting.name for setting in SETTINGS]
    near = get_close_matches(annotation.removeprefix(names.PREFIX), known, n=1)  # with the prefix, all would be near
    return (
        f"the annotation {names.PREFIX}{near[0]}" if near else f"{names.PREFIX} followed by one of {', '.join(known)}"
    )


def _settings_in(written: Mapping[str, str]) -> Iterator[tuple[Setting, Any]]:
    for setting in SETTINGS:
        if setting.annotation in written and _is_valid(setting, written[setting.annotation]):
            yield setting, setting.parse(written[setting.annotation])


def _is_valid(setting: Setting, text: str) -> bool:
    try:
        setting.parse(text)
    except ValueError:
        return False
    return True


def _clamped(policy: Policy, limit: Limit) -> Policy:
    """A limit does not clamp `auto` before its ratio is known. It is kept beside it."""
    ratio, floor, auto_limit = policy.spot_ratio, policy.min_on_demand, policy.auto_limit
    if limit.max_spot_ratio is not None and ratio is not None:
        ratio = min(ratio, limit.max_spot_ratio)
    elif limit.max_spot_ratio is not None:
        auto_limit = limit.max_spot_ratio if auto_limit is None else min(auto_limit, limit.max_spot_ratio)
    if limit.min_on_demand is not None:
        floor = max(floor, limit.min_on_demand)
    return replace(policy, spot_ratio=ratio, min_on_demand=floor, auto_limit=auto_limit)


def _clamps(asked: Policy, got: Policy) -> Iterator[Mistake]:
    """Values that people wrote and a limit clamped. A clamped default, or `auto`, is not a mistake."""
    ratio, floor = asked.source["spot-ratio"], asked.source["min-on-demand"]
    if asked.spot_ratio is not None and asked.ratio != got.ratio and ratio in ("workload", "namespace"):
        limit = f"at most {percent(got.ratio)} (limited by the configuration)"
        yield Mistake(ratio, names.SPOT_RATIO, percent(asked.spot_ratio), limit)
    if asked.min_on_demand != got.min_on_demand and floor in ("workload", "namespace"):
        limit = f"at least {got.min_on_demand} (limited by the configuration)"
        yield Mistake(floor, names.MIN_ON_DEMAND, str(asked.min_on_demand), limit)
