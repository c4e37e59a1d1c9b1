"""What can be reported and asked for over the API; the loop carries it out."""

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
    409: {"model": ErrorAnswer, "description": "It cannot be done as things are now."}
}
_CHANGES: dict[int | str, dict[str, Any]] = MISSING | _CONFLICTS
acting = make_router("acting")


class _ActionRequest(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    why: Reason = ""


class ApproveRequest(_ActionRequest):
    """Approve what is proposed."""

    decision_at: Annotated[
        Moment | None,
        Field(description="`at` of the decision that was looked at; without it, the last one."),
    ] = None


class UndoRequest(_ActionRequest):
    """Take back what was done."""


class AckRequest(_ActionRequest):
    """Say that an incident is yours."""


class OutcomeRequest(_ActionRequest):
    """Say what came of an incident."""

    outcome: Outcome
    failed_at: Annotated[Moment | None, Field(description="Of a confirmed failure.")] = None


class DrainRequest(_ActionRequest):
    """Ask for a machine to be drained."""

    mode: Annotated[
        DrainMode,
        Field(
            description="`finish`: jobs run out; `deadline`: for a day; `now`: requeued at once."
        ),
    ] = DrainMode.FINISH


class SwitchRequest(_ActionRequest):
    """Stop forewarn from taking machines out of service, or let it do so again."""

    acting: Annotated[bool, Field(strict=True, description="False stops it.", examples=[False])]


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
        Body(max_length=MAX_FINDINGS, description="All of them are taken, or none."),
    ],
) -> ReportAnswer:
    """Report findings.

    One that is known by `source`, `machine` and `id` is counted, and the latest `severity` counts.
    With another `kind` or `gpu_serial` it is refused (409). What is said again after
    `valid_until`, or after the end of its incident, is another finding.

    Whether anything is done about it is said by the policy and the limits. A token without hosts
    of its own is one that any host may have: what only it says leads at most to `avoid`.
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

        taken = context.ledger.record_findings(reported, now=now, who=name, refuse=refuse)
        if taken.new:  # repeats are counted, a million of them must not be a million notes
            sources = ", ".join(sorted({finding.source for finding in findings})[:5])
            detail = f"{taken.new} new, {taken.repeated} repeated"
            context.ledger.note(now=now, who=name, act="report", target=sources, detail=detail)
        return taken

    taken = await context.write(record)
    context.metrics.count_findings(taken)
    return ReportAnswer(new=taken.new, repeated=taken.repeated)


async def _perform(
    request: Request, number: int, why: str, act: Callable[[Operator], bool]
) -> ManualActionAnswer:
    """Let a person do something about an incident."""
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
    request: Request, number: Number, wish: ApproveRequest = _APPROVE
) -> ManualActionAnswer:
    """Approve what is proposed, while it is valid. The loop does it, within the limits."""
    return await _perform(request, number, wish.why, lambda p: p.approve(number, wish.decision_at))


@acting.post(
    "/incidents/{id}/ack",
    response_model=ManualActionAnswer,
    responses=MISSING,
    openapi_extra=require_role(Role.APPROVE),
)
async def acknowledge(
    request: Request, number: Number, wish: AckRequest = _ACK
) -> ManualActionAnswer:
    """Say that an incident is yours. It changes nothing else."""
    return await _perform(request, number, wish.why, lambda person: person.acknowledge(number))


@acting.post(
    "/incidents/{id}/undo",
    response_model=ManualActionAnswer,
    responses=_CHANGES,
    openapi_extra=require_role(Role.ACT),
)
async def undo(request: Request, number: Number, wish: UndoRequest = _UNDO) -> ManualActionAnswer:
    """Take back all that forewarn did about an incident.

    Its cause then does not act on this machine for a week, unless it becomes graver.
    """
    return await _perform(request, number, wish.why, lambda person: person.undo(number))


@acting.post(
    "/incidents/{id}/outcome",
    response_model=ManualActionAnswer,
    responses=_CHANGES,
    openapi_extra=require_role(Role.ACT),
)
async def record_outcome(
    request: Request, number: Number, wish: OutcomeRequest
) -> ManualActionAnswer:
    """Say what came of an incident. A confirmed one is a failure to learn from."""
    return await _perform(
        request,
        number,
        wish.why,
        lambda person: person.record_outcome(number, wish.outcome, wish.failed_at),
    )


@acting.post(
    "/machines/{name}/drain",
    response_model=ManualActionAnswer,
    responses=_CONFLICTS,
    openapi_extra=require_role(Role.ACT),
)
async def drain(
    request: Request, name: Annotated[MachineName, Path()], wish: DrainRequest = _DRAIN
) -> ManualActionAnswer:
    """Ask for a machine to be drained. The limits of its pool hold for people, too."""
    context = api_context(request)
    number, new = await context.write(
        lambda: context.person(request, wish.why).drain(name, wish.mode)
    )
    return ManualActionAnswer(incident=number, changed=new)


@acting.post("/switch", response_model=SwitchAnswer, openapi_extra=require_role(Role.APPROVE))
async def switch(request: Request, wish: SwitchRequest) -> SwitchAnswer:
    """Stop forewarn from taking machines out of service, or let it act again.

    Whoever may `approve` may stop it, also while the ledger is away. Only an `admin` may let it act
    again. Releases and findings go on.
    """
    context, holder = api_context(request), request_holder(request)
    if wish.acting and not holder.role.includes(Role.ADMIN):
        raise RefusedError(403, f"a token for `{holder.role}`, expected one for `admin`")

    def turn() -> SwitchAnswer:
        now, who = context.now(), holder.name
        if wish.acting:
            context.switch.lift(now=now, who=who, why=wish.why)
        else:
            context.switch.stop(now=now, who=who, why=wish.why)
        return SwitchAnswer.from_switch(context.switch.off())

    return await context.write(turn)
