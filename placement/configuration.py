"""The configuration that a platform team writes (ConfigMap `spotweave-config`, key `config.yaml`), checked as a whole.

classes: [default, karpenter]        # presets, or {key, spot, onDemand, taints} of one's own
defaults: {spot-ratio: 60%}          # as the annotations, without the prefix
limits:
- namespaces: {matchLabels: {tier: gold}}    # all namespaces if absent
  maxSpotRatio: 50%
  minOnDemand: 2
priorityClasses: {overflow: spotweave-overflow, onDemand: "", spot: ""}
leavingTaints: [aws-node-termination-handler/spot-itn]
cordon: keep                         # or move: pods leave a cordoned node, within the limits of moves
moves: {perWorkload: 25%, perNode: 10, perNamespace: 50, atOnce: 100, perMinute: 300, minAge: 30s, coolDown: 10m,
        timeout: 5m, afterRollout: 2m}
prices: {table: /etc/spotweave/prices.csv, ratio: 0.31}      # for savings: a file of the program's, and a share
metrics: {workloads: 2000}           # so many workloads get series of their own
gangs: {enabled: false, minimumRunTime: 5m, evictionsPerHour: {perNamespace: 20, inAll: 100}, guardSolo: false,
        bareAnnotations: false, schedulerNames: []}
localStorage: move                   # or keep: pods with an emptyDir on disk or a hostPath stay where they are
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fractions import Fraction
from typing import Any

from placement import names
from placement.classes import PRESETS, Classes, ClassLabel, SpotTaint
from placement.gang.settings import EVICTIONS_ROWS, GANGS_ROWS, Gangs, Rows, parse_scheduler_names
from placement.leavingtaints import LEAVING_TAINTS, PATIENT_TAINTS, WHENS, patient
from placement.model import Class, Node, NodeRequirement, NodeTerm
from placement.policy import SETTINGS, Amount, Limit, mistakes_in, parse_amount, parse_count, parse_share
from placement.window import parse_duration

CORDONS = ("keep", "move")
SCALED_FALLBACK_AFTER = "5m"
# The API server's own rules: it would refuse a pod to which we gave any other key or value.
_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_DOMAIN = r"(?=[^/]{1,253}/)[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*/"
_LABEL_KEY = re.compile(f"(?:{_DOMAIN})?{_NAME}")
_LABEL_VALUE = re.compile(_NAME)
_TAINT = re.compile(f"{_LABEL_KEY.pattern}(?:={_NAME})?")


class ConfigurationError(ValueError):
    """The configuration is wrong; lists every mistake."""

    def __init__(self, mistakes: list[str]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


@dataclass(frozen=True, slots=True)
class PriorityRoles:
    """The PriorityClass of each role; "" leaves the pods' priority alone."""

    on_demand: str = ""
    spot: str = ""
    overflow: str = names.OVERFLOW_PRIORITY


@dataclass(frozen=True, slots=True)
class NamespaceLimit:
    """A limit and the labels of the namespaces that it applies to."""

    limit: Limit
    selector: NodeTerm = ()

    def applies_to(self, labels: Mapping[str, str]) -> bool:
        return all(requirement.allows(labels.get(requirement.key)) for requirement in self.selector)


@dataclass(frozen=True, slots=True)
class Moves:
    """How much the rebalancer may move at once, and how soon again."""

    per_workload: Amount = field(default_factory=lambda: Amount(share=Fraction(1, 4)))  # at least one
    per_node: int = 10
    per_namespace: int = 50
    at_once: int = 100
    per_minute: int = 300
    min_age: timedelta = timedelta(seconds=30)
    cool_down: timedelta = timedelta(minutes=10)
    timeout: timedelta = timedelta(minutes=5)  # for a replacement to become ready
    after_rollout: timedelta = timedelta(minutes=2)  # no move so soon, but from leaving nodes: tools watch the rollout


