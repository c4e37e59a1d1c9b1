"""Parts outside a job's folder: events of its hosts, and the at-risk list."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from forewarn.features.diagnosis.log_lines.log_matcher import LogMatcher
from forewarn.features.diagnosis.ranks import Ranks
from forewarn.features.telemetry.parsers.hardware_event import GPU_ERROR
from forewarn.features.time_units import HOUR
from forewarn.models.diagnosis.crash.machine_symptoms import MachineSymptom
from forewarn.models.diagnosis.crash.rank_exit import symptom_from_line
from forewarn.models.diagnosis.verdict.hardware_evidence import (
    HostEvent,
    at_risk_finding,
    hardware_finding,
)
from forewarn.pipelines.diagnosis.parts.job_part import JobSnapshot, PartResult
from forewarn.pipelines.runtime.timestamps import parse_moment
from forewarn.pipelines.storage.evidence.at_risk_prior import Prior
from forewarn.pipelines.storage.evidence.host_events import HostEvents

__all__ = ["AtRiskPart", "EventsPart", "event_symptoms"]

_MAX_EVENT_AGE = HOUR  # before the verdict; covers a time-out of 30 minutes


def _machines(snapshot: JobSnapshot) -> Sequence[str]:
    return sorted({row.machine for row in snapshot.ranks.table.values() if row.machine})


@dataclass(frozen=True, slots=True)
class EventsPart:
    """Grave events of the job's GPUs in the hour before the verdict."""

    events: HostEvents
    ranks: frozenset[int] = frozenset()
    last: int | None = None

    def rows(self, snapshot: JobSnapshot) -> list[dict[str, Any]]:
        """Return the events of the hour before the verdict."""
        return self.events.grave_events(
            _machines(snapshot), snapshot.at - _MAX_EVENT_AGE, snapshot.at
        )

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Return the ranks that run on a failed GPU."""
        events = [_host_event(row) for row in self.rows(snapshot)]
        finding = hardware_finding(events, snapshot.ranks)
        return PartResult(findings=() if finding is None else (finding,))


def _host_event(row: Mapping[str, Any]) -> HostEvent:
    is_error = row["kind"] == GPU_ERROR
    return HostEvent(
        row["machine_id"],
        row["gpu_serial"],
        row["xid"],
        parse_moment(row["time"]),
        error=row["check"] or GPU_ERROR if is_error else "",
        is_critical=not is_error or row["severity"] == "critical",
    )


@dataclass(frozen=True, slots=True)
class AtRiskPart:
    """Machines with a GPU on a list that was valid at the time of the verdict."""

    lists: Prior
    ranks: frozenset[int] = frozenset()
    last: int | None = None

    def judge(self, snapshot: JobSnapshot) -> PartResult:
        """Return the listed machines."""
        machines = _machines(snapshot)
        listed = self.lists.listed(machines, snapshot.at)
        names = [machine for machine, is_listed in zip(machines, listed, strict=True) if is_listed]
        finding = at_risk_finding(names)
        return PartResult(findings=() if finding is None else (finding,))


def event_symptoms(snapshot: JobSnapshot, matcher: LogMatcher) -> list[MachineSymptom]:
    """Return the symptoms of hosts in the hour before the verdict, as far as known.

    Parameters
    ----------
    snapshot : JobSnapshot
    matcher : LogMatcher
        Provides the meaning of an Xid.
    """
    part = snapshot.parts.get("events")
    if not isinstance(part, EventsPart):
        return []
    symptoms = (_event_symptom(row, snapshot.ranks, matcher) for row in part.rows(snapshot))
    return [symptom for symptom in symptoms if symptom is not None]


def _event_symptom(
    row: Mapping[str, Any], ranks: Ranks, matcher: LogMatcher
) -> MachineSymptom | None:
    """Return an event as the symptom of the equivalent kernel log line."""
    if row["kind"] == GPU_ERROR:  # evidence of `EventsPart`; the knowledge is of Xids
        return None
    line = f"NVRM: Xid (PCI:?): {row['xid']}"
    if row["kind"] == "lost":
        line = "NVRM: GPU has fallen off the bus"
    if (row["raw"] or "").startswith("NVRM:"):  # the raw line may contain the severity
        line = row["raw"]
    pattern = matcher.first(line.encode())
    if pattern is None:
        return None
    text = row["raw"] or line.removeprefix("NVRM: ")
    symptom = replace(
        symptom_from_line(pattern, text[:500], parse_moment(row["time"])), source="events"
    )
    serial = row["gpu_serial"]
    rank = next((n for n, r in ranks.table.items() if serial and r.gpu_serial == serial), None)
    return MachineSymptom(row["machine_id"], symptom, rank)
