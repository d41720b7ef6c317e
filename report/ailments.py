"""What is wrong with nodes, budgets and gangs: the part of `spotweave doctor` that looks beyond our own objects."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from placement import names
from placement.classes import PRESETS
from placement.installation import Installation
from placement.model import Budget, Class, Node, NodeTaint, Pod
from placement.selector import matches
from report.doctor import CHECKS, GANG_POLICY_MINOR, NAMESPACE, Ailment, Found, counted, minor_of

CONTROL_PLANE = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")
# Presets that label spot nodes alone: there an unlabelled node is on-demand.
LABEL_SPOT_ALONE = frozenset({PRESETS["gke"].key, PRESETS["aks"].key})
MOST_NAMED = 3
PASSING = ("node.kubernetes.io/", "karpenter.sh/", "node.cilium.io/")  # taints that come and go by themselves
EDIT = f"`kubectl -n {NAMESPACE} edit configmap {names.CONFIG_MAP}`, then restart both Deployments"


def classes(seen: Installation) -> Found:
    """Nodes whose class is not known, unless unlabelled ones are on-demand by the cloud's own rule."""
    if not seen.is_configuration_read:
        return
    configured = seen.configuration.classes
    unknown = [node for node in _workers(seen) if configured.of_node(node.labels) is None]
    keys = {label.key for label in configured.labels}
    other = {
        name: [node for node in unknown if preset.key in node.labels]
        for name, preset in PRESETS.items()
        if preset.key not in keys
    }
    for name, nodes in other.items():
        if nodes:
            yield Ailment(
                "classes",
                f"{_nodes(nodes)}: the configuration does not read their label {PRESETS[name].key}",
                "they count as on-demand, spot nodes among them",
                f"add the preset: `classes: [{name}]` in {EDIT}",
            )
    told = {node.name for nodes in other.values() for node in nodes}
    rest = [node for node in unknown if node.name not in told]
    if rest and not keys & LABEL_SPOT_ALONE:
        yield Ailment(
            "classes",
            f"{_nodes(rest)}: no label {' or '.join(sorted(keys))}, or an unknown value of it",
            "they count as on-demand",
            f"label them: `kubectl label node {rest[0].name} {configured.labels[0].key}=…`; or change `classes`",
        )


def taints(seen: Installation) -> Found:
    """Where every spot node has a taint that neither we nor opted-in pods tolerate, nothing can run on spot."""
    spot = [node for node in _workers(seen) if seen.configuration.classes.of_node(node.labels) is Class.SPOT]
    blocking = [[taint for taint in node.taints if _blocks(taint, seen)] for node in spot]
    used = {pod.node for pod in _opted_in_pods(seen) if not pod.terminating}
    is_blocked = seen.is_configuration_read and bool(spot) and all(blocking)
    if not is_blocked or used & {node.name for node in spot}:
        return
    first = blocking[0][0]
    told = f"{first.key}={first.value}" if first.value else first.key
    yield Ailment(
        "taints",
        f"every spot node has a taint that nothing tolerates, such as {told} on {spot[0].name}",
        "no pod can run on spot; spot pods fall back to on-demand",
        f"list it: `taints: [{told}]` of your label under `classes` (docs/configuration.md#classes) in {EDIT}",
    )


def _blocks(taint: NodeTaint, seen: Installation) -> bool:
    """For good: Kubernetes' and the autoscalers' own come and go."""
    if taint.effect == "PreferNoSchedule" or taint.key in seen.configuration.leaving_taints:
        return False
    if taint.key.startswith(PASSING) and taint.key != names.CAPACITY:
        return False
    tolerated = seen.configuration.classes.tolerations
    return not any(each["key"] == taint.key and each.get("value", taint.value) == taint.value for each in tolerated)


