"""Events of repairs: what the ledger knows of each machine between drain and return."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_entries import CHECK_PASSED, ActionChange
from forewarn.pipelines.incidents.ledger.service_log import read_service
from forewarn.response.follow_up.return_to_service import is_external_drain, returned_to_service_at
from forewarn.response.follow_up.step_progress import StepEvent, parse_change
from forewarn.response.repair.repair_case import RepairCase, RepairEvent, RepairStage, repair_cases
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.incident import Incident
from forewarn.response.state.step import Step

__all__ = ["RECORDED_STAGES", "read_repair_cases", "record_stage"]

RECORDED_STAGES: Final = (
    RepairStage.EVIDENCE,
    RepairStage.TICKET,
    RepairStage.VENDOR,
    RepairStage.SWAPPED,
    RepairStage.ACCEPTED,
)
"""Stages that people or scripts record; the others follow from actions."""

_ACT: Final = "repair"
_PAGE: Final = 500  # incidents read at once
_MAX_NOTES: Final = 100_000
_TARGET: Final = re.compile(r"incident (\d{1,18})")
_RETURNED: Final = (ActionState.RELEASED, ActionState.OVERRIDDEN)


def record_stage(
    ledger: Ledger, number: int, stage: RepairStage, *, now: Nanoseconds, who: str, detail: str
) -> None:
    """Record that the case of an incident has reached a stage.

    Raises
    ------
    InputError
        If there is no such incident.
    """
    if ledger.incident(number) is None:
        raise InputError(f"there is no incident {number}, expected one of `forewarn incidents`.")
    text = f"{stage.value}: {detail}"
    ledger.note(now=now, who=who, act=_ACT, target=f"incident {number}", detail=text)


def read_repair_cases(
    ledger: Ledger, now: Nanoseconds, machine: str | None = None
) -> list[RepairCase]:
    """Return the repair cases, oldest first.

    Parameters
    ----------
    ledger : Ledger
    now : int
        Nanoseconds since 1970 UTC: until when machines were observed.
    machine : str, optional
        Only those of this machine.
    """
    incidents = {incident.id: incident for incident in _incidents(ledger, machine)}
    events = [
        event
        for incident in incidents.values()
        for event in _incident_events(ledger, incident, now)
    ]
    return repair_cases([*events, *_recorded(ledger, incidents)])


def _incidents(ledger: Ledger, machine: str | None) -> Iterator[Incident]:
    before: int | None = None
    while page := ledger.incidents(machine=machine, before=before, limit=_PAGE):
        yield from page
        before = page[-1].id


def _incident_events(ledger: Ledger, incident: Incident, now: Nanoseconds) -> Iterator[RepairEvent]:
    isolations = [a for a in incident.actions if a.step.isolates and a.started]
    for action in isolations:
        yield from _action_events(incident, action, ledger.action_states(action.id))
    drains = [finding for finding in incident.findings if is_external_drain(finding)]
    service = read_service(ledger, {drain.machine for drain in drains}, until=now)
    for drain in drains:
        event = RepairEvent(
            drain.at, drain.machine, RepairStage.DRAINED, incident.id, who="scheduler"
        )
        yield event
        ended = returned_to_service_at([drain], service[drain.machine])
        if ended is not None:
            yield RepairEvent(
                ended, drain.machine, RepairStage.RETURNED, incident.id, who="scheduler"
            )


def _action_events(
    incident: Incident, action: Action, changes: list[ActionChange]
) -> Iterator[RepairEvent]:
    findings = [f for f in incident.findings if f.machine == action.machine]
    slot = next((str(f.evidence["slot"]) for f in findings if "slot" in f.evidence), None)
    serial = action.gpu_serial or incident.gpu_serial

    def event(at: Nanoseconds, stage: RepairStage, who: str, detail: str) -> RepairEvent:
        fields = (action.machine, stage, incident.id, serial, slot)
        return RepairEvent(at, *fields, who=who, detail=detail)

    begun = min((finding.at for finding in findings), default=action.at)
    yield event(min(begun, action.at), RepairStage.DETECTED, "forewarn", action.cause)
    drained = False
    for change in changes:
        step = parse_change(change.detail, change.at, change.version)
        if change.state is ActionState.DRAINED and not drained:
            drained = True
            yield event(change.at, RepairStage.DRAINED, change.who, "")
        if change.detail.startswith(CHECK_PASSED):
            yield event(change.at, RepairStage.ACCEPTED, change.who, change.detail)
        if step is not None and (step.step, step.event) == (Step.REPLACE, StepEvent.SUCCEEDED):
            yield event(change.at, RepairStage.SWAPPED, change.who, step.detail)
        if change.state in _RETURNED:
            yield event(change.at, RepairStage.RETURNED, change.who, change.detail)


def _recorded(ledger: Ledger, incidents: dict[int, Incident]) -> Iterator[RepairEvent]:
    """Yield the stages that people or scripts recorded."""
    known = {stage.value: stage for stage in RECORDED_STAGES}
    for note in ledger.notes(_MAX_NOTES):
        target = _TARGET.fullmatch(note.target)
        name, _, detail = note.detail.partition(": ")
        if note.act != _ACT or target is None or name not in known:
            continue
        incident = incidents.get(int(target[1]))
        if incident is not None:
            yield RepairEvent(
                note.at,
                incident.machine,
                known[name],
                incident.id,
                incident.gpu_serial,
                who=note.who,
                detail=detail,
            )
