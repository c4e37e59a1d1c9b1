"""The token that a request brings."""

from __future__ import annotations

from starlette.requests import Request

from forewarn.pipelines.serving.refusal import RefusedError

__all__ = ["bearer_token"]


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
