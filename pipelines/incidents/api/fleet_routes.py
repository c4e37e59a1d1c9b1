"""Read-only routes about lists, GPUs, jobs and the fleet."""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Path, Query, Request
from fastapi.responses import Response

from forewarn.pipelines.incidents.api.access_control import Role
from forewarn.pipelines.incidents.api.api_context import ApiContext, api_context
from forewarn.pipelines.incidents.api.api_models import ErrorAnswer
from forewarn.pipelines.incidents.api.fleet_machines import FleetAnswer
from forewarn.pipelines.incidents.api.gpu_details import GpuAnswer
from forewarn.pipelines.incidents.api.guarded_route import make_router, require_role, to_json
from forewarn.pipelines.incidents.api.input_types import Name
from forewarn.pipelines.incidents.api.job_details import JobAnswer, read_verdicts
from forewarn.pipelines.incidents.api.listed_gpus import ListAnswer
from forewarn.pipelines.incidents.api.read_routes import NOT_MODIFIED, json_response, shown_actions
from forewarn.pipelines.serving.request_bodies import RefusedError

__all__ = ["fleet_answer", "fleet_router", "gpu_answer", "job_answer", "list_answer"]

_PAGE_SIZE, _MAX_PAGE_SIZE = 100, 1000
_MACHINES, _MAX_MACHINES = 1000, 5000
_MAX_TEXT: Final = 600

Date = Annotated[
    str,
    Path(
        pattern=r"^(latest|[0-9]{4}-[0-9]{2}-[0-9]{2})$",
        description="Date of the list, or `latest`.",
        examples=["latest"],
    ),
]
Serial = Annotated[Name, Path(description="Serial of a GPU.", examples=["1654321000123"])]
Job = Annotated[Name, Path(alias="id", description="Name of a job.", examples=["4711"])]

_MISSING: dict[int | str, dict[str, Any]] = NOT_MODIFIED | {
    404: {"model": ErrorAnswer, "description": "There is nothing of this name."}
}
fleet_router = make_router("fleet")


def list_answer(
    context: ApiContext, date: str, *, after: int, limit: int, flagged: bool
) -> ListAnswer:
    """Return a page of a list.

    Raises
    ------
    RefusedError
        404 if there is no such list.
    """
    lists = context.lists
    daily = None if lists is None else lists.newest() if date == "latest" else lists.read(date)
    if daily is None:
        raise RefusedError(404, f"list {date}: does not exist")
    return ListAnswer.from_list(daily, after=after, limit=limit, flagged=flagged)


def gpu_answer(context: ApiContext, serial: str, *, incidents: bool = True) -> GpuAnswer:
    """Return what is known of a GPU, with its incidents or without.

    Raises
    ------
    RefusedError
        404 if no list of the last two weeks names it.
    """
    lists = context.lists
    ledger = context.ledger if incidents else None
    answer = None if lists is None else GpuAnswer.read(serial, lists, ledger)
    if answer is None:
        raise RefusedError(404, f"GPU {serial[:100]}: on no list of the last two weeks")
    return answer


def job_answer(context: ApiContext, job: str) -> JobAnswer:
    """Return what is known of a job.

    Raises
    ------
    RefusedError
        404 if no finding, verdict or recent action names it.
    """
    verdicts = read_verdicts(job, context.diagnoses)
    answer = JobAnswer.read(job, context.ledger, shown_actions(context), verdicts)
    if answer is None:
        raise RefusedError(404, f"job {job[:100]}: no finding, verdict or recent action names it")
    return answer


def fleet_answer(context: ApiContext, *, after: str, limit: int) -> FleetAnswer:
    """Return a page of the fleet.

    Raises
    ------
    RefusedError
        404 if the service has no folder of lists.
    """
    if context.lists is None:
        raise RefusedError(404, "this service has no folder of lists")
    return FleetAnswer.read(context.lists, context.ledger, after=after, limit=limit)


@fleet_router.get(
    "/lists/{date}",
    response_model=ListAnswer,
    responses=_MISSING,
    openapi_extra=require_role(Role.SEE),
)
async def show_list(
    request: Request,
    date: Date,
    after: Annotated[int, Query(ge=0, le=2**31 - 1, description="Only greater ranks.")] = 0,
    limit: Annotated[int, Query(ge=1, le=_MAX_PAGE_SIZE)] = _PAGE_SIZE,
    flagged: Annotated[bool, Query(description="Only flagged GPUs.")] = False,
) -> Response:
    """Return a daily list, highest risk first, in pages."""
    context = api_context(request)

    def page() -> bytes:
        return to_json(list_answer(context, date, after=after, limit=limit, flagged=flagged))

    return await json_response(request, page)


@fleet_router.get(
    "/gpus/{serial}",
    response_model=GpuAnswer,
    responses=_MISSING,
    openapi_extra=require_role(Role.SEE),
)
async def show_gpu(request: Request, serial: Serial) -> Response:
    """Return telemetry, events, earlier predictions, siblings and incidents of a GPU."""
    context = api_context(request)
    return await json_response(request, lambda: to_json(gpu_answer(context, serial)))


@fleet_router.get(
    "/jobs/{id}",
    response_model=JobAnswer,
    responses=_MISSING,
    openapi_extra=require_role(Role.SEE),
)
async def show_job(request: Request, job: Job) -> Response:
    """Return verdicts, incidents and actions of a job."""
    context = api_context(request)
    return await json_response(request, lambda: to_json(job_answer(context, job)))


@fleet_router.get(
    "/fleet", response_model=FleetAnswer, responses=_MISSING, openapi_extra=require_role(Role.SEE)
)
async def show_fleet(
    request: Request,
    after: Annotated[
        str, Query(max_length=_MAX_TEXT, description="`next` of the previous page.")
    ] = "",
    limit: Annotated[int, Query(ge=1, le=_MAX_MACHINES, description="Machines.")] = _MACHINES,
) -> Response:
    """Return the machines by rack, with what is known of them, and the quality of the data."""
    context = api_context(request)
    return await json_response(
        request, lambda: to_json(fleet_answer(context, after=after, limit=limit))
    )