@dataclass(frozen=True, slots=True)
class PriceSources:
    """Where prices come from, for savings."""

    table: str = ""  # the path of a price table, where the program runs; "": none
    ratio: float | None = None  # the spot price as a share of the on-demand price


@dataclass(frozen=True, slots=True)
class MetricLimits:
    """How many series Prometheus gets."""

    workloads: int = 2000  # with their own series, in the order of namespace and name


@dataclass(frozen=True, slots=True)
class Configuration:
    """The configuration, or its built-in default."""

    classes: Classes = field(default_factory=Classes)
    defaults: Mapping[str, str] = field(default_factory=dict)  # by full annotation
    limits: tuple[NamespaceLimit, ...] = ()
    priority_roles: PriorityRoles = PriorityRoles()
    leaving_taints: tuple[str, ...] = LEAVING_TAINTS
    patient_taints: frozenset[str] = PATIENT_TAINTS  # of these: those that count only on a Node that is being deleted
    cordon: str = CORDONS[0]
    moves: Moves = field(default_factory=Moves)
    prices: PriceSources = PriceSources()
    metrics: MetricLimits = MetricLimits()
    gangs: Gangs = field(default_factory=Gangs)
    keeps_local_storage: bool = False  # pods with an emptyDir on disk or a hostPath are not moved
    termination_notice: timedelta | None = None  # None: what the presets say

    def limits_of(self, namespace_labels: Mapping[str, str]) -> tuple[Limit, ...]:
        return tuple(entry.limit for entry in self.limits if entry.applies_to(namespace_labels))

    @property
    def taints_at_once(self) -> tuple[str, ...]:
        """The leaving taints that count on any node."""
        return tuple(key for key in self.leaving_taints if key not in self.patient_taints)

    def is_leaving(self, node: Node) -> bool:
        """Its pods must leave and count as lost. A cordoned node counts only if drained, or with `cordon: move`."""
        return node.is_leaving(self.taints_at_once) or self.empties(node)

    def notice_seconds(self, node: Node) -> float | None:
        """How long before its end the end of this node was announced; None if none was.

        An autoscaler that removes a node waits for its pods. Only where the cloud takes a spot node, Karpenter cannot.
        """
        found = {taint.key for taint in node.taints}.intersection(self.leaving_taints) - {names.SCALED_DOWN}
        is_taken = node.deleting and self.classes.of_node(node.labels) is Class.SPOT
        if not found or (found <= self.patient_taints | PATIENT_TAINTS and not is_taken):
            return None
        notice = self.termination_notice
        return self.classes.notice_seconds(node.labels) if notice is None else notice.total_seconds()

    def empties(self, node: Node) -> bool:
        """It is cordoned, and the configuration says that its pods are moved (`cordon: move`)."""
        return node.unschedulable and self.cordon == "move"


def parse_configuration(raw: object) -> Configuration:
    """The configuration from its YAML, already loaded. Raises ConfigurationError that lists every mistake."""
    return _Reader().configuration(raw)


