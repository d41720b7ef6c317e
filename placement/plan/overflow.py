"""Pods that keep the priority of an outage after it is over.

While spot is out, what is more than a service needs is admitted soft, with a negative PriorityClass (design §3): it
gives way to what belongs on on-demand. A pod's priority cannot be changed. So one that came out on spot all the same
would be preempted there by any pod of default priority, long after spot is back.
"""

from __future__ import annotations

from placement import names
from placement.configuration import Configuration
from placement.model import Pod
from placement.plan.group import Group


def is_overflow(pod: Pod, group: Group, configuration: Configuration) -> bool:
    """Admission gave it the class for overflow: its owner's template does not name it, and it was admitted soft.

    Where spot pods have the same class by configuration, a replacement would get it, too.
    """
    roles = configuration.priority_roles
    return (
        names.SOFT in pod.annotations
        and pod.needs.priority_class == roles.overflow != roles.spot
        and group.workload.template.priority_class != roles.overflow
    )
