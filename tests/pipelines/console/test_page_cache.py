"""Pages are made once for many readers, and readers do not wait for the next one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.pipelines.incidents.api.api_client import SetClock

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.console import page_cache
from forewarn.pipelines.console.page_cache import PageCache, RenderedPage

Make = Callable[[], Awaitable[RenderedPage]]


class Site:
    """A page whose text counts how often it was made; `go` lets it be made."""

    def __init__(self, took: int = 0) -> None:
        self.clock, self.took, self.made = SetClock(), took, 0
        self.cache = PageCache(self.clock)
        self.go = asyncio.Event()
        self.go.set()

    async def make(self) -> RenderedPage:
        self.made += 1
        text = f"page {self.made}".encode()
        await self.go.wait()
        return RenderedPage(text, b"", "", self.took)

    async def read(self, after: float = 0.0) -> str | None:
        self.clock.moment = Nanoseconds(self.clock.moment + round(after * SECOND))
        page = await self.cache.read("/", self.make)
        return None if page is None else page.body.decode()


def test_many_readers_share_one_page_for_a_second() -> None:
    async def run() -> None:
        site = Site()
        assert await asyncio.gather(*(site.read() for _ in range(50))) == ["page 1"] * 50
        assert await site.read(0.9) == "page 1"
        assert site.made == 1

    asyncio.run(run())


def test_next_page_is_made_while_readers_see_the_last_one() -> None:
    async def run() -> None:
        site = Site()
        await site.read()
        site.go.clear()
        assert [await site.read(1.1), await site.read(0.1)] == ["page 1", "page 1"]
        site.go.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert (await site.read(), site.made) == ("page 2", 2)
        assert await site.read(2.1) == "page 3"  # too old to be shown meanwhile

    asyncio.run(run())


def test_expensive_page_is_shared_for_longer() -> None:
    async def run() -> None:
        site = Site(took=SECOND)
        assert [await site.read(), await site.read(19.9)] == ["page 1", "page 1"]
        assert site.made == 1
        slow = Site(took=100 * SECOND)
        assert [await slow.read(), await slow.read(120.1)] == ["page 1", "page 2"]

    asyncio.run(run())


def test_page_read_by_others_is_not_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_MAX_PAGES", 2)

    async def run() -> None:
        site = Site()
        for name in ("a", "b", "a", "c", "a"):
            await site.cache.read(name, site.make)
        assert site.made == 3

    asyncio.run(run())


def test_reader_of_a_slow_page_gets_it_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_PATIENCE", 0.01)

    async def run() -> None:
        site = Site()
        site.go.clear()
        assert [await site.read(), await site.read(), site.made] == [None, None, 1]
        site.go.set()
        assert await site.read() == "page 1"

    asyncio.run(run())


def test_page_begun_before_a_change_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(page_cache, "_PATIENCE", 0.01)

    async def run() -> None:
        site = Site()
        site.go.clear()
        assert await site.read() is None
        site.cache.clear()
        site.go.set()
        assert await site.read() == "page 2"
        assert await site.read() == "page 2"

    asyncio.run(run())


def test_failed_page_is_raised_and_made_again() -> None:
    async def run() -> None:
        site, plain = Site(), Site.make

        async def fail() -> RenderedPage:
            raise OSError("no ledger")

        site.make = fail  # type: ignore[method-assign]
        with pytest.raises(OSError, match="no ledger"):
            await site.read()
        site.make = lambda: plain(site)  # type: ignore[method-assign]
        assert await site.read() == "page 1"

    asyncio.run(run())
