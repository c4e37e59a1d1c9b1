"""Receivers over HTTP: a signed webhook, Slack-compatible ones, PagerDuty, FOREWARN_ALERT_URL."""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from dataclasses import dataclass
from typing import Final

from forewarn.features.errors import InputError
from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.incidents.messages.message import Message, MessageKind
from forewarn.pipelines.incidents.messages.receiver import post_or_raise
from forewarn.pipelines.runtime.http_post import HttpPoster
from forewarn.response.state.finding import Severity
from forewarn.response.state.incident import IncidentState

__all__ = ["AlertUrl", "PagerDuty", "Slack", "Webhook", "parse_secret", "sign"]

_SECRET_PREFIX: Final = "whsec_"
_MIN_SECRET_BYTES: Final = 24
_MAX_SLACK_CHARS: Final = 4000
_MAX_PAGERDUTY_SUMMARY: Final = 1024
_PAGERDUTY_SEVERITIES: Final = {
    Severity.NOTICE: "info",
    Severity.WARNING: "warning",
    Severity.ERROR: "error",
    Severity.CRITICAL: "critical",
}


def parse_secret(text: str, variable: str) -> bytes:
    """Return the key of a webhook: base64, optionally after `whsec_`.

    Raises
    ------
    InputError
        If it is not base64 of at least 24 bytes. The message does not repeat it.
    """
    try:
        key = base64.b64decode(text.removeprefix(_SECRET_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        key = b""
    if len(key) < _MIN_SECRET_BYTES:
        raise InputError(
            f"{variable}: expected base64 of at least {_MIN_SECRET_BYTES} bytes, as "
            "`openssl rand -base64 32` prints it."
        )
    return key


def sign(key: bytes, message_id: str, seconds: int, body: bytes) -> str:
    """Return the value of `webhook-signature` (Standard Webhooks 1.0): HMAC-SHA256 in base64.

    Examples
    --------
    >>> sign(b"k" * 24, "m-1", 1700000000, b"{}")
    'v1,56qP92BORZb8mSgQ4xQ7Ipo4CRSmq8m2vqptXNfG9BE='
    """
    signed = f"{message_id}.{seconds}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


@dataclass(frozen=True, slots=True)
class Webhook:
    """The message as JSON, signed with its id and the time of sending."""

    poster: HttpPoster
    key: bytes

    def send(self, message: Message, now: Nanoseconds) -> None:
        """Post the message."""
        body, seconds = message.model_dump_json().encode(), now // SECOND
        post_or_raise(
            *(self.poster, body),
            webhook_id=message.id,
            webhook_timestamp=str(seconds),
            webhook_signature=sign(self.key, message.id, seconds, body),
        )

    def close(self) -> None:
        """Close connections."""
        self.poster.close()


@dataclass(frozen=True, slots=True)
class Slack:
    """Text for an incoming webhook of Slack, Mattermost or Rocket.Chat."""

    poster: HttpPoster

    def send(self, message: Message, now: Nanoseconds) -> None:
        """Post the text; a name in it cannot mention people or hide a link."""
        del now
        text = message.text()[:_MAX_SLACK_CHARS]
        for character, entity in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
            text = text.replace(character, entity)
        head = ":rotating_light: " if message.page else ""
        body = json.dumps({"text": f"{head}{text}"})
        post_or_raise(self.poster, body.encode())

    def close(self) -> None:
        """Close connections."""
        self.poster.close()


@dataclass(frozen=True, slots=True)
class PagerDuty:
    """Events v2: one PagerDuty incident for each incident, and a change updates it."""

    poster: HttpPoster
    routing_key: str

    def send(self, message: Message, now: Nanoseconds) -> None:
        """Send a trigger, an acknowledgement or a resolution."""
        del now
        body = json.dumps(self._event(message), ensure_ascii=True)
        post_or_raise(self.poster, body.encode())

    def _event(self, message: Message) -> dict[str, object]:
        incident = message.incident
        event: dict[str, object] = {
            "routing_key": self.routing_key,
            "dedup_key": message.id if incident is None else incident.key,
        }
        if incident is not None and incident.state is not IncidentState.OPEN:
            return event | {"event_action": "resolve"}
        payload: dict[str, object] = {
            "summary": message.summary[:_MAX_PAGERDUTY_SUMMARY],
            "source": "forewarn" if incident is None else incident.machine,
            "severity": _PAGERDUTY_SEVERITIES[message.severity],
            "timestamp": message.time,
        }
        if incident is not None:
            payload["custom_details"] = incident.model_dump(mode="json")
        action = "acknowledge" if incident is not None and incident.acknowledged else "trigger"
        return event | {"event_action": action, "client": "forewarn", "payload": payload}

    def close(self) -> None:
        """Close connections."""
        self.poster.close()


@dataclass(frozen=True, slots=True)
class AlertUrl:
    """The address in FOREWARN_ALERT_URL, which gets alerts only: `{"alert": ..., "text": ...}`."""

    poster: HttpPoster

    def send(self, message: Message, now: Nanoseconds) -> None:
        """Post the alert."""
        del now
        what = "test" if message.kind is MessageKind.TEST else "respond"
        body = {"alert": what, "text": message.summary}
        post_or_raise(self.poster, json.dumps(body).encode())

    def close(self) -> None:
        """Close connections."""
        self.poster.close()
