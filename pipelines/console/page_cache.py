"""Rendered pages: compressed once, and shared for a second by everyone who reads them."""

from __future__ import annotations

import gzip
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from threading import Lock
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from forewarn.features.time_units import SECOND
from forewarn.pipelines.runtime.clock import SystemClock
from forewarn.pipelines.serving.entity_tags import entity_tag, matches_tag

__all__ = ["PageCache", "RenderedPage", "page_response"]

_SHARED_FOR: Final = SECOND
_MAX_PAGES: Final = 200
_HEADERS: Final = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "private, no-cache",  # the browser asks whether its copy is still the newest
    "Vary": "Cookie, Accept-Encoding",
}


@dataclass(frozen=True, slots=True)
class RenderedPage:
    """A page: its bytes, plain and compressed."""

    body: bytes
    packed: bytes
    tag: str

    @classmethod
    def from_text(cls, text: str) -> RenderedPage:
        """Encode and compress a page."""
        body = text.encode(errors="replace")
        return cls(body, gzip.compress(body, 6, mtime=0), entity_tag(body))


class PageCache:
    """Pages without anything that belongs to one person, by their address."""

    def __init__(self) -> None:
        self._pages: OrderedDict[Hashable, tuple[int, RenderedPage]] = OrderedDict()
        self._lock, self._clock = Lock(), SystemClock()

    def read(self, key: Hashable) -> RenderedPage | None:
        """Return a page rendered within the last second."""
        with self._lock:
            made_at, page = self._pages.get(key, (0, None))
        return page if self._clock.now() - made_at < _SHARED_FOR else None

    def render(self, key: Hashable, work: Callable[[], str]) -> RenderedPage:
        """Return a page, rendered unless it was within the last second."""
        page = self.read(key)
        if page is None:
            started = self._clock.now()
            page = RenderedPage.from_text(work())
            with self._lock:
                self._pages.pop(key, None)
                self._pages[key] = started, page
                while len(self._pages) > _MAX_PAGES:
                    self._pages.popitem(last=False)
        return page

    def clear(self) -> None:
        """Forget all pages: somebody has just changed something."""
        with self._lock:
            self._pages.clear()


def page_response(request: Request, page: RenderedPage, status: int = 200) -> Response:
    """Return a page, compressed if the browser accepts that, or 304 if it has it already."""
    headers = _HEADERS | {"ETag": page.tag}
    if status == 200 and matches_tag(request, page.tag):
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(page.packed, status, headers | {"Content-Encoding": "gzip"})
    return Response(page.body, status, headers)
