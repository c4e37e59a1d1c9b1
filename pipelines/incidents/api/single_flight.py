"""Single-flight computation of identical concurrent requests."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from threading import Lock
from typing import Any, TypeVar

__all__ = ["SingleFlight"]

_Result = TypeVar("_Result")


@dataclass(slots=True)
class SingleFlight:
    """Share one computation between identical requests that wait for it.

    A request joins a computation only before it starts. An answer is never older than its request,
    and any number of identical requests wait for at most two computations.

    Attributes
    ----------
    pool : Executor
        Where answers are computed.
    """

    pool: Executor
    _lock: Lock = field(default_factory=Lock)
    _waiting: dict[Hashable, asyncio.Future[Any]] = field(default_factory=dict)

    async def run(self, question: Hashable, work: Callable[[], _Result]) -> _Result:
        """Return the result of `work`, run in a thread; `question` identifies equal requests."""
        with self._lock:
            answer = self._waiting.get(question)
            if answer is None:
                loop = asyncio.get_running_loop()
                answer = loop.run_in_executor(self.pool, self._begin, question, work)
                self._waiting[question] = answer
        # Cancelling one request must not cancel the computation that others wait for.
        result: _Result = await asyncio.shield(answer)
        return result

    def _begin(self, question: Hashable, work: Callable[[], _Result]) -> _Result:
        with self._lock:
            del self._waiting[question]
        return work()
