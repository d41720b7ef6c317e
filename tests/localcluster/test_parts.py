"""Command lines, layout, certificates and Stages: what the parts are started with."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
import yaml
from cryptography import x509

from localcluster.errors import BAD_INPUT, ClusterError
from localcluster.layout import Layout, Ports, free_port, free_ports
from localcluster.nodes import raw_nodes
from localcluster.parts import DEAD_KUBELET_LABEL, PARTS, Options, command, health_url
from localcluster.pki import kubeconfig, write_pki
from localcluster.profile import NodePool, Profile, ProfileTaint
from localcluster.stages import READY_AFTER_ANNOTATION, merged_stages

LAYOUT = Layout(Path("/d"), Path("/data"), Ports(1, 2, 3, 4, 5, 6), "127.97.0.0/16")


def test_every_part_listens_on_its_own_port_of_loopback() -> None:
    """No part may be reachable from outside, and each health address is that of its part."""
    assert f"--listen-client-urls=http://127.0.0.1:{LAYOUT.ports.etcd}" in command("etcd", LAYOUT, Options())
    for part, port in {"kube-apiserver": 3, "kube-controller-manager": 4, "kube-scheduler": 5}.items():
        arguments = command(part, LAYOUT, Options())
        assert {"--bind-address=127.0.0.1", f"--secure-port={port}"} <= set(arguments)
        assert health_url(part, LAYOUT).startswith(f"https://127.0.0.1:{port}/")
    assert "--server-address=127.0.0.1:6" in command("kwok", LAYOUT, Options())


def test_service_range_reaches_the_api_server() -> None:
    """Several clusters on one machine can have Service addresses that do not collide."""
    options = Options(service_range="127.97.0.0/16")
    assert "--service-cluster-ip-range=127.97.0.0/16" in command("kube-apiserver", LAYOUT, options)


def test_owner_references_are_guarded() -> None:
    """As on clusters that let nobody give an object to an owner unless they may delete it."""
    arguments = command("kube-apiserver", LAYOUT, Options())
    assert "--enable-admission-plugins=OwnerReferencesPermissionEnforcement" in arguments


def test_bad_service_range_is_an_input_error() -> None:
    """It is found before anything is started, and an example is given."""
    with pytest.raises(ClusterError, match="has host bits set") as caught:
        Options(service_range="127.96.0.1/16")
    assert caught.value.exit_code == BAD_INPUT
    assert "127.96.0.0/16" in caught.value.hint


def test_controller_rates_are_those_of_kubernetes_unless_given() -> None:
    """How fast pods are created matters to tests: it is not changed silently."""
    plain = command("kube-controller-manager", LAYOUT, Options())
    assert not [argument for argument in plain if argument.startswith("--kube-api")]
    fast = command("kube-controller-manager", LAYOUT, Options(controller_qps=200, controller_burst=400))
    assert {"--kube-api-qps=200", "--kube-api-burst=400"} <= set(fast)


@pytest.mark.parametrize("part", PARTS)
def test_extra_arguments_come_last(part: str) -> None:
    """The last of two equal flags wins, so a caller can override any of ours; other parts get none of it."""
    options = Options(extra_arguments={part: ("--v=4",)})
    assert command(part, LAYOUT, options)[-1] == "--v=4"
    assert all("--v=4" not in command(other, LAYOUT, options) for other in PARTS if other != part)


def test_kwok_leaves_dead_kubelets_alone() -> None:
    """A reclaimed node stays NotReady because KWOK manages all nodes but those with the label."""
    assert f"--manage-nodes-with-label-selector=!{DEAD_KUBELET_LABEL}" in command("kwok", LAYOUT, Options())


def test_kubeconfig_names_files() -> None:
    """From inline certificates the Python client would write temporary files that stay behind."""
    user = kubeconfig(LAYOUT, "admin")["users"][0]["user"]
    assert user == {"client-certificate": "/d/pki/admin.crt", "client-key": "/d/pki/admin.key"}
    assert kubeconfig(LAYOUT, "admin")["clusters"][0]["cluster"]["server"] == "https://127.0.0.1:3"


def test_written_certificates_fit(tmp_path: Path) -> None:
    """Users have their names, the server answers for the first Service address, keys are private."""
    layout = Layout(tmp_path, tmp_path, LAYOUT.ports, "127.97.0.0/16")
    write_pki(layout, datetime.now(UTC))
    admin = x509.load_pem_x509_certificate(layout.certificate("admin").read_bytes())
    assert admin.subject.rfc4514_string() == "O=system:masters,CN=spotweave-admin"
    karpenter = x509.load_pem_x509_certificate(layout.certificate("karpenter").read_bytes())
    assert "CN=system:serviceaccount:kube-system:karpenter" in karpenter.subject.rfc4514_string()
    server = x509.load_pem_x509_certificate(layout.certificate("server").read_bytes())
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert {"127.0.0.1", "127.97.0.1"} == {str(address) for address in names.get_values_for_type(x509.IPAddress)}
    ca = x509.load_pem_x509_certificate(layout.certificate("ca").read_bytes())
    server.verify_directly_issued_by(ca)
    private = [*layout.pki.glob("*.key"), *layout.pki.glob("*.kubeconfig"), layout.kubeconfig]
    assert len(private) == 18
    assert {path.stat().st_mode & 0o077 for path in private} == {0}


def test_free_ports_differ_and_are_not_those_of_outgoing_connections() -> None:
    """A port from the kernel's range for outgoing connections could be gone when a part is started again."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    ports = free_ports()
    numbers = [ports.etcd, ports.etcd_peer, ports.apiserver, ports.controller_manager, ports.scheduler, ports.kwok]
    assert len(set(numbers)) == 6
    assert max(numbers) < max(low, 32_000)


