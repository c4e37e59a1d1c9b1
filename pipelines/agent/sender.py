"""Sender of spooled batches to the collector, in order and until they are accepted."""

from __future__ import annotations

import gzip
import logging
import random
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from pydantic import ValidationError

from forewarn.features.time_units import MINUTE
from forewarn.pipelines.agent.spool import Spool
from forewarn.pipelines.config.agent_policy import CollectionPolicy
from forewarn.pipelines.runtime.clock import Clock

__all__ = ["SendError", "Sender"]

_BACKOFF_SECONDS = (1.0, 60.0)  # first and maximum
_TIMEOUT_SECONDS = 30.0
_CLOCK_RETRY_NS = MINUTE  # between retries of batches from the future
_MAX_SHOWN_CHARS = 300
_MAX_BATCH_BYTES = 64 << 20  # ten times the largest batch of an agent
# The batch itself is invalid: a retry cannot help.
_PERMANENT_STATUS_CODES = (400, 413, 415, 422)


class SendError(Exception):
    """The collector is unreachable or rejects the token; batches stay in the spool."""


@dataclass(slots=True)
class Sender:
    """Connection from a spool to a collector.

    Attributes
    ----------
    url : str
    token : str
    spool : Spool
    clock : Clock
    ca : Path or None
        Certificate to trust in addition to those of the system.
    wake, stop : threading.Event
        Set when there is something to send, and when the sender has to stop.
    refused : int
        Number of batches that the collector rejected as invalid; they are moved aside.
    ahead : set of Path
        Batches that the collector rejected because their time is in the future: one of the two
        clocks is wrong. They stay in the spool without blocking others.
    say : callable
        Writes a line to the agent's log.
    """

    url: str
    token: str
    spool: Spool
    clock: Clock
    ca: Path | None = None
    wake: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)
    refused: int = 0
    ahead: set[Path] = field(default_factory=set)
    say: Callable[[str], None] = lambda _: None
    _last_retry: int = 0
    _client: httpx.Client = field(init=False, repr=False)

    def __post_init__(self) -> None:
        logging.getLogger("httpx").setLevel(logging.WARNING)  # otherwise it logs every URL
        verify = ssl.create_default_context()
        if self.ca is not None:
            verify.load_verify_locations(self.ca)
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=_TIMEOUT_SECONDS,
            verify=verify,
            trust_env=False,
        )

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def policy(self) -> CollectionPolicy | None:
        """Return what to collect; None if the collector gives no valid answer."""
        try:
            answer = self._client.get("/v1/policy")
            return CollectionPolicy.model_validate(answer.raise_for_status().json())
        except (httpx.HTTPError, ValueError, ValidationError):
            return None

    def send_all(self) -> None:
        """Send all waiting batches.

        Raises
        ------
        SendError
            If the collector cannot be reached or rejects the token.
        """
        self._retry_future_batch()
        while path := next((p for p in self.spool.waiting() if p not in self.ahead), None):
            # Check again after each batch, so that new fault reports are sent first.
            self._send(path)

    def _retry_future_batch(self) -> None:
        """Retry one batch from the future from time to time; if it is accepted, retry all."""
        now = self.clock.now()
        self.ahead &= set(self.spool.waiting())
        if self.ahead and not 0 <= now - self._last_retry < _CLOCK_RETRY_NS:
            self._last_retry = now
            path = random.choice(sorted(self.ahead))  # clock errors may differ
            self._send(path)
            if path not in self.spool.waiting():
                self.ahead.clear()

    def _send(self, path: Path) -> None:
        try:
            data = _read(path)
        except FileNotFoundError:
            self.spool.remove(path)  # it was evicted
            return
        except (OSError, ValueError) as error:
            self.say(f"{path}: cannot be read ({error}); moved aside")
            self.spool.set_aside(path)
            return
        answer = self._post(data)
        if clock := _clock_refusal(answer):
            if not self.ahead:
                self.say(
                    f"batch kept: the clock of this host or of the collector is wrong: {clock!r}"
                )
            self.ahead.add(path)
        elif answer.status_code in _PERMANENT_STATUS_CODES:
            self.refused += 1
            self.spool.set_aside(path)
        elif answer.status_code != 200:
            raise SendError(f"{self.url}: status {answer.status_code}")
        else:
            self.spool.remove(path)

    def _post(self, data: bytes) -> httpx.Response:
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        try:
            return self._client.post("/v1/batches", content=gzip.compress(data, 5), headers=headers)
        except httpx.HTTPError as error:
            raise SendError(f"{self.url}: {error or type(error).__name__}") from None

    def run(self) -> None:
        """Send whenever there is something to send, with exponential backoff on errors."""
        patience = _BACKOFF_SECONDS[0]
        while not self.stop.is_set():
            self.wake.clear()
            try:
                self.send_all()
                patience = _BACKOFF_SECONDS[0]
                self.clock.wait(_BACKOFF_SECONDS[1], self.wake)
            except (SendError, OSError) as error:
                self.say(f"not sent, will retry: {error}")
                # Jitter, so that not all agents of a site reconnect at the same time.
                self.clock.wait(patience * random.uniform(0.5, 1.5), self.stop)
                patience = min(2 * patience, _BACKOFF_SECONDS[1])


def _read(path: Path) -> bytes:
    size = path.stat().st_size
    if size > _MAX_BATCH_BYTES:
        raise ValueError(f"{size} bytes, expected at most {_MAX_BATCH_BYTES}")
    return path.read_bytes()


def _clock_refusal(answer: httpx.Response) -> str:
    """Return the detail of a refusal because of clocks, or an empty string for other answers."""
    if not answer.is_client_error:
        return ""
    try:
        refusal = answer.json()
    except (ValueError, RecursionError):
        return ""
    if not isinstance(refusal, dict) or refusal.get("error") != "clock":
        return ""
    return f"{refusal.get('detail', '')} (collector time: {refusal.get('now', 'unknown')})"[
        :_MAX_SHOWN_CHARS
    ]
