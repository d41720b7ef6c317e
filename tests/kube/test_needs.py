"""What a pod asks of a node, read from its spec."""

from typing import Any

import pytest

from kube.resources import PODS, PODS_IN_FULL
from placement.model import NO_NEEDS, HardSpread, HostPort, Needs, NodeRequirement, Pod, PodTerm, Toleration
from tests.builders.api import Raw, event, page, raw_pod

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod_with(**spec: Any) -> Pod:
    raw = raw_pod("a") | {"spec": spec}
    (read,) = PODS_IN_FULL.shape.page(page(raw)).items
    return read


def needs(**spec: Any) -> Needs:
    return pod_with(**spec).needs


def asking(cpu: str | int | None = None, **more: Any) -> Raw:
    """A container."""
    return {"name": "c", "resources": {"requests": {"cpu": cpu}} if cpu is not None else {}, **more}


def sidecar(cpu: str) -> Raw:
    return asking(cpu, restartPolicy="Always")


REQUESTS: dict[str, tuple[Raw, dict[str, int]]] = {
    "what runs together is added": ({"containers": [asking("100m"), asking("0.2")]}, {"cpu": 300}),
    "a container that asks for nothing adds nothing": ({"containers": [asking("100m"), asking()]}, {"cpu": 100}),
    "what is asked for as a number": ({"containers": [asking(2)]}, {"cpu": 2000}),
    "zero is nothing": ({"containers": [asking("0")]}, {}),
    "what runs before has to fit, too": (
        {"containers": [asking("100m")], "initContainers": [asking("300m"), asking("200m")]},
        {"cpu": 300},
    ),
    "and counts for nothing if it is smaller": (
        {"containers": [asking("400m")], "initContainers": [asking("300m")]},
        {"cpu": 400},
    ),
    "a sidecar runs beside": ({"containers": [asking("100m")], "initContainers": [sidecar("50m")]}, {"cpu": 150}),
    "and beside what starts after it": (
        {"containers": [asking("100m"), asking("200m")], "initContainers": [sidecar("50m"), asking("400m")]},
        {"cpu": 450},
    ),
    "but not beside what ended before it": (
        {"containers": [asking("100m")], "initContainers": [asking("400m"), sidecar("50m")]},
        {"cpu": 400},
    ),
    "the overhead comes on top": ({"containers": [asking("100m")], "overhead": {"cpu": "10m"}}, {"cpu": 110}),
    "what the pod as a whole asks for stands for the sum": (
        {"containers": [asking("100m")], "resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "10m"}},
        {"cpu": 2010},
    ),
    "each resource by itself": (
        {
            "containers": [{"resources": {"requests": {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"}}}],
            "initContainers": [{"resources": {"requests": {"memory": "2Gi", "ephemeral-storage": "1k"}}}],
        },
        {"cpu": 1000, "memory": 2 * 2**30, "example.com/gpu": 1, "ephemeral-storage": 1000},
    ),
    "limits do not count": ({"containers": [{"resources": {"limits": {"cpu": "1"}}}]}, {}),
    "what cannot be read counts as nothing": ({"containers": [asking("much")]}, {}),
    "nothing at all": ({"containers": None, "initContainers": None, "overhead": None, "resources": None}, {}),
}


@pytest.mark.parametrize(("spec", "expected"), REQUESTS.values(), ids=REQUESTS.keys())
def test_requests_are_counted_as_the_scheduler_does(spec: Raw, expected: dict[str, int]) -> None:
    """CPU in thousandths, all else in units."""
    assert needs(**spec).requests == expected


def test_limits_are_added_up_like_requests() -> None:
    """Quotas count them."""
    limited = {"resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}
    read = needs(containers=[limited, limited], initContainers=[{"resources": {"limits": {"cpu": "3"}}}])
    assert (read.limits, read.requests) == ({"cpu": 3000, "memory": 2 * 2**30}, {})


def test_hard_spreading_is_read_with_what_changes_how_it_counts() -> None:
    constraint = {"topologyKey": "zone", "maxSkew": 2, "whenUnsatisfiable": "DoNotSchedule"}
    more = {"minDomains": 3, "nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor", "matchLabelKeys": ["rev"]}
    read = needs(topologySpreadConstraints=[constraint, constraint | more | {"labelSelector": {}}])
    assert read.hard_spread == (
        HardSpread("zone", 2),
        HardSpread("zone", 2, (), 3, counts_all_nodes=True, honors_taints=True, match_label_keys=("rev",)),
    )


VOLUMES: dict[str, tuple[list[Raw] | None, tuple[bool, bool]]] = {
    "none": (None, (False, False)),
    "a directory on the disk": ([{"emptyDir": {}}], (False, True)),
    "a directory on some medium": ([{"emptyDir": {"medium": "", "sizeLimit": "1Gi"}}], (False, True)),
    "a directory in memory": ([{"emptyDir": {"medium": "Memory"}}], (False, False)),
    "the node's own files": ([{"hostPath": {"path": "/x"}}], (False, True)),
    "a claim": ([{"persistentVolumeClaim": {"claimName": "x"}}], (True, False)),
    "a claim that goes with the pod": ([{"ephemeral": {"volumeClaimTemplate": {}}}], (True, False)),
    "what is written anew with every pod": (
        [{"configMap": {}}, {"secret": {}}, {"projected": {}}, {"downwardAPI": {}}, {"csi": {}}],
        (False, False),
    ),
    "both": ([{"persistentVolumeClaim": {}}, {"configMap": {}}, {"emptyDir": {}}], (True, True)),
    "nulls": ([{"emptyDir": None, "hostPath": None, "persistentVolumeClaim": None, "ephemeral": None}], (False, False)),
}


@pytest.mark.parametrize(("volumes", "expected"), VOLUMES.values(), ids=VOLUMES.keys())
def test_volumes_tell_claims_and_what_is_lost_with_the_pod(
    volumes: list[Raw] | None, expected: tuple[bool, bool]
) -> None:
    """Claims are bound to a zone or to one pod; a disk's directory is lost."""
    read = needs(volumes=volumes)
    assert (read.has_claims, read.has_local_storage) == expected


PORTS: dict[str, tuple[Raw, tuple[HostPort, ...]]] = {
    "of its own network": ({"containers": [{"ports": [{"containerPort": 80}]}]}, ()),
    "of the node": ({"containers": [{"ports": [{"containerPort": 80, "hostPort": 8080}]}]}, (HostPort(8080),)),
    "of several containers": (
        {"containers": [{"ports": [{"hostPort": 1}, {"hostPort": 2}]}, {"ports": None}, {"ports": [{"hostPort": 3}]}]},
        (HostPort(1), HostPort(2), HostPort(3)),
    ),
    "of one address and protocol": (
        {"containers": [{"ports": [{"hostPort": 1, "protocol": "UDP", "hostIP": "10.0.0.1"}]}]},
        (HostPort(1, "UDP", "10.0.0.1"),),
    ),
    "zero is none": ({"containers": [{"ports": [{"containerPort": 80, "hostPort": 0}]}]}, ()),
    "on the node's network all": (
        {"hostNetwork": True, "containers": [{"ports": [{"containerPort": 80}]}]},
        (HostPort(80),),
    ),
    "of a sidecar": ({"initContainers": [{"restartPolicy": "Always", "ports": [{"hostPort": 7}]}]}, (HostPort(7),)),
    "not of what ends before the pod serves": ({"initContainers": [{"ports": [{"hostPort": 7}]}]}, ()),
}


@pytest.mark.parametrize(("spec", "expected"), PORTS.values(), ids=PORTS.keys())
def test_ports_of_the_host_are_told(spec: Raw, expected: tuple[HostPort, ...]) -> None:
    """Two such pods do not fit on one node."""
    assert needs(**spec).host_ports == expected


Terms = tuple[PodTerm, ...]
AFFINITIES: dict[str, tuple[Raw | None, Terms, Terms]] = {
    "none": (None, (), ()),
    "to nodes": ({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}, (), ()),
    "preferred": ({"podAntiAffinity": {PREFERRED: [{"weight": 1}]}}, (), ()),
    "empty lists": ({"podAffinity": {REQUIRED: []}, "podAntiAffinity": {REQUIRED: None}}, (), ()),
    "near others": ({"podAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}, (PodTerm("zone"),), ()),
    "away from others": ({"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}, (), (PodTerm("zone"),)),
    "both": (
        {"podAffinity": {REQUIRED: [{"topologyKey": "a"}]}, "podAntiAffinity": {REQUIRED: [{}, {"topologyKey": "b"}]}},
        (PodTerm("a"),),
        (PodTerm(""), PodTerm("b")),
    ),
}


@pytest.mark.parametrize(("affinity", "near", "apart"), AFFINITIES.values(), ids=AFFINITIES.keys())
def test_required_affinity_to_pods_is_read(affinity: Raw | None, near: Terms, apart: Terms) -> None:
    """Only what the scheduler insists on."""
    read = needs(affinity=affinity)
    assert (read.affinity, read.anti_affinity) == (near, apart)
    assert read.has_pod_affinity is bool(near or apart)


POD_TERMS: dict[str, tuple[Raw, PodTerm]] = {
    "no selector selects nothing": ({"labelSelector": None}, PodTerm("host", None)),
    "an empty selector selects everything": ({"labelSelector": {}}, PodTerm("host", ())),
    "labels and expressions must all hold": (
        {
            "labelSelector": {
                "matchLabels": {"app": "web"},
                "matchExpressions": [
                    {"key": "tier", "operator": "NotIn", "values": ["gold"]},
                    {"key": "old", "operator": "DoesNotExist"},
                ],
            }
        },
        PodTerm(
            "host",
            (
                NodeRequirement("app", "In", ("web",)),
                NodeRequirement("tier", "NotIn", ("gold",)),
                NodeRequirement("old", "DoesNotExist"),
            ),
        ),
    ),
    "namespaces by name": ({"namespaces": ["a", "b"]}, PodTerm("host", None, ("a", "b"))),
    "namespaces by label": (
        {"namespaceSelector": {"matchLabels": {"team": "x"}}},
        PodTerm("host", None, (), (NodeRequirement("team", "In", ("x",)),)),
    ),
    "all namespaces": ({"labelSelector": {}, "namespaceSelector": {}}, PodTerm("host", (), (), ())),
    "keys that the API server has merged into the selector": (
        {
            "labelSelector": {"matchExpressions": [{"key": "hash", "operator": "In", "values": ["h"]}]},
            "matchLabelKeys": ["hash"],
        },
        PodTerm("host", (NodeRequirement("hash", "In", ("h",)),)),
    ),
}


@pytest.mark.parametrize(("raw", "expected"), POD_TERMS.values(), ids=POD_TERMS.keys())
def test_a_term_says_which_pods_it_is_about(raw: Raw, expected: PodTerm) -> None:
    """An absent selector and an empty one are opposites."""
    (read,) = needs(affinity={"podAntiAffinity": {REQUIRED: [{"topologyKey": "host"} | raw]}}).anti_affinity
    assert read == expected


@pytest.mark.parametrize("claims", [None, [], [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]])
def test_devices_are_claims_too(claims: list[Raw] | None) -> None:
    """A claimed device is on some nodes, and bound to one pod at a time."""
    assert needs(resourceClaims=claims).has_claims is bool(claims)


def test_tolerations_are_read_as_the_api_means_them() -> None:
    """No operator is Equal; no key and no effect stand for all."""
    raw = [
        {"key": "spot", "value": "true", "effect": "NoSchedule"},
        {"key": "gone", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
        {"operator": "Exists"},
    ]
    assert needs(tolerations=raw).tolerations == (
        Toleration("spot", "Equal", "true", "NoSchedule"),
        Toleration("gone", "Exists", "", "NoExecute"),
        Toleration("", "Exists"),
    )


def test_of_spread_constraints_only_hard_ones_are_kept() -> None:
    """Soft ones keep no pod from a node."""
    selector = {"matchLabels": {"app": "web"}}
    raw = [
        {"topologyKey": "host", "maxSkew": 2, "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": selector},
        {"topologyKey": "zone", "maxSkew": 3, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector},
        {"topologyKey": "rack", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": None},
    ]
    read = (NodeRequirement("app", "In", ("web",)),)
    assert needs(topologySpreadConstraints=raw).hard_spread == (HardSpread("zone", 3, read), HardSpread("rack"))


def test_the_rest_is_as_written() -> None:
    """Node selector, priority and grace; zero seconds are not "absent"."""
    read = needs(nodeSelector={"arch": "arm64"}, priority=-5, terminationGracePeriodSeconds=0)
    assert read == Needs(node_selector={"arch": "arm64"}, priority=-5, grace_seconds=0)


def test_a_spec_that_says_nothing_needs_nothing() -> None:
    """Absent, null or unknown: all the same."""
    fields = (
        "affinity containers initContainers volumes resources overhead nodeSelector tolerations "
        "resourceClaims topologySpreadConstraints hostNetwork priority terminationGracePeriodSeconds"
    )
    assert needs() == NO_NEEDS
    assert needs(**dict.fromkeys(fields.split())) == NO_NEEDS
    assert needs(future={"x": 1}, containers=[{"future": 1}]) == NO_NEEDS
    (read,) = PODS_IN_FULL.shape.page(page({"metadata": {"name": "a"}})).items
    assert read == Pod("", "a")


WRONG: dict[str, Raw] = {
    "containers": {"containers": {}},
    "a container": {"containers": ["app"]},
    "requests": {"containers": [{"resources": {"requests": ["cpu"]}}]},
    "an amount": {"containers": [{"resources": {"requests": {"cpu": {}}}}]},
    "the host's ports": {"containers": [{"ports": [{"hostPort": "80"}]}]},
    "volumes": {"volumes": "x"},
    "a claim": {"volumes": [{"persistentVolumeClaim": "x"}]},
    "tolerations": {"tolerations": [{"key": 1}]},
    "node selector": {"nodeSelector": {"a": 1}},
    "hard spread": {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule", "maxSkew": "1"}]},
    "pod affinity": {"affinity": {"podAffinity": {REQUIRED: {"topologyKey": "zone"}}}},
    "a term's selector": {"affinity": {"podAntiAffinity": {REQUIRED: [{"labelSelector": {"matchLabels": {"a": 1}}}]}}},
    "devices": {"resourceClaims": "gpu"},
    "priority": {"priority": "high"},
    "overhead": {"overhead": [1]},
}


@pytest.mark.parametrize("spec", WRONG.values(), ids=WRONG.keys())
def test_a_spec_of_the_wrong_type_costs_only_its_pod(spec: Raw) -> None:
    """In a list the others are read; of an event the name is."""
    bad = raw_pod("bad") | {"spec": spec}
    read = PODS_IN_FULL.shape.page(page(raw_pod("a"), bad))
    assert ([item.name for item in read.items], read.rejected) == (["a"], 1)
    change = PODS_IN_FULL.shape.event(event("MODIFIED", bad))
    assert (change.item, change.key is not None and change.key.name) == (None, "bad")


def sibling(name: str, **spec: Any) -> Raw:
    """Siblings differ in the volume of their token, its mount, and their node."""
    token = f"kube-api-access-{name}"
    container = asking("100m", volumeMounts=[{"name": token}], ports=[{"containerPort": 80}])
    return raw_pod(name) | {
        "spec": {"nodeName": f"node-{name}", "containers": [container], "volumes": [{"name": token}], **spec}
    }


def test_siblings_share_their_needs() -> None:
    """One object, however many pods; also across workloads that need the same."""
    stranger = sibling("c", topologySpreadConstraints=[{"whenUnsatisfiable": "ScheduleAnyway", "topologyKey": "x"}])
    one, two, three = PODS_IN_FULL.shape.page(page(sibling("a"), sibling("b"), stranger)).items
    assert one.needs is two.needs is three.needs


def test_siblings_share_needs_that_name_other_pods() -> None:
    """Terms are decoded once for a workload; another workload's are other needs."""

    def apart(name: str, app: str) -> Raw:
        term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": app}}}
        return sibling(name, affinity={"podAntiAffinity": {REQUIRED: [term]}})

    raws = apart("a", "web"), apart("b", "web"), apart("c", "api")
    one, two, other = PODS_IN_FULL.shape.page(page(*raws)).items
    assert one.needs is two.needs
    assert other.needs != one.needs
    assert other.needs.requests is one.needs.requests


DIFFERENCES: dict[str, Raw] = {
    "what is asked for": {"containers": [asking("200m")]},
    "a container less": {"containers": []},
    "an init container beside": {"initContainers": [asking("300m")]},
    "which kind it is": {"initContainers": [sidecar("300m")]},
    "tolerations": {"tolerations": [{"operator": "Exists"}]},
    "node selector": {"nodeSelector": {"a": "b"}},
    "hard spread": {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule", "topologyKey": "zone"}]},
    "pod affinity": {"affinity": {"podAffinity": {REQUIRED: [{}]}}},
    "pod anti-affinity": {"affinity": {"podAntiAffinity": {REQUIRED: [{}]}}},
    "another term": {"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}},
    "hard spread and a term": {
        "topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule", "topologyKey": "zone"}],
        "affinity": {"podAntiAffinity": {REQUIRED: [{}]}},
    },
    "claims": {"volumes": [{"persistentVolumeClaim": {}}]},
    "local storage": {"volumes": [{"emptyDir": {}}]},
    "the host's ports": {"containers": [asking("100m", ports=[{"hostPort": 81}])]},
    "the host's network": {"hostNetwork": True},
    "priority": {"priority": 7},
    "the name of its priority": {"priorityClassName": "spotweave-overflow"},
    "grace": {"terminationGracePeriodSeconds": 7},
    "overhead": {"overhead": {"cpu": "1"}},
    "resources of the pod": {"resources": {"requests": {"cpu": "1"}}},
}


def test_whatever_differs_in_need_is_told_apart() -> None:
    """What is shared by its parts must name every part: each difference gives other needs, in any order of reading."""
    raws = [sibling("a"), *(sibling("a", **spec) for spec in DIFFERENCES.values())]
    for order in (raws, raws[::-1]):
        read = [repr(pod.needs) for pod in PODS_IN_FULL.shape.page(page(*order)).items]
        assert len(set(read)) == len(raws)


def test_the_light_shape_reads_no_needs() -> None:
    """What the webhook uses: a spec that is wrong there does not matter to it."""
    (read,) = PODS.shape.page(page(sibling("a", volumes="wrong"))).items
    assert read.needs is NO_NEEDS
    assert read == Pod("shop", "a", "uid-a", node="node-a", phase="Pending")
