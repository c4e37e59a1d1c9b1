"""Routes that accept findings and manual actions; the loop carries the actions out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Body, Path, Request
from pydantic import BaseModel, ConfigDict, Field

from forewarn.pipelines.incidents.api.access_control import Role
from forewarn.pipelines.incidents.api.api_context import api_context, request_holder
from forewarn.pipelines.incidents.api.api_models import (
    ErrorAnswer,
    ManualActionAnswer,
    ReportAnswer,
    SwitchAnswer,
)
from forewarn.pipelines.incidents.api.guarded_route import make_router, require_role
from forewarn.pipelines.incidents.api.input_types import MachineName, Moment, Reason
from forewarn.pipelines.incidents.api.manual_actions import Operator
from forewarn.pipelines.incidents.api.posted_findings import (
    MAX_FINDINGS,
    PostedFinding,
    PostedFindingError,
    accept_findings,
)
from forewarn.pipelines.incidents.api.read_routes import MISSING, Number
from forewarn.pipelines.incidents.ledger.finding_rows import FindingConflictError, FindingError
from forewarn.pipelines.incidents.ledger.ledger_entries import RecordedCounts
from forewarn.pipelines.serving.request_bodies import RefusedError
from forewarn.response.state.incident import Outcome
from forewarn.response.state.step import DrainMode

__all__ = ["acting"]

_CONFLICTS: dict[int | str, dict[str, Any]] = {
    409: {"model": ErrorAnswer, "description": "The action conflicts with the current state."}
}
_CHANGES: dict[int | str, dict[str, Any]] = MISSING | _CONFLICTS
acting = make_router("acting")


class _ActionRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    why: Reason = ""


class ApproveRequest(_ActionRequest):
    """Approve a proposed step."""

    decision_at: Annotated[
        Moment | None,
        Field(description="`at` of the decision to approve; default: the last one."),
    ] = None


class UndoRequest(_ActionRequest):
    """Undo the actions of an incident."""


class AckRequest(_ActionRequest):
    """Acknowledge an incident."""


class OutcomeRequest(_ActionRequest):
    """Record the outcome of an incident."""

    outcome: Outcome
    failed_at: Annotated[Moment | None, Field(description="Time of a confirmed failure.")] = None


class DrainRequest(_ActionRequest):
    """Request the drain of a machine."""

    mode: Annotated[
        DrainMode,
        Field(
            description="`finish`: jobs may end; `deadline`: within a day; `now`: requeue at once."
        ),
    ] = DrainMode.FINISH


class SwitchRequest(_ActionRequest):
    """Stop or resume all actions of forewarn."""

    acting: Annotated[
        bool, Field(strict=True, description="False stops all actions.", examples=[False])
    ]


_APPROVE, _UNDO, _ACK, _DRAIN = ApproveRequest(), UndoRequest(), AckRequest(), DrainRequest()


@acting.post(
    "/findings",
    response_model=ReportAnswer,
    responses=_CONFLICTS,
    openapi_extra=require_role(Role.REPORT),
)
async def report_findings(
    request: Request,
    findings: Annotated[
        list[PostedFinding],
        Body(max_length=MAX_FINDINGS, description="All are recorded, or none."),
    ],
) -> ReportAnswer:
    """Report findings.

    A known finding (same `source`, `machine` and `id`) is counted, and its `severity` is updated.
    With another `kind` or `gpu_serial` it is refused (409). After `valid_until`, or after its
    incident has ended, the same finding is recorded as a new one.

    The policy and the limits decide whether forewarn acts. Findings that only a token without a
    host list reports lead at most to `avoid`, because any host may use such a token.
    """
    context, holder = api_context(request), request_holder(request)
    name = holder.name

    def record() -> RecordedCounts:
        now = context.now()
        reported = accept_findings(findings, holder, now)

        def refuse(error: FindingError) -> None:
            index = next(row for row, item in enumerate(reported) if item is error.finding)
            status = 409 if isinstance(error, FindingConflictError) else 422
            raise PostedFindingError(index, error.field, error.why, status)

        counts = context.ledger.record_findings(reported, now=now, who=name, refuse=refuse)
        if counts.new:  # repeats are not noted: a million repeats would be a million notes
            sources = ", ".join(sorted({finding.source for finding in findings})[:5])
            detail = f"{counts.new} new, {counts.repeated} repeated"
            context.ledger.note(now=now, who=name, act="report", target=sources, detail=detail)
        return counts

    counts = await context.write(record)
    context.metrics.count_findings(counts)
    return ReportAnswer(new=counts.new, repeated=counts.repeated)


async def _perform(
    request: Request, number: int, why: str, act: Callable[[Operator], bool]
) -> ManualActionAnswer:
    """Run a manual action on an incident and return whether it changed anything."""
    context = api_context(request)
    changed = await context.write(lambda: act(context.person(request, why)))
    return ManualActionAnswer(incident=number, changed=changed)


@acting.post(
    "/incidents/{id}/approve",
    response_model=ManualActionAnswer,
    responses=_CHANGES,
    openapi_extra=require_role(Role.APPROVE),
)
async def approve(
    request: Request, number: Number, body: ApproveRequest = _APPROVE
) -> ManualActionAnswer:
    """Approve the proposed step while it is valid. The loop takes it, within the limits."""
    return await _perform(
        request, number, body.why, lambda person: person.approve(number, body.decision_at)
    )


@acting.post(
    "/incidents/{id}/ack",
    response_model=ManualActionAnswer,
    responses=MISSING,
    openapi_extra=require_role(Role.APPROVE),
)
async def acknowledge(
    request: Request, number: Number, body: AckRequest = _ACK
) -> ManualActionAnswer:
    """Acknowledge an incident. Nothing else changes."""
    return await _perform(request, number, body.why, lambda person: person.acknowledge(number))


@acting.post(
    "/incidents/{id}/undo",
    response_model=ManualActionAnswer,
    responses=_CHANGES,
    openapi_extra=require_role(Role.ACT),
)
async def undo(request: Request, number: Number, body: UndoRequest = _UNDO) -> ManualActionAnswer:
    """Undo all actions of an incident.

    For a week its cause does not lead to actions on this machine, unless the severity rises.
    """
    return await _perform(request, number, body.why, lambda person: person.undo(number))


@acting.post(
    "/incidents/{id}/outcome",
    response_model=ManualActionAnswer,
    responses=_CHANGES,
    openapi_extra=require_role(Role.ACT),
)
async def record_outcome(
    request: Request, number: Number, body: OutcomeRequest
) -> ManualActionAnswer:
    """Record the outcome of an incident. `confirmed` makes it a failure in the training labels."""
    return await _perform(
        request,
        number,
        body.why,
        lambda person: person.record_outcome(number, body.outcome, body.failed_at),
    )


@acting.post(
    "/machines/{name}/drain",
    response_model=ManualActionAnswer,
    responses=_CONFLICTS,
    openapi_extra=require_role(Role.ACT),
)
async def drain(
    request: Request, name: Annotated[MachineName, Path()], body: DrainRequest = _DRAIN
) -> ManualActionAnswer:
    """Request the drain of a machine. The limits of its pool apply to manual drains as well."""
    context = api_context(request)
    number, new = await context.write(
        lambda: context.person(request, body.why).drain(name, body.mode)
    )
    return ManualActionAnswer(incident=number, changed=new)


@acting.post("/switch", response_model=SwitchAnswer, openapi_extra=require_role(Role.APPROVE))
async def switch(request: Request, body: SwitchRequest) -> SwitchAnswer:
    """Stop all actions of forewarn, or let it act again.

    Stopping needs `approve` and works while the ledger is unavailable. Resuming needs `admin`.
    Findings are still recorded and actions still released while stopped.
    """
    context, holder = api_context(request), request_holder(request)
    if body.acting and not holder.role.includes(Role.ADMIN):
        raise RefusedError(403, f"the token has the role `{holder.role}`, expected `admin`")

    def turn() -> SwitchAnswer:
        now, who = context.now(), holder.name
        if body.acting:
            context.switch.lift(now=now, who=who, why=body.why)
        else:
            context.switch.stop(now=now, who=who, why=body.why)
        return SwitchAnswer.from_switch(context.switch.off())

    return await context.write(turn)
