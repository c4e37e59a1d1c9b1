"""Rendered pages: compressed once, and shared by everyone who reads them."""

from __future__ import annotations

import asyncio
import gzip
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass, field
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from forewarn.features.time_units import SECOND
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.pipelines.serving.entity_tags import entity_tag, matches_tag

__all__ = ["PageCache", "RenderedPage", "page_response"]

_SHARED_FOR: Final = SECOND
_PAUSE: Final = 20  # times what a page takes: the most expensive one may take 5 % of a core
_LONGEST: Final = 60 * SECOND  # also for a page that took minutes when nothing was in memory yet
_PATIENCE: Final = 2.0  # seconds that a reader waits for a page
_MAX_PAGES: Final = 200
_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "private, no-cache",  # the browser asks whether its copy is still the newest
    "Vary": "Cookie, Accept-Encoding",
}


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """A page: its bytes, plain and compressed, and the nanoseconds that it took."""

    body: bytes
    packed: bytes
    tag: str
    took: int = 0

    @classmethod
    def render(cls, work: Callable[[], str]) -> RenderedPage:
        """Render, encode and compress a page."""
        started = time.perf_counter_ns()
        body = work().encode(errors="replace")
        packed = gzip.compress(body, 6, mtime=0)
        return cls(body, packed, entity_tag(body), time.perf_counter_ns() - started)

    @property
    def shared_for(self) -> int:
        """Nanoseconds for which a page is shared: the longer it takes, the longer."""
        return min(max(_SHARED_FOR, _PAUSE * self.took), _LONGEST)


@dataclass(slots=True)
class PageCache:
    """Pages without anything that belongs to one person, by their address.

    A page is shared for a while, then once more for as long while the next one is made: readers do
    not wait for it. All methods are called in the thread of the event loop.

    Attributes
    ----------
    clock : Clock
    """

    clock: Clock = field(default_factory=SystemClock)
    _pages: OrderedDict[Hashable, tuple[int, RenderedPage]] = field(default_factory=OrderedDict)
    _making: dict[Hashable, asyncio.Task[RenderedPage]] = field(default_factory=dict)

    async def read(
        self, key: Hashable, make: Callable[[], Awaitable[RenderedPage]]
    ) -> RenderedPage | None:
        """Return a page; None if it takes longer than a reader waits, who then asks again.

        Parameters
        ----------
        key : hashable
        make : callable
            Renders the page in a thread. What it raises is raised to those who wait for it.
        """
        made_at, page = self._pages.get(key, (0, None))
        age = self.clock.now() - made_at
        if page is not None:
            self._pages.move_to_end(key)  # the one unread for longest is forgotten first
        if page is not None and age < page.shared_for:
            return page
        making = self._making.get(key) or self._start(key, make)
        if page is not None and age < 2 * page.shared_for:
            return page
        await asyncio.wait([making], timeout=_PATIENCE)
        return making.result() if making.done() else None

    def _start(
        self, key: Hashable, make: Callable[[], Awaitable[RenderedPage]]
    ) -> asyncio.Task[RenderedPage]:
        started = self.clock.now()

        async def render() -> RenderedPage:
            return await make()

        def keep(task: asyncio.Task[RenderedPage]) -> None:
            failed = task.cancelled() or task.exception() is not None
            if self._making.get(key) is not task:
                return  # a person has changed something since
            del self._making[key]
            if not failed:
                self._pages[key] = started, task.result()
                self._pages.move_to_end(key)
                while len(self._pages) > _MAX_PAGES:
                    self._pages.popitem(last=False)

        task = self._making[key] = asyncio.ensure_future(render())
        task.add_done_callback(keep)
        return task

    def clear(self) -> None:
        """Forget all pages, also those that are being made: a person has changed something."""
        self._pages.clear()
        self._making.clear()


def page_response(request: Request, page: RenderedPage, status: int = 200) -> Response:
    """Return a page, compressed if the browser accepts that, or 304 if it has it already."""
    headers = _HEADERS | {"ETag": page.tag}
    if status == 200 and matches_tag(request, page.tag):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(page.packed, status, headers | {"Content-Encoding": "gzip"})
    return Response(page.body, status, headers)
