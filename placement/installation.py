"""What is known of an installation from outside: facts that `spotweave doctor` judges. `raw_…` is an API object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from placement import names
from placement.configuration import Configuration
from placement.model import Snapshot

Raw = Mapping[str, Any]
Identity = tuple[str, str]  # kind and name


class WebhookAnswer(StrEnum):
    """Whether a webhook answered when the API server was asked to create a pod, as a dry run."""

    ANSWERED = "answered"
    FAILED_OPEN = "failed open"  # the pod would have been created without placement
    UNKNOWN = "unknown"  # no namespace is opted in, or the server's count cannot be read


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A program's Lease, looked at twice: its writer lives if it changed."""

    name: str
    holder: str = ""
    is_renewed: bool = False
    seconds_off: float = 0.0  # how far its writer's clock is ahead of the API server's, if it is renewed
    acquired: float = 0.0
    outage_version: int = 0  # of webhooks: which outages they have read


@dataclass(frozen=True, slots=True)
class GrantedRight:
    """What an account may do according to the manifests."""

    account: str
    verb: str
    group: str
    resource: str
    name: str = ""
    namespace: str = ""

    @property
    def text(self) -> str:
        plural = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {plural}{f'/{self.name}' if self.name else ''}"


@dataclass(frozen=True, slots=True)
class ServedCertificate:
    """The webhook's certificate, according to its Secret and to what the configurations publish."""

    is_readable: bool = True
    expires: float = 0.0
    unpublished: tuple[str, ...] = ()  # configurations with entries whose caBundle is not the Secret's


@dataclass(frozen=True, slots=True)
class Installation:
    """All that one look has found. What could not be read is empty, and named in `unchecked`."""

    now: float  # by the API server's clock
    server: str = ""  # its version, such as v1.36.4
    expected: tuple[Raw, ...] = ()  # as the manifests of this program have them
    live: Mapping[Identity, Raw] = field(default_factory=dict)  # what there is of them
    unread: frozenset[Identity] = frozenset()  # what may be there, too: reading it is forbidden
    pods: tuple[Raw, ...] = ()  # of our namespace
    endpoints: int | None = None  # ready addresses of the webhook's Service; None: not read
    policies: tuple[Raw, ...] = ()  # all network policies of our namespace
    are_leases_read: bool = True
    is_clock_read: bool = True  # else `now` and all times are by the clock of the user's machine
    webhooks: tuple[Heartbeat, ...] = ()
    leader: Heartbeat | None = None
    lacking: tuple[GrantedRight, ...] = ()
    certificate: ServedCertificate | None = None
    answer: WebhookAnswer = WebhookAnswer.UNKNOWN
    outage_version: int = 0  # that webhooks should have read
    mistakes: tuple[str, ...] = ()  # of the configuration
    configuration: Configuration = field(default_factory=Configuration)
    priority_classes: frozenset[str] | None = None
    snapshot: Snapshot = field(default_factory=Snapshot)
    unchecked: tuple[str, ...] = ()

    @property
    def is_installed(self) -> bool:
        """Anything of it, apart from a namespace that may be left over; also what may only not be read."""
        return any(kind != "Namespace" for kind, _ in (*self.live, *self.unread))

    @property
    def is_configuration_read(self) -> bool:
        return ("ConfigMap", names.CONFIG_MAP) not in self.unread

    @property
    def has_webhook(self) -> bool:
        """One answers, or is at least alive, or nobody knows."""
        if self.answer is WebhookAnswer.UNKNOWN:
            return not self.are_leases_read or any(each.is_renewed for each in self.webhooks)
        return self.answer is WebhookAnswer.ANSWERED

    @property
    def has_leader(self) -> bool:
        return self.leader is not None and bool(self.leader.holder) and self.leader.is_renewed
