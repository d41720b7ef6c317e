"""Which nodes a pod may use, whatever room they have: taints and node terms."""

from __future__ import annotations

from placement import names
from placement.classes import Classes
from placement.model import Class, NodeRequirement, NodeTerm, Toleration
from placement.plan.ground import Site

NO_TAINTS: frozenset[tuple[str, str | None]] = frozenset()
REPELLING = ("NoSchedule", "NoExecute")


class Reach:
    """The nodes that a pod may use, whatever room they have."""

    def __init__(
        self,
        terms: tuple[NodeTerm, ...],
        tolerations: tuple[Toleration, ...],
        added: frozenset[tuple[str, str | None]] = NO_TAINTS,
    ) -> None:
        self.terms = terms
        self._tolerations = tolerations
        self._added = added

    def admits(self, site: Site) -> bool:
        """Taints are tolerated (those of spot by what admission adds), and one of the terms is satisfied."""
        return self.tolerates(site) and self.selects(site)

    @property
    def key(self) -> tuple[object, ...]:
        """What two have in common that admit the same nodes."""
        return self.terms, self._tolerations, self._added

    def selects(self, site: Site) -> bool:
        return not self.terms or any(term_holds(term, site) for term in self.terms)

    def tolerates(self, site: Site) -> bool:
        return all(
            taint.effect not in REPELLING
            or (taint.key, taint.value) in self._added
            or (taint.key, None) in self._added
            or any(each.tolerates(taint) for each in self._tolerations)
            for taint in site.node.taints
        )


def added_taints(of: Class, classes: Classes) -> frozenset[tuple[str, str | None]]:
    """The taints that admission makes a pod of the class tolerate."""
    return frozenset((each["key"], each.get("value")) for each in classes.tolerations if of is Class.SPOT)


def term_holds(term: NodeTerm, site: Site) -> bool:
    """All of it."""
    return all(_holds(site, each) for each in term)


def _holds(site: Site, asked: NodeRequirement) -> bool:
    return asked.allows(site.node.name if asked.key == names.NODE_NAME else site.node.labels.get(asked.key))
