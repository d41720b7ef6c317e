"""What a program tells Prometheus, read as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from placement.metrics import METRICS, Exposer, Metric, Type

EXTRA = {"le"}  # of a histogram's buckets


def families(text: str) -> dict[str, Family]:
    return {each.name: each for each in text_string_to_metric_families(text)}


def differences(text: str, component: str) -> list[str]:
    """Where what a program exposes is not what the table says; and what only the table knows."""
    found = families(text)
    own = {name: each for name, each in METRICS.items() if component in each.writer.components}
    unknown = [f"{name}: not in the table" for name in found if name not in own]
    wrong = (line for name, each in own.items() if name in found for line in _wrong(found[name], each))
    return [*unknown, *wrong, *(f"{name}: not exposed" for name in own if name not in found)]


def _wrong(family: Family, metric: Metric) -> Iterable[str]:
    if (family.type, family.documentation) != (str(metric.type), metric.help):
        yield f"{metric.name}: {family.type}, {family.documentation}"
    labels = {frozenset(set(sample.labels) - EXTRA) for sample in family.samples}
    if labels - {frozenset(metric.labels)}:
        yield f"{metric.name}: labels {labels}"


def values(text: str, name: str) -> dict[frozenset[Any], float]:
    """Each series of a metric that is no histogram, by its labels."""
    assert METRICS[name].type is not Type.HISTOGRAM
    series = METRICS[name].series
    samples = (sample for family in families(text).values() for sample in family.samples)
    return {frozenset(each.labels.items()): each.value for each in samples if each.name == series}


def of_leader() -> set[str]:
    return {name for name, each in METRICS.items() if each.writer is Exposer.LEADER}
