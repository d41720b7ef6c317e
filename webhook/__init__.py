"""The mutating admission webhook: AdmissionReview → policy, slot → decision → JSON patch → AdmissionReview.

`review` is pure (a call in, an answer out), `admission` knows the cluster from its caches, `reviewer` answers calls,
`routes` says on which paths, `server` serves them over TLS. Whatever goes wrong, the pod is allowed unchanged.
"""
