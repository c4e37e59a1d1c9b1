"""Who sends a request of a browser, and pages that are made for one person."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import wraps
from typing import Any, Final
from urllib.parse import parse_qsl, quote

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.console.console_site import ConsoleSite
from forewarn.pipelines.console.page_views import Page, PageViews
from forewarn.pipelines.console.sessions import SESSION_LIFETIME, Session
from forewarn.pipelines.incidents.api.access_control import Role, TokenHolder
from forewarn.pipelines.incidents.api.manual_actions import ManualActionError
from forewarn.pipelines.incidents.ledger.database import LedgerError
from forewarn.pipelines.serving.request_bodies import RefusedError

__all__ = [
    "COOKIE",
    "PageRoute",
    "console_of",
    "form_values",
    "own_path",
    "person_page",
    "read_session",
    "require_session",
    "set_cookie",
    "signed_in",
    "visitor",
]

COOKIE: Final = "forewarn_session"
"""Cookie with the name of a session."""

_MAX_FORM_BYTES: Final = 8 << 10
_NO_STORE: Final = {"Cache-Control": "no-store"}
Headers = dict[str, str]
_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)


class PageRoute(APIRoute):
    """Route whose errors are pages, and whose answers carry the policy of the console."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the request handler."""
        answer = super().get_route_handler()

        async def handle(request: Request) -> Response:
            try:
                response = await answer(request)
            except Exception as error:
                response = _error_page(request, error)
            response.headers["Content-Security-Policy"] = _POLICY
            return response

        return handle


def console_of(request: Request) -> ConsoleSite:
    """Return the console that serves a request."""
    site: ConsoleSite = request.app.state.console
    return site


def read_session(request: Request) -> Session | None:
    """Return the session of a request; None without one."""
    site = console_of(request)
    return site.sessions.find(request.cookies.get(COOKIE, ""), _now(site))


def require_session(request: Request, needed: Role) -> Session:
    """Return the session of a request, and count the request.

    Raises
    ------
    RefusedError
        401 without a session, 403 if its role is insufficient, 429 if it sends too many requests.
    """
    site, session = console_of(request), read_session(request)
    if session is None:
        raise RefusedError(401, "sign in first")
    site.reads.spend(request.cookies[COOKIE], _now(site))
    role = session.holder.role
    if not role.includes(needed):
        raise RefusedError(403, f"your role is `{role}`, expected `{needed}`")
    return session


def visitor(request: Request) -> TokenHolder | None:
    """Return the person who opens an answer of the API in the browser of a session."""
    return require_session(request, Role.SEE).holder if read_session(request) else None


def signed_in(
    show: Callable[..., Awaitable[Response]],
) -> Callable[..., Awaitable[Response]]:
    """Return a handler that sends people without a session to the sign-in page."""

    @wraps(show)
    async def guarded(request: Request, *args: Any, **options: Any) -> Response:
        if read_session(request) is None:
            return _ask_to_sign_in(request)
        require_session(request, Role.SEE)
        return await show(request, *args, **options)

    return guarded


def _ask_to_sign_in(request: Request) -> Response:
    """Return a redirect to the sign-in page.

    A browser sends no Strict cookie when a link of another site is followed, such as one in a
    ticket. So such a request is repeated once by a page of our own, which is the same site.
    """
    path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    if request.headers.get("sec-fetch-site") == "cross-site":
        views = PageViews(console_of(request))
        page = Page("again", "Opening", path, {"target": path})
        return HTMLResponse(views.render(page), headers=_NO_STORE)
    return RedirectResponse(f"/sign-in?to={quote(path, safe='')}", 303, headers=_NO_STORE)


def set_cookie(response: Response, site: ConsoleSite, name: str) -> None:
    """Set the cookie of a session, or delete it if the name is empty."""
    response.set_cookie(
        COOKIE,
        name,
        max_age=SESSION_LIFETIME // 1_000_000_000 if name else 0,
        httponly=True,
        samesite="strict",
        secure=site.secure,
    )


async def form_values(request: Request) -> Mapping[str, str]:
    """Return the fields of a posted form.

    Raises
    ------
    RefusedError
        403 if another site sent it, 413 or 415 if it is no small form.
    """
    if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
        raise RefusedError(403, "this form was sent by another site")
    kind = request.headers.get("content-type", "").split(";")[0].strip().lower()
    if kind != "application/x-www-form-urlencoded":
        raise RefusedError(415, "expected a form")
    async with console_of(request).context.bodies.read(request) as body:
        if len(body) > _MAX_FORM_BYTES:
            raise RefusedError(413, f"a form of {len(body)} bytes, expected {_MAX_FORM_BYTES}")
        text = body.decode(errors="replace")
    try:
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=20))
    except ValueError:
        raise RefusedError(400, "not a form") from None


def own_path(target: str) -> str:
    """Return a path of this site; anything else leads to the first page.

    Examples
    --------
    >>> own_path("/incident/3?x=1"), own_path("//evil.example"), own_path("https://e.example")
    ('/incident/3?x=1', '/', '/')
    """
    is_own = target.startswith("/") and not target.startswith(("//", "/\\"))
    return target if is_own and target.isascii() and target.isprintable() else "/"


def person_page(request: Request, page: Page, status: int = 200, **more: Any) -> Response:
    """Return a page that is made for one person, and stored nowhere."""
    text = PageViews(console_of(request)).render(page, **more)
    return HTMLResponse(text.encode(errors="replace"), status, headers=_NO_STORE)


def _now(site: ConsoleSite) -> Nanoseconds:
    return Nanoseconds(site.clock.now())


def _error_page(request: Request, error: Exception) -> Response:
    """Return the page of an error; unknown errors are raised."""
    if isinstance(error, RefusedError):
        status, text = error.status, str(error)
    elif isinstance(error, LedgerError):
        status, text = 503, "the ledger does not answer, try again later"
    elif isinstance(error, InputError):
        is_missing = isinstance(error, ManualActionError) and error.missing
        status, text = (404 if is_missing else 409), str(error)
    elif isinstance(error, RequestValidationError):
        status, text = 422, "this address is not valid"
    elif isinstance(error, HTTPException):
        status, text = error.status_code, str(error.detail)
    else:
        raise error
    console_of(request).context.metrics.refuse(status)
    if status == 401:
        return RedirectResponse("/sign-in", 303, headers=_NO_STORE)
    values = {"texts": [text], "forms": (), "links": [("/", "Today")]}
    page = Page("form", f"Not possible ({status})", "/health", values)
    response = person_page(request, page, status, navigation=read_session(request) is not None)
    if status == 429:
        response.headers["Retry-After"] = "60"
    return response
