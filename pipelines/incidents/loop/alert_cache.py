"""Cache of the incidents of a ledger in the form that the score uses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.ledger.ledger import Ledger
from forewarn.response.score.scored_alert import ScoredAlert, summarize_incident
from forewarn.response.state.incident import Incident, IncidentState

__all__ = ["AlertCache", "CachedAlert"]

_BATCH_SIZE: Final = 1000


@dataclass(frozen=True, slots=True)
class CachedAlert:
    """Opening time (nanoseconds since 1970 UTC) and scored form of an incident."""

    opened_at: Nanoseconds
    alert: ScoredAlert


class AlertCache:
    """Scored alerts of a ledger; incidents that have ended are read once.

    An ended incident without open actions changes only by a new outcome.

    Parameters
    ----------
    ledger : Ledger
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ended: dict[int, CachedAlert] = {}
        self._outcomes = 0
        self._lock = Lock()

    def alerts_since(self, since: Nanoseconds) -> list[CachedAlert]:
        """Return the alerts of incidents with findings opened since a time, newest first."""
        with self._lock:
            last, changed = self._ledger.outcomes_after(self._outcomes)
            for number in changed:
                self._ended.pop(number, None)
            numbers = self._ledger.opened_since(since)
            known = {number: self._ended[number] for number in numbers if number in self._ended}
            unknown = [number for number in numbers if number not in known]
            for start in range(0, len(unknown), _BATCH_SIZE):
                known |= self._read(unknown[start : start + _BATCH_SIZE])
            self._ended = {number: known[number] for number in self._ended if number in known}
            self._outcomes = last
        return [known[number] for number in numbers if number in known]

    def _read(self, numbers: Sequence[int]) -> dict[int, CachedAlert]:
        incidents = [i for i in self._ledger.by_number(numbers) if i.findings]
        entries = self._entries(incidents)
        self._ended |= {i.id: entries[i.id] for i in incidents if _has_ended(i)}
        return entries

    def _entries(self, incidents: Sequence[Incident]) -> dict[int, CachedAlert]:
        numbers = [incident.id for incident in incidents]
        failed_at = self._ledger.failure_times(numbers)
        decisions = self._ledger.decisions_by_incident(numbers)
        state_times = self._ledger.first_state_times([a.id for i in incidents for a in i.actions])
        alerts = [
            summarize_incident(
                incident,
                decisions.get(incident.id, []),
                state_times,
                failed_at=failed_at.get(incident.id),
                gpus=max((action.gpus for action in incident.actions), default=0),
                job_gpus=max((action.job_gpus for action in incident.actions), default=0),
            )
            for incident in incidents
        ]
        return {
            i.id: CachedAlert(i.opened_at, alert)
            for i, alert in zip(incidents, alerts, strict=True)
        }


def _has_ended(incident: Incident) -> bool:
    closed = incident.state is not IncidentState.OPEN
    return closed and not any(action.open for action in incident.actions)
