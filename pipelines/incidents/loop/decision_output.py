"""Decisions, incidents and actions as JSON objects and as text."""

from __future__ import annotations

from typing import Any

from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.state.action import Action
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.incident import Incident

__all__ = ["decision_line", "decision_text", "incident_line", "incident_text"]

_VERBS = {
    Ruling.ACT: "do",
    Ruling.PROPOSE: "propose",
    Ruling.OBSERVE: "would",
    Ruling.HOLD: "blocked",
}


def _seconds(moment: Nanoseconds) -> str:
    """Format a time without fractions of a second."""
    return format_iso(moment - moment % SECOND)


def _iso(moment: Nanoseconds | None) -> str | None:
    return None if moment is None else format_iso(moment)


def decision_line(incident: Incident, decision: Decision) -> dict[str, Any]:
    """Return a decision as `forewarn respond --json` prints it (formats.md, section 7)."""
    causes = [f.cause for f in incident.findings if f.key in decision.findings]
    return {
        "at": format_iso(decision.at),
        "incident": incident.id,
        "machine": incident.machine,
        "gpu_serial": incident.gpu_serial,
        "finding": ", ".join(dict.fromkeys(causes)),
        "severity": decision.severity.value,
        "step": decision.step.value,
        "mode": None if decision.mode is None else decision.mode.value,
        "ruling": decision.ruling.value,
        "blocked_by": None if decision.ruling is Ruling.ACT else decision.reason,
        "reason": decision.reason,
        "until": _iso(decision.until),
        "valid_until": format_iso(decision.valid_until),
        "who": decision.who,
        "control": decision.control,
        "propensity": decision.propensity,
        "policy_version": decision.policy_version,
        "model_version": decision.model_version,
    }


def decision_text(incident: Incident, decision: Decision) -> str:
    """Format a decision as one line: step, machine and reason."""
    mode = f" ({decision.mode})" if decision.mode is not None else ""
    gpu = f" GPU {incident.gpu_serial}" if incident.gpu_serial else ""
    return (
        f"{_VERBS[decision.ruling]:<8}{decision.step}{mode}  {incident.machine}{gpu}  "
        f"incident {incident.id}, {decision.severity}: {decision.reason}"
    )


def incident_line(incident: Incident) -> dict[str, Any]:
    """Return an incident as `forewarn incidents --json` prints it."""
    decision = incident.decision
    return {
        "incident": incident.id,
        "id": incident.id,
        "state": incident.state.value,
        "opened_at": format_iso(incident.opened_at),
        "machine": incident.machine,
        "gpu_serial": incident.gpu_serial,
        "shared": incident.shared or None,
        "machines": list(incident.machines),
        "findings": [
            {
                "source": finding.source,
                "id": finding.id,
                "kind": finding.kind.value,
                "cause": finding.cause,
                "at": format_iso(finding.at),
                "valid_until": format_iso(finding.valid_until),
                "count": finding.count,
                "last": _iso(finding.last),
                "vouched": finding.vouched.value,
            }
            for finding in incident.findings
        ],
        "decision": None if decision is None else decision_line(incident, decision),
        "actions": [_action_line(action) for action in incident.actions],
        "outcome": None if incident.outcome is None else incident.outcome.value,
        "acknowledged": incident.acknowledged,
    }


def _action_line(action: Action) -> dict[str, Any]:
    return {
        "action": action.id,
        "machine": action.machine,
        "step": action.step.value,
        "mode": None if action.mode is None else action.mode.value,
        "state": action.state.value,
        "at": format_iso(action.at),
        "changed_at": format_iso(action.changed_at),
        "valid_until": format_iso(action.valid_until),
    }


def incident_text(incident: Incident) -> list[str]:
    """Format an incident as lines: machine, findings, decision and actions."""
    gpu = f" GPU {incident.gpu_serial}" if incident.gpu_serial else ""
    shared = f", {incident.shared} on {len(incident.machines)} machines" if incident.shared else ""
    acknowledged = ", acknowledged" if incident.acknowledged else ""
    head = (
        f"{incident.id}  {incident.machine}{gpu}{shared}  {incident.state} since "
        f"{_seconds(incident.opened_at)}{acknowledged}"
    )
    causes = [
        finding.cause if finding.count == 1 else f"{finding.cause} ({finding.count} times)"
        for finding in incident.findings
    ]
    lines = [head, f"    findings: {', '.join(dict.fromkeys(causes))}"]
    if incident.decision is not None:
        verb = _VERBS[incident.decision.ruling]
        lines.append(f"    {verb}: {incident.decision.step}; {incident.decision.reason}")
    lines += [
        f"    action {action.id}: {action.step} of {action.machine} is {action.state}"
        for action in incident.actions
    ]
    return lines
