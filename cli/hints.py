"""What to do next when the cluster says no, or a name is not known. Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from difflib import get_close_matches

from cli.errors import UsageError
from kube.errors import ApiError, Forbidden, NotFound, Unauthorized, Unreachable
from placement import names

MOST_NAMED = 5  # of names that may be meant
# What people who look need, and people who pause or note outages besides: the rules of these two ClusterRoles.
VIEWED = frozenset(
    {
        "namespaces",
        "nodes",
        "pods",
        "resourcequotas",
        "events",
        "deployments.apps",
        "replicasets.apps",
        "statefulsets.apps",
        "poddisruptionbudgets.policy",
        "persistentvolumeclaims",
        "persistentvolumes",
        "csinodes.storage.k8s.io",
        "leases.coordination.k8s.io",
    }
)
MAPS = (names.CONFIG_MAP, names.STATE_MAP)
_PATH = re.compile(r"/(?:api/v1|apis/(?P<group>[^/]+)/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<rest>[^?]+)")
_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


@dataclass(frozen=True, slots=True)
class Right:
    """What a user must be allowed to do."""

    verb: str
    resource: str  # with its group: deployments.apps
    name: str = ""
    namespace: str = ""

    @property
    def question(self) -> str:
        """The kubectl command that shows whether the user may."""
        what = f"{self.resource}/{self.name}" if self.name else self.resource
        return f"kubectl auth can-i {self.verb} {what} {f'-n {self.namespace}' if self.namespace else '-A'}"

    @property
    def role(self) -> str:
        """Our role that gives it, if one does."""
        if self.verb in ("get", "list") and (self.resource in VIEWED or self.name in MAPS):
            return names.VIEW_ROLE
        return names.OPERATE_ROLE if self.resource == "configmaps" else ""


def right_of(asked: str) -> Right | None:
    """`GET /apis/apps/v1/deployments` asks for the right to list deployments.apps."""
    method, _, path = asked.partition(" ")
    found = _PATH.match(path)
    if found is None:
        return None
    kind, _, name = found["rest"].partition("/")
    resource = f"{kind}.{found['group']}" if found["group"] else kind
    verb = _VERBS.get(method, "get" if name else "list")
    return Right(verb, resource, name.partition("/")[0], found["namespace"] or "")


def told(error: ApiError, *, writes: bool = False) -> str:
    """What went wrong, and what to do next. A command that writes is refused when it reads, which comes first."""
    match error:
        case Unreachable():
            return (
                f"cannot reach the cluster: {error}\ncheck that it runs and that the kubeconfig is the right one: "
                "`kubectl cluster-info` asks the same server; --kubeconfig and --context choose another"
            )
        case Unauthorized():
            return (
                f"the cluster rejects your credentials: {error}\nlog in again, or choose others with --kubeconfig "
                "or --context; `kubectl auth whoami` shows who you are"
            )
        case Forbidden():
            return "\n".join(_forbidden(error, writes))
        case NotFound() if names.SYSTEM_NAMESPACE in error.asked or names.WEBHOOK_CONFIGURATION in error.asked:
            return f"not found: {error}\nis Spotweave installed? `kubectl apply -k manifests/base` installs it"
    return f"the API server failed: {error}\ntry again; `kubectl get --raw /readyz` shows whether it is healthy"


def _forbidden(error: Forbidden, writes: bool) -> Iterable[str]:
    right = right_of(error.asked)
    if right is None:
        return [f"you are not allowed to do that: {error}"]
    lines = [f"you are not allowed to {right.verb} {right.resource}: {error}", f"check with: {right.question}"]
    role = names.OPERATE_ROLE if writes and right.name == names.STATE_MAP else right.role
    if role:
        lines.append(f"an administrator can grant it: {_granting(role)}")
    return lines


def _granting(role: str) -> str:
    if role == names.OPERATE_ROLE:  # what it writes is in one namespace
        return f"kubectl -n {names.SYSTEM_NAMESPACE} create rolebinding NAME --role={role} --user=YOU"
    return f"kubectl create clusterrolebinding NAME --clusterrole={role} --user=YOU"


# --- names -----------------------------------------------------------------------------------------------------------


def meant(name: str, known: Iterable[str]) -> str:
    """`did you mean shop/web?`, if anything is called like that; of a few that there are, all."""
    every = sorted(set(known))
    close = get_close_matches(name, every, MOST_NAMED)
    if close:
        return f"did you mean {_either(close)}?"
    return f"choose from {', '.join(every)}" if 0 < len(every) <= MOST_NAMED else ""


def check_namespace(name: str | None, known: Collection[str]) -> None:
    """That there is nothing in a namespace that does not exist would be true, and hide a typing error."""
    if name is not None and name not in known:
        raise UsageError(f"namespace {name!r} does not exist", meant(name, known))


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"
