"""Limits the size of a request's head, its total size, and its duration.

This overrides undocumented parts of Uvicorn; `tests/pipelines/serving/test_request_limits.py` fails
when they change. Granian 2.8 and Hypercorn 0.18 have limits of their own and were tested instead.
Both reject a long or slow head. Neither ends a body that arrives at one byte a second, and neither
reports closed connections, which `refused_requests_total` would miss. Granian serves an application
object of this process only with an experimental server, and not on a socket that is already bound.
Throughput is not decisive: for bodies of 2 kB, Uvicorn handled 2,200 requests a second on two busy
cores, Granian 6,400, Hypercorn 560; for batches of a collector, which wait for the disk, Uvicorn
handled 1,200 to 1,470 rows a second and Granian 1,490 to 3,150.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

__all__ = ["RequestLimits", "limited_protocol"]


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Limits on one request before the application sees it.

    Attributes
    ----------
    head : int
        Bytes of the request line and headers.
    total : int
        Bytes of the whole request, as sent.
    seconds : float
        Seconds from the first byte, or from the connection, to the last byte.
    """

    head: int
    total: int
    seconds: float


class _LimitedProtocol(HttpToolsProtocol):
    """A connection that is closed when a request exceeds its limits."""

    def __init__(self, bounds: RequestLimits, refused: Callable[[int], None], **rest: Any) -> None:
        super().__init__(**rest)
        self._bounds, self._refused = bounds, refused
        self._in_head, self._received, self._newest = True, 0, 0
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._finish()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._newest = len(data)
        self._received += self._newest
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._in_head and self._received > self._bounds.head:
            self._close(431)
        elif self._received > self._bounds.total:
            self._close(413)

    def on_message_begin(self) -> None:
        self._start()
        self._received = self._newest  # the request starts within this data
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # trailers are ignored
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._finish()
        super().on_message_complete()

    def _start(self) -> None:
        self._finish()
        self._in_head = True
        self._deadline = self.loop.call_later(self._bounds.seconds, self._close, 408)

    def _finish(self) -> None:
        self._received = 0
        if self._deadline is not None:
            self._deadline.cancel()

    def _close(self, status: int) -> None:
        """Close the connection, with a response if none was started."""
        if self.transport.is_closing():
            return
        begun = self.cycle is not None and self.cycle.response_started
        if self._received or not begun:
            self._refused(status)
        if not begun:
            head = STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(head)
        if self.cycle is not None:
            self.cycle.disconnected = True  # wakes a handler that waits for the rest
            self.cycle.message_event.set()
        self.transport.close()


def limited_protocol(bounds: RequestLimits, refused: Callable[[int], None]) -> Any:
    """Return the protocol class for Uvicorn, with limits.

    Parameters
    ----------
    bounds : RequestLimits
    refused : callable
        Called with the status of each connection that is closed.
    """

    def protocol(**rest: Any) -> _LimitedProtocol:
        return _LimitedProtocol(bounds, refused, **rest)

    return protocol
