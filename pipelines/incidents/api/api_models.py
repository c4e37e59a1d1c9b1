"""JSON models of incidents and actions, shared by the API and the command line."""

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

_MAX_LISTED_FINDINGS, _MAX_DETAIL_FINDINGS = 20, 1000  # findings shown per incident

# Times repeat within a page and from page to page.
_iso = lru_cache(maxsize=50_000)(format_iso)
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
    vouched: Provenance = Field(
        description="`shared`: reported only with a token without a host list."
    )


class FindingAnswer(FindingLine):
    """A finding."""

    evidence: dict[str, Any]


def _short_names(keys: Sequence[FindingKey]) -> tuple[tuple[str, str], ...]:
    return tuple((key.source, key.id) for key in keys)


class DecisionAnswer(_Answer):
    """What the policy prescribes for an incident, or what blocks it."""

    at: Time
    ruling: Ruling
    step: Step
    mode: DrainMode | None
    severity: Severity
    reason: str
    until: Time | None
    valid_until: Time
    findings: Annotated[tuple[tuple[str, str], ...], BeforeValidator(_short_names)] = Field(
        description="`source` and `id` of the findings it is based on."
    )
    policy_version: str
    model_version: str
    who: str
    propensity: float | None
    control: bool


class ActionAnswer(_Answer):
    """An action on one machine."""

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
    """One state change of an action."""

    version: int
    state: ActionState
    at: Time
    who: str
    detail: str


class ActionDetail(ActionAnswer):
    """An action and its state changes."""

    changes: tuple[ChangeAnswer, ...]

    @classmethod
    def from_action(cls, action: Action, changes: Sequence[ActionChange]) -> Self:
        """Return an action with its changes, oldest first."""
        shown = {name: getattr(action, name) for name in ActionAnswer.model_fields}
        return cls.model_validate(shown | {"changes": changes})


class ApprovalAnswer(_Answer):
    """A person's approval of a decision."""

    decision_at: Time
    at: Time
    who: str

    @classmethod
    def from_approval(cls, approval: Approval) -> Self:
        """Return who approved which decision, and when."""
        return cls(decision_at=approval.decision.at, at=approval.at, who=approval.who)


class _IncidentHead(_Answer):
    id: int
    incident: int = Field(description="Same as `id`; other answers name it `incident`.")
    machine: str
    gpu_serial: str | None
    opened_at: Time
    state: IncidentState
    shared: str = Field(description="What its machines share; empty for one machine.")
    machines: tuple[str, ...]
    acknowledged: bool
    outcome: Outcome | None
    finding_count: int = Field(description="All findings; only the newest are listed.")

    @classmethod
    def _head(cls, incident: Incident) -> dict[str, Any]:
        names = _IncidentHead.model_fields.keys() - {"finding_count", "incident"}
        head = {name: getattr(incident, name) for name in names}
        return head | {"incident": incident.id, "finding_count": len(incident.findings)}


class IncidentAnswer(_IncidentHead):
    """An incident in a list: its 20 newest findings, without evidence."""

    decision: DecisionAnswer | None = Field(description="The last one.")
    actions: tuple[ActionAnswer, ...] = Field(description="Oldest first.")
    findings: tuple[FindingLine, ...] = Field(description="Newest last.")

    @classmethod
    def from_incident(cls, incident: Incident) -> Self:
        """Return the list entry of an incident."""
        return cls.model_validate(
            {
                **cls._head(incident),
                "decision": incident.decision,
                "actions": incident.actions,
                "findings": incident.findings[-_MAX_LISTED_FINDINGS:],
            }
        )


class IncidentPage(_Answer):
    """Incidents, newest first."""

    incidents: tuple[IncidentAnswer, ...]
    next: int | None = Field(description="`before` of the next page; null on the last one.")

    @classmethod
    def from_incidents(cls, incidents: Sequence[Incident], limit: int) -> Self:
        """Return a page; `limit` is the page size that was requested."""
        following = incidents[-1].id if len(incidents) == limit else None
        return cls(incidents=tuple(map(IncidentAnswer.from_incident, incidents)), next=following)


class IncidentDetail(_IncidentHead):
    """An incident with all decisions and actions, and its 1,000 newest findings."""

    decisions: tuple[DecisionAnswer, ...] = Field(description="Oldest first.")
    approval: ApprovalAnswer | None = Field(description="The last one.")
    actions: tuple[ActionDetail, ...] = Field(description="Oldest first.")
    findings: tuple[FindingAnswer, ...] = Field(description="Newest last.")

    @classmethod
    def from_incident(cls, incident: Incident, ledger: Ledger) -> Self:
        """Return the details of an incident; the ledger has its decisions and approvals."""
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
                "findings": incident.findings[-_MAX_DETAIL_FINDINGS:],
            }
        )


class ActionPage(_Answer):
    """Actions, newest first."""

    actions: tuple[ActionAnswer, ...]
    next: int | None = Field(description="`before` of the next page; null on the last one.")

    @classmethod
    def from_actions(cls, actions: Sequence[Action], limit: int) -> Self:
        """Return a page; `limit` is the page size that was requested."""
        following = actions[-1].id if len(actions) == limit else None
        return cls.model_validate({"actions": actions, "next": following})


class SwitchAnswer(_Answer):
    """State of the kill switch."""

    acting: bool
    at: Time | None = Field(description="When acting was stopped.")
    who: str | None
    why: str | None

    @classmethod
    def from_switch(cls, off: SwitchChange | None) -> Self:
        """Return the state of the switch; None means that acting is on."""
        if off is None:
            return cls(acting=True, at=None, who=None, why=None)
        return cls(acting=False, at=off.at, who=off.who, why=off.why)


class ReportAnswer(_Answer):
    """Result of reporting findings."""

    new: int = Field(description="Recorded as new.")
    repeated: int = Field(description="Known already, and counted.")


class ManualActionAnswer(_Answer):
    """Result of a manual action."""

    incident: int
    changed: bool = Field(description="False: nothing had to be changed.")


class ErrorAnswer(_Answer):
    """Reason for refusing a request."""

    error: str
    index: int | None = Field(None, description="Position of the finding in the list.")
    field: str | None = None
