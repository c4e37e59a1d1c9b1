"""The HTTP service that agents talk to: a policy out, batches in, nothing without a token."""

from __future__ import annotations

import asyncio
import hmac
import logging
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from forewarn.features.errors import InputError
from forewarn.pipelines.intake import Intake, RefusedError

__all__ = ["Collector", "TokenError", "parse_tokens"]

_log = logging.getLogger("forewarn.collect")


class TokenError(InputError):
    """Tokens that cannot be used."""


def parse_tokens(text: str) -> dict[str, str]:
    """Return the site of each token, from `site-a=TOKEN,site-b=TOKEN`.

    Raises
    ------
    TokenError
        If there is none, or one has no site or is there twice.

    Examples
    --------
    >>> parse_tokens("berlin=s3cret")
    {'s3cret': 'berlin'}
    """
    sites: dict[str, str] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        site, _, token = part.partition("=")
        if not site or not token or token in sites:
            raise TokenError("FOREWARN_TOKENS: expected SITE=TOKEN,..., each token once.")
        sites[token] = site
    if not sites:
        raise TokenError("FOREWARN_TOKENS is not set, expected SITE=TOKEN,...")
    return sites


@dataclass(slots=True)
class Collector:
    """What the service needs to answer.

    Attributes
    ----------
    sites : mapping of str to str
        Site of each token.
    policy : mapping
        What agents are told, as JSON can hold it.
    intake : Intake
    limit : int
        Bytes of a batch, as sent and unpacked.
    """

    sites: Mapping[str, str]
    policy: Mapping[str, Any]
    intake: Intake
    limit: int

    def app(self) -> Starlette:
        """Return the service as an ASGI application."""
        return Starlette(
            routes=[
                Route("/health", self._health),
                Route("/v1/policy", self._policy),
                Route("/v1/batches", self._batches, methods=["POST"]),
            ]
        )

    async def _health(self, _: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _policy(self, request: Request) -> Response:
        try:
            self._site(request)
        except RefusedError as refused:
            return _refusal(request, refused)
        return JSONResponse(dict(self.policy))

    async def _batches(self, request: Request) -> Response:
        """Take a batch: it is on disk before the answer."""
        try:
            site = self._site(request)
            body = await self._body(request)
            kind = request.headers.get("content-type", "").split(";")[0].strip()
            taken = await asyncio.wrap_future(self.intake.offer(body, kind, site))
        except RefusedError as refused:
            return _refusal(request, refused)
        except ClientDisconnect:
            return Response(status_code=400)
        return JSONResponse(taken)

    def _site(self, request: Request) -> str:
        """Return the site whose token this is; every token is compared, at the same speed."""
        kind, _, given = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer" or not given:
            raise RefusedError(401, "no token")
        found = [
            site
            for token, site in self.sites.items()
            if hmac.compare_digest(token.encode(), given.strip().encode())
        ]
        if not found:
            raise RefusedError(403, "a wrong token")
        return found[0]

    async def _body(self, request: Request) -> bytes:
        """Return the unpacked body, of which never more than the limit is in memory."""
        length = request.headers.get("content-length", "0")
        if not length.isdigit() or int(length) > self.limit:
            raise RefusedError(413, f"a batch of {length} bytes, expected at most {self.limit}")
        packing = request.headers.get("content-encoding", "identity")
        if packing not in ("identity", "gzip"):
            raise RefusedError(415, f"content-encoding {packing!r}, expected gzip or none")
        unpack = zlib.decompressobj(wbits=31) if packing == "gzip" else None
        parts, size = [], 0
        async for part in request.stream():
            for piece in _pieces(unpack, part, self.limit - size + 1):
                size += len(piece)
                parts.append(piece)
                if size > self.limit:
                    raise RefusedError(413, f"more than {self.limit} bytes unpacked")
        if unpack is not None and size and not unpack.eof:
            raise RefusedError(400, "a gzip stream that is cut off")
        return b"".join(parts)


def _pieces(unpack: Any, part: bytes, most: int) -> list[bytes]:
    """Return what a part of the body unpacks to, at most so much of it."""
    if unpack is None:
        return [part]
    try:
        return [unpack.decompress(part, most)]
    except zlib.error as error:
        raise RefusedError(400, f"no gzip stream ({error})") from None


def _refusal(request: Request, refused: RefusedError) -> Response:
    client = request.client.host if request.client else "unknown"
    _log.warning("refused %s from %s: %d, %s", request.url.path, client, refused.status, refused)
    return JSONResponse({"error": str(refused)}, status_code=refused.status)
