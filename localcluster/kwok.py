"""What KWOK may not do here: delete a pod that nobody has deleted.

KWOK deletes by name, without the UID. A late call hits the successor, which has the same name in a StatefulSet; real
kubelets name the UID. So KWOK has a user of its own, and the API server refuses such a call.
"""

from typing import Any

from localcluster.api import AdminApi

USER = "kwok"
NAME = "localcluster-kwok"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
RULE = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["DELETE"], "resources": ["pods"]}

POLICY: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicy",
    "metadata": {"name": NAME},
    "spec": {
        "failurePolicy": "Ignore",
        "matchConstraints": {"resourceRules": [RULE]},
        "matchConditions": [{"name": "by-kwok", "expression": f"request.userInfo.username == '{USER}'"}],
        "validations": [
            {
                "expression": "has(oldObject.metadata.deletionTimestamp)",
                "message": "KWOK deletes a pod that nobody has deleted: it means the one before, of the same name",
            }
        ],
    },
}
BINDING: dict[str, Any] = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "ValidatingAdmissionPolicyBinding",
    "metadata": {"name": NAME},
    "spec": {"policyName": NAME, "validationActions": ["Deny"]},
}


def restrict_kwok(api: AdminApi) -> None:
    with api.batch() as batch:
        batch.create(POLICIES, POLICY)
        batch.create(BINDINGS, BINDING)
