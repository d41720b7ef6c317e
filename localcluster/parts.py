"""The command line of each part of the control plane: pure functions of the layout."""

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from localcluster.errors import BAD_INPUT, ClusterError
from localcluster.layout import LOOPBACK, Layout, Ports, free_ports

ETCD = "etcd"
APISERVER = "kube-apiserver"
CONTROLLER_MANAGER = "kube-controller-manager"
SCHEDULER = "kube-scheduler"
KWOK = "kwok"
PARTS = (ETCD, APISERVER, CONTROLLER_MANAGER, SCHEDULER, KWOK)

# Set on a Node by `reclaim`, removed by `restore`: KWOK manages all nodes but those, so the "kubelet" of a node that
# carries it is dead: no heartbeat, no lease, no pod started or stopped.
DEAD_KUBELET_LABEL = "localcluster.spotweave.dev/dead"


@dataclass(frozen=True)
class Options:
    """What callers may set. The defaults are those of Kubernetes, except for the addresses of Services."""

    service_range: str = "127.96.0.0/16"  # all of 127/8 is local: a webhook can listen on its Service's address
    controller_qps: float | None = None  # kube-controller-manager's calls per second (Kubernetes: 20)
    controller_burst: int | None = None  # (Kubernetes: 30)
    stage_files: tuple[Path, ...] = ()  # KWOK Stages of your own; one with the name of a built-in Stage replaces it
    extra_arguments: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by part, appended to its own
    find_ports: Callable[[], Ports] = free_ports  # called for each attempt to start

    def __post_init__(self) -> None:
        try:
            ipaddress.ip_network(self.service_range)
        except ValueError as error:
            raise ClusterError(f"the Service range is wrong: {error}", "127.96.0.0/16 is one.", BAD_INPUT) from error


def command(part: str, layout: Layout, options: Options) -> tuple[str, ...]:
    """The arguments of a part, without the program's path."""
    arguments = {
        ETCD: _etcd,
        APISERVER: _apiserver,
        CONTROLLER_MANAGER: _controller_manager,
        SCHEDULER: _scheduler,
        KWOK: _kwok,
    }[part](layout, options)
    return (*arguments, *options.extra_arguments.get(part, ()))


def health_url(part: str, layout: Layout) -> str:
    """Answers 200 when the part is ready."""
    ports = layout.ports
    return {
        ETCD: f"http://{LOOPBACK}:{ports.etcd}/health",
        APISERVER: f"https://{LOOPBACK}:{ports.apiserver}/readyz",
        CONTROLLER_MANAGER: f"https://{LOOPBACK}:{ports.controller_manager}/healthz",
        SCHEDULER: f"https://{LOOPBACK}:{ports.scheduler}/healthz",
        KWOK: f"http://{LOOPBACK}:{ports.kwok}/healthz",
    }[part]


def _etcd(layout: Layout, _options: Options) -> tuple[str, ...]:
    client, peer = f"http://{LOOPBACK}:{layout.ports.etcd}", f"http://{LOOPBACK}:{layout.ports.etcd_peer}"
    return (
        "--name=local",
        f"--data-dir={layout.data / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=local={peer}",
        "--unsafe-no-fsync",  # the data dies with the cluster anyway
        "--heartbeat-interval=20",  # milliseconds; the only member need not wait a second to elect itself
        "--election-timeout=200",
        "--log-level=warn",
    )


def _apiserver(layout: Layout, options: Options) -> tuple[str, ...]:
    return (
        f"--etcd-servers=http://{LOOPBACK}:{layout.ports.etcd}",
        f"--bind-address={LOOPBACK}",
        f"--secure-port={layout.ports.apiserver}",
        f"--advertise-address={LOOPBACK}",
        "--endpoint-reconciler-type=none",  # a machine without a default route has no address to publish
        f"--service-cluster-ip-range={options.service_range}",
        "--authorization-mode=RBAC",
        # As on OpenShift: changing an object's owners requires the right to delete it. It adds to the defaults.
        "--enable-admission-plugins=OwnerReferencesPermissionEnforcement",
        "--allow-privileged=true",
        *_serving(layout),
        f"--client-ca-file={layout.certificate('ca')}",
        f"--service-account-key-file={layout.key('service-account')}",
        f"--service-account-signing-key-file={layout.key('service-account')}",
        "--service-account-issuer=https://kubernetes.default.svc",
        # Without these the other parts log errors forever: they look for the front proxy's CA in the cluster.
        f"--requestheader-client-ca-file={layout.certificate('front-proxy-ca')}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-username-headers=X-Remote-User",
        f"--proxy-client-cert-file={layout.certificate('front-proxy-client')}",
        f"--proxy-client-key-file={layout.key('front-proxy-client')}",
    )


def _controller_manager(layout: Layout, options: Options) -> tuple[str, ...]:
    return (
        *_client(layout, CONTROLLER_MANAGER),
        f"--secure-port={layout.ports.controller_manager}",
        "--leader-elect=false",
        "--use-service-account-credentials",
        f"--root-ca-file={layout.certificate('ca')}",
        f"--service-account-private-key-file={layout.key('service-account')}",
        f"--cluster-signing-cert-file={layout.certificate('ca')}",
        f"--cluster-signing-key-file={layout.key('ca')}",
        *([f"--kube-api-qps={options.controller_qps:g}"] if options.controller_qps else []),
        *([f"--kube-api-burst={options.controller_burst}"] if options.controller_burst else []),
    )


def _scheduler(layout: Layout, _options: Options) -> tuple[str, ...]:
    return (*_client(layout, SCHEDULER), f"--secure-port={layout.ports.scheduler}", "--leader-elect=false")


def _kwok(layout: Layout, _options: Options) -> tuple[str, ...]:
    return (
        f"--kubeconfig={layout.client_kubeconfig(KWOK)}",
        f"--manage-nodes-with-label-selector=!{DEAD_KUBELET_LABEL}",
        # Without leases the only heartbeat comes every ten minutes: after 50 s Kubernetes considers all nodes silent
        # and their pods not ready. KWOK repairs the former, never the latter.
        "--node-lease-duration-seconds=40",
        f"--config={layout.stages}",
        f"--server-address={LOOPBACK}:{layout.ports.kwok}",
    )


def _client(layout: Layout, part: str) -> tuple[str, ...]:
    kubeconfig = layout.client_kubeconfig(part)
    return (
        f"--kubeconfig={kubeconfig}",
        f"--authentication-kubeconfig={kubeconfig}",
        f"--authorization-kubeconfig={kubeconfig}",
        f"--bind-address={LOOPBACK}",
        *_serving(layout),
    )


def _serving(layout: Layout) -> tuple[str, ...]:
    return (f"--tls-cert-file={layout.certificate('server')}", f"--tls-private-key-file={layout.key('server')}")
