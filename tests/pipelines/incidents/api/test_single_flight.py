"""Many who ask the same at once, and how often it is worked out."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import pytest

from forewarn.pipelines.incidents.api.single_flight import SingleFlight


@dataclass
class Work:
    """Counts how often it is done, and waits until it may go on."""

    pool: ThreadPoolExecutor
    begun: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    times: int = 0

    def __call__(self) -> bytes:
        self.times += 1
        times = self.times
        self.begun.set()
        assert self.go_on.wait(60)
        return str(times).encode()

    async def until_begun(self) -> None:
        while not self.begun.is_set():
            await asyncio.sleep(0.001)


@pytest.fixture
def work() -> Iterator[Work]:
    with ThreadPoolExecutor(1) as pool:
        yield Work(pool)


def run(work: Work, play: Callable[[SingleFlight], Awaitable[None]]) -> None:
    async def playing() -> None:
        await play(SingleFlight(work.pool))

    asyncio.run(playing())


def test_fifty_who_wait_get_one_answer_that_was_begun_after_they_came(work: Work) -> None:
    async def play(shared: SingleFlight) -> None:
        first = asyncio.create_task(shared.of("page", work))
        await work.until_begun()
        many = [asyncio.create_task(shared.of("page", work)) for _ in range(50)]
        other = asyncio.create_task(shared.of("other", work))
        await asyncio.sleep(0)
        work.go_on.set()
        assert await first == b"1"
        assert set(await asyncio.gather(*many)) == {b"2"}
        assert await other == b"3"
        assert await shared.of("page", work) == b"4"

    run(work, play)


def test_who_hangs_up_takes_nothing_from_the_others(work: Work) -> None:
    async def play(shared: SingleFlight) -> None:
        blocking = asyncio.create_task(shared.of("other", work))
        await work.until_begun()
        gone, stays = (asyncio.create_task(shared.of("page", work)) for _ in range(2))
        await asyncio.sleep(0)
        gone.cancel()
        work.go_on.set()
        assert await stays == b"2"
        assert await blocking == b"1"
        assert gone.cancelled()

    run(work, play)


def test_an_error_reaches_all_who_wait_and_nobody_after_them(work: Work) -> None:
    def fail() -> bytes:
        raise ValueError("away")

    async def play(shared: SingleFlight) -> None:
        blocking = asyncio.create_task(shared.of("other", work))
        await work.until_begun()
        many = [asyncio.create_task(shared.of("page", fail)) for _ in range(3)]
        await asyncio.sleep(0)
        work.go_on.set()
        for error in await asyncio.gather(*many, return_exceptions=True):
            assert str(error) == "away"
        assert await shared.of("page", work) == b"2"
        await blocking

    run(work, play)
