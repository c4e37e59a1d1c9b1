"""Alerts: a line in the log, and a request to the webhook of FOREWARN_ALERT_URL."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import closing
from typing import Final

from forewarn.pipelines.runtime.http_post import HttpPoster, PostError
from forewarn.pipelines.runtime.progress import note

__all__ = ["ALERT_URL_VARIABLE", "alert", "note_alert"]

ALERT_URL_VARIABLE: Final = "FOREWARN_ALERT_URL"


def note_alert(what: str, text: str) -> None:
    """Write an alert to the log."""
    note(f"alert ({what}): {text}")


def alert(what: str, text: str, facts: Mapping[str, object] | None = None) -> None:
    """Send an alert that needs a person's attention, from a job that has no ledger.

    Parameters
    ----------
    what : str
        Kind of the alert, such as "refused", "stale champion", "drift".
    text : str
    facts : mapping, optional
        Sent with the text as JSON to the address in FOREWARN_ALERT_URL, if it is set. A failed
        delivery is noted and is not an error, because the work is done.
    """
    note_alert(what, text)
    address = os.environ.get(ALERT_URL_VARIABLE)
    if not address:
        return
    body = json.dumps({"alert": what, "text": text, **(facts or {})}).encode()
    try:
        with closing(HttpPoster(address)) as poster:
            answer = poster.post(body, {"Content-Type": "application/json"})
    except PostError as error:
        note(f"the alert was not delivered: {error}")
    else:
        if not answer.accepted:
            note(f"the alert was not delivered: HTTP {answer.status}")
