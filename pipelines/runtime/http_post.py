"""POST requests to receivers of messages: bounded, without redirects, with verified TLS."""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Final

import httpx

from forewarn.features.errors import InputError

__all__ = ["HttpAnswer", "HttpPoster", "PostError"]

_TIMEOUT_SECONDS: Final = 10.0
_MAX_ANSWER_BYTES: Final = 16 * 1024
_MAX_SHOWN: Final = 120
_MAX_DIGITS: Final = 8


class PostError(Exception):
    """No answer arrived; the message does not contain the address, which may be a secret."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """Answer of a server.

    Attributes
    ----------
    status : int
    text : str
        Start of the body, in one line.
    retry_after : float or None
        Seconds that the server asks to wait.
    body : bytes
        The first 16 KiB, as sent.
    """

    status: int
    text: str
    retry_after: float | None
    body: bytes

    @property
    def accepted(self) -> bool:
        """Whether the status is 2xx."""
        return 200 <= self.status < 300


class HttpPoster:
    """Client for one address.

    Parameters
    ----------
    url : str
    ca : Path, optional
        Certificates that are trusted instead of the usual ones.

    Raises
    ------
    InputError
        If the certificates cannot be read.
    """

    def __init__(self, url: str, ca: Path | None = None) -> None:
        # The address may be a secret, and httpx logs it; schedulers often show log level INFO.
        for name in ("httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.WARNING)
        self._url = url
        try:
            verify: ssl.SSLContext | bool = (
                True if ca is None else ssl.create_default_context(cafile=str(ca))
            )
        except OSError as error:
            raise InputError(f"{ca}: cannot be read as certificates ({error.strerror}).") from None
        self._client = httpx.Client(timeout=_TIMEOUT_SECONDS, follow_redirects=False, verify=verify)

    def post(self, content: bytes, headers: Mapping[str, str]) -> HttpAnswer:
        """Send a request and return the answer; a longer answer is not read to its end.

        Raises
        ------
        PostError
            If no answer arrives.
        """
        body, deadline = bytearray(), time.monotonic() + _TIMEOUT_SECONDS
        try:
            request = self._client.stream("POST", self._url, content=content, headers=dict(headers))
            with request as answer:
                for piece in answer.iter_raw():
                    body += piece
                    if len(body) > _MAX_ANSWER_BYTES or time.monotonic() > deadline:
                        break
                retry_after = _retry_after(answer.headers)
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            raise PostError(type(error).__name__) from None
        text = body[:_MAX_SHOWN].decode("ascii", "replace")
        shown = "".join(character if character.isprintable() else " " for character in text)
        return HttpAnswer(answer.status_code, shown.strip(), retry_after, bytes(body))

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of `Retry-After`; a date counts from that of the answer."""
    text = headers.get("retry-after", "")
    if text.isascii() and text.isdigit() and len(text) < _MAX_DIGITS:
        return float(text)
    try:
        until, sent = map(parsedate_to_datetime, (text, headers.get("date", "")))
        return max(0.0, (until - sent).total_seconds())
    except (ValueError, TypeError, OverflowError):
        return None
