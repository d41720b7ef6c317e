"""The mutating admission webhook: AdmissionReview → policy, slot → decision → JSON patch → AdmissionReview.

`review` is pure (a call in, an answer out), `admission` knows the cluster from its caches, `app` is the Flask
application, `server` serves it over TLS. Whatever goes wrong, the pod is allowed unchanged.
"""
