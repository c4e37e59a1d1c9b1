"""Alerts: a line for whoever reads the log, and a request to whoever asked for one."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

import httpx

from forewarn.pipelines.runtime.progress import note

__all__ = ["alert"]

_TIMEOUT = 10.0


def alert(what: str, text: str, facts: Mapping[str, object] | None = None) -> None:
    """Say that something needs a person.

    Parameters
    ----------
    what : str
        Such as "refused", "stale champion", "drift".
    text : str
    facts : mapping, optional
        Sent beside it as JSON to the address in FOREWARN_ALERT_URL, if there is one. That nobody
        answers there is said and is no error: the work is done.
    """
    note(f"alert ({what}): {text}")
    address = os.environ.get("FOREWARN_ALERT_URL")
    if not address:
        return
    # The address is a secret, and httpx logs it: a scheduler's own logging shows INFO and more.
    for name in ("httpx", "httpcore"):
        logging.getLogger(name).setLevel(logging.WARNING)
    try:
        sent = {"alert": what, "text": text, **(facts or {})}
        httpx.post(address, json=sent, timeout=_TIMEOUT).raise_for_status()
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        note(f"the alert was not delivered: {type(error).__name__}")
