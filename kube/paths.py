"""Paths of objects, from names that were checked: with `/`, `?` or `..` in a name it would be another path.

Every path that holds a name from outside is made here, whether the name came with an admission review, from a command
line or from the API itself.
"""

from __future__ import annotations

import re

from kube.errors import BadName

LONGEST_LABEL = 63
LONGEST_SUBDOMAIN = 253
_LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_is_label = re.compile(_LABEL).fullmatch
_is_subdomain = re.compile(rf"{_LABEL}(?:\.{_LABEL})*").fullmatch


def path_of(collection: str, name: str, namespace: str | None = None) -> str:
    """`/api/v1/pods`, web-1, shop → `/api/v1/namespaces/shop/pods/web-1`. Without a namespace: of the whole cluster.

    Raises BadName where nothing can have such a name.
    """
    if len(name) > LONGEST_SUBDOMAIN or not _is_subdomain(name):
        rule = f"lower case letters, digits, '-' and '.', at most {LONGEST_SUBDOMAIN} (a DNS-1123 subdomain)"
        raise BadName(collection, f"{name!r:.80} is not a name: expected {rule}")
    return f"{collection if namespace is None else collection_in(collection, namespace)}/{name}"


def collection_in(collection: str, namespace: str) -> str:
    """`/api/v1/pods` of shop → `/api/v1/namespaces/shop/pods`."""
    if len(namespace) > LONGEST_LABEL or not _is_label(namespace):
        rule = f"lower case letters, digits and '-', at most {LONGEST_LABEL} (a DNS-1123 label)"
        raise BadName(collection, f"{namespace!r:.80} is not a namespace: expected {rule}")
    group, _, resource = collection.rpartition("/")
    return f"{group}/namespaces/{namespace}/{resource}"
