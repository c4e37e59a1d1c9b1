"""What is shown of incidents, as JSON: over the API and by the command line alike."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema

from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.pipelines.incidents.ledger.ledger_entries import ActionChange, SwitchChange
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.decision.situation import Approval
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Ruling
from forewarn.response.state.finding import FindingKey, FindingKind, Provenance, Severity
from forewarn.response.state.incident import Incident, IncidentState, Outcome
from forewarn.response.state.step import DrainMode, Step

__all__ = [
    "ActionAnswer",
    "ActionDetail",
    "ActionPage",
    "ErrorAnswer",
    "IncidentAnswer",
    "IncidentDetail",
    "IncidentPage",
    "ManualActionAnswer",
    "ReportAnswer",
    "SwitchAnswer",
]

_MOST_ON_PAGE, _MOST_IN_STORY = 20, 1000  # findings of one incident

_iso = lru_cache(maxsize=50_000)(
    format_iso
)  # a page holds the same moments many times, and pages repeat
Time = Annotated[
    int,
    PlainSerializer(_iso, return_type=str),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]
"""Nanoseconds since 1970 UTC; ISO 8601 in an answer."""


class _Answer(BaseModel):
    model_config = ConfigDict(from_attributes=True, frozen=True)


class FindingLine(_Answer):
    """A finding without its evidence."""

    source: str
    id: str
    kind: FindingKind
    cause: str
    machine: str
    gpu_serial: str | None
    job: str | None
    at: Time
    valid_until: Time
    severity: Severity | None
    model_version: str
    first: Time | None
    last: Time | None
    count: int
    vouched: Provenance = Field(description="`shared`: only a token of every host says so.")


class FindingAnswer(FindingLine):
    """A finding."""

    evidence: dict[str, Any]


def _short_names(keys: Sequence[FindingKey]) -> tuple[tuple[str, str], ...]:
    return tuple((key.source, key.id) for key in keys)


class DecisionAnswer(_Answer):
    """What is to be done, or what holds it back."""

    at: Time
    ruling: Ruling
    step: Step
    mode: DrainMode | None
    severity: Severity
    reason: str
    until: Time | None
    valid_until: Time
    findings: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_short_names)] = Field(
        description="`source` and `id` of those it rests on."
    )
    policy_version: str
    model_version: str
    who: str
    propensity: float | None
    control: bool


class ActionAnswer(_Answer):
    """What is done to one machine."""

    id: int
    incident: int
    machine: str
    pool: str
    rack: str | None
    job: str | None
    cause: str
    step: Step
    mode: DrainMode | None
    at: Time
    valid_until: Time
    changed_at: Time
    state: ActionState


class ChangeAnswer(_Answer):
    """One change of an action."""

    version: int
    state: ActionState
    at: Time
    who: str
    detail: str


class ActionDetail(ActionAnswer):
    """An action and all that became of it."""

    changes: tuple[ChangeAnswer, ...]

    @classmethod
    def from_action(cls, action: Action, changes: Sequence[ActionChange]) -> Self:
        """Return an action with its changes, oldest first."""
        shown = {name: getattr(action, name) for name in ActionAnswer.model_fields}
        return cls.model_validate(shown | {"changes": changes})


class ApprovalAnswer(_Answer):
    """A person wanted a decision to be done."""

    decision_at: Time
    at: Time
    who: str

    @classmethod
    def from_approval(cls, approval: Approval) -> Self:
        """Return who approved which decision."""
        return cls(decision_at=approval.decision.at, at=approval.at, who=approval.who)


class _IncidentHead(_Answer):
    id: int
    incident: int = Field(description="The same number, under its name in all other answers.")
    machine: str
    gpu_serial: str | None
    opened_at: Time
    state: IncidentState
    shared: str = Field(description="What its machines have in common; empty for one machine.")
    machines: tuple[str, ...]
    acknowledged: bool
    outcome: Outcome | None
    finding_count: int = Field(description="Different findings, of which the newest are shown.")

    @classmethod
    def _head(cls, incident: Incident) -> dict[str, Any]:
        names = _IncidentHead.model_fields.keys() - {"finding_count", "incident"}
        head = {name: getattr(incident, name) for name in names}
        return head | {"incident": incident.id, "finding_count": len(incident.findings)}


class IncidentAnswer(_IncidentHead):
    """An incident as one of many: its 20 newest findings, without their evidence."""

    decision: DecisionAnswer | None = Field(description="The last one.")
    actions: tuple[ActionAnswer, ...] = Field(description="Oldest first.")
    findings: tuple[FindingLine, ...] = Field(description="Newest last.")

    @classmethod
    def from_incident(cls, incident: Incident) -> Self:
        """Return what is shown of an incident."""
        return cls.model_validate(
            {
                **cls._head(incident),
                "decision": incident.decision,
                "actions": incident.actions,
                "findings": incident.findings[-_MOST_ON_PAGE:],
            }
        )


class IncidentPage(_Answer):
    """Incidents, newest first."""

    incidents: tuple[IncidentAnswer, ...]
    next: int | None = Field(description="`before` of the next page; null on the last one.")

    @classmethod
    def from_incidents(cls, incidents: Sequence[Incident], limit: int) -> Self:
        """Return a page of at most so many."""
        following = incidents[-1].id if len(incidents) == limit else None
        return cls(incidents=tuple(map(IncidentAnswer.from_incident, incidents)), next=following)


class IncidentDetail(_IncidentHead):
    """All that is known, decided and done about an incident; the 1,000 newest findings."""

    decisions: tuple[DecisionAnswer, ...] = Field(description="Oldest first.")
    approval: ApprovalAnswer | None = Field(description="The last one.")
    actions: tuple[ActionDetail, ...] = Field(description="Oldest first.")
    findings: tuple[FindingAnswer, ...] = Field(description="Newest last.")

    @classmethod
    def from_incident(cls, incident: Incident, ledger: Ledger) -> Self:
        """Return all of it, from an incident and the ledger that it lies in."""
        approval = ledger.approvals([incident.id]).get(incident.id)
        return cls.model_validate(
            {
                **cls._head(incident),
                "decisions": ledger.decisions(incident.id),
                "approval": None if approval is None else ApprovalAnswer.from_approval(approval),
                "actions": [
                    ActionDetail.from_action(action, ledger.action_states(action.id))
                    for action in incident.actions
                ],
                "findings": incident.findings[-_MOST_IN_STORY:],
            }
        )


class ActionPage(_Answer):
    """Actions, newest first."""

    actions: tuple[ActionAnswer, ...]
    next: int | None = Field(description="`before` of the next page; null on the last one.")

    @classmethod
    def from_actions(cls, actions: Sequence[Action], limit: int) -> Self:
        """Return a page of at most so many."""
        following = actions[-1].id if len(actions) == limit else None
        return cls.model_validate({"actions": actions, "next": following})


class SwitchAnswer(_Answer):
    """Whether forewarn may take machines out of service at all."""

    acting: bool
    at: Time | None = Field(description="Since when it may not.")
    who: str | None
    why: str | None

    @classmethod
    def from_switch(cls, off: SwitchChange | None) -> Self:
        """Return what is shown of a switch; None: acting is on."""
        if off is None:
            return cls(acting=True, at=None, who=None, why=None)
        return cls(acting=False, at=off.at, who=off.who, why=off.why)


class ReportAnswer(_Answer):
    """What became of findings."""

    new: int = Field(description="Not known before.")
    repeated: int = Field(description="Known, and counted.")


class ManualActionAnswer(_Answer):
    """What became of a person's act."""

    incident: int
    changed: bool = Field(description="False: it was so already.")


class ErrorAnswer(_Answer):
    """Why a request is refused."""

    error: str
    index: int | None = Field(None, description="Of the finding in the list.")
    field: str | None = None
