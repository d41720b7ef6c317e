"""What `spotweave doctor` finds: each breakage by name, with its repair; and nothing on a good installation."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest

from cli.doctor import manifests
from kube.configmaps import parse_configuration_text
from kube.installation import granted
from placement import names
from placement.installation import GrantedRight, Heartbeat, Installation, ServedCertificate, WebhookAnswer
from placement.model import Budget, Namespace, Node, NodeTaint, Owner, Pod, Snapshot
from report.ailments import ailments
from report.doctor import Ailment

NOW = 1_800_000_000.0
DAY = 86_400.0
BASE = tuple(manifests("base"))
LABELS = {"app": "db"}
WEBHOOK = ("Deployment", names.WEBHOOK_ACCOUNT)
REBALANCER = ("Deployment", names.REBALANCER_ACCOUNT)
MUTATING = ("MutatingWebhookConfiguration", names.WEBHOOK_CONFIGURATION)
VALIDATING = ("ValidatingWebhookConfiguration", names.WEBHOOK_CONFIGURATION)


def node(name: str, of: str = "on-demand", **more: Any) -> Node:
    return Node(name, {names.CAPACITY: of} if of else {}, **more)


NODES = (node("a"), node("b", "spot", taints=(NodeTaint(names.CAPACITY, "spot"),)))


def snapshot(*nodes: Node, pods: tuple[Pod, ...] = (), budgets: tuple[Budget, ...] = ()) -> Snapshot:
    namespaces = {"shop": Namespace("shop", {names.PLACEMENT: names.ENABLED})}
    return Snapshot(namespaces, {each.name: each for each in nodes}, pods=pods, budgets=budgets)


def good() -> Installation:
    """As the manifests install it, on nodes with labels and taints, with two webhooks and a leader."""
    live = {(each["kind"], each["metadata"]["name"]): deepcopy(each) for each in BASE}
    for deployment in (WEBHOOK, REBALANCER):
        live[deployment] = {**live[deployment], "status": {"readyReplicas": 2}}
    return Installation(
        NOW,
        "v1.36.4",
        BASE,
        live,
        endpoints=2,
        policies=tuple(each for each in BASE if each["kind"] == "NetworkPolicy"),
        webhooks=(Heartbeat("w-1", "w-1", True, -1.0), Heartbeat("w-2", "w-2", True, 0.5)),
        leader=Heartbeat(names.LEASE, "r-1", True, -2.0, NOW - DAY),
        certificate=ServedCertificate(True, NOW + 60 * DAY),
        answer=WebhookAnswer.ANSWERED,
        priority_classes=frozenset({names.OVERFLOW_PRIORITY}),
        snapshot=snapshot(*NODES),
    )


def test_a_good_installation_has_no_findings() -> None:
    """Nor has one whose programs run outside the cluster, as on a local control plane."""
    assert ailments(good()) == ()
    local = good()
    for deployment in (WEBHOOK, REBALANCER):
        raw: Any = local.live[deployment]
        raw["spec"]["replicas"] = 0
        raw["status"] = {}
    assert ailments(replace(local, endpoints=0)) == ()


def test_where_nothing_is_installed_that_is_said_alone() -> None:
    """A namespace that is left over is no installation."""
    (found,) = ailments(Installation(NOW, "v1.36.4", BASE, {("Namespace", names.SYSTEM_NAMESPACE): {}}))
    assert "not installed" in found.what
    assert "helm install" in found.repair


def without(*identities: tuple[str, str]) -> Callable[[Installation], Installation]:
    return lambda seen: replace(seen, live={key: raw for key, raw in seen.live.items() if key not in identities})


def changed(identity: tuple[str, str], change: Callable[[Any], None]) -> Callable[[Installation], Installation]:
    def apply(seen: Installation) -> Installation:
        change(seen.live[identity])
        return seen

    return apply


def silent(seen: Installation) -> Installation:
    """No webhook lives."""
    return replace(seen, answer=WebhookAnswer.FAILED_OPEN, webhooks=())


def scaled_away(seen: Installation) -> Installation:
    seen.live[WEBHOOK]["spec"]["replicas"] = 0
    return replace(silent(seen), endpoints=0)


def no_rebalancer(seen: Installation) -> Installation:
    seen.live[REBALANCER]["spec"]["replicas"] = 0
    return replace(seen, leader=replace(seen.leader, is_renewed=False) if seen.leader else None)


def selects_others(raw: Any) -> None:
    raw["webhooks"][0]["namespaceSelector"]["matchExpressions"][0]["values"] = ["on"]


def pod(name: str, image: str) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {names.COMPONENT: "webhook"}},
        "spec": {"containers": [{"name": "webhook", "image": image}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def policy(ports: list[dict[str, Any]], direction: str = "ingress") -> dict[str, Any]:
    """Of somebody else, for all pods."""
    return {"spec": {"podSelector": {}, "policyTypes": [direction.capitalize()], direction: [{"ports": ports}]}}


STATEFUL = Pod("shop", "db-0", owner=Owner("StatefulSet", "db", "u"), labels=LABELS)
SELECTED = {"matchLabels": LABELS}
TIGHT = Budget("shop", "db", SELECTED, min_available="100%", healthy=3, desired=3, expected=3)

BREAKAGES: dict[str, tuple[Callable[[Installation], Installation], str, str]] = {
    "the webhook is scaled to 0": (scaled_away, "Deployment spotweave-webhook is scaled to 0", "--replicas=2"),
    "no webhook is ready": (
        lambda seen: silent(changed(WEBHOOK, lambda raw: raw.update(status={}))(seen)),
        "no pod of Deployment spotweave-webhook is ready",
        "describe pods",
    ),
    "the Service has no endpoints": (
        lambda seen: replace(silent(seen), endpoints=0),
        "Service spotweave-webhook has no endpoints",
        "selector",
    ),
    "nobody knows why it is silent": (silent, "gets no answer from the webhook", "firewall"),
    "a wrong caBundle": (
        lambda seen: replace(seen, certificate=ServedCertificate(True, NOW + DAY, (" ".join(MUTATING),))),
        "a caBundle of MutatingWebhookConfiguration spotweave",
        "rollout restart deployment/spotweave-webhook",
    ),
    "an expired certificate": (
        lambda seen: replace(seen, certificate=ServedCertificate(True, NOW - 2 * DAY)),
        "expired 2.0 days ago",
        "spotweave certs rotate",
    ),
    "a garbled Secret": (
        lambda seen: replace(seen, certificate=ServedCertificate(False)),
        "Secret spotweave-webhook-tls holds no usable certificate",
        "delete secret spotweave-webhook-tls",
    ),
    "no webhook configuration": (without(MUTATING), f"{' '.join(MUTATING)} does not exist", "kubectl apply -k"),
    "no webhook for evictions": (without(VALIDATING), f"{' '.join(VALIDATING)} does not exist", "kubectl apply -k"),
    "no fence": (
        without(("ValidatingAdmissionPolicy", names.FENCE_POLICY)),
        "ValidatingAdmissionPolicy spotweave-fence does not exist",
        "apply the manifests",
    ),
    "another namespace selector": (
        changed(MUTATING, selects_others),
        "namespaceSelector of place.spotweave.dev differ",
        "apply the manifests",
    ),
    "no entry": (
        changed(VALIDATING, lambda raw: raw["webhooks"].clear()),
        "has no entry evict.spotweave.dev",
        "apply the manifests",
    ),
    "a right of the webhook": (
        lambda seen: replace(seen, lacking=(GrantedRight(names.WEBHOOK_ACCOUNT, "patch", "", "pods"),)),
        "ServiceAccount spotweave-webhook may not patch pods",
        "apply the manifests",
    ),
    "rights of the rebalancer": (
        lambda seen: replace(
            seen,
            lacking=tuple(
                GrantedRight(names.REBALANCER_ACCOUNT, verb, "apps", "deployments")
                for verb in ("get", "list", "watch", "a", "b")
            ),
        ),
        "spotweave-rebalancer may not get deployments.apps, list deployments.apps, watch deployments.apps, "
        "a deployments.apps and 1 more",
        "apply the manifests",
    ),
    "no leader": (no_rebalancer, "no rebalancer leads; r-1 held the Lease last", "scale deployment spotweave-reb"),
    "no Lease": (lambda seen: replace(seen, leader=None), "no rebalancer leads", "logs deployment/spotweave-reb"),
    "two versions": (
        lambda seen: replace(seen, pods=(pod("a", "x:1"), pod("b", "x:1"), pod("c", "x:2"))),
        "x:1 (2 pods), x:2 (1 pod)",
        "rollout status",
    ),
    "nodes without labels": (
        lambda seen: replace(seen, snapshot=snapshot(*NODES, node("c", ""), node("d", "Spot"))),
        "nodes c, d: no label node.kubernetes.io/capacity, or an unknown value",
        "kubectl label node c",
    ),
    "nodes with labels of another preset": (
        lambda seen: replace(seen, snapshot=snapshot(*NODES, Node("c", {"karpenter.sh/capacity-type": "spot"}))),
        "node c: the configuration does not read their label karpenter.sh/capacity-type",
        "classes: [karpenter]",
    ),
    "a taint that nothing tolerates": (
        lambda seen: replace(seen, snapshot=snapshot(node("a"), node("b", "spot", taints=(NodeTaint("team", "x"),)))),
        "such as team=x on b",
        "taints: [team=x]",
    ),
    "no overflow class": (
        lambda seen: replace(seen, priority_classes=frozenset()),
        "PriorityClass spotweave-overflow of the role overflow does not exist",
        "apply the manifests",
    ),
    "a mistake in the ConfigMap": (
        lambda seen: replace(seen, mistakes=("cordon: 'maybe' is invalid",)),
        "ConfigMap spotweave-config: cordon: 'maybe' is invalid",
        "edit configmap spotweave-config",
    ),
    "a network policy that cuts the webhook's port": (
        lambda seen: replace(seen, policies=(policy([{"port": 8080}]),)),
        "network policies close port 8443 of spotweave-webhook (admission)",
        "get networkpolicies",
    ),
    "a network policy that cuts the way out": (
        lambda seen: replace(seen, policies=(policy([{"port": 53}], "egress"),)),
        "(the way to the API server)",
        "get networkpolicies",
    ),
    "a budget that never allows anything": (
        lambda seen: replace(seen, snapshot=snapshot(*NODES, pods=(STATEFUL,), budgets=(TIGHT,))),
        "PodDisruptionBudget shop/db never allows a disruption of 3 pods",
        "edit poddisruptionbudget db",
    ),
    "two budgets": (
        lambda seen: replace(
            seen,
            snapshot=snapshot(
                *NODES,
                pods=(STATEFUL,),
                budgets=(replace(TIGHT, desired=2), replace(TIGHT, name="more", desired=2)),
            ),
        ),
        "two PodDisruptionBudgets select 1 pod, such as shop/db-0",
        "narrow their selectors",
    ),
    "a clock that is a minute ahead": (
        lambda seen: replace(seen, webhooks=(Heartbeat("w-1", "10.0.0.1", True, 60.0),)),
        "the clock of 10.0.0.1 is 60 s ahead of the API server's",
        "chrony",
    ),
    "a clock that is a minute behind": (
        lambda seen: replace(seen, leader=Heartbeat(names.LEASE, "r-1", True, -62.0)),
        "the clock of r-1 is 62 s behind",
        "chrony",
    ),
    "outages that a webhook has not read": (
        lambda seen: replace(seen, outage_version=7),
        "webhook w-1 has not read the outages",
        "spotweave-state",
    ),
    "gangs without their component": (
        lambda seen: replace(seen, configuration=parse_configuration_text("gangs: {enabled: true}")),
        "the component for gangs is not installed",
        "components/gangs",
    ),
    "an old server": (lambda seen: replace(seen, server="v1.29.3"), "the API server is v1.29.3", "upgrade"),
}
# Of both programs, or with its cause.
TWICE = ("a network policy that cuts the way out", "no leader", "outages that a webhook has not read")


@pytest.mark.parametrize(("breakage", "what", "repair"), BREAKAGES.values(), ids=BREAKAGES.keys())
def test_each_breakage_is_named_with_its_repair_and_nothing_else_is(
    breakage: Callable[[Installation], Installation], what: str, repair: str, request: pytest.FixtureRequest
) -> None:
    """One finding each, with what follows from it; no leader and its cause are two."""
    found = ailments(breakage(good()))
    told = [each for each in found if what in each.what]
    assert told, found
    assert repair in told[0].repair
    assert all(each.effect for each in found)
    assert len(found) == (2 if request.node.callspec.id in TWICE else 1), found


def unread(seen: Installation, *identities: tuple[str, str]) -> Installation:
    """Reading them is forbidden."""
    return replace(without(*identities)(seen), unread=frozenset(identities))


FINE: dict[str, Callable[[Installation], Installation]] = {
    "policies that narrow who may call": lambda seen: replace(
        seen, policies=(*seen.policies, policy([{"port": "admission"}]))
    ),
    "no policies at all": lambda seen: replace(seen, policies=()),
    "a GKE cluster, whose on-demand nodes have no label": lambda seen: replace(
        seen,
        configuration=parse_configuration_text("classes: [gke]"),
        snapshot=snapshot(Node("a"), Node("b", {"cloud.google.com/gke-spot": "true"})),
    ),
    "an unlabelled node of the control plane": lambda seen: replace(
        seen, snapshot=snapshot(*NODES, Node("c", {"node-role.kubernetes.io/control-plane": ""}))
    ),
    "a spot node that is about to go": lambda seen: replace(
        seen,
        snapshot=snapshot(node("b", "spot", taints=(NodeTaint("node.kubernetes.io/unreachable", "", "NoExecute"),))),
    ),
    "one tainted spot node of several": lambda seen: replace(
        seen, snapshot=snapshot(*NODES, node("c", "spot", taints=(NodeTaint("gpu"),)))
    ),
    "a tight budget of a Deployment, whose pods are released": lambda seen: replace(
        seen,
        snapshot=snapshot(*NODES, pods=(replace(STATEFUL, owner=Owner("ReplicaSet", "db", "u")),), budgets=(TIGHT,)),
    ),
    "a tight budget of a namespace that is not opted in": lambda seen: replace(
        seen, snapshot=replace(snapshot(*NODES, pods=(STATEFUL,), budgets=(TIGHT,)), namespaces={})
    ),
    "a rollout's new pod that is not ready yet": lambda seen: replace(
        seen, pods=(pod("a", "x:1"), pod("b", "x:2") | {"status": {}})
    ),
    "a dead replica's Lease with an old time": lambda seen: replace(
        seen, webhooks=(*seen.webhooks, Heartbeat("w-0", "w-0", False, -4000.0))
    ),
    "caBundles and ports, which differ from cluster to cluster": changed(
        MUTATING, lambda raw: raw["webhooks"][0]["clientConfig"].update(caBundle="x")
    ),
    "Deployments that may not be read, where nobody knows whether a webhook answers": lambda seen: unread(
        replace(seen, answer=WebhookAnswer.UNKNOWN, webhooks=(), leader=None, are_leases_read=False), *seen.live
    ),
    "gangs, where their component may not be read": lambda seen: replace(
        unread(seen, MUTATING), configuration=parse_configuration_text("gangs: {enabled: true}")
    ),
    "nodes and classes of a configuration that may not be read": lambda seen: replace(
        unread(seen, ("ConfigMap", names.CONFIG_MAP)),
        priority_classes=frozenset(),
        snapshot=snapshot(Node("a"), Node("b", {names.CAPACITY: "spot"}, taints=(NodeTaint("team", "x"),))),
    ),
    "a clock that is compared with that of the user's machine alone": lambda seen: replace(
        seen, is_clock_read=False, leader=Heartbeat(names.LEASE, "r-1", True, 600.0)
    ),
    "what the API server fills in": changed(VALIDATING, lambda raw: raw["webhooks"][0].update(objectSelector={})),
}


@pytest.mark.parametrize("change", FINE.values(), ids=FINE.keys())
def test_what_is_fine_is_no_finding(change: Callable[[Installation], Installation]) -> None:
    """A doctor that cries wolf is not read."""
    assert ailments(change(good())) == ()


def test_a_silent_webhook_is_found_without_its_deployment() -> None:
    """What may not be read gives no cause, and is no finding of its own."""
    (found,) = ailments(unread(silent(good()), WEBHOOK))
    assert found.what == "the API server gets no answer from the webhook"


def test_the_rights_are_those_of_the_manifests() -> None:
    """Both accounts, cluster-wide and in our namespace."""
    rights = set(granted(BASE))
    assert GrantedRight(names.REBALANCER_ACCOUNT, "create", "", "pods/eviction") in rights
    assert GrantedRight(names.WEBHOOK_ACCOUNT, "get", "", "secrets", names.TLS_SECRET, names.SYSTEM_NAMESPACE) in rights
    assert {each.account for each in rights} == {names.WEBHOOK_ACCOUNT, names.REBALANCER_ACCOUNT}


def test_scripts_get_all_of_it() -> None:
    """By the names that docs/cli.md gives."""
    assert Ailment("leader", "a", "b", "c").raw == {"check": "leader", "what": "a", "effect": "b", "repair": "c"}
