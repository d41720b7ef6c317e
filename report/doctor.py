"""What is wrong with an installation, what follows from it, and how to repair it: `spotweave doctor`.

Symptoms come before causes. A Deployment without replicas is a finding only where no webhook answers: on a local
control plane the programs run outside the cluster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from placement import names
from placement.installation import Identity, Installation, Raw, WebhookAnswer
from report.cabling import cut_ports

NAMESPACE = names.SYSTEM_NAMESPACE
APPLY = "apply the manifests again: `helm upgrade`, or `kubectl apply -k` with your overlay"
OLDEST_MINOR = 30
GANG_POLICY_MINOR = 36
MOST_SECONDS_OFF = 15.0
DAY = 86_400.0
NO_PLACEMENT = "new pods are created without placement"
NO_HOLD = "evictions by others do not wait for a replacement"
NO_MOVES = "no pod is moved; pods that are lost are replaced by Kubernetes alone, and spot slots are only preferred"


@dataclass(frozen=True, slots=True)
class Ailment:
    """What is wrong, what follows from it, and how to repair it."""

    check: str
    what: str
    effect: str
    repair: str

    @property
    def raw(self) -> dict[str, str]:
        return {"check": self.check, "what": self.what, "effect": self.effect, "repair": self.repair}


Found = Iterator[Ailment]
# What is missing without these objects; of others: the programs cannot work as they should.
MISSING: Mapping[Identity, str] = {
    ("MutatingWebhookConfiguration", names.WEBHOOK_CONFIGURATION): NO_PLACEMENT,
    ("ValidatingWebhookConfiguration", names.WEBHOOK_CONFIGURATION): NO_HOLD,
    ("Service", names.WEBHOOK_SERVICE): NO_PLACEMENT,
    ("Service", names.DASHBOARD_SERVICE): "the page cannot be reached",
    ("Deployment", names.WEBHOOK_ACCOUNT): NO_PLACEMENT,
    ("Deployment", names.REBALANCER_ACCOUNT): NO_MOVES,
}
MISSING_KIND: Mapping[str, str] = {
    "ValidatingAdmissionPolicy": "accounts of Spotweave may write more than they need, or mistakes are not reported",
    "ValidatingAdmissionPolicyBinding": "its policy is not enforced",
    "ResourceQuota": "some clouds refuse the programs' pods without it",
}
# Left out by a value of the chart or an overlay, replaced by cert-manager, or judged by checks of their own.
OPTIONAL = frozenset(
    {
        *("Namespace", "NetworkPolicy", "PodDisruptionBudget", "Secret", "ConfigMap", "PriorityClass"),
        *("Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding", "ServiceAccount"),
    }
)


def version(seen: Installation) -> Found:
    minor = minor_of(seen.server)
    if minor is not None and minor < OLDEST_MINOR:
        yield Ailment(
            "versions",
            f"the API server is {seen.server}; Spotweave needs 1.{OLDEST_MINOR} or later",
            "some of its objects do not exist there",
            "upgrade Kubernetes",
        )


def minor_of(server: str) -> int | None:
    parts = server.removeprefix("v").split(".")
    return int(parts[1]) if len(parts) > 2 and parts[1].isdigit() else None


def missing(seen: Installation) -> Found:
    for raw in seen.expected:
        kind, name = identity = identity_of(raw)
        if kind not in OPTIONAL and identity not in seen.live and identity not in seen.unread:
            effect = MISSING.get(identity) or MISSING_KIND.get(kind, "the programs do not work as they should")
            yield Ailment("objects", f"{kind} {name} does not exist", effect, APPLY)


def identity_of(raw: Raw) -> Identity:
    return raw["kind"], raw["metadata"]["name"]


# What the programs rely on of each entry. The port and the caBundle differ from cluster to cluster.
ENTRY_FIELDS = ("namespaceSelector", "objectSelector", "rules", "failurePolicy", "matchConditions", "sideEffects")


def entries(seen: Installation) -> Found:
    for raw in seen.expected:
        live = seen.live.get(identity_of(raw))
        if "webhooks" not in raw or live is None:
            continue
        there = {each["name"]: each for each in live.get("webhooks") or ()}
        effect = NO_PLACEMENT if raw["kind"].startswith("Mutating") else NO_HOLD
        where = f"{raw['kind']} {raw['metadata']['name']}"
        for entry in raw["webhooks"]:
            found = there.get(entry["name"])
            if found is None:
                yield Ailment("webhook", f"{where} has no entry {entry['name']}", effect, APPLY)
                continue
            changed = [key for key in ENTRY_FIELDS if _plain(entry.get(key)) != _plain(found.get(key))]
            if _target(entry) != _target(found):
                changed.append("clientConfig")
            if changed:
                what = f"{where}: {' and '.join(changed)} of {entry['name']} differ from the manifests"
                yield Ailment("webhook", what, f"in some namespaces or for some pods, {effect}", APPLY)


def _target(entry: Raw) -> tuple[Any, ...]:
    service = entry["clientConfig"].get("service") or {}
    return service.get("namespace"), service.get("name"), service.get("path")


def _plain(value: Any) -> Any:
    """Without order, and without what is empty: the API server fills in empty selectors."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items() if each not in (None, "", [], {})} or None
    if isinstance(value, list):
        return sorted((_plain(each) for each in value), key=str)
    return value or None