def test_no_port_is_given_twice() -> None:
    """A program binds its port seconds later. Of eight drawn by lot, two were the same in one start of 400."""
    given = [free_port() for _ in range(500)]
    assert len(set(given)) == len(given)


def test_given_stage_replaces_the_built_in_one_of_its_name(tmp_path: Path) -> None:
    """Slow readiness is a `pod-ready` of one's own: it must take the place of KWOK's, beside the others."""
    built_in = tmp_path / "stages"
    built_in.mkdir()
    for name in ("pod-ready", "pod-delete"):
        (built_in / f"{name}.yaml").write_text(f"kind: Stage\nmetadata: {{name: {name}}}\nspec: {{}}\n")
    given = tmp_path / "slow.yaml"
    given.write_text("kind: Stage\nmetadata: {name: pod-ready}\nspec: {delay: {durationMilliseconds: 9}}\n")
    stages = {
        stage["metadata"]["name"]: stage["spec"] for stage in yaml.safe_load_all(merged_stages(built_in, [given]))
    }
    assert stages.pop("pod-ready-again")
    assert stages == {"pod-delete": {}, "pod-ready": {"delay": {"durationMilliseconds": 9}}}


def test_built_in_readiness_waits_for_the_annotation(tmp_path: Path) -> None:
    """Without the annotation nothing changes: the delay is zero."""
    (tmp_path / "pod-ready.yaml").write_text("kind: Stage\nmetadata: {name: pod-ready}\nspec: {}\n")
    stages = {stage["metadata"]["name"]: stage for stage in yaml.safe_load_all(merged_stages(tmp_path, []))}
    delay = stages["pod-ready"]["spec"]["delay"]
    assert delay["durationMilliseconds"] == 0
    assert READY_AFTER_ANNOTATION in delay["durationFrom"]["expressionFrom"]


def test_something_else_than_a_stage_is_refused(tmp_path: Path) -> None:
    """KWOK would ignore it, and the test that relies on it would wait for nothing."""
    path = tmp_path / "x.yaml"
    path.write_text("kind: Pod\nmetadata: {name: x}\n")
    with pytest.raises(ClusterError, match="something other than named KWOK Stages"):
        merged_stages(tmp_path / "none", [path])


def test_node_carries_what_the_profile_says() -> None:
    """Labels, taints and room of a node come from its pool; a pool's own labels win."""
    pool = NodePool(
        "p", "z", "m5.large", 1, "8", "32Gi", "spot", 9, {"team": "blue"}, (ProfileTaint("t", "NoSchedule", "v"),)
    )
    (node,) = raw_nodes(Profile((pool,), "r"))
    assert node["metadata"]["name"] == "p-0"
    assert node["metadata"]["labels"] == {
        "kubernetes.io/hostname": "p-0",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
        "topology.kubernetes.io/zone": "z",
        "topology.kubernetes.io/region": "r",
        "node.kubernetes.io/instance-type": "m5.large",
        "node.kubernetes.io/capacity": "spot",
        "localcluster.spotweave.dev/pool": "p",
        "team": "blue",
    }
    assert node["spec"]["taints"] == [{"key": "t", "value": "v", "effect": "NoSchedule"}]
    assert node["status"]["allocatable"] == node["status"]["capacity"] == {"cpu": "8", "memory": "32Gi", "pods": "9"}


def test_pool_without_class_gets_no_capacity_label() -> None:
    """Such nodes count as on-demand because nothing on them says otherwise."""
    (node,) = raw_nodes(Profile((NodePool("p", "z", "m5.large", 1, "8", "32Gi"),)))
    assert "node.kubernetes.io/capacity" not in node["metadata"]["labels"]
