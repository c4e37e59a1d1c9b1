"""The newest score, computed in a thread of its own: requests read what is known."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from threading import Lock
from typing import Any, Final

__all__ = ["LatestScore", "Score"]

Score = Mapping[str, Any]

_PATIENCE: Final = 2.0  # seconds that a reader waits for a score
_PAUSE: Final = 20  # times what a score takes: computing may take 5 % of a core
_MIN_PAUSE, _MAX_PAUSE = 1.0, 60.0  # seconds


class LatestScore:
    """The newest score; a large ledger takes seconds for one, and no request waits for that.

    Parameters
    ----------
    compute : callable
    """

    def __init__(self, compute: Callable[[], Score]) -> None:
        self._compute = compute
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="score")
        self._lock = Lock()
        self._known: Score | None = None
        self._running: Future[Score] | None = None
        self._computed_at, self._pause = 0.0, 0.0  # monotonic seconds, and until the next one

    async def read(self) -> Score | None:
        """Return the newest score; None while the first one is being computed.

        Its `until` says when it was computed. Reading starts the next computation when one is due.
        A reader waits for that if no score is known, or one that is long outdated, but for two
        seconds at most.

        Raises
        ------
        Exception
            What `compute` raises, if the reader waits for it.
        """
        running, known = self._start_if_due()
        if running is None:
            return known
        computing = asyncio.shield(asyncio.wrap_future(running))
        try:
            return await asyncio.wait_for(computing, _PATIENCE)
        except TimeoutError:
            return known

    def close(self) -> None:
        """Stop the thread."""
        self._pool.shutdown()

    def _start_if_due(self) -> tuple[Future[Score] | None, Score | None]:
        """Return the computation that a reader has to wait for, and the known score."""
        with self._lock:
            if self._running is not None and self._running.done():
                self._running = None
            age = time.monotonic() - self._computed_at
            if self._running is None and (self._known is None or age >= self._pause):
                self._running = self._pool.submit(self._work)
            waits = self._known is None or age >= 2 * self._pause
            return (self._running if waits else None), self._known

    def _work(self) -> Score:
        begun = time.monotonic()
        score = self._compute()
        now = time.monotonic()
        with self._lock:
            self._known, self._computed_at = score, now
            self._pause = min(max(_MIN_PAUSE, _PAUSE * (now - begun)), _MAX_PAUSE)
        return score
