"""Routes that check token, role and size before a request is parsed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, Final
from urllib.parse import parse_qsl

from fastapi import APIRouter, Request, Response
from fastapi.routing import APIRoute
from pydantic import BaseModel

from forewarn.pipelines.incidents.api.access_control import Role
from forewarn.pipelines.incidents.api.api_context import api_context
from forewarn.pipelines.incidents.api.api_models import ErrorAnswer
from forewarn.pipelines.serving.request_bodies import RefusedError, parse_json

__all__ = ["GuardedRoute", "make_router", "require_role", "to_json"]

_ROLE: Final = "x-forewarn-role"
_MAX_QUERY_BYTES: Final = 2048
_MAX_NESTED_VALUES: Final = 100_000  # objects and lists in one body
_REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": ErrorAnswer, "description": text}
    for status, text in {
        400: "The body is not valid JSON or is incomplete.",
        401: "The token is missing.",
        403: "The token is not valid, or its role does not permit the request.",
        413: "The body is too long.",
        414: "The query is too long.",
        415: "The content type is not JSON, or the encoding is not gzip.",
        422: "The request is invalid; for findings, index and field are given.",
        503: "The ledger does not answer, or there are too many requests. Try again later.",
    }.items()
}


class _ReadRequest(Request):
    """A request whose body has been read within limits and parsed."""

    def __init__(self, request: Request, body: bytes, parsed: Any) -> None:
        super().__init__(request.scope)
        self._body, self._json = body, parsed


class GuardedRoute(APIRoute):
    """Route that requires a token with the route's role, or a visitor if it only reads."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the request handler, preceded by the checks."""
        answer = super().get_route_handler()
        role = Role((self.openapi_extra or {})[_ROLE])
        known = {param.alias for param in self.dependant.query_params}
        reads = self.methods == {"GET"}
        takes_body = self.body_field is not None

        async def guarded(request: Request) -> Response:
            context = api_context(request)
            request.state.holder = context.admit(request, role, reads=reads)
            _check_query(request, known)
            async with context.bodies.read(request) as body:
                parsed = _parsed(request, body) if takes_body and body else None
                return await answer(_ReadRequest(request, body, parsed))

        return guarded


def make_router(tag: str) -> APIRouter:
    """Return a router whose routes check each request first."""
    return APIRouter(prefix="/v1", tags=[tag], route_class=GuardedRoute, responses=_REFUSALS)


def require_role(role: Role) -> dict[str, Any]:
    """Return the OpenAPI extension that names the role of a route."""
    return {_ROLE: role.value, "security": [{"token": []}]}


def to_json(answer: BaseModel) -> bytes:
    """Serialize an answer. Call it in a thread: long answers take a while."""
    return answer.model_dump_json().encode()


def _check_query(request: Request, known: set[str]) -> None:
    """Refuse unknown and repeated parameters: a misspelt filter would return everything."""
    query: bytes = request.scope["query_string"]
    if len(query) > _MAX_QUERY_BYTES:
        raise RefusedError(414, f"query of {len(query)} bytes, expected at most {_MAX_QUERY_BYTES}")
    names = [name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)]
    for name in names:
        if name not in known or names.count(name) > 1:
            expected = ", ".join(sorted(known)) or "none"
            raise RefusedError(
                422, f"query parameter {ascii(name)[:60]}, expected each of: {expected}, once"
            )


def _parsed(request: Request, body: bytes) -> Any:
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/json":
        raise RefusedError(415, f"content-type {ascii(kind)[:60]}, expected application/json")
    return parse_json(body, _MAX_NESTED_VALUES)
