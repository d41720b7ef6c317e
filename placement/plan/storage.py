"""Which nodes can use a pod's volumes.

As the scheduler judges it (its filters VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits):

- a claim must be there and bound. One that is not bound yet is left to the scheduler: it is not modelled;
- its volume's node affinity and zone labels must match the node;
- a claim for one pod (ReadWriteOncePod) must not be in use by another;
- a node attaches so many volumes of a driver. Example: a limit of 2 and two pods there with one volume each: a third
  volume is refused, but a pod that shares one of the two is not.

Volumes that are on their way off a node are not seen, nor are disks that a pod's spec names itself, other than that
those of pods that are there count.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from placement import names
from placement.lack import Lack, NoPlace
from placement.model import NO_AMOUNTS, AttachLimits, Claim, Key, NodeTerm, Pod, Volume
from placement.plan.ground import Site
from placement.plan.reach import term_holds

ZONE_LABELS = frozenset(names.VOLUME_ZONES)
_NEWER = {names.OLD_ZONE: names.ZONE, names.OLD_REGION: names.REGION}


@dataclass(frozen=True, slots=True)
class Storage:
    """Claims, volumes, and how many of them nodes can attach."""

    claims: Mapping[Key, Claim] = field(default_factory=dict)
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    limits: Mapping[str, AttachLimits] = field(default_factory=dict)  # by node

    def attached(self, pods: Iterable[Pod], driver: str) -> set[str]:
        """The volumes of this driver that pods have; two pods may share one."""
        found: set[str] = set()
        for pod in pods:
            found.update(volume.name for volume in self._volumes_of(pod) if volume.driver == driver)
            found.update(f"{pod.uid}/{index}" for index, disk in enumerate(pod.needs.disks) if disk == driver)
        return found

    def _volumes_of(self, pod: Pod) -> Iterator[Volume]:
        for key in claims_of(pod):
            claim = self.claims.get(key)
            volume = self.volumes.get(claim.volume) if claim is not None else None
            if volume is not None:
                yield volume


def storage_in(facts: Iterable[object]) -> Storage:
    """What is among facts of any kinds."""
    claims: dict[Key, Claim] = {}
    volumes: dict[str, Volume] = {}
    limits: dict[str, AttachLimits] = {}
    for fact in facts:
        if isinstance(fact, Claim):
            claims[fact.key] = fact
        elif isinstance(fact, Volume):
            volumes[fact.name] = fact
        elif isinstance(fact, AttachLimits):
            limits[fact.name] = fact
    return Storage(claims, volumes, limits)


def claims_of(pod: Pod) -> list[Key]:
    """By their real names."""
    return [Key(pod.namespace, each.replace("*", pod.name)) for each in pod.needs.claims]


Beside = Callable[[str], Iterable[Pod]]  # by node: the pods that are there, or will be


class VolumeFit:
    """The volumes of a pod that looks for a node."""

    def __init__(self, storage: Storage, volumes: Sequence[Volume], beside: Beside) -> None:
        self._storage = storage
        self._volumes = volumes
        self._beside = beside
        self._wanted: dict[str, set[str]] = {}  # by driver
        for volume in volumes:
            if volume.driver:
                self._wanted.setdefault(volume.driver, set()).add(volume.name)

    def refusal(self, site: Site) -> NoPlace | None:
        for volume in self._volumes:
            if not _can_use(volume, site):
                return NoPlace(Lack.VOLUME, volume.name)
        limits = self._storage.limits.get(site.node.name)
        most = NO_AMOUNTS if limits is None else limits.most
        for driver, wanted in self._wanted.items() if most else ():
            if driver in most and self._is_too_many(site, driver, wanted, most[driver]):
                return NoPlace(Lack.ATTACHMENTS, driver)
        return None

    def _is_too_many(self, site: Site, driver: str, wanted: set[str], most: int) -> bool:
        there = self._storage.attached(self._beside(site.node.name), driver)
        return not wanted <= there and len(there | wanted) > most


def judged(
    storage: Storage | None, pod: Pod, users: Callable[[str], Iterable[Pod]], beside: Beside, gone: Collection[str]
) -> VolumeFit | NoPlace | None:
    """How nodes are judged for the pod's volumes; why no node will do; or None, where all will.

    `users` gives the pods of a namespace that are on nodes or will be: they may use the same claims.
    """
    if not pod.needs.claims:
        return None
    volumes = []
    for key in claims_of(pod):
        claim = None if storage is None else storage.claims.get(key)
        if storage is None or (claim is not None and claim.is_usable and not claim.volume):
            return NoPlace(Lack.UNKNOWN_VOLUMES, key.name)
        volume = None if claim is None else storage.volumes.get(claim.volume)
        if claim is None or volume is None or not claim.is_usable:
            return NoPlace(Lack.CLAIM, key.name)
        if claim.is_for_one_pod and any(_uses(each, key, gone) for each in users(pod.namespace)):
            return NoPlace(Lack.ONE_POD, key.name)
        volumes.append(volume)
    assert storage is not None
    return VolumeFit(storage, volumes, beside)


def _uses(pod: Pod, key: Key, gone: Collection[str]) -> bool:
    return bool(pod.needs.claims) and pod.uid not in gone and key in claims_of(pod)


def _can_use(volume: Volume, site: Site) -> bool:
    if volume.terms and not any(term_holds(term, site) for term in volume.terms):
        return False
    labels = site.node.labels
    return not volume.zones or ZONE_LABELS.isdisjoint(labels) or _is_in_zones(volume.zones, labels)


def _is_in_zones(zones: NodeTerm, labels: Mapping[str, str]) -> bool:
    """A node may have the newer label where the volume has the older one."""
    return all(each.allows(labels.get(each.key, labels.get(_NEWER.get(each.key, each.key)))) for each in zones)
