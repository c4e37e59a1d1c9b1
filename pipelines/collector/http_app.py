"""The HTTP service that agents talk to: a policy out, batches in, nothing without a token."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from forewarn.pipelines.collector.batch_intake import Intake
from forewarn.pipelines.collector.metrics import CollectorMetrics
from forewarn.pipelines.collector.refusal import ClockError, RefusedError
from forewarn.pipelines.runtime.tokens import Speaker, Tokens

__all__ = ["Collector"]

_log = logging.getLogger("forewarn.collect")
_BODIES = 8  # of the longest kind: what all requests together may hold in memory


@dataclass(slots=True)
class Collector:
    """What the service needs to answer.

    Attributes
    ----------
    tokens : Tokens
    policy : mapping
        What agents are told, as JSON can hold it.
    intake : Intake
    limit : int
        Bytes of a batch, as sent and unpacked.
    trouble : callable
        Returns what is wrong with the service; None if nothing is.
    metrics : CollectorMetrics
    """

    tokens: Tokens
    policy: Mapping[str, Any]
    intake: Intake
    limit: int
    trouble: Callable[[], str | None] = lambda: None
    metrics: CollectorMetrics = field(default_factory=CollectorMetrics)
    _held: int = 0

    def app(self) -> Starlette:
        """Return the service as an ASGI application."""
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/metrics", self._metrics),
                Route("/v1/policy", self._policy),
                Route("/v1/batches", self._batches, methods=["POST"]),
            ]
        )

    async def _health(self, _: Request) -> Response:
        trouble = self.trouble()
        if trouble is None:
            return PlainTextResponse("ok\n")
        return PlainTextResponse(f"{trouble}\n", status_code=503)

    async def _metrics(self, _: Request) -> Response:
        return PlainTextResponse(self.metrics.text())

    async def _policy(self, request: Request) -> Response:
        try:
            self._speaker(request)
        except RefusedError as refused:
            return self._refusal(request, refused)
        return JSONResponse(dict(self.policy))

    async def _batches(self, request: Request) -> Response:
        """Take a batch: it is on disk before the answer."""
        room = _Room(self)
        try:
            speaker = self._speaker(request)
            body = await self._body(request, room)
            kind = request.headers.get("content-type", "").split(";")[0].strip()
            answer = await asyncio.wrap_future(self.intake.offer(body, kind, speaker))
        except RefusedError as refused:
            return self._refusal(request, refused)
        except ClientDisconnect:
            return Response(status_code=400)
        finally:
            room.leave()
        self.metrics.take(answer["rows"], answer["too_old"])
        return JSONResponse(answer)

    def _speaker(self, request: Request) -> Speaker:
        """Return whose token this is."""
        kind, _, token = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not token:
            raise RefusedError(401, "no token")
        speaker = self.tokens.speaker(token.strip())
        if speaker is None:
            raise RefusedError(403, "a wrong token")
        return speaker

    async def _body(self, request: Request, room: _Room) -> bytes:
        """Return the unpacked body, of which never more than the limit is in memory."""
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self.limit:
            raise RefusedError(413, f"a batch of {length} bytes, expected at most {self.limit}")
        packing = request.headers.get("content-encoding", "identity")
        if packing not in ("identity", "gzip"):
            raise RefusedError(415, f"content-encoding {packing!r}, expected gzip or none")
        unpack = zlib.decompressobj(wbits=31) if packing == "gzip" else None
        body = bytearray()
        async for part in request.stream():
            piece = _piece(unpack, part, self.limit - len(body) + 1)
            room.take(len(piece))
            body += piece
            if len(body) > self.limit:
                raise RefusedError(413, f"more than {self.limit} bytes unpacked")
        if unpack is not None and body and not unpack.eof:
            raise RefusedError(400, "a gzip stream that is cut off")
        return bytes(body)

    def _refusal(self, request: Request, refused: RefusedError) -> Response:
        client = request.client.host if request.client else "unknown"
        _log.warning(
            "refused %s from %s: %d, %s", request.url.path, client, refused.status, refused
        )
        self.metrics.refuse(refused.status)
        if isinstance(refused, ClockError):
            self.metrics.skews.note(refused.host, refused.ahead / 1e9)
        return JSONResponse(refused.answer(), status_code=refused.status)


@dataclass(slots=True)
class _Room:
    """What one request holds of the memory that all of them share."""

    collector: Collector
    size: int = 0

    def take(self, size: int) -> None:
        """Hold more, or refuse the request: whoever sent it keeps it and comes again."""
        self.size += size
        self.collector._held += size
        if self.collector._held > _BODIES * self.collector.limit:
            raise RefusedError(503, "too many batches at once, expected it later")

    def leave(self) -> None:
        """Give it back."""
        self.collector._held -= self.size


def _piece(unpack: Any, part: bytes, most: int) -> bytes:
    """Return what a part of the body unpacks to, at most so much of it."""
    if unpack is None:
        return part
    try:
        piece: bytes = unpack.decompress(part, most)
        return piece
    except zlib.error as error:
        raise RefusedError(400, f"no gzip stream ({error})") from None
