"""Requests: what is taken of them within bounds, and why one is refused."""

from __future__ import annotations

import json
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request

__all__ = ["BodyReader", "RefusedError", "bearer_token", "parse_json"]

_MAX_LENGTH_DIGITS = 18
_MAX_BODIES_HELD = 8  # of the longest kind: what all requests together may hold in memory


class RefusedError(Exception):
    """A request that is not taken: status and reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status

    def answer(self) -> dict[str, object]:
        """Return what the sender is told, as JSON holds it."""
        return {"error": str(self)}


def bearer_token(request: Request) -> str:
    """Return the token of a request.

    Raises
    ------
    RefusedError
        401 if there is none.
    """
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    if kind.lower() != "bearer" or not token:
        raise RefusedError(401, "no token")
    return token.strip()


def parse_json(body: bytes, most_nested: int) -> Any:
    """Return what a body holds.

    Parameters
    ----------
    body : bytes
    most_nested : int
        Objects and lists: a few bytes of JSON for each take a hundred times as much memory.

    Raises
    ------
    RefusedError
        413 if it holds more of them, 400 if it is no JSON; NaN and Infinity are none.
    """
    nested = body.count(b"{") + body.count(b"[")
    if nested > most_nested:
        raise RefusedError(413, f"a body of {nested} objects, expected at most {most_nested}")
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"no JSON ({str(error)[:80]})") from None


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is no JSON")


@dataclass(slots=True)
class BodyReader:
    """What the requests of one service may hold of its memory.

    Attributes
    ----------
    limit : int
        Bytes of one body, as sent and unpacked.
    held : int
        Bytes that requests hold now.
    """

    limit: int
    held: int = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Read a body, unpacked; it counts as held until the block ends.

        Raises
        ------
        RefusedError
            413 of one that is too long, 415 and 400 of one that cannot be unpacked, 503 where all
            together are too long: whoever sent it keeps it and comes again.
        """
        body = bytearray()
        try:
            async for piece in self._pieces(request):
                body += piece
                self.held += len(piece)
                if self.held > _MAX_BODIES_HELD * self.limit:
                    raise RefusedError(503, "too many bodies at once, send it again later")
                if len(body) > self.limit:
                    raise RefusedError(413, f"more than {self.limit} bytes unpacked")
            yield bytes(body)
        finally:
            self.held -= len(body)

    async def _pieces(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the unpacked parts, of which never more than the limit is in memory."""
        length = request.headers.get("content-length", "0")
        if not length.isdecimal() or len(length) > _MAX_LENGTH_DIGITS or int(length) > self.limit:
            raise RefusedError(
                413, f"a body of {length[:_MAX_LENGTH_DIGITS]} bytes, expected at most {self.limit}"
            )
        packing = request.headers.get("content-encoding", "identity")
        if packing not in ("identity", "gzip"):
            raise RefusedError(415, f"content-encoding {packing!r}, expected gzip or none")
        unpack = zlib.decompressobj(wbits=31) if packing == "gzip" else None
        left, empty = self.limit + 1, True
        async for part in request.stream():
            piece = _decompress(unpack, part, left)
            left, empty = left - len(piece), empty and not piece
            yield piece
        if unpack is not None and not empty and not unpack.eof:
            raise RefusedError(400, "a gzip stream that is cut off")


def _decompress(unpack: Any, part: bytes, most: int) -> bytes:
    """Return what a part of the body unpacks to, at most so much of it."""
    if unpack is None:
        return part
    try:
        piece: bytes = unpack.decompress(part, most)
        return piece
    except zlib.error as error:
        raise RefusedError(400, f"no gzip stream ({error})") from None
