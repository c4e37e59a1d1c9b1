"""Requests to a Kubernetes API server, with a time limit and errors of one line."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any, Final

from kubernetes import client, config
from urllib3.exceptions import ConnectTimeoutError, HTTPError, NewConnectionError

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.incidents.schedulers.driver import DriverError, DriverTimeoutError
from forewarn.pipelines.runtime.terminal import escape_text

__all__ = [
    "FIELD_MANAGER",
    "MERGE",
    "STRATEGIC",
    "ApiServer",
    "ConflictError",
    "Json",
    "ThrottledError",
]

Json = dict[str, Any]
"""An object of the API."""

FIELD_MANAGER: Final = "forewarn"
"""Name under which the managed fields of an object list what forewarn has set."""

MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"

_PAGE_ITEMS = 500
_MAX_ERROR_LENGTH = 200  # characters of an error
_FORBIDDEN = re.compile(r'cannot (\w+) resource "([^"]+)" in API group "([^"]*)"')


class ConflictError(DriverError):
    """The object has changed since it was read, or is another one."""


class ThrottledError(DriverError):
    """The server refuses for now: a disruption budget, or too many requests."""


@dataclass(slots=True)
class ApiServer:
    """Connection to an API server.

    No request is repeated here: after a lost answer the caller reads back what happened.

    Attributes
    ----------
    kubeconfig : str
        Path of a kubeconfig; empty for the service account of the pod, or the default kubeconfig.
    timeout : float
        Time limit of a request in seconds.
    """

    kubeconfig: str = ""
    timeout: float = 15.0
    _connection: client.ApiClient | None = field(default=None, repr=False)

    def read_all(
        self, path: str, *, missing_ok: bool = False, **query: str
    ) -> tuple[list[Json], Nanoseconds | None]:
        """Return all objects of a list, page by page, and the server's time of the first page.

        With `missing_ok` a kind that the server does not know has no objects.

        Raises
        ------
        DriverTimeoutError
            If there was no answer.
        DriverError
            If the server refused, or the list expired between two pages.
        """
        items: list[Json] = []
        clock, token = None, ""
        while True:
            page, at = self._request(
                *("GET", path, {**query, "limit": str(_PAGE_ITEMS), "continue": token}),
                missing_ok=missing_ok,
            )
            items += page.get("items") or []
            clock = at if clock is None else clock
            token = page.get("metadata", {}).get("continue") or ""
            if not token:
                return items, clock

    def read(self, path: str) -> Json | None:
        """Return an object; None if it does not exist.

        Raises
        ------
        DriverError
            As in `read_all`.
        """
        answer, _ = self._request("GET", path, {}, missing_ok=True)
        return answer or None

    def patch(self, path: str, body: Json, *, form: str) -> None:
        """Change an object; `form` is `MERGE` or `STRATEGIC`.

        Raises
        ------
        ConflictError
            If the object is not the version that `body` names.
        DriverTimeoutError
            If there was no answer: the change may have been made.
        DriverError
            If the server refused.
        """
        self._request("PATCH", path, {"fieldManager": FIELD_MANAGER}, body, form)

    def create(self, path: str, body: Json) -> Json:
        """Create an object, or a request such as an eviction; return it.

        An empty answer means that its parent or its kind does not exist.

        Raises
        ------
        ThrottledError
            If a disruption budget does not permit it now.
        DriverError
            As in `patch`.
        """
        query = {"fieldManager": FIELD_MANAGER}
        return self._request("POST", path, query, body, missing_ok=True)[0]

    def delete(self, path: str, body: Json) -> None:
        """Delete an object; a missing one is no error.

        Raises
        ------
        DriverError
            As in `patch`.
        """
        self._request("DELETE", path, {}, body, missing_ok=True)

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Json | None = None,
        form: str = "application/json",
        *,
        missing_ok: bool = False,
    ) -> tuple[Json, Nanoseconds | None]:
        """Return the answer and the server's time; an empty answer if the object is missing."""
        connection = self._connect()
        call = connection.param_serialize(
            method,
            path,
            query_params=[(name, value) for name, value in query.items() if value],
            header_params={"Accept": "application/json", "Content-Type": form},
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            response = connection.call_api(*call, _request_timeout=self.timeout)
            text, status = response.read(), response.status
        except (NewConnectionError, ConnectTimeoutError) as error:
            raise DriverTimeoutError(
                f"the API server {connection.configuration.host} does not answer"
            ) from error
        except (HTTPError, client.ApiException, OSError) as error:
            reason = escape_text(str(error))[:_MAX_ERROR_LENGTH]
            raise DriverTimeoutError(f"{method} {path}: no answer ({reason})") from error
        if status == 404 and missing_ok:
            return {}, None
        answer = _parse(text, f"{method} {path}")
        if status >= 300:
            raise _refusal(status, answer, f"{method} {path}")
        return answer, _server_time(response.headers)

    def _connect(self) -> client.ApiClient:
        if self._connection is None:
            settings = client.Configuration()
            try:
                self._configure(settings)
            except Exception as error:  # of a damaged kubeconfig the client raises anything
                reason = escape_text(" ".join(str(error).split()))[:_MAX_ERROR_LENGTH]
                raise DriverError(f"no access to a Kubernetes cluster: {reason}") from None
            settings.retries = False
            self._connection = client.ApiClient(settings)
        return self._connection

    def _configure(self, settings: client.Configuration) -> None:
        """Set address and credentials; the client's own choice prints to standard output."""
        if not self.kubeconfig:
            with suppress(config.ConfigException):
                config.load_incluster_config(client_configuration=settings)
                return
        config.load_kube_config(
            self.kubeconfig or None, client_configuration=settings, persist_config=False
        )


def _parse(text: bytes, request: str) -> Json:
    try:
        answer = json.loads(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        raise DriverTimeoutError(f"{request}: the answer is unreadable")
    return answer


def _refusal(status: int, answer: Json, request: str) -> DriverError:
    """Return the error of a request that the server did not carry out."""
    message = escape_text(" ".join(str(answer.get("message", "")).split()))[:_MAX_ERROR_LENGTH]
    if status in (401, 403):
        match = _FORBIDDEN.search(message)
        if match is None:
            return DriverError(f"{request}: access denied ({message})")
        group = f".{match[3]}" if match[3] else ""
        return DriverError(f"forewarn lacks the right `{match[1]} {match[2]}{group}` ({message})")
    text = f"{request}: {message or f'status {status}'}"
    if status == 409:
        return ConflictError(text)
    if status == 429:
        return ThrottledError(text)
    return DriverTimeoutError(text) if status >= 500 else DriverError(text)


def _server_time(headers: Mapping[str, str]) -> Nanoseconds | None:
    try:
        return Nanoseconds(int(parsedate_to_datetime(headers["Date"]).timestamp()) * SECOND)
    except (KeyError, TypeError, ValueError):
        return None