class _Reader:
    """Reads section by section and collects the mistakes."""

    def __init__(self) -> None:
        self.mistakes: list[str] = []

    def configuration(self, raw: object) -> Configuration:
        read: dict[str, Callable[[object], Any]] = {
            "classes": self._classes,
            "defaults": self._defaults,
            "limits": self._limits,
            "priorityClasses": self._priority_roles,
            "leavingTaints": self._leaving_taints,
            "cordon": self._cordon,
            "moves": self._moves,
            "prices": self._prices,
            "metrics": self._metrics,
            "gangs": self._gangs,
            "localStorage": self._keeps_local_storage,
            "terminationNotice": self._termination_notice,
        }
        sections = self._mapping("the configuration", raw, tuple(read))
        values = {key: read[key](value) for key, value in sections.items() if value is not None}
        if (taints := values.get("leavingTaints")) is not None:
            values |= {"leavingTaints": tuple(taints), "patient_taints": patient(taints)}
        if self.mistakes:
            raise ConfigurationError(self.mistakes)
        fields = {
            "priorityClasses": "priority_roles",
            "leavingTaints": "leaving_taints",
            "localStorage": "keeps_local_storage",
            "terminationNotice": "termination_notice",
        }
        return _scaled(replace(Configuration(), **{fields.get(key, key): value for key, value in values.items()}))

    def _wrong(self, where: str, value: object, expected: str) -> None:
        self.mistakes.append(f"{where}: {value!r} is invalid; expected {expected}")

    def _mapping(self, where: str, raw: object, known: tuple[str, ...]) -> dict[str, Any]:
        if raw is None:
            return {}
        if not isinstance(raw, dict):
            self._wrong(where, raw, f"a mapping with {', '.join(known)}")
            return {}
        for key in raw:
            if key not in known:
                self._wrong(where, key, f"one of {', '.join(known)}")
        return {key: value for key, value in raw.items() if key in known}

    def _list(self, where: str, raw: object, of: str) -> list[Any]:
        if isinstance(raw, list):
            return raw
        if raw is not None:
            self._wrong(where, raw, f"a list of {of}")
        return []

    def _strings(self, where: str, raw: object, of: str, shape: re.Pattern[str]) -> tuple[str, ...]:
        for entry in (entries := self._list(where, raw, of)):
            if not isinstance(entry, str) or not shape.fullmatch(entry):
                self._wrong(where, entry, f"a string in quotes: {of}")
        return tuple(str(entry) for entry in entries)

    def _label_key(self, where: str, raw: object, of: str) -> str:
        if not isinstance(raw, str) or not _LABEL_KEY.fullmatch(raw):
            self._wrong(where, raw, f"the key of a {of} label")
        return str(raw)

    def _classes(self, raw: object) -> Classes:
        entries = self._list("classes", raw, f"presets ({', '.join(PRESETS)}) or of your own labels")
        labels = tuple(self._class_label(f"classes[{index}]", entry) for index, entry in enumerate(entries))
        return Classes(labels) if labels else Classes()

    def _class_label(self, where: str, raw: object) -> ClassLabel:
        if isinstance(raw, str):
            if raw not in PRESETS:
                self._wrong(where, raw, f"one of {', '.join(PRESETS)}")
            return PRESETS.get(raw, PRESETS["default"])
        entry = self._mapping(where, raw, ("key", "spot", "onDemand", "taints"))
        if not entry.get("spot"):
            self._wrong(f"{where}.spot", entry.get("spot"), "a list of the label values that mean spot")
        taints = self._strings(f"{where}.taints", entry.get("taints"), "taints as key or key=value", _TAINT)
        return ClassLabel(
            self._label_key(f"{where}.key", entry.get("key"), "node"),
            self._strings(f"{where}.spot", entry.get("spot"), "label values", _LABEL_VALUE),
            self._strings(f"{where}.onDemand", entry.get("onDemand"), "label values", _LABEL_VALUE),
            tuple(SpotTaint(key, value) for key, _, value in (taint.partition("=") for taint in taints)),
        )

    def _defaults(self, raw: object) -> dict[str, str]:
        known = tuple(setting.name for setting in SETTINGS)
        written = {names.PREFIX + key: _text(value) for key, value in self._mapping("defaults", raw, known).items()}
        for mistake in mistakes_in(written, "configuration"):
            self._wrong(f"defaults.{mistake.annotation.removeprefix(names.PREFIX)}", mistake.value, mistake.expected)
        return written

    def _limits(self, raw: object) -> tuple[NamespaceLimit, ...]:
        entries = self._list("limits", raw, "limits")
        return tuple(self._limit(f"limits[{index}]", entry) for index, entry in enumerate(entries))

    def _limit(self, where: str, raw: object) -> NamespaceLimit:
        entry = self._mapping(where, raw, ("namespaces", "maxSpotRatio", "minOnDemand"))
        ratio, floor = None, entry.get("minOnDemand")
        if "maxSpotRatio" in entry:
            try:
                ratio = parse_share(_text(entry["maxSpotRatio"]))
            except ValueError:
                self._wrong(f"{where}.maxSpotRatio", entry["maxSpotRatio"], "a percentage or a decimal from 0 to 1")
        if floor is not None and (not isinstance(floor, int) or isinstance(floor, bool) or floor < 0):
            self._wrong(f"{where}.minOnDemand", floor, "a whole number")
        return NamespaceLimit(Limit(ratio, floor), self._selector(f"{where}.namespaces", entry.get("namespaces")))

    def _selector(self, where: str, raw: object) -> NodeTerm:
        entry = self._mapping(where, raw, ("matchLabels", "matchExpressions"))
        labels = entry.get("matchLabels") or {}
        if not isinstance(labels, dict):
            self._wrong(f"{where}.matchLabels", labels, "a mapping of labels")
            labels = {}
        expressions = self._list(f"{where}.matchExpressions", entry.get("matchExpressions"), "label expressions")
        equal = tuple(self._equal(f"{where}.matchLabels", key, value) for key, value in labels.items())
        return (*equal, *(self._requirement(f"{where}.matchExpressions", each) for each in expressions))

    def _equal(self, where: str, key: object, value: object) -> NodeRequirement:
        values = self._strings(where, [value], "a label value", _LABEL_VALUE)
        return NodeRequirement(self._label_key(where, key, "namespace"), "In", values)

    def _requirement(self, where: str, raw: object) -> NodeRequirement:
        entry = self._mapping(where, raw, ("key", "operator", "values"))
        if entry.get("operator") not in ("In", "NotIn", "Exists", "DoesNotExist"):
            self._wrong(f"{where}.operator", entry.get("operator"), "In, NotIn, Exists or DoesNotExist")
        values = self._strings(f"{where}.values", entry.get("values"), "label values", _LABEL_VALUE)
        if bool(values) is not (entry.get("operator") in ("In", "NotIn")):
            self._wrong(f"{where}.values", list(values), "values for In and NotIn, none for Exists and DoesNotExist")
        key = self._label_key(f"{where}.key", entry.get("key"), "namespace")
        return NodeRequirement(key, str(entry.get("operator")), values)

    def _priority_roles(self, raw: object) -> PriorityRoles:
        fields = {"onDemand": "on_demand", "spot": "spot", "overflow": "overflow"}
        entry = self._mapping("priorityClasses", raw, tuple(fields))
        for role, name in entry.items():
            if name is not None and not isinstance(name, str):
                self._wrong(f"priorityClasses.{role}", name, "the name of a PriorityClass, or nothing")
        return PriorityRoles(**{fields[role]: str(name or "") for role, name in entry.items()})

    def _moves(self, raw: object) -> Moves:
        return replace(Moves(), **self._rows("moves", raw, _MOVES))

    def _rows(self, where: str, raw: object, rows: Rows) -> dict[str, Any]:
        """The fields of a section whose values are all texts or numbers."""
        read: dict[str, Any] = {}
        for key, value in self._mapping(where, raw, tuple(rows)).items():
            name, parse, expected = rows[key]
            try:
                read[name] = parse(_text(value))
            except ValueError:
                self._wrong(f"{where}.{key}", value, expected)
        return read

    def _gangs(self, raw: object) -> Gangs:
        hourly, schedulers = "evictionsPerHour", "schedulerNames"
        entry = self._mapping("gangs", raw, (*GANGS_ROWS, hourly, schedulers))
        listed = entry.pop(schedulers, None) or []
        try:
            scheduler_names = parse_scheduler_names(listed)
        except ValueError:
            scheduler_names = ()
            self._wrong(f"gangs.{schedulers}", listed, "a list of names such as [volcano]")
        evictions = self._rows(f"gangs.{hourly}", entry.pop(hourly, None), EVICTIONS_ROWS)
        rows = self._rows("gangs", entry, GANGS_ROWS)
        return replace(Gangs(), **rows, **evictions, scheduler_names=scheduler_names)

    def _prices(self, raw: object) -> PriceSources:
        entry = self._mapping("prices", raw, ("table", "ratio"))
        table, ratio = entry.get("table") or "", None
        if not isinstance(table, str):
            self._wrong("prices.table", table, "the path of a file")
        if entry.get("ratio") is not None:
            try:
                ratio = float(parse_share(_text(entry["ratio"])))
            except ValueError:
                self._wrong("prices.ratio", entry["ratio"], "a percentage or a decimal from 0 to 1")
        return PriceSources(str(table), ratio)

    def _metrics(self, raw: object) -> MetricLimits:
        count = self._mapping("metrics", raw, ("workloads",)).get("workloads", MetricLimits().workloads)
        if not isinstance(count, int) or isinstance(count, bool) or count < 0:
            self._wrong("metrics.workloads", count, "a whole number; 0 for no series of workloads")
            return MetricLimits()
        return MetricLimits(count)

    def _cordon(self, raw: object) -> str:
        if raw not in CORDONS:
            self._wrong("cordon", raw, "keep (pods stay on a cordoned node) or move (they leave it)")
        return str(raw)

    def _keeps_local_storage(self, raw: object) -> bool:
        if raw not in ("move", "keep"):
            self._wrong("localStorage", raw, "move or keep")
        return raw == "keep"

    def _termination_notice(self, raw: object) -> timedelta | None:
        try:
            return parse_duration(raw) if isinstance(raw, str) else parse_duration("")
        except ValueError:
            self._wrong("terminationNotice", raw, "a duration such as 2m or 30s")
            return None

    def _leaving_taints(self, raw: object) -> dict[str, str]:
        """Each key, and when its taint counts; "" where that is not said."""
        return dict(self._leaving_taint(entry) for entry in self._list("leavingTaints", raw, "taint keys"))

    def _leaving_taint(self, entry: object) -> tuple[str, str]:
        said = self._mapping("leavingTaints", entry, ("key", "when")) if isinstance(entry, dict) else {"key": entry}
        key, when = said.get("key"), said.get("when", "")
        if not isinstance(key, str) or not _LABEL_KEY.fullmatch(key):
            self._wrong("leavingTaints", entry, "a taint key in quotes, or a mapping with key and when")
        if when not in ("", *WHENS):
            self._wrong("leavingTaints", when, f"as `when` {' or '.join(WHENS)}")
        return str(key), str(when)


_MOVES: Rows = {
    "perWorkload": ("per_workload", parse_amount, "a whole number such as 2, or a percentage of the replicas"),
    "perNode": ("per_node", parse_count, "a whole number"),
    "perNamespace": ("per_namespace", parse_count, "a whole number"),
    "atOnce": ("at_once", parse_count, "a whole number"),
    "perMinute": ("per_minute", parse_count, "a whole number"),
    "minAge": ("min_age", parse_duration, "a duration such as 30s"),
    "coolDown": ("cool_down", parse_duration, "a duration such as 10m"),
    "timeout": ("timeout", parse_duration, "a duration such as 5m"),
    "afterRollout": ("after_rollout", parse_duration, "a duration such as 2m"),
}


def _scaled(configuration: Configuration) -> Configuration:
    """If an autoscaler adds nodes, a pod waits longer before it falls back."""
    if not configuration.classes.is_scaled:
        return configuration
    return replace(configuration, defaults={names.SPOT_FALLBACK_AFTER: SCALED_FALLBACK_AFTER, **configuration.defaults})


def _text(value: object) -> str:
    """YAML reads 0.7 and 1 as numbers and `off` as false; annotations are text."""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
