"""What can be read over the API."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Path, Query, Request
from fastapi.responses import Response

from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.api.access import Role
from forewarn.pipelines.incidents.api.answers import (
    ActionPage,
    ErrorAnswer,
    IncidentPage,
    IncidentStory,
    SwitchAnswer,
)
from forewarn.pipelines.incidents.api.desk import Desk, desk_of
from forewarn.pipelines.incidents.api.names import MachineName
from forewarn.pipelines.incidents.api.route import json_answer, needs, router
from forewarn.pipelines.serving.requests import RefusedError
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.incident import IncidentState

__all__ = ["MISSING", "Number", "reading"]

_PAGE, _LONGEST_PAGE = 50, 500
_RECENT = Nanoseconds(8 * DAY)

Number = Annotated[
    int, Path(alias="id", ge=1, le=2**63 - 1, description="Of an incident.", examples=[17])
]
Before = Annotated[
    int | None,
    Query(ge=1, le=2**63 - 1, description="Only smaller numbers: `next` of the page before."),
]
Limit = Annotated[int, Query(ge=1, le=_LONGEST_PAGE, description="At most so many.")]
Machine = Annotated[MachineName | None, Query(description="Only of this machine.")]

MISSING: dict[int | str, dict[str, Any]] = {
    404: {"model": ErrorAnswer, "description": "There is no such incident."}
}
reading = router("reading")


async def _json(request: Request, work: Callable[[], bytes]) -> Response:
    """Answer with what a thread works out; the same address at the same time has one answer."""
    question = (request.scope["path"], request.scope["query_string"])
    body = await desk_of(request).read(question, work)
    return Response(body, media_type="application/json")


@reading.get("/incidents", response_model=IncidentPage, openapi_extra=needs(Role.SEE))
async def list_incidents(
    request: Request,
    state: Annotated[IncidentState | None, Query(description="Only these.")] = None,
    machine: Machine = None,
    before: Before = None,
    limit: Limit = _PAGE,
) -> Response:
    """Incidents, newest first, a page at a time."""
    desk = desk_of(request)

    def page() -> bytes:
        incidents = desk.ledger.incidents(state=state, machine=machine, before=before, limit=limit)
        return json_answer(IncidentPage.of(incidents, limit))

    return await _json(request, page)


@reading.get(
    "/incidents/{id}",
    response_model=IncidentStory,
    responses=MISSING,
    openapi_extra=needs(Role.SEE),
)
async def show_incident(request: Request, number: Number) -> Response:
    """One incident: its findings with their evidence, all decisions, and what was done."""
    desk = desk_of(request)

    def story() -> bytes:
        incident = desk.ledger.incident(number)
        if incident is None:
            raise RefusedError(404, f"incident {number}: there is none")
        return json_answer(IncidentStory.of(incident, desk.ledger))

    return await _json(request, story)


@reading.get("/actions", response_model=ActionPage, openapi_extra=needs(Role.SEE))
async def list_actions(
    request: Request,
    state: Annotated[ActionState | None, Query(description="Only these.")] = None,
    machine: Machine = None,
    before: Before = None,
    limit: Limit = _PAGE,
) -> Response:
    """Actions that have not ended, and those that changed within 8 days; newest first."""
    desk = desk_of(request)

    def shown(action: Action) -> bool:
        return (
            (state is None or action.state is state)
            and (machine is None or action.machine == machine)
            and (before is None or action.id < before)
        )

    def page() -> bytes:
        actions = [action for action in _actions(desk) if shown(action)]
        return json_answer(ActionPage.of(actions[:limit], limit))

    return await _json(request, page)


def _actions(desk: Desk) -> list[Action]:
    """Return open and recent actions, newest first."""
    recent = desk.ledger.recent_actions(Nanoseconds(desk.now() - _RECENT))
    actions = {action.id: action for action in [*desk.ledger.open_actions(), *recent]}
    return [actions[number] for number in sorted(actions, reverse=True)]


@reading.get("/score", response_model=dict[str, Any], openapi_extra=needs(Role.SEE))
async def show_score(request: Request) -> Response:
    """How good the predictions were, and what acting on them has saved."""
    desk = desk_of(request)
    return await _json(request, lambda: json.dumps(desk.score(), allow_nan=False).encode())


@reading.get("/switch", response_model=SwitchAnswer, openapi_extra=needs(Role.SEE))
async def show_switch(request: Request) -> Response:
    """Whether forewarn may take machines out of service at all."""
    desk = desk_of(request)
    return await _json(request, lambda: json_answer(SwitchAnswer.of(desk.switch.off())))
