"""Read-only routes of the API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.responses import JSONResponse, Response

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.api.access_control import Role
from forewarn.pipelines.incidents.api.api_context import ApiContext, api_context
from forewarn.pipelines.incidents.api.api_models import (
    ActionPage,
    ErrorAnswer,
    IncidentDetail,
    IncidentPage,
    SwitchAnswer,
)
from forewarn.pipelines.incidents.api.guarded_route import make_router, require_role, to_json
from forewarn.pipelines.incidents.api.input_types import MachineName
from forewarn.pipelines.serving.entity_tags import entity_tag, matches_tag
from forewarn.pipelines.serving.request_bodies import RefusedError
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.incident import IncidentState

__all__ = ["MISSING", "NOT_MODIFIED", "Number", "json_response", "read_router", "shown_actions"]

_PAGE_SIZE, _MAX_PAGE_SIZE = 50, 500
_RECENT = Nanoseconds(8 * DAY)

Number = Annotated[
    int, Path(alias="id", ge=1, le=2**63 - 1, description="Number of an incident.", examples=[17])
]
Before = Annotated[
    int | None,
    Query(
        ge=1, le=2**63 - 1, description="Only smaller numbers; pass `next` of the previous page."
    ),
]
Limit = Annotated[int, Query(ge=1, le=_MAX_PAGE_SIZE, description="Maximum number of entries.")]
Machine = Annotated[MachineName | None, Query(description="Only this machine.")]

NOT_MODIFIED: dict[int | str, dict[str, Any]] = {
    304: {"description": "Equal to the answer that `If-None-Match` names."}
}
MISSING: dict[int | str, dict[str, Any]] = {
    404: {"model": ErrorAnswer, "description": "The incident does not exist."}
}
COMPUTING: dict[int | str, dict[str, Any]] = {
    202: {"model": ErrorAnswer, "description": "The first one is being computed. Request it again."}
}
_RETRY = {"Retry-After": "2"}
read_router = make_router("reading")


async def json_response(request: Request, work: Callable[[], bytes]) -> Response:
    """Return JSON computed in a thread, shared by concurrent requests of the same URL.

    Its `ETag` names its content, so that a client that polls receives 304 while nothing changes.
    """
    question = (request.scope["path"], request.scope["query_string"])
    body = await api_context(request).read(question, work)
    tag = entity_tag(body)
    if matches_tag(request, tag):
        return Response(status_code=304, headers={"ETag": tag})
    return Response(body, media_type="application/json", headers={"ETag": tag})


@read_router.get(
    "/incidents",
    response_model=IncidentPage,
    responses=NOT_MODIFIED,
    openapi_extra=require_role(Role.SEE),
)
async def list_incidents(
    request: Request,
    state: Annotated[IncidentState | None, Query(description="Only this state.")] = None,
    machine: Machine = None,
    before: Before = None,
    limit: Limit = _PAGE_SIZE,
) -> Response:
    """List incidents, newest first, in pages."""
    context = api_context(request)

    def page() -> bytes:
        incidents = context.ledger.incidents(
            state=state, machine=machine, before=before, limit=limit
        )
        return to_json(IncidentPage.from_incidents(incidents, limit))

    return await json_response(request, page)


@read_router.get(
    "/incidents/{id}",
    response_model=IncidentDetail,
    responses=NOT_MODIFIED | MISSING,
    openapi_extra=require_role(Role.SEE),
)
async def show_incident(request: Request, number: Number) -> Response:
    """Return an incident with the evidence of its findings, all decisions and all actions."""
    context = api_context(request)

    def detail() -> bytes:
        incident = context.ledger.incident(number)
        if incident is None:
            raise RefusedError(404, f"incident {number}: does not exist")
        return to_json(IncidentDetail.from_incident(incident, context.ledger))

    return await json_response(request, detail)


@read_router.get(
    "/actions",
    response_model=ActionPage,
    responses=NOT_MODIFIED,
    openapi_extra=require_role(Role.SEE),
)
async def list_actions(
    request: Request,
    state: Annotated[ActionState | None, Query(description="Only this state.")] = None,
    machine: Machine = None,
    before: Before = None,
    limit: Limit = _PAGE_SIZE,
) -> Response:
    """List open actions and those that changed within 8 days, newest first."""
    context = api_context(request)

    def shown(action: Action) -> bool:
        return (
            (state is None or action.state is state)
            and (machine is None or action.machine == machine)
            and (before is None or action.id < before)
        )

    def page() -> bytes:
        actions = [action for action in shown_actions(context) if shown(action)]
        return to_json(ActionPage.from_actions(actions[:limit], limit))

    return await json_response(request, page)


def shown_actions(context: ApiContext) -> list[Action]:
    """Return open and recent actions, newest first."""
    recent = context.ledger.recent_actions(Nanoseconds(context.now() - _RECENT))
    actions = {action.id: action for action in [*context.ledger.open_actions(), *recent]}
    return [actions[number] for number in sorted(actions, reverse=True)]


@read_router.get(
    "/score",
    response_model=dict[str, Any],
    responses=NOT_MODIFIED | COMPUTING,
    openapi_extra=require_role(Role.SEE),
)
async def show_score(request: Request) -> Response:
    """Return the score of the predictions and what acting on them saved, as of its `until`."""
    score = await api_context(request).read_score()
    if score is None:
        return JSONResponse({"error": "the score is being computed"}, 202, _RETRY)
    return await json_response(request, lambda: json.dumps(score, allow_nan=False).encode())


@read_router.get(
    "/switch",
    response_model=SwitchAnswer,
    responses=NOT_MODIFIED,
    openapi_extra=require_role(Role.SEE),
)
async def show_switch(request: Request) -> Response:
    """Return the state of the kill switch."""
    context = api_context(request)
    return await json_response(
        request, lambda: to_json(SwitchAnswer.from_switch(context.switch.off()))
    )
