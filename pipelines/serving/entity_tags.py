"""Entity tags: a client that polls learns that nothing has changed, without a body."""

from __future__ import annotations

import hashlib

from starlette.requests import Request

__all__ = ["entity_tag", "matches_tag"]


def entity_tag(body: bytes) -> str:
    """Return the value of `ETag` for a body.

    Examples
    --------
    >>> entity_tag(b"") == entity_tag(b""), entity_tag(b"") == entity_tag(b" ")
    (True, False)
    """
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def matches_tag(request: Request, tag: str) -> bool:
    """Tell whether `If-None-Match` of a request names a tag."""
    tags = request.headers.get("if-none-match", "")[:1000].split(",")
    return tag in (each.strip().removeprefix("W/") for each in tags)
