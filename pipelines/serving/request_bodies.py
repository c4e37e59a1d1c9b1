"""Reads request bodies within limits, and refuses invalid requests."""

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
_MAX_BODIES_HELD = 8  # times the limit of one body: memory of all requests together


class RefusedError(Exception):
    """A refused request: status and reason."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status

    def answer(self) -> dict[str, object]:
        """Return the JSON body of the response."""
        return {"error": str(self)}


def bearer_token(request: Request) -> str:
    """Return the bearer token of a request.

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
    """Parse the JSON of a body.

    Parameters
    ----------
    body : bytes
    most_nested : int
        Largest number of objects and lists: each takes a hundred times its size in memory.

    Raises
    ------
    RefusedError
        413 if there are more of them; 400 if the body is not JSON (NaN and Infinity are not).
    """
    nested = body.count(b"{") + body.count(b"[")
    if nested > most_nested:
        raise RefusedError(413, f"a body of {nested} objects, expected at most {most_nested}")
    try:
        return json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise RefusedError(400, f"not JSON ({str(error)[:80]})") from None


def _refuse_constant(text: str) -> None:
    raise ValueError(f"{text} is not JSON")


@dataclass(slots=True)
class BodyReader:
    """Limits the memory that the request bodies of one service use.

    Attributes
    ----------
    limit : int
        Bytes of one body, as sent and decompressed.
    held : int
        Bytes that requests use now.
    """

    limit: int
    held: int = 0

    @asynccontextmanager
    async def read(self, request: Request) -> AsyncIterator[bytes]:
        """Read and decompress a body; it counts as held until the block ends.

        Raises
        ------
        RefusedError
            413 if it is too long, 415 or 400 if it cannot be decompressed, 503 if all bodies
            together are too long (the client keeps it and retries).
        """
        body = bytearray()
        try:
            async for piece in self._pieces(request):
                body += piece
                self.held += len(piece)
                if self.held > _MAX_BODIES_HELD * self.limit:
                    raise RefusedError(503, "too many request bodies, retry later")
                if len(body) > self.limit:
                    raise RefusedError(413, f"more than {self.limit} bytes decompressed")
            yield bytes(body)
        finally:
            self.held -= len(body)

    async def _pieces(self, request: Request) -> AsyncIterator[bytes]:
        """Yield the decompressed parts, never more than the limit at a time."""
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
            raise RefusedError(400, "the gzip stream is truncated")


def _decompress(unpack: Any, part: bytes, most: int) -> bytes:
    """Decompress a part of the body, up to a number of bytes."""
    if unpack is None:
        return part
    try:
        piece: bytes = unpack.decompress(part, most)
        return piece
    except zlib.error as error:
        raise RefusedError(400, f"not a gzip stream ({error})") from None
