"""A real Kubernetes control plane on this machine, for the demo, the tests and for trying things by hand.

The law of this package: only `cli`, `demo`, benchmarks and tests import it, and it imports nothing of ours. It reaches
only package registries (to get the programs, once) and loopback addresses. Whatever it starts or writes outside its
cache is gone when the cluster stops, whether by `stop`, by Ctrl-C or by `kill -9` of the process that owns it.

    programs, build, toolchain   get etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubectl, KWOK
    layout, pki, parts           pure: where everything is, certificates, command lines
    process, janitor             start programs that die with us; clean up when we could not
    cluster                      `LocalCluster`: all of it together
    profile, nodes, reclaim      which nodes there are; remove and restore them
    daemon                       a cluster that outlives the terminal, for `spotweave cluster up`
"""

from localcluster.cluster import LocalCluster, Options
from localcluster.errors import ClusterError
from localcluster.profile import NodePool, Profile, demo_profile, load_profile
from localcluster.reclaim import Choice, Way

__all__ = [
    "Choice",
    "ClusterError",
    "LocalCluster",
    "NodePool",
    "Options",
    "Profile",
    "Way",
    "demo_profile",
    "load_profile",
]