def webhook(seen: Installation) -> Found:
    """Only if none answers; the certificate and network policies have checks of their own."""
    if seen.has_webhook:
        return
    causes = list(_causes(seen, names.WEBHOOK_ACCOUNT, NO_PLACEMENT))
    scaled_away = any(cause.what.endswith("scaled to 0") for cause in causes)
    if ("Service", names.WEBHOOK_SERVICE) in seen.live and seen.endpoints == 0 and not scaled_away:
        show = f"kubectl -n {NAMESPACE} get service,endpointslices -l app.kubernetes.io/name=spotweave -o wide"
        what = f"Service {names.WEBHOOK_SERVICE} has no endpoints"
        causes.append(
            Ailment("webhook", what, NO_PLACEMENT, f"compare its selector with the pods' labels: `{show}`; {APPLY}")
        )
    yield from causes
    cut = any(True for _ in policies(seen)) or any(True for _ in certificate(seen))
    if not causes and not cut and seen.answer is WebhookAnswer.FAILED_OPEN:
        yield Ailment(
            "webhook",
            "the API server gets no answer from the webhook",
            NO_PLACEMENT,
            f"look at its log: `kubectl -n {NAMESPACE} logs deployment/{names.WEBHOOK_ACCOUNT}`; a common cause is a "
            "firewall between the control plane and port 8443 of the nodes",
        )


def leader(seen: Installation) -> Found:
    if seen.has_leader or not seen.are_leases_read:
        return
    held = seen.leader.holder if seen.leader is not None else ""
    was = f"; {held} held the Lease last and does not renew it" if held else ""
    causes = list(_causes(seen, names.REBALANCER_ACCOUNT, NO_MOVES))
    repair = causes[0].repair if causes else f"`kubectl -n {NAMESPACE} logs deployment/{names.REBALANCER_ACCOUNT}`"
    yield Ailment("leader", f"no rebalancer leads{was}", NO_MOVES, repair)
    yield from causes


def _causes(seen: Installation, deployment: str, effect: str) -> Found:
    raw = seen.live.get(("Deployment", deployment))
    if raw is None:
        return
    component = deployment.removeprefix("spotweave-")
    if raw["spec"].get("replicas", 1) == 0:
        repair = f"`kubectl -n {NAMESPACE} scale deployment {deployment} --replicas=2`"
        yield Ailment(component, f"Deployment {deployment} is scaled to 0", effect, repair)
    elif not (raw.get("status") or {}).get("readyReplicas"):
        describe = f"`kubectl -n {NAMESPACE} describe pods -l {names.COMPONENT}={component}`"
        yield Ailment(component, f"no pod of Deployment {deployment} is ready", effect, f"{describe} says why")


def certificate(seen: Installation) -> Found:
    found, secret = seen.certificate, f"Secret {names.TLS_SECRET}"
    if found is None:
        return
    again = f"`kubectl -n {NAMESPACE} rollout restart deployment/{names.WEBHOOK_ACCOUNT}`"
    if not found.is_readable:
        drop = f"`kubectl -n {NAMESPACE} delete secret {names.TLS_SECRET}`, then {again}: the webhook issues a new one"
        yield Ailment("certificate", f"{secret} holds no usable certificate", NO_PLACEMENT, drop)
        return
    if found.expires <= seen.now:
        days = (seen.now - found.expires) / DAY
        yield Ailment(
            "certificate",
            f"the certificate in {secret} expired {days:.1f} days ago",
            NO_PLACEMENT,
            f"`spotweave certs rotate`; if no webhook runs, start one: {again}",
        )
    for configuration in found.unpublished:
        yield Ailment(
            "certificate",
            f"a caBundle of {configuration} is not the authority of {secret}",
            NO_PLACEMENT if configuration.startswith("Mutating") else NO_HOLD,
            f"{again}: a webhook publishes it again, if its rights are complete (`spotweave certs show`)",
        )


