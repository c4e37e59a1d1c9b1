"""Routes of the pages that everyone who is signed in sees alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Final

from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import RedirectResponse, Response

from forewarn.pipelines.console.page_cache import RenderedPage, page_response
from forewarn.pipelines.console.page_search import search
from forewarn.pipelines.console.page_views import Page, PageViews
from forewarn.pipelines.console.page_words import state_of
from forewarn.pipelines.console.signed_in import PageRoute, console_of, person_page, signed_in
from forewarn.response.state.incident import IncidentState

__all__ = ["page_router"]

page_router = APIRouter(route_class=PageRoute, include_in_schema=False)

_MAX_NAME: Final = 600
_MEANINGS: Final = {
    "stale": "no recent record: the agent, the machine or the GPU is not reporting",
    "gap": "records are missing inside the last window",
    "too new": "not enough records yet",
    "failed": "known to have failed and not repaired yet",
}
Rank = Annotated[int, Query(ge=0, le=2**31 - 1)]
Text = Annotated[str, Query(max_length=_MAX_NAME)]
Name = Annotated[str, Path(max_length=_MAX_NAME)]
Date = Annotated[str, Path(pattern=r"^(latest|[0-9]{4}-[0-9]{2}-[0-9]{2})$")]


async def _shared_page(request: Request, work: Callable[[PageViews], Page]) -> Response:
    """Return a page that is equal for all people, rendered in a thread and shared."""
    site = console_of(request)
    path, query = request.scope["path"], request.scope["query_string"].decode("latin-1")
    key, views, address = (path, query), PageViews(site), _address(request)

    def render() -> RenderedPage:
        more = {"address": address, "forms": None, "look": state_of, "meanings": _MEANINGS}
        return RenderedPage.render(lambda: views.render(work(views), **more))

    page = await site.pages.read(key, lambda: site.context.read(("page", *key), render))
    if page is None:
        return _making_page(request)
    return page_response(request, page)


def _address(request: Request) -> str:
    path, query = request.scope["path"], request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def _making_page(request: Request) -> Response:
    """Say that a page is being computed; it is requested again soon."""
    making = Page("making", "One moment", "/openapi.json", {})
    return person_page(request, making, address=_address(request))


@page_router.get("/")
@signed_in
async def today(request: Request) -> Response:
    """Show what is on fire, what waits for a person, and what was done."""
    return await _shared_page(request, PageViews.today)


@page_router.get("/out")
@signed_in
async def out_of_service(request: Request) -> Response:
    """Show the machines that forewarn has taken out of service."""
    return await _shared_page(request, PageViews.out_of_service)


@page_router.get("/list/{date}")
@signed_in
async def at_risk(request: Request, date: Date, after: Rank = 0, flagged: bool = False) -> Response:
    """Show a daily list."""
    return await _shared_page(
        request, lambda views: views.at_risk(date, after=after, flagged=flagged)
    )


@page_router.get("/gpu/{name:path}")
@signed_in
async def gpu(request: Request, name: Name) -> Response:
    """Show a GPU."""
    return await _shared_page(request, lambda views: views.gpu(name))


@page_router.get("/machine/{name:path}")
@signed_in
async def machine(request: Request, name: Name) -> Response:
    """Show a machine."""
    return await _shared_page(request, lambda views: views.machine(name))


@page_router.get("/job/{name:path}")
@signed_in
async def job(request: Request, name: Name) -> Response:
    """Show a job."""
    return await _shared_page(request, lambda views: views.job(name))


@page_router.get("/incidents")
@signed_in
async def incidents(
    request: Request,
    state: IncidentState | None = None,
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
) -> Response:
    """Show incidents."""
    return await _shared_page(request, lambda views: views.incidents(state, before))


@page_router.get("/incident/{number}/live")
@signed_in
async def incident_story(
    request: Request, number: Annotated[int, Path(ge=1, le=2**63 - 1)]
) -> Response:
    """Show an incident without forms."""
    return await _shared_page(request, lambda views: views.incident(number))


@page_router.get("/score")
@signed_in
async def score(request: Request) -> Response:
    """Show the score."""
    known = await console_of(request).context.read_score()
    if known is None:
        return _making_page(request)
    return await _shared_page(request, lambda views: views.score(known))


@page_router.get("/fleet")
@signed_in
async def fleet(request: Request, after: Text = "") -> Response:
    """Show the racks."""
    return await _shared_page(request, lambda views: views.fleet(after))


@page_router.get("/models")
@signed_in
async def models(request: Request) -> Response:
    """Show the models."""
    return await _shared_page(request, PageViews.models)


@page_router.get("/search")
@signed_in
async def find(request: Request, q: Text = "") -> Response:
    """Go to the only match of a search, or show the matches."""
    context = console_of(request).context
    target = await context.read(("search", q), lambda: search(context, q))
    if isinstance(target, str):
        return RedirectResponse(target, 303)
    return await _shared_page(request, lambda _: target)
