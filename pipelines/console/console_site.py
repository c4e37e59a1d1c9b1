"""What the console knows of its site in addition to the API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

from forewarn.features.time_units import MINUTE, Nanoseconds
from forewarn.pipelines.console.openid import OpenIdProvider
from forewarn.pipelines.console.page_cache import PageCache
from forewarn.pipelines.console.sessions import RateLimit, Sessions
from forewarn.pipelines.incidents.api.api_context import ApiContext
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.response.score.response_score import JobStopCosts

__all__ = ["ConsoleSite", "ModelVersion", "TimeControl"]

_LOOP_EVERY: Final = Nanoseconds(15 * MINUTE)


@dataclass(frozen=True, slots=True)
class ModelVersion:
    """A trained predictor.

    Attributes
    ----------
    name : str
    role : str
        `champion`, `challenger`, or empty.
    trained_at : str
        ISO 8601; empty if unknown.
    gate : str
        What the promotion gate said.
    link : str
        Address of its page in MLflow; empty without one.
    """

    name: str
    role: str
    trained_at: str
    gate: str
    link: str = ""


@dataclass(frozen=True, slots=True)
class TimeControl:
    """The clock of a simulation, as people control it.

    Attributes
    ----------
    status : callable
        Returns one line about the simulation.
    act : callable
        Takes `stop`, `go`, `step`, `slower` or `faster`.
    """

    status: Callable[[], str]
    act: Callable[[str], None]


def _no_models() -> Sequence[ModelVersion]:
    return ()


@dataclass(slots=True)
class ConsoleSite:
    """Shared state of the console.

    Attributes
    ----------
    context : ApiContext
    costs : JobStopCosts
    models : callable
        Returns the trained predictors, newest first.
    loop_every : int
        Nanoseconds after which a round of the loop is late.
    secure : bool
        Cookies are sent over TLS only.
    openid : OpenIdProvider, optional
        Identity provider, in addition to tokens.
    time_control : TimeControl, optional
        Of a simulation.
    illustration : callable
        Returns the comparison that ends a simulation, as lines; empty elsewhere.
    clock : Clock
        Of sessions and rate limits.
    """

    context: ApiContext
    costs: JobStopCosts = field(default_factory=JobStopCosts)
    models: Callable[[], Sequence[ModelVersion]] = _no_models
    loop_every: Nanoseconds = _LOOP_EVERY
    secure: bool = False
    openid: OpenIdProvider | None = None
    time_control: TimeControl | None = None
    illustration: Callable[[], Sequence[str]] = tuple
    clock: Clock = field(default_factory=SystemClock)
    sessions: Sessions = field(default_factory=Sessions)
    pages: PageCache = field(default_factory=PageCache)
    sign_ins: RateLimit = field(default_factory=lambda: RateLimit(10, 10))
    reads: RateLimit = field(default_factory=lambda: RateLimit(100, 600))
    acts: RateLimit = field(default_factory=lambda: RateLimit(20, 30))
