"""The incidents of a ledger as the score sees them; those that are over are read once."""

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

_PAGE: Final = 1000


@dataclass(frozen=True, slots=True)
class CachedAlert:
    """An incident, when it was opened (nanoseconds since 1970 UTC), and how the score sees it."""

    opened_at: Nanoseconds
    alert: ScoredAlert


class AlertCache:
    """Alerts of a ledger; each look goes on from the one before.

    An incident that has ended, and whose actions have, changes only by another outcome.

    Parameters
    ----------
    ledger : Ledger
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._over: dict[int, CachedAlert] = {}
        self._outcomes = 0
        self._lock = Lock()

    def alerts_since(self, since: Nanoseconds) -> list[CachedAlert]:
        """Return the incidents with findings that were opened since a moment, newest first."""
        with self._lock:
            last, changed = self._ledger.outcomes_after(self._outcomes)
            for number in changed:
                self._over.pop(number, None)
            numbers = self._ledger.opened_since(since)
            known = {number: self._over[number] for number in numbers if number in self._over}
            unknown = [number for number in numbers if number not in known]
            for start in range(0, len(unknown), _PAGE):
                known |= self._read(unknown[start : start + _PAGE])
            self._over = {number: known[number] for number in self._over if number in known}
            self._outcomes = last
        return [known[number] for number in numbers if number in known]

    def _read(self, numbers: Sequence[int]) -> dict[int, CachedAlert]:
        incidents = [i for i in self._ledger.by_number(numbers) if i.findings]
        entries = self._entries(incidents)
        self._over |= {i.id: entries[i.id] for i in incidents if _is_over(i)}
        return entries

    def _entries(self, incidents: Sequence[Incident]) -> dict[int, CachedAlert]:
        numbers = [incident.id for incident in incidents]
        failed_at = self._ledger.failure_times(numbers)
        decisions = self._ledger.decisions_by_incident(numbers)
        moments = self._ledger.first_moments([a.id for i in incidents for a in i.actions])
        alerts = [
            summarize_incident(
                incident,
                decisions.get(incident.id, []),
                moments,
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


def _is_over(incident: Incident) -> bool:
    ended = incident.state is not IncidentState.OPEN
    return ended and not any(action.open for action in incident.actions)
