"""Tests of single-flight computation."""

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
    """Work that counts its calls and waits until it may go on."""

    pool: ThreadPoolExecutor
    started: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    times: int = 0

    def __call__(self) -> bytes:
        self.times += 1
        times = self.times
        self.started.set()
        assert self.go_on.wait(60)
        return str(times).encode()

    async def until_started(self) -> None:
        while not self.started.is_set():
            await asyncio.sleep(0.001)


@pytest.fixture
def work() -> Iterator[Work]:
    with ThreadPoolExecutor(1) as pool:
        yield Work(pool)


def run_scenario(work: Work, scenario: Callable[[SingleFlight], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(SingleFlight(work.pool))

    asyncio.run(main())


def test_waiting_requests_share_one_later_computation(work: Work) -> None:
    async def scenario(flight: SingleFlight) -> None:
        first = asyncio.create_task(flight.run("page", work))
        await work.until_started()
        many = [asyncio.create_task(flight.run("page", work)) for _ in range(50)]
        other = asyncio.create_task(flight.run("other", work))
        await asyncio.sleep(0)
        work.go_on.set()
        assert await first == b"1"
        assert set(await asyncio.gather(*many)) == {b"2"}
        assert await other == b"3"
        assert await flight.run("page", work) == b"4"

    run_scenario(work, scenario)


def test_cancelled_request_does_not_cancel_others(work: Work) -> None:
    async def scenario(flight: SingleFlight) -> None:
        blocking = asyncio.create_task(flight.run("other", work))
        await work.until_started()
        cancelled, remaining = (asyncio.create_task(flight.run("page", work)) for _ in range(2))
        await asyncio.sleep(0)
        cancelled.cancel()
        work.go_on.set()
        assert await remaining == b"2"
        assert await blocking == b"1"
        assert cancelled.cancelled()

    run_scenario(work, scenario)


def test_error_reaches_waiting_requests_only(work: Work) -> None:
    def fail() -> bytes:
        raise ValueError("away")

    async def scenario(flight: SingleFlight) -> None:
        blocking = asyncio.create_task(flight.run("other", work))
        await work.until_started()
        many = [asyncio.create_task(flight.run("page", fail)) for _ in range(3)]
        await asyncio.sleep(0)
        work.go_on.set()
        for error in await asyncio.gather(*many, return_exceptions=True):
            assert str(error) == "away"
        assert await flight.run("page", work) == b"2"
        await blocking

    run_scenario(work, scenario)
