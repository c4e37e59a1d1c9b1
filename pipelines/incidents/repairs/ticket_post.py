"""Posts the ticket of a repair case to a webhook, ServiceNow or Jira."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping
from typing import Any, Final

from forewarn.features.errors import InputError
from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.config.message_tables import check_address
from forewarn.pipelines.incidents.messages.http_receivers import parse_secret, sign
from forewarn.pipelines.incidents.messages.receiver import SendError, post_or_raise
from forewarn.pipelines.runtime.http_post import HttpAnswer, HttpPoster
from forewarn.pipelines.runtime.job_error import JobError

__all__ = ["SECRET_VARIABLE", "URL_VARIABLE", "post_ticket"]

URL_VARIABLE: Final = "FOREWARN_TICKET_URL"
"""Environment variable: address of the webhook, of the ServiceNow instance, or of Jira."""

SECRET_VARIABLE: Final = "FOREWARN_TICKET_SECRET"
"""Environment variable: key of the webhook's signature, or value of the header Authorization."""

_PATHS: Final = {
    "servicenow": "/api/now/table/incident?sysparm_fields=number",
    "jira": "/rest/api/2/issue",
}
_NUMBERS: Final = {"webhook": ("id",), "servicenow": ("result", "number"), "jira": ("key",)}
_RETRY_SECONDS: Final = 5.0
_MAX_RETRY_SECONDS: Final = 60.0


def post_ticket(
    form: str,
    ticket: Mapping[str, Any],
    key: str,
    *,
    environment: Mapping[str, str],
    now: Nanoseconds,
) -> str:
    """Post a ticket, and once more if it was not accepted.

    Parameters
    ----------
    form : str
        One of `TICKET_FORMS`.
    ticket : mapping
        Of `ticket_body`.
    key : str
        The same whenever the ticket of this case is posted, sent as `Idempotency-Key` (and
        `webhook-id`), so that the receiver can ignore a repeat.
    environment : mapping of str to str
    now : int
        Nanoseconds since 1970 UTC.

    Returns
    -------
    str
        Number of the ticket in the answer, or `key`.

    Raises
    ------
    InputError
        If the address or the secret is missing or invalid.
    JobError
        If the ticket was not accepted.
    """
    url, secret = (_from_environment(environment, n) for n in (URL_VARIABLE, SECRET_VARIABLE))
    try:
        check_address(url, email=False)
    except ValueError as error:
        raise InputError(f"{URL_VARIABLE}: {error}.") from None
    body = json.dumps(ticket).encode()
    headers = {"Idempotency_Key": key, "Accept": "application/json", "Accept_Encoding": "identity"}
    if form == "webhook":
        seconds = now // SECOND
        signature = sign(parse_secret(secret, SECRET_VARIABLE), key, seconds, body)
        headers |= {"webhook_id": key, "webhook_timestamp": str(seconds)}
        headers["webhook_signature"] = signature
        poster = HttpPoster(url)
    else:
        headers["Authorization"] = secret
        poster = HttpPoster(url.rstrip("/") + _PATHS[form])
    try:
        return _number(_post(poster, body, headers), form) or key
    finally:
        poster.close()


def _from_environment(environment: Mapping[str, str], name: str) -> str:
    value = environment.get(name, "").strip()
    if not value or not value.isprintable():
        raise InputError(f"the environment variable {name} is not set, expected it with --post.")
    return value


def _post(poster: HttpPoster, body: bytes, headers: Mapping[str, str]) -> HttpAnswer:
    try:
        return post_or_raise(poster, body, **headers)
    except SendError as error:
        if error.malformed:
            raise _refused(error) from None
        time.sleep(min(error.retry_after or _RETRY_SECONDS, _MAX_RETRY_SECONDS))
    try:
        return post_or_raise(poster, body, **headers)
    except SendError as error:
        raise _refused(error) from None


def _refused(error: SendError) -> JobError:
    return JobError(f"the ticket was not accepted: {error}; nothing is recorded.")


def _number(answer: HttpAnswer, form: str) -> str:
    """Return the number of the ticket; empty if the answer has none."""
    try:
        value = json.loads(answer.body)
        for name in _NUMBERS[form]:
            value = value[name]
    except (ValueError, TypeError, KeyError):
        return ""
    return value if isinstance(value, str) and re.fullmatch(r"[\w.:-]{1,64}", value) else ""
