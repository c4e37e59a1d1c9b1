"""A client of the Prometheus HTTP API with limits on its answers."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httpx

from forewarn.features.duration import format_duration
from forewarn.features.errors import InputError
from forewarn.features.telemetry.parsers.prometheus_answers import incomplete_reason
from forewarn.features.time_units import SECOND

__all__ = ["PrometheusClient", "PrometheusError", "QueryTooLargeError", "strip_credentials"]

_MAX_RETRIES = 3
_RETRY_STATUSES = (502, 503, 504)  # of a starting server, or of a proxy in front of it
_MAX_ERROR_BYTES = 65_536  # read of an error answer
_TOKEN = "FOREWARN_PROMETHEUS_TOKEN"
_USER = re.compile(r"(?P<scheme>(?:[A-Za-z][A-Za-z0-9+.-]*://)?)(?P<user>[^/?#]*)@(?P<host>.*)")


class PrometheusError(InputError):
    """A server that cannot be reached or gives an invalid answer."""


class QueryTooLargeError(Exception):
    """The server rejected a query as too large."""


@dataclass(slots=True)
class PrometheusClient:
    """A client of Prometheus or of a server with the same HTTP API.

    Attributes
    ----------
    url : str
        Without /api. `USER:PASSWORD@` is removed and sent as basic authentication, so that messages
        and files can contain the address.
    token : str or None
        Sent as a bearer token.
    most_bytes, most_seconds : int and float
        Limits of one answer. A larger one raises QueryTooLargeError, a later one PrometheusError.
    pause : float
        Seconds before a server that is not ready is asked again, at most three times.
    """

    url: str
    token: str | None = field(default=None, repr=False)
    most_bytes: int = 256 << 20
    most_seconds: float = 300.0
    pause: float = 1.0
    _client: httpx.AsyncClient = field(init=False, repr=False)
    # This limit covers a whole exchange, from the connection to the last byte.
    _runner: asyncio.Runner = field(default_factory=asyncio.Runner, init=False, repr=False)

    def __post_init__(self) -> None:
        logging.getLogger("httpx").setLevel(logging.WARNING)  # httpx logs addresses
        self.url, auth = _split_credentials(self.url)
        if self.token and not (self.token.isascii() and self.token.isprintable()):
            raise PrometheusError(
                f"{_TOKEN}: holds a character that is not allowed in a header, expected ASCII."
            )
        self._client = httpx.AsyncClient(
            auth=None if self.token else auth,
            headers={"Authorization": f"Bearer {self.token}"} if self.token else {},
            timeout=120,
            transport=httpx.AsyncHTTPTransport(retries=_MAX_RETRIES),
        )

    @classmethod
    def from_environment(cls, url: str) -> PrometheusClient:
        """Return a client with the optional token of FOREWARN_PROMETHEUS_TOKEN."""
        return cls(url, os.environ.get(_TOKEN, "").strip() or None)

    def close(self) -> None:
        """Close the connections."""
        self._runner.run(self._client.aclose())
        self._runner.close()

    def query_range(self, query: str, first: int, last: int, step: int) -> Any:
        """Return the decoded JSON answer to a range query.

        Raises
        ------
        PrometheusError
            If the server cannot be reached or refuses.
        """
        parameters = {"query": query, "start": first / SECOND, "end": last / SECOND}
        return self._answer("query_range", parameters | {"step": step / SECOND})

    def samples(self, selector: str, end: int, span: int) -> Any:
        """Return the raw samples in (end - span, end] as decoded JSON.

        A range query would repeat the last sample where one is missing.

        Raises
        ------
        PrometheusError
            If the server cannot be reached or refuses.
        QueryTooLargeError
            If the answer is too large.
        """
        query = f"{selector}[{span // 1_000_000}ms]"
        return self._answer("query", {"query": query, "time": end / SECOND})

    def _answer(self, path: str, parameters: Mapping[str, Any]) -> Any:
        status, body = self._status_and_body(f"{self.url.rstrip('/')}/api/v1/{path}", parameters)
        if status == 422 and b"too many samples" in body:
            raise QueryTooLargeError
        if status != 200:
            excerpt = " ".join(body.decode(errors="replace").split())[:200]
            raise PrometheusError(
                f"{self.url}: answered {status} ({excerpt}), expected the API of Prometheus.",
                is_transient=status == 429 or status >= 500,
            )
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            raise PrometheusError(
                f"{self.url}: the answer is not JSON, expected the Prometheus API."
            ) from None
        if why := incomplete_reason(answer):
            raise PrometheusError(
                f"{self.url}: answered {why}, expected a complete matrix.", is_transient=True
            )
        return answer

    def _status_and_body(self, address: str, parameters: Mapping[str, Any]) -> tuple[int, bytes]:
        try:
            return self._runner.run(self._exchange(address, parameters))
        except TimeoutError:
            raise PrometheusError(
                f"{self.url}: gave no complete answer in {format_duration(self.most_seconds)}.",
                is_transient=True,
            ) from None
        except httpx.InvalidURL:  # its text may contain part of a password
            raise PrometheusError(
                f"{self.url}: not a valid address, expected for example http://localhost:9090."
            ) from None
        except httpx.HTTPError as error:
            raise PrometheusError(
                f"{self.url}: cannot be reached ({error}).",
                is_transient=not isinstance(error, httpx.UnsupportedProtocol),
            ) from None

    async def _exchange(self, address: str, parameters: Mapping[str, Any]) -> tuple[int, bytes]:
        async with asyncio.timeout(self.most_seconds):
            for attempt in range(_MAX_RETRIES + 1):
                if attempt:
                    await asyncio.sleep(self.pause)
                async with self._client.stream("POST", address, data=dict(parameters)) as answer:
                    status, body = answer.status_code, await self._body(answer)
                if status not in _RETRY_STATUSES:
                    break
        return status, body

    async def _body(self, answer: httpx.Response) -> bytes:
        """Return the body of an answer, shortened for an error."""
        parts, size = [], 0
        async for part in answer.aiter_bytes():
            parts.append(part)
            size += len(part)
            if answer.status_code != 200 and size > _MAX_ERROR_BYTES:
                break
            if size > self.most_bytes:
                raise QueryTooLargeError
        return b"".join(parts)


def _split_credentials(url: str) -> tuple[str, httpx.BasicAuth | None]:
    """Remove user and password from an address."""
    match = _USER.fullmatch(url)
    rest = f"{match['scheme']}{match['host']}" if match else url
    if "@" in rest:
        raise PrometheusError(
            "the address of Prometheus contains `@` after its first `/`; in a password write / as "
            "%2F, ? as %3F, # as %23 and @ as %40."
        )
    if match is None:
        return url, None
    user, _, password = match["user"].partition(":")
    return rest, httpx.BasicAuth(unquote(user), unquote(password))


def strip_credentials(url: str) -> str | None:
    """Return an address without user and password; None if it has none."""
    match = _USER.fullmatch(url)
    return f"{match['scheme']}{match['host']}" if match else None