def budgets(seen: Installation) -> Found:
    """Those that never allow a disruption, where that stops moves; and pods under two of them, which none evicts."""
    opted_in = {each.name for each in seen.snapshot.namespaces.values() if each.is_opted_in}
    stateful = [pod for pod in _opted_in_pods(seen) if pod.owner is not None and pod.owner.kind == "StatefulSet"]
    for budget in seen.snapshot.budgets:
        if budget.namespace not in opted_in or not budget.settled:
            continue
        chosen = [pod for pod in stateful if _guards(budget, pod)]
        if chosen and _never_allows(budget):
            yield Ailment(
                "budgets",
                f"PodDisruptionBudget {budget.key} never allows a disruption of {counted(budget.expected)}",
                f"{counted(len(chosen))} of StatefulSets cannot be moved, and no drain of their nodes ends",
                f"`kubectl -n {budget.namespace} edit poddisruptionbudget {budget.name}`: allow one, as with "
                "`maxUnavailable: 1`",
            )
    twice = [pod for pod in _opted_in_pods(seen) if sum(_guards(each, pod) for each in seen.snapshot.budgets) > 1]
    if twice:
        yield Ailment(
            "budgets",
            f"two PodDisruptionBudgets select {counted(len(twice))}, such as {twice[0].key}",
            "Kubernetes refuses every eviction of such a pod, so it is never moved or drained",
            f"`kubectl -n {twice[0].namespace} get poddisruptionbudgets`: narrow their selectors",
        )


def _never_allows(budget: Budget) -> bool:
    """However healthy its pods are: 100 %, 0 unavailable, or as many as there are."""
    if budget.max_unavailable is not None:
        return str(budget.max_unavailable) in ("0", "0%")
    return budget.expected > 0 and budget.desired >= budget.expected


def _guards(budget: Budget, pod: Pod) -> bool:
    return budget.namespace == pod.namespace and matches(budget.selector, pod.labels)


def gangs(seen: Installation) -> Found:
    if not seen.configuration.gangs.enabled:
        return
    webhooks = ("MutatingWebhookConfiguration", names.WEBHOOK_CONFIGURATION)
    policy = ("MutatingAdmissionPolicy", names.GANG_POLICY)
    raw = seen.live.get(webhooks) or {}
    has_entry = any(each["name"] == names.GATE_ENTRY for each in raw.get("webhooks") or ())
    if not has_entry and policy not in seen.live and not {webhooks, policy} & seen.unread:
        minor = minor_of(seen.server)
        older = minor is not None and minor < GANG_POLICY_MINOR
        yield Ailment(
            "gangs",
            "the configuration switches gangs on, but the component for gangs is not installed",
            "members get no gate, and start one by one",
            f"list `components/gangs{'` and `components/gangs-before-1.36' if older else ''}` in your overlay, or set "
            "`gangs.enabled=true` with Helm",
        )


def _workers(seen: Installation) -> list[Node]:
    """Without nodes of the control plane."""
    return [node for node in seen.snapshot.nodes.values() if not set(CONTROL_PLANE) & {*node.labels}]


def _opted_in_pods(seen: Installation) -> list[Pod]:
    opted_in = {each.name for each in seen.snapshot.namespaces.values() if each.is_opted_in}
    return [pod for pod in seen.snapshot.pods if pod.namespace in opted_in]


def _nodes(nodes: Iterable[Node]) -> str:
    ordered = sorted(node.name for node in nodes)
    more = f" and {len(ordered) - MOST_NAMED} more" if len(ordered) > MOST_NAMED else ""
    return f"{'node' if len(ordered) == 1 else 'nodes'} {', '.join(ordered[:MOST_NAMED])}{more}"


ALL: tuple[Callable[[Installation], Found], ...] = (*CHECKS, classes, taints, budgets, gangs)


def ailments(seen: Installation) -> tuple[Ailment, ...]:
    """All that is wrong; if nothing is installed, that alone."""
    if not seen.is_installed:
        install = "`helm install` or `kubectl apply -k manifests/base` (docs/install.md)"
        return (Ailment("objects", "Spotweave is not installed here", "nothing is placed or moved", install),)
    return tuple(dict.fromkeys(found for check in ALL for found in check(seen)))
