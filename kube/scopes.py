"""ResourceQuotas, as far as they count pods by their PriorityClass."""

from __future__ import annotations

from kube import wire
from placement.gang.twins import ScopedQuota

PRIORITY_CLASS = "PriorityClass"


class ScopeRequirement(wire.Wire):
    """One requirement of a quota's selector."""

    scope_name: str | None = None


class ScopeSelector(wire.Wire):
    """Which pods a quota counts."""

    match_expressions: list[ScopeRequirement] | None = None


class ScopedQuotaSpec(wire.Wire):
    """Scopes, by name alone or as requirements."""

    scopes: list[str] | None = None
    scope_selector: ScopeSelector | None = None


class ScopedQuotaObject(wire.AnyObject):
    """A ResourceQuota without its amounts."""

    spec: ScopedQuotaSpec | None = None


def scoped_quota(raw: ScopedQuotaObject) -> ScopedQuota:
    spec = raw.spec or ScopedQuotaSpec()
    required = (spec.scope_selector.match_expressions or []) if spec.scope_selector is not None else []
    scopes = [*(spec.scopes or []), *(each.scope_name for each in required)]
    return ScopedQuota(raw.metadata.namespace or "", raw.metadata.name or "", PRIORITY_CLASS in scopes)
