"""Refusals: who refused a pod that carried our patch, and for how long its siblings go without it.

Admission is not persistence. After our patch another policy, a webhook or a quota may still refuse the pod, and its
controller tries again for ever. `read_refusal` reads who it was from the controller's message. The refusal then stands
for a while: pods are admitted unpatched until `until`, then the patch is tried again. Each time that it is refused once
more, the pause is twice as long.

Example: a policy refuses our tolerations at 10:00:00. At 10:00:01 the ReplicaSet has tried seven times, and its pods
are unpatched until 10:05. The first one after that carries the patch, is refused, and from 10:07 on pods are unpatched
for 10 minutes.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import StrEnum

from placement.backoff import doubled

FIRST_SECONDS = 300.0
LONGEST_SECONDS = 6 * 3600.0
HOLD_SECONDS = 600.0  # a move tries the patch later than admission: a refused one costs a released pod its time
FADED_SECONDS = 24 * 3600.0  # a refusal that long ago says nothing about the next one
BEFORE_SECONDS = 60.0
LONGEST_TEXT = 300
LONGEST_READ = 4096  # characters: tenants write what stands in Events, as long as they like
UNPATCHED = "created without Spotweave's patch, which another policy or quota refused"  # in the reason of such pods


class Refuser(StrEnum):
    """What refused a pod. A label of metrics."""

    POLICY = "policy"  # a ValidatingAdmissionPolicy
    WEBHOOK = "webhook"
    QUOTA = "quota"
    POD_SECURITY = "pod-security"
    OTHER = "other"  # an admission plugin, or the API's own validation


_TITLES = {
    Refuser.POLICY: "ValidatingAdmissionPolicy",
    Refuser.WEBHOOK: "admission webhook",
    Refuser.QUOTA: "ResourceQuota",
    Refuser.POD_SECURITY: "Pod Security level",
    Refuser.OTHER: "the API server",
}
# As API servers from 1.30 on write them.
_PATTERNS = (
    (Refuser.POLICY, re.compile(r"ValidatingAdmissionPolicy '([^']+)'.* denied request")),
    (Refuser.WEBHOOK, re.compile(r'admission webhook "([^"]+)" denied the request')),
    (Refuser.QUOTA, re.compile(r"(?:exceeded|failed) quota: ([^,:\s]+)")),
    (Refuser.QUOTA, re.compile(r"insufficient quota to match these scopes()")),
    (Refuser.POD_SECURITY, re.compile(r'violates PodSecurity "([^":]+)')),
    (Refuser.OTHER, re.compile(r"\bis (?:forbidden|invalid): ()")),
    (Refuser.OTHER, re.compile(r"operation does not apply()")),
)
_LIMIT_RANGE = re.compile(r"(?:maximum|minimum) [\w./-]+ usage per|limit to request ratio per")
# The pod's name is another one with each try, and Events with different texts do not add up.
_PREAMBLES = (
    re.compile(r"^\(combined from similar events\): "),
    re.compile(r"^[Cc]reate Pod \S+ in StatefulSet \S+ failed error: "),
    re.compile(r"^Error creating: "),
    re.compile(r'^[Pp]ods? "[^"]*" is (?:forbidden|invalid): '),
)


@dataclass(frozen=True, slots=True)
class PatchRefusal:
    """Who refused pods with our patch and what it said; until when their siblings go without it."""

    by: Refuser
    name: str  # of the policy, webhook, quota or level; "": it has none
    text: str
    until: float = 0.0
    times: int = 0  # that it was tried and refused before
    is_vain: bool = False  # pods without the patch are refused, too: until then they get it as ever
    is_proven: bool = False  # a pod was created without the patch

    @property
    def who(self) -> str:
        return f'{_TITLES[self.by]} "{self.name}"' if self.name else _TITLES[self.by]

    @property
    def sentence(self) -> str:
        """For the workload's owner."""
        return (
            f"Pods are created without Spotweave's patch, because {self.who} refuses pods that carry it: {self.text}. "
            "Spotweave tries the patch again later"
        )

    def lets_in(self, now: float) -> bool:
        """Pods are admitted unpatched."""
        return not self.is_vain and now < self.until

    def is_dismissed(self, now: float) -> bool:
        """To leave the patch out did not help: that is not tried again for a while."""
        return self.is_vain and now < self.until

    def concerns(self, priority_class: str) -> bool:
        """Whether our patch may be the reason. `priority_class` is the one that it gives the pod, if any.

        Quotas do not look at affinity, tolerations or annotations: without a priority class of ours a pod is counted
        as it would be anyway. Pod Security looks at nothing that we patch.
        """
        return self.by is not Refuser.POD_SECURITY and (self.by is not Refuser.QUOTA or bool(priority_class))


def read_refusal(message: str) -> PatchRefusal | None:
    """What a controller says about a pod that it could not create; None where no one refused it (a time-out)."""
    message = message[:LONGEST_READ]
    if _LIMIT_RANGE.search(message):
        return None  # it looks at requests and limits, which we leave alone
    for by, pattern in _PATTERNS:
        found = pattern.search(message)
        if found is not None:
            return PatchRefusal(by, found.group(1), _essence(message))
    return None


def _essence(message: str) -> str:
    """Without the pod's name, on one line, and not too long."""
    text = " ".join(message.split())
    for preamble in _PREAMBLES:
        text = preamble.sub("", text)
    return text if len(text) <= LONGEST_TEXT else text[: LONGEST_TEXT - 1] + "…"


def begun(found: PatchRefusal, before: PatchRefusal | None, now: float) -> PatchRefusal:
    """From now on pods are admitted unpatched."""
    is_first = before is None or now > before.until + FADED_SECONDS
    times = 0 if before is None or is_first else before.times + 1
    return replace(found, until=now + doubled(FIRST_SECONDS, times, LONGEST_SECONDS), times=times)


def in_vain(before: PatchRefusal, now: float) -> PatchRefusal:
    """Pods without the patch were refused, too, so it is none of ours: they get the patch as ever."""
    return replace(before, until=now + doubled(FIRST_SECONDS, before.times, LONGEST_SECONDS), is_vain=True)


# --- the rebalancer's part -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Hold:
    """A workload is not moved for a while, since its replacements would be refused: when it was last told, how often.

    10 minutes from the last time; a refusal that is told after that has found its way into a move: 20, 40, … 6 hours.
    """

    at: float
    times: int = 0

    @property
    def until(self) -> float:
        return self.at + doubled(HOLD_SECONDS, self.times, LONGEST_SECONDS)

    def covers(self, created: float) -> bool:
        """Whether a pod that admission did not patch was left so for this: the first ones come before it is told."""
        return self.at - BEFORE_SECONDS <= created <= self.until


def held(before: Hold | None, at: float) -> Hold:
    """After a refusal was told at that time; what is told late or twice changes nothing."""
    if before is None or at > before.until + FADED_SECONDS:
        return Hold(at)
    if at <= before.at:
        return before
    return Hold(at, before.times + 1 if at > before.until else before.times)
