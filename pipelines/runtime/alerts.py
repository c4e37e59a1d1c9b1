"""Alerts: a line in the log, and a request to the configured webhook."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import httpx

from forewarn.pipelines.runtime.progress import note

__all__ = ["alert", "oldest_unsent_seconds"]

_TIMEOUT = 10.0


@dataclass(slots=True)
class _Webhook:
    """Since when the webhook has accepted nothing, monotonic; None while it accepts."""

    failing_since: float | None = None


_WEBHOOK = _Webhook()


def oldest_unsent_seconds() -> float:
    """Return the age of the oldest alert since which this process has delivered none; 0 if none."""
    since = _WEBHOOK.failing_since
    return 0.0 if since is None else time.monotonic() - since


def alert(what: str, text: str, facts: Mapping[str, object] | None = None) -> None:
    """Send an alert that needs a person's attention.

    Parameters
    ----------
    what : str
        Kind of the alert, such as "refused", "stale champion", "drift".
    text : str
    facts : mapping, optional
        Sent with the text as JSON to the address in FOREWARN_ALERT_URL, if it is set. A failed
        delivery is noted and is not an error, because the work is done.
    """
    note(f"alert ({what}): {text}")
    address = os.environ.get("FOREWARN_ALERT_URL")
    if not address:
        return
    # The address is a secret, and httpx logs it; schedulers often show log level INFO and above.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        sent = {"alert": what, "text": text, **(facts or {})}
        httpx.post(address, json=sent, timeout=_TIMEOUT).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        note(f"the alert was not delivered: {type(error).__name__}")
        if _WEBHOOK.failing_since is None:
            _WEBHOOK.failing_since = time.monotonic()
    else:
        _WEBHOOK.failing_since = None
