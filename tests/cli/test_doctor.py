"""`spotweave doctor` for someone who may read little."""

from __future__ import annotations

from cli.doctor import examined, facts, manifests, text_of
from placement.installation import WebhookAnswer
from report.ailments import ailments
from tests.builders.api import status
from tests.kube.scripted import Answer, scripted_api

FORBIDDEN = Answer(status(403, "Forbidden", "cannot create resource"), 403)
MOST_ASKED = 300


def test_who_may_read_nothing_is_not_told_that_anything_is_wrong() -> None:
    """Each part is named as not checked, once; who lives is not known."""
    with scripted_api() as (script, client):
        script.answer(b'{"gitVersion": "v1.36.4"}', *[FORBIDDEN] * MOST_ASKED)
        seen = examined(client, 0.0)
    assert ailments(seen) == ()
    assert seen.live == {}
    assert len(seen.unread) == len(list(manifests("base")))
    assert seen.answer is WebhookAnswer.UNKNOWN
    assert len(set(seen.unchecked)) == len(seen.unchecked)
    parts = {each.partition(":")[0] for each in seen.unchecked}
    assert {"Deployment spotweave-webhook", "leases", "rights", "the API server's clock"} <= parts
    assert facts(seen)["webhooks"] is None
    told = text_of(seen, ())
    assert "not checked: leases: not allowed" in told
    assert "which webhooks are alive and which rebalancer leads is not known" in told
    assert "0 webhooks" not in told
    assert told.endswith("Nothing is wrong in what was checked.")
