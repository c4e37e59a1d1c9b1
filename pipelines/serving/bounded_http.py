"""HTTP with bounds that the server itself does not have: of headers, of bytes, and of time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

__all__ = ["Bounds", "bounded"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one request may cost before anybody looks at it.

    Attributes
    ----------
    head : int
        Bytes of its first line and headers.
    total : int
        Bytes of all of it, as sent.
    seconds : float
        From its first byte, or from the connection, to its last byte.
    """

    head: int
    total: int
    seconds: float


class _BoundedProtocol(HttpToolsProtocol):
    """A connection that is closed when a request goes beyond its bounds."""

    def __init__(self, bounds: Bounds, refused: Callable[[int], None], **rest: Any) -> None:
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
        self._received = self._newest  # of which it is a part
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:  # what comes after the body is nothing that anybody reads
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
        """End the connection, with an answer where none was begun."""
        if self.transport.is_closing():
            return
        begun = self.cycle is not None and self.cycle.response_started
        if self._received or not begun:
            self._refused(status)
        if not begun:
            head = STATUS_LINE[status] + b"content-length: 0\r\nconnection: close\r\n\r\n"
            self.transport.write(head)
        if self.cycle is not None:
            self.cycle.disconnected = True  # whoever waits for the rest of it has to hear of it
            self.cycle.message_event.set()
        self.transport.close()


def bounded(bounds: Bounds, refused: Callable[[int], None]) -> Any:
    """Return what Uvicorn makes connections with.

    Parameters
    ----------
    bounds : Bounds
    refused : callable
        Is told the status of what was closed.
    """

    def protocol(**rest: Any) -> _BoundedProtocol:
        return _BoundedProtocol(bounds, refused, **rest)

    return protocol