def rights(seen: Installation) -> Found:
    for account in dict.fromkeys(each.account for each in seen.lacking):
        lacking = [each.text for each in seen.lacking if each.account == account]
        more = f" and {len(lacking) - 4} more" if len(lacking) > 4 else ""
        what = f"ServiceAccount {account} may not {', '.join(lacking[:4])}{more}"
        yield Ailment("rights", what, "the program cannot do part of its work", APPLY)


def policies(seen: Installation) -> Found:
    """Ports of our pods that the network policies of our namespace close."""
    for name, port, purpose in cut_ports(seen.expected, seen.policies):
        yield Ailment(
            "network",
            f"network policies close port {port} of {name} ({purpose})",
            NO_PLACEMENT if purpose == "admission" else f"{purpose} cannot reach it",
            f"`kubectl -n {NAMESPACE} get networkpolicies`: remove or widen what is not Spotweave's; {APPLY}",
        )


def programs(seen: Installation) -> Found:
    """Images that differ. A rollout has two for a moment: only pods that are ready count."""
    images = Counter(
        container["image"]
        for pod in seen.pods
        if names.COMPONENT in (pod["metadata"].get("labels") or {}) and is_ready(pod)
        for container in pod["spec"]["containers"]
        if container["name"] in (names.WEBHOOK_COMPONENT, names.REBALANCER_COMPONENT)
    )
    if len(images) > 1:
        told = ", ".join(f"{image} ({counted(count)})" for image, count in sorted(images.items()))
        show = f"`kubectl -n {NAMESPACE} rollout status deployment/{names.WEBHOOK_ACCOUNT} deployment/"
        yield Ailment(
            "versions",
            f"pods of several versions run: {told}",
            "they may decide differently",
            f"{show}{names.REBALANCER_ACCOUNT}`; then {APPLY}",
        )


def is_ready(pod: Raw) -> bool:
    conditions = (pod.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


def counted(pods: int) -> str:
    return "1 pod" if pods == 1 else f"{pods} pods"


def clocks(seen: Installation) -> Found:
    """Of programs whose Leases are being renewed: a time in one that is not renewed says nothing."""
    if not seen.is_clock_read:
        return
    every = (*seen.webhooks, *([seen.leader] if seen.leader else []))
    for each in every:
        if each.is_renewed and abs(each.seconds_off) > MOST_SECONDS_OFF:
            way = "ahead of" if each.seconds_off > 0 else "behind"
            yield Ailment(
                "clocks",
                f"the clock of {each.holder or each.name} is {abs(each.seconds_off):.0f} s {way} the API server's",
                "holds, cool-downs and windows begin and end at the wrong time",
                "check the time service (chrony, systemd-timesyncd) of its node and of the control plane",
            )


def outages(seen: Installation) -> Found:
    for each in seen.webhooks:
        if each.is_renewed and each.outage_version < seen.outage_version:
            yield Ailment(
                "outages",
                f"webhook {each.name} has not read the outages that stand",
                "its new pods may wait for capacity that is out",
                f"`kubectl -n {NAMESPACE} logs deployment/{names.WEBHOOK_ACCOUNT}`: does its watch of "
                f"{names.STATE_MAP} work?",
            )


def configuration(seen: Installation) -> Found:
    edit = f"`kubectl -n {NAMESPACE} edit configmap {names.CONFIG_MAP}`, then restart both Deployments"
    for mistake in seen.mistakes:
        yield Ailment(
            "configuration",
            f"ConfigMap {names.CONFIG_MAP}: {mistake}",
            "programs that start with it end at once",
            edit,
        )
    if not seen.is_configuration_read:
        return
    roles = seen.configuration.priority_roles
    wanted = {"overflow": roles.overflow, "spot": roles.spot, "onDemand": roles.on_demand}
    for role, name in wanted.items():
        if name and seen.priority_classes is not None and name not in seen.priority_classes:
            yield Ailment(
                "priorities",
                f"PriorityClass {name} of the role {role} does not exist",
                "pods of that role keep their own priority: surplus pods do not give way to others",
                APPLY if name == names.OVERFLOW_PRIORITY else f"create it, or change priorityClasses: {edit}",
            )


CHECKS: tuple[Callable[[Installation], Found], ...] = (
    *(version, missing, entries, webhook, certificate, policies, leader, rights),
    *(programs, clocks, outages, configuration),
)
