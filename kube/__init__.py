"""The only code that knows the Kubernetes API.

Law: everything above speaks in the frozen dataclasses of `placement.model` and in the typed errors of `kube.errors`;
paths, verbs, status codes, resource versions and raw JSON stay in here. This package decides nothing about placement,
and imports `placement` and third-party packages only.
"""
