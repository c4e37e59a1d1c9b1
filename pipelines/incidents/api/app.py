"""ASGI application of the API of incidents.

The API writes to the ledger and changes no machine. The loop carries out the requests it finds in
the ledger.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import JSONResponse, PlainTextResponse, Response
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from forewarn.features.errors import InputError
from forewarn.pipelines.incidents.api.action_routes import acting
from forewarn.pipelines.incidents.api.alertmanager_webhook import alertmanager
from forewarn.pipelines.incidents.api.api_context import ApiContext, api_context
from forewarn.pipelines.incidents.api.fleet_routes import fleet_router
from forewarn.pipelines.incidents.api.manual_actions import ManualActionError
from forewarn.pipelines.incidents.api.posted_findings import PostedFindingError
from forewarn.pipelines.incidents.api.read_routes import read_router
from forewarn.pipelines.incidents.ledger.database import LedgerError
from forewarn.pipelines.serving.listener import Listener
from forewarn.pipelines.serving.request_bodies import RefusedError
from forewarn.pipelines.serving.service_metrics import metrics_response

__all__ = ["make_app", "serve_api"]

_log = logging.getLogger("forewarn.respond")
_SECONDS: Final = 30.0  # whole request
_HEADERS: Final = [
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
]
_ABOUT: Final = """Report findings; read incidents, actions and the score; act on incidents.

