"""Answers that several requests ask for at the same time, computed once for all that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from threading import Lock

__all__ = ["SingleFlight"]


@dataclass(slots=True)
class SingleFlight:
    """Give a request the answer that another one waits for, unless its computing has begun.

    So fifty readers of a page wait for two answers at most, and no answer is older than its
    request.

    Attributes
    ----------
    pool : Executor
        Where answers are computed.
    """

    pool: Executor
    _lock: Lock = field(default_factory=Lock)
    _waiting: dict[Hashable, asyncio.Future[bytes]] = field(default_factory=dict)

    async def of(self, question: Hashable, work: Callable[[], bytes]) -> bytes:
        """Return the answer to a question; `work` computes it in a thread."""
        with self._lock:
            answer = self._waiting.get(question)
            if answer is None:
                loop = asyncio.get_running_loop()
                answer = loop.run_in_executor(self.pool, self._begin, question, work)
                self._waiting[question] = answer
        # A request that is cancelled does not cancel the answer for the others.
        return await asyncio.shield(answer)

    def _begin(self, question: Hashable, work: Callable[[], bytes]) -> bytes:
        with self._lock:
            del self._waiting[question]
        return work()
