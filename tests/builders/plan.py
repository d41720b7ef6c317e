"""What plans are made from: groups of pods, the ground that they stand on, and their assessments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from placement import names
from placement.availability import Availability, Basis
from placement.model import Class, Kind, Node, Pod, Template
from placement.plan.assess import Assessment, assess
from placement.plan.ground import Ground, Site, ground_of, site_of
from placement.plan.group import Cohort, Group, Member
from placement.policy import Policy, resolve
from tests.builders.model import CONFIGURATION, NOW, node, pod, workload


def member(name: str, slot: int | None, of: Class | None, pool: str = "a", **fields: Any) -> Member:
    """On a node of its class in this zone; "" is none."""
    site = site_of(node(f"{of}-{pool}", of, pool), CONFIGURATION) if pool and of is not None else None
    return Member(pod(name, slot, site.node.name if site else "", **fields), slot, of, site, slot)


def group(
    pods: Sequence[Pod],
    replicas: int | None = None,
    annotations: Mapping[str, str] | None = None,
    *,
    kind: Kind = Kind.DEPLOYMENT,
    needed: int = 0,
    source: Basis = Basis.ASSUMED,
    **fields: Any,
) -> Group:
    """The workload `web` with these pods, the released ones among them; `fields` are the workload's."""
    n = len(pods) if replicas is None else replicas
    template = Template(labels={"app": "web", names.POD_TEMPLATE_HASH: "h"})
    policy: Policy = resolve(annotations or {})[0]
    own = tuple(each for each in pods if names.RELEASED not in each.annotations)
    let_go = tuple(each for each in pods if names.RELEASED in each.annotations)
    cohort = Cohort("rs", n, True, template, own, let_go)
    web = workload("web", n, kind, template=template, **fields)
    return Group(web, policy, Availability(needed, source), cohorts=(cohort,))


def site(name: str, of: Class = Class.ON_DEMAND, zone: str = "", kind: str = "m5", **fields: Any) -> Site:
    """Where a node stands; without a zone it is unlabelled."""
    return site_of(node(name, of, zone, kind=kind, **fields), CONFIGURATION)


def ground(*nodes: Node) -> Ground:
    return ground_of(nodes, CONFIGURATION)


def assessed(found: Group, on: Ground, now: float = NOW) -> Assessment:
    return assess(found, on, now)
