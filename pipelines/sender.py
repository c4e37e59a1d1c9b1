"""Sends what an agent has spooled to the collector, in order, until it is taken."""

from __future__ import annotations

import gzip
import random
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx
from pydantic import ValidationError

from forewarn.pipelines.clock import Clock
from forewarn.pipelines.policy import Collection
from forewarn.pipelines.spool import Spool

__all__ = ["Sender", "UnsentError"]

_PATIENCE = (1.0, 60.0)  # seconds between two attempts, at first and at most
_TIMEOUT = 30.0
# The collector says that the batch itself is wrong: sending it again cannot help.
_REFUSED = (400, 413, 415, 422)


class UnsentError(Exception):
    """The collector is away, or does not know the token; what is spooled stays."""


@dataclass(slots=True)
class Sender:
    """The way from a spool to a collector.

    Attributes
    ----------
    url : str
    token : str
    spool : Spool
    clock : Clock
    ca : Path or None
        Certificate to trust beside those of the system.
    wake, stop : threading.Event
        There is something to send; it is over.
    refused : int
        Batches that the collector called wrong; they are set aside.
    """

    url: str
    token: str
    spool: Spool
    clock: Clock
    ca: Path | None = None
    wake: threading.Event = field(default_factory=threading.Event)
    stop: threading.Event = field(default_factory=threading.Event)
    refused: int = 0
    _client: httpx.Client = field(init=False, repr=False)

    def __post_init__(self) -> None:
        verify = ssl.create_default_context()
        if self.ca is not None:
            verify.load_verify_locations(self.ca)
        self._client = httpx.Client(
            base_url=self.url,
            headers={"Authorization": f"Bearer {self.token}"},
            timeout=_TIMEOUT,
            verify=verify,
            trust_env=False,
        )

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def policy(self) -> Collection | None:
        """Ask what to collect; None if the collector is away or says nothing sensible."""
        try:
            answer = self._client.get("/v1/policy")
            return Collection.model_validate(answer.raise_for_status().json())
        except (httpx.HTTPError, ValueError, ValidationError):
            return None

    def send_all(self) -> None:
        """Send everything that waits; raises UnsentError with what stopped it."""
        while waiting := self.spool.waiting():
            # A fault report that came meanwhile goes first, so look again after each one.
            self._send(waiting[0])

    def _send(self, path: Path) -> None:
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return  # it gave way to newer ones
        headers = {"Content-Type": "application/json", "Content-Encoding": "gzip"}
        try:
            answer = self._client.post(
                "/v1/batches", content=gzip.compress(data, 5), headers=headers
            )
        except httpx.HTTPError as error:
            raise UnsentError(f"{self.url}: {error or type(error).__name__}") from None
        if answer.status_code in _REFUSED:
            self.refused += 1
            self.spool.set_aside(path)
        elif answer.status_code != 200:
            raise UnsentError(f"{self.url}: answered {answer.status_code}")
        else:
            path.unlink(missing_ok=True)

    def run(self, say: Callable[[str], None]) -> None:
        """Send whenever there is something, with growing patience while the collector is away."""
        patience = _PATIENCE[0]
        while not self.stop.is_set():
            self.wake.clear()
            try:
                self.send_all()
                patience = _PATIENCE[0]
                self.clock.wait(_PATIENCE[1], self.wake)
            except UnsentError as error:
                say(f"not sent, kept: {error}")
                # Not all agents of a site at the same moment when the collector comes back.
                self.clock.wait(patience * random.uniform(0.5, 1.5), self.stop)
                patience = min(2 * patience, _PATIENCE[1])