Each request needs a token: `Authorization: Bearer TOKEN`. The role `report` sends findings and
cannot read. The roles `see`, `approve`, `act` and `admin` each include the ones before; `act` and
`admin` include `report`. Where the console runs, its sessions may read. The API changes no machine:
it records requests in the ledger, and the loop carries them out within the limits."""


def make_app(context: ApiContext) -> FastAPI:
    """Return the API as an ASGI application."""
    app = FastAPI(
        title="forewarn respond",
        version=version("forewarn"),
        description=_ABOUT,
        docs_url=None,  # their pages load scripts from other hosts
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context = context
    app.include_router(read_router)
    app.include_router(fleet_router)
    app.include_router(acting)
    app.include_router(alertmanager)
    app.add_api_route("/health", _health, include_in_schema=False)
    app.add_api_route("/metrics", _metrics, include_in_schema=False)
    _describe(app)
    for kind, handler in _HANDLERS.items():
        app.add_exception_handler(kind, handler)
    app.add_middleware(_SafeHeaders)
    return app


def serve_api(
    context: ApiContext,
    listener: Listener,
    bound: socket.socket | None = None,
    app: FastAPI | None = None,
) -> None:
    """Serve the API until the process is stopped.

    Parameters
    ----------
    context : ApiContext
    listener : Listener
    bound : socket, optional
        Socket of the listener, if it is listening already.
    app : FastAPI, optional
        Application of this context; by default the API alone.

    Raises
    ------
    ListenerError
        If the address or the certificate cannot be used.
    """
    logging.basicConfig(level=logging.INFO, format="forewarn respond: %(message)s")
    bound = bound or listener.bind()
    listener.warn(_log)
    server = listener.server(
        app or make_app(context),
        limit=context.bodies.limit,
        seconds=_SECONDS,
        refused=context.metrics.refuse,
    )
    _log.info("listening on %s", listener.address(bound))
    try:
        server.run(sockets=[bound])
    finally:
        context.close()


async def _health(request: Request) -> Response:
    """Return 200 if the ledger answers, else 503."""
    context = api_context(request)
    try:
        await context.read("health", lambda: str(context.ledger.last_switch()).encode())
    except LedgerError:
        return PlainTextResponse("the ledger does not answer\n", status_code=503)
    return PlainTextResponse("ok\n")


async def _metrics(request: Request) -> Response:
    context = api_context(request)

    def update() -> bytes:
        context.metrics.read(context.ledger, context.switch, context.now())
        return b""

    await context.read("metrics", update)
    return metrics_response(context.metrics, request.headers.get("accept", ""))


def _describe(app: FastAPI) -> None:
    """Add the required role of each route to the OpenAPI description."""

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            schema = get_openapi(
                title=app.title,
                version=app.version,
                description=app.description,
                routes=app.routes,
            )
            schemes = {"token": {"type": "http", "scheme": "bearer"}}
            schema["components"]["securitySchemes"] = schemes
            for path in schema["paths"].values():
                for route in path.values():
                    route["description"] += f"\n\nRole: `{route['x-forewarn-role']}`."
            app.openapi_schema = schema
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


# --- refusals -------------------------------------------------------------------------------------


def _refuse(request: Request, status: int, why: str, **more: object) -> Response:
    client = request.client.host if request.client else "unknown"
    path = ascii(request.scope["path"])[:100]  # escaped: a line break would forge a log line
    _log.warning("refused %s from %s: %d, %s", path, client, status, ascii(why)[:200])
    api_context(request).metrics.refuse(status)
    headers = {401: {"WWW-Authenticate": "Bearer"}, 503: {"Retry-After": "5"}}.get(status)
    shown = {name: value for name, value in more.items() if value not in (None, "")}
    return JSONResponse({"error": why} | shown, status_code=status, headers=headers)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, RefusedError)
    return _refuse(request, error.status, str(error))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refuse(request, error.status_code, str(error.detail))


async def _posted(request: Request, error: Exception) -> Response:
    assert isinstance(error, PostedFindingError)
    return _refuse(request, error.status, str(error), index=error.index, field=error.field)


async def _invalid(request: Request, error: Exception) -> Response:
    """Report the first validation error in one line, with its place."""
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    index, field = _location(first["loc"])
    name = f"findings[{index}].{field}" if index is not None else field or "body"
    words = first["msg"].removeprefix("Value error, ")
    shown = ascii(first.get("input"))[:60]
    why = f"{name.rstrip('.')}: {words}, found {shown}"
    return _refuse(request, 422, why, index=index, field=field)


def _location(location: Sequence[int | str]) -> tuple[int | None, str]:
    """Return the index in the posted list (None outside a list) and the name of the invalid field.

    Examples
    --------
    >>> _location(("body", 3, "severity")), _location(("query", "limit")), _location(("body",))
    ((3, 'severity'), (None, 'limit'), (None, ''))
    """
    _, *rest = location
    if rest and isinstance(rest[0], int):
        return rest[0], ".".join(map(str, rest[1:]))[:100]
    return None, ".".join(map(str, rest))[:100]


async def _bad_input(request: Request, error: Exception) -> Response:
    """Report an error of the ledger or of a manual action."""
    status = 409
    if isinstance(error, LedgerError):
        _log.error("%s", error)
        return _refuse(request, 503, "the ledger does not answer, try again later")
    if isinstance(error, ManualActionError) and error.missing:
        status = 404
    return _refuse(request, status, str(error))


async def _gone(_: Request, error: Exception) -> Response:
    assert isinstance(error, ClientDisconnect)
    return Response(status_code=400)


async def _failed(request: Request, error: Exception) -> Response:
    """Answer without internal details; the traceback is in the log."""
    del error
    return _refuse(request, 500, "internal error; see the log of forewarn respond")


_HANDLERS: Final[dict[type[Exception], Any]] = {
    RefusedError: _refused,
    HTTPException: _http,
    RequestValidationError: _invalid,
    PostedFindingError: _posted,
    InputError: _bad_input,
    ClientDisconnect: _gone,
    Exception: _failed,
}


class _SafeHeaders:
    """Middleware that adds the security headers that a response lacks."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                own = {name for name, _ in message["headers"]}
                missing = [pair for pair in _HEADERS if pair[0] not in own]
                message["headers"] = [*message["headers"], *missing]
            await send(message)

        await self.app(scope, receive, send_with_headers)
