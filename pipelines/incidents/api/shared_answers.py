"""Answers that many ask for at the same time, worked out once for all who wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from concurrent.futures import Executor
from dataclasses import dataclass, field

__all__ = ["SharedAnswers"]


@dataclass(slots=True)
class SharedAnswers:
    """Who asks what another one already waits for gets the same answer, if it was not begun yet.

    So fifty readers of a page wait for two answers at most, and none of them sees less than what
    was there when it asked.

    Attributes
    ----------
    pool : Executor
        Where answers are worked out.
    """

    pool: Executor
    _waiting: dict[Hashable, asyncio.Future[bytes]] = field(default_factory=dict)

    async def of(self, question: Hashable, work: Callable[[], bytes]) -> bytes:
        """Return the answer to a question, worked out from now on.

        Parameters
        ----------
        question : hashable
        work : callable
            Is called in a thread, unless somebody else's is about to be.
        """
        answer = self._waiting.get(question)
        if answer is None or answer.done():
            loop = asyncio.get_running_loop()
            answer = self._waiting[question] = loop.create_future()
            waiting = answer

            def begin() -> bytes:
                # Who comes from here on may want to see what changed after this.
                if self._waiting.get(question) is waiting:
                    del self._waiting[question]
                return work()

            _settle(waiting, loop.run_in_executor(self.pool, begin))
        # Whoever hangs up takes nothing away from the others.
        return await asyncio.shield(answer)


def _settle(waiting: asyncio.Future[bytes], worked: asyncio.Future[bytes]) -> None:
    """Give what was worked out to all who wait."""

    def settle(done: asyncio.Future[bytes]) -> None:
        if waiting.done():
            return
        error = done.exception()
        if error is None:
            waiting.set_result(done.result())
        else:
            waiting.set_exception(error)
            waiting.exception()  # all who waited may have hung up

    worked.add_done_callback(settle)
