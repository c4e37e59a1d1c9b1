"""Routes that look at token, role and size before anything of a request is read."""

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
_MAX_NESTED_VALUES: Final = 100_000  # objects and lists of a body
_REFUSALS: Final[dict[int | str, dict[str, Any]]] = {
    status: {"model": ErrorAnswer, "description": text}
    for status, text in {
        400: "No JSON, or a body that breaks off.",
        401: "No token.",
        403: "A wrong token, or one that is not for this.",
        413: "A body that is too long.",
        414: "A query that is too long.",
        415: "A body that is no JSON, or packed in a way other than gzip.",
        422: "What is wrong with the request; of findings with index and field.",
        503: "The ledger does not answer, or too much comes at once: come again later.",
    }.items()
}


class _ReadRequest(Request):
    """A request whose body was read, within bounds, and parsed."""

    def __init__(self, request: Request, body: bytes, parsed: Any) -> None:
        super().__init__(request.scope)
        self._body, self._json = body, parsed


class GuardedRoute(APIRoute):
    """A route for those whose token has its role."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request."""
        answer = super().get_route_handler()
        role = Role((self.openapi_extra or {})[_ROLE])
        known = {param.alias for param in self.dependant.query_params}
        takes_body = self.body_field is not None

        async def guarded(request: Request) -> Response:
            context = api_context(request)
            request.state.holder = context.admit(request, role)
            _check_query(request, known)
            async with context.bodies.read(request) as body:
                parsed = _parsed(request, body) if takes_body and body else None
                return await answer(_ReadRequest(request, body, parsed))

        return guarded


def make_router(tag: str) -> APIRouter:
    """Return a router whose routes all look first."""
    return APIRouter(prefix="/v1", tags=[tag], route_class=GuardedRoute, responses=_REFUSALS)


def require_role(role: Role) -> dict[str, Any]:
    """Return what the description of a route says of the role that it needs."""
    return {_ROLE: role.value, "security": [{"token": []}]}


def to_json(answer: BaseModel) -> bytes:
    """Return an answer as JSON; in a thread, for a long one takes a while."""
    return answer.model_dump_json().encode()


def _check_query(request: Request, known: set[str]) -> None:
    """Refuse what nobody reads: a filter with a typing error would show everything."""
    query: bytes = request.scope["query_string"]
    if len(query) > _MAX_QUERY_BYTES:
        raise RefusedError(414, f"a query of {len(query)} bytes, expected {_MAX_QUERY_BYTES}")
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
