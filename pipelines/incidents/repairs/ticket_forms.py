"""Tickets of repair cases as the request bodies that ticket systems accept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

__all__ = ["TICKET_FORMS", "ticket_body"]

_MAX_SUMMARY: Final = 160  # `short_description` of ServiceNow


def ticket_body(form: str, case: Mapping[str, Any], project: str, key: str) -> dict[str, Any]:
    """Return the body of a request that opens a ticket.

    Parameters
    ----------
    form : str
        One of `TICKET_FORMS`.
    case : mapping
        Of `repair_report`.
    project : str
        Key of the Jira project.
    key : str
        Name of the case by which a repeat is recognised.
    """
    return TICKET_FORMS[form](case, project, key)


def _summary(case: Mapping[str, Any]) -> str:
    gpus = f" GPU {', '.join(case['gpu_serials'])}" if case["gpu_serials"] else ""
    text = f"{case['machine']}{gpus}: {case['cause'] or 'repair'}"
    return text if len(text) <= _MAX_SUMMARY else f"{text[: _MAX_SUMMARY - 1]}…"


def _description(case: Mapping[str, Any]) -> str:
    lines = [
        f"Machine: {case['machine']}",
        f"GPU serials: {', '.join(case['gpu_serials']) or 'unknown'}",
        f"Slots: {', '.join(case['slots']) or 'unknown'}",
        f"Cause: {case['cause']}",
        f"Incidents: {', '.join(map(str, case['incidents']))}",
        f"Opened: {case['opened_at']}",
        *(f"{stage}: {at}" for stage, at in case["stages"].items()),
        f"forewarn case {case['case']}",
    ]
    return "\n".join(lines)


def _webhook(case: Mapping[str, Any], project: str, key: str) -> dict[str, Any]:
    del project
    text = {"summary": _summary(case), "description": _description(case)}
    return {"id": key, **text, "case": dict(case)}


def _servicenow(case: Mapping[str, Any], project: str, key: str) -> dict[str, Any]:
    """Return a row of the table `incident` (POST /api/now/table/incident)."""
    del project
    return {
        "short_description": _summary(case),
        "description": _description(case),
        "category": "hardware",
        "impact": "3",
        "urgency": "2",
        "cmdb_ci": case["machine"],
        "correlation_id": key,
    }


def _jira(case: Mapping[str, Any], project: str, key: str) -> dict[str, Any]:
    """Return an issue (POST /rest/api/2/issue)."""
    return {
        "fields": {
            "project": {"key": project},
            "issuetype": {"name": "Task"},
            "summary": _summary(case),
            "description": _description(case),
            "labels": ["forewarn", key],
        }
    }


TICKET_FORMS: Final[Mapping[str, Callable[[Mapping[str, Any], str, str], dict[str, Any]]]] = {
    "webhook": _webhook,
    "servicenow": _servicenow,
    "jira": _jira,
}
