"""Routes of a sign-in by OpenID Connect."""

from __future__ import annotations

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.console.openid import OpenIdProvider
from forewarn.pipelines.console.page_views import Page
from forewarn.pipelines.console.signed_in import (
    PageRoute,
    console_of,
    own_path,
    person_page,
    set_cookie,
)
from forewarn.pipelines.serving.request_bodies import RefusedError

__all__ = ["BACK", "openid_router"]

BACK: Final = "/sign-in/openid/back"
"""Path to which the provider sends people back."""

_COOKIE: Final = "forewarn_sign_in"
_TEN_MINUTES: Final = 600
Text = Annotated[str, Query(max_length=4000)]
openid_router = APIRouter(route_class=PageRoute, include_in_schema=False)


def _provider(request: Request) -> OpenIdProvider:
    provider = console_of(request).openid
    if provider is None:
        raise RefusedError(404, "this console has no identity provider")
    return provider


@openid_router.get("/sign-in/openid")
async def begin(request: Request, to: Text = "/") -> Response:
    """Send a person to the provider."""
    site, provider = console_of(request), _provider(request)
    now = Nanoseconds(site.clock.now())
    site.sign_ins.spend(request.client.host if request.client else "", now)
    name, address = await provider.begin(own_path(to), now)
    response = RedirectResponse(address, 303)
    # Lax: the provider's redirect comes from another site. The session's cookie stays Strict.
    options = {"httponly": True, "secure": site.secure, "path": "/sign-in"}
    response.set_cookie(_COOKIE, name, max_age=_TEN_MINUTES, samesite="lax", **options)  # type: ignore[arg-type]
    return response


@openid_router.get(BACK)
async def finish(request: Request, state: Text = "", code: Text = "", error: Text = "") -> Response:
    """Start the session of a person whom the provider sends back."""
    site, provider = console_of(request), _provider(request)
    if error or not code:
        raise RefusedError(403, "the identity provider refused the sign-in")
    now = Nanoseconds(site.clock.now())
    name = request.cookies.get(_COOKIE, "")
    holder, target = await provider.finish(name, state, code, now)
    # A page of our own goes on: a redirect would count as coming from the provider's site.
    page = Page("again", "Signed in", target, {"target": target})
    response = person_page(request, page)
    set_cookie(response, site, site.sessions.start(holder, now))
    response.delete_cookie(_COOKIE, path="/sign-in")
    return response
