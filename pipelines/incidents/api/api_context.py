"""Shared state of the API application, and authentication of requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from starlette.requests import Request

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.api.access_control import AccessControl, Role, TokenHolder
from forewarn.pipelines.incidents.api.latest_score import LatestScore, Score
from forewarn.pipelines.incidents.api.manual_actions import Operator
from forewarn.pipelines.incidents.api.prometheus_metrics import RespondMetrics
from forewarn.pipelines.incidents.api.single_flight import SingleFlight
from forewarn.pipelines.incidents.ledger.kill_switch import KillSwitch
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.pipelines.serving.request_bodies import BodyReader, RefusedError, bearer_token
from forewarn.pipelines.storage.evidence.daily_lists import DailyLists
from forewarn.response.state.step import Step

__all__ = ["MAX_BODY_BYTES", "ApiContext", "api_context", "request_holder"]

MAX_BODY_BYTES: Final = 8 << 20
_THREADS: Final = 2  # more threads would only wait for the interpreter lock

_Result = TypeVar("_Result")


def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_THREADS, thread_name_prefix="ledger")


@dataclass(slots=True)
class ApiContext:
    """Shared state of one API application.

    Attributes
    ----------
    ledger : Ledger
    access : AccessControl
    switch : KillSwitch
    score : callable
        Computes the score as a JSON-serializable mapping, which may take seconds.
    clock : Clock
    bodies : BodyReader
    metrics : RespondMetrics
    alerts : mapping of str to Step
        Hardest step by the name of an alert of Alertmanager.
    lists : DailyLists, optional
        Without them, nothing is known of GPUs.
    diagnoses : tuple of Path
        Files, and folders of files, of verdicts on jobs.
    visitor : callable
        Returns who reads without a token, such as a person signed in to the console; None if
        unknown. Routes that act never call it: a browser sends cookies by itself.
    """

    ledger: Ledger
    access: AccessControl
    switch: KillSwitch
    score: Callable[[], Score]
    clock: Clock = field(default_factory=SystemClock)
    bodies: BodyReader = field(default_factory=lambda: BodyReader(MAX_BODY_BYTES))
    metrics: RespondMetrics = field(default_factory=RespondMetrics)
    alerts: Mapping[str, Step] = field(default_factory=dict)
    lists: DailyLists | None = None
    diagnoses: tuple[Path, ...] = ()
    visitor: Callable[[Request], TokenHolder | None] = lambda _: None
    _writers: ThreadPoolExecutor = field(default_factory=_pool)
    _readers: ThreadPoolExecutor = field(default_factory=_pool)
    _shared: SingleFlight = field(init=False)
    _scores: LatestScore = field(init=False)

    def __post_init__(self) -> None:
        self._shared = SingleFlight(self._readers)
        self._scores = LatestScore(self.score)

    def now(self) -> Nanoseconds:
        """Return the current time in nanoseconds since 1970 UTC."""
        return Nanoseconds(self.clock.now())

    async def write(self, work: Callable[[], _Result]) -> _Result:
        """Run work that changes the ledger; readers have their own threads and do not wait."""
        return await asyncio.get_running_loop().run_in_executor(self._writers, work)

    async def read(self, question: Hashable, work: Callable[[], _Result]) -> _Result:
        """Return an answer from the ledger, computed once for identical concurrent requests."""
        return await self._shared.run(question, work)

    async def read_score(self) -> Score | None:
        """Return the newest known score; None while the first one is being computed."""
        return await self._scores.read()

    def admit(self, request: Request, needed: Role, *, reads: bool = False) -> TokenHolder:
        """Authenticate and authorize a request; one that only reads may come from a visitor.

        Raises
        ------
        RefusedError
            401 without a token, 403 if the token is unknown or its role is insufficient.
        """
        is_visit = reads and "authorization" not in request.headers
        holder = self.visitor(request) if is_visit else None
        holder = holder or self.access.holder(bearer_token(request))
        if holder is None:
            raise RefusedError(403, "the token is not valid")
        if not holder.role.includes(needed):
            raise RefusedError(403, f"the token has the role `{holder.role}`, expected `{needed}`")
        return holder

    def person(self, request: Request, why: str = "") -> Operator:
        """Return the token holder as the author of a manual action at the current time."""
        return Operator(self.ledger, request_holder(request).name, self.now(), why)

    def close(self) -> None:
        """Stop the threads."""
        self._writers.shutdown()
        self._readers.shutdown()
        self._scores.close()


def api_context(request: Request) -> ApiContext:
    """Return the context of the application that serves a request."""
    context: ApiContext = request.app.state.context
    return context


def request_holder(request: Request) -> TokenHolder:
    """Return the token holder of a request; the route has authenticated it."""
    holder: TokenHolder = request.state.holder
    return holder
