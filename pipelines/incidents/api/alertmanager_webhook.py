"""Notifications of Alertmanager's webhook (version 4) as findings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final, Literal

from fastapi import Body, Request
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from forewarn.features.telemetry.parsers.machine_label import MachineLabels
from forewarn.features.time_units import DAY, Nanoseconds
from forewarn.pipelines.incidents.api.access_control import Role, TokenHolder
from forewarn.pipelines.incidents.api.api_context import api_context, request_holder
from forewarn.pipelines.incidents.api.guarded_route import make_router, require_role
from forewarn.pipelines.incidents.api.input_types import MachineName, Name
from forewarn.pipelines.incidents.ledger.ledger_entries import RecordedCounts
from forewarn.response.state.finding import Finding, FindingKind, Severity
from forewarn.response.state.step import Step

__all__ = ["ALERTMANAGER_SOURCE", "AlertmanagerNotification", "alert_findings", "alertmanager"]

ALERTMANAGER_SOURCE: Final = "alertmanager"

_OWN_ALERTS: Final = "Forewarn"  # start of the names of our own alerts, which would come back
_MAX_ALERTS: Final = 10_000
_MAX_LABELS: Final = 40
_MAX_TEXT: Final = 200
_VALIDITY: Final = DAY  # without another notification
_SEVERITIES: Final = {
    Severity.CRITICAL: ("critical", "page", "fatal", "emergency"),
    Severity.ERROR: ("error", "major", "high"),
    Severity.NOTICE: ("notice", "info", "none"),
}
_MACHINE: Final = TypeAdapter[str](MachineName)
_NAME: Final = TypeAdapter[str](Name)

alertmanager = make_router("acting")


class _Received(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class Alert(_Received):
    """An alert of a notification."""

    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    annotations: dict[str, str] = {}
    fingerprint: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{1,32}$")]


class AlertmanagerNotification(_Received):
    """A notification as Alertmanager posts it, with more fields that are ignored."""

    version: Literal["4"]
    alerts: Annotated[list[Alert], Field(max_length=_MAX_ALERTS)]


class NotificationAnswer(BaseModel):
    """Result of a notification."""

    new: int = Field(description="Recorded as new.")
    repeated: int = Field(description="Known already, or ended.")
    ignored: int = Field(
        description="Alerts of forewarn itself, without a machine, or about one that the token may "
        "not report."
    )


@alertmanager.post(
    "/alertmanager",
    response_model=NotificationAnswer,
    openapi_extra=require_role(Role.REPORT),
)
async def receive_notification(
    request: Request, notification: Annotated[AlertmanagerNotification, Body()]
) -> NotificationAnswer:
    """Receive alerts of Alertmanager's webhook as findings.

    The machine is that of the labels `instance`, without a port, or of others that exporters use.
    A finding leads at most to `tell` and has at most the severity `warning`, unless
    `[respond.alerts]` names a step for its alert. A resolved alert ends its finding. Alerts whose
    names begin with `Forewarn` are ignored.
    """
    context, holder = api_context(request), request_holder(request)

    def record() -> tuple[RecordedCounts, int]:
        now = context.now()
        findings = list(alert_findings(notification.alerts, context.alerts, holder, now))
        counts = context.ledger.record_findings(findings, now=now, who=holder.name)
        return counts, len(notification.alerts) - len(findings)

    counts, ignored = await context.write(record)
    context.metrics.count_findings(counts)
    return NotificationAnswer(new=counts.new, repeated=counts.repeated, ignored=ignored)


def alert_findings(
    alerts: Sequence[Alert], steps: Mapping[str, Step], holder: TokenHolder, now: Nanoseconds
) -> Iterator[Finding]:
    """Yield the findings of alerts, and the ends of resolved ones; ignored alerts have none.

    Parameters
    ----------
    alerts : sequence of Alert
    steps : mapping of str to Step
        Hardest step by the name of an alert; others lead at most to `tell`.
    holder : TokenHolder
    now : int
        Nanoseconds since 1970 UTC.
    """
    for alert in alerts:
        try:
            name = _NAME.validate_python(alert.labels.get("alertname", ""))
            machine = _MACHINE.validate_python(MachineLabels().machine(alert.labels))
        except ValidationError:
            continue
        if name.startswith(_OWN_ALERTS) or not holder.may_report(machine):
            continue
        finding = _finding(alert, name, machine, steps.get(name), now)
        finding = replace(finding, vouched=holder.provenance)
        is_over = alert.status == "resolved"
        yield replace(finding, valid_until=now, count=0) if is_over else finding


def _finding(
    alert: Alert, name: str, machine: str, at_most: Step | None, now: Nanoseconds
) -> Finding:
    labels = {_text(key): _text(value) for key, value in alert.labels.items()}
    evidence = {
        "labels": dict(list(labels.items())[:_MAX_LABELS]),
        "summary": _text(alert.annotations.get("summary", "")),
        "at_most": at_most or Step.TELL,
    }
    severity = _severity(alert.labels.get("severity", ""))
    if at_most is None:
        severity = min(severity, Severity.WARNING, key=lambda s: s.rank)
    return Finding(
        source=ALERTMANAGER_SOURCE,
        id=alert.fingerprint,
        kind=FindingKind.REPORT,
        cause=f"alert {name}",
        machine=machine,
        at=now,
        valid_until=Nanoseconds(now + _VALIDITY),
        severity=severity,
        evidence=evidence,
    )


def _text(text: str) -> str:
    return text[:_MAX_TEXT].encode("utf-8", "replace").decode()


def _severity(label: str) -> Severity:
    words = (severity for severity, names in _SEVERITIES.items() if label.lower() in names)
    return next(words, Severity.WARNING)
