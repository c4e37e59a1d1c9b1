"""Adds the console to the application of the API."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final

from fastapi import FastAPI
from starlette.requests import Request
from starlette.responses import Response

from forewarn.pipelines.console.act_routes import act_router
from forewarn.pipelines.console.console_site import ConsoleSite
from forewarn.pipelines.console.openid_routes import openid_router
from forewarn.pipelines.console.page_routes import page_router
from forewarn.pipelines.console.signed_in import visitor
from forewarn.pipelines.incidents.api.app import make_app
from forewarn.pipelines.serving.request_bodies import RefusedError

__all__ = ["make_console"]

_TYPES: Final = {
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
_CACHED: Final = {"Cache-Control": "public, max-age=3600"}


def _static_files() -> Mapping[str, bytes]:
    """Return all files that pages load, by name: the names in a request are never joined."""
    package = files("forewarn.pipelines")
    style = package / "rendering" / "page_style.css"
    own = (package / "console" / "static").iterdir()
    return {file.name: file.read_bytes() for file in (style, *own)}


def make_console(site: ConsoleSite) -> FastAPI:
    """Return the API with the console's pages, as an ASGI application."""
    app = make_app(site.context)
    app.state.console, site.context.visitor = site, visitor
    app.include_router(page_router)
    app.include_router(act_router)
    app.include_router(openid_router)
    static = _static_files()

    async def show_file(request: Request) -> Response:
        name = str(request.path_params["name"])
        kind = _TYPES.get(name[name.rfind(".") :])
        if name not in static or kind is None:
            raise RefusedError(404, "there is no such file")
        return Response(static[name], headers=_CACHED | {"Content-Type": kind})

    app.add_api_route("/static/{name}", show_file, include_in_schema=False)
    return app
