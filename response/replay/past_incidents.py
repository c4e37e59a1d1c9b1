"""Incidents of the past: findings put together while time goes on, as a ledger would."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import count

from forewarn.features.time_units import Nanoseconds
from forewarn.response.grouping.shared_incidents import SharedIncident, over_at, shared_incidents
from forewarn.response.grouping.sightings import is_event
from forewarn.response.policy.policy import Policy
from forewarn.response.state.action import Action
from forewarn.response.state.finding import Finding
from forewarn.response.state.incident import Incident, IncidentState
from forewarn.response.state.machine import Machine
from forewarn.response.state.settings import ResponseSettings

__all__ = ["PastIncidents"]


class PastIncidents:
    """The open incidents, by number and by machine.

    Parameters
    ----------
    policy : Policy
        Says how long a finding may be acted on.
    settings : ResponseSettings
    """

    def __init__(self, policy: Policy, settings: ResponseSettings) -> None:
        self._policy, self._settings = policy, settings
        self._numbers = count(1)
        self._by_number: dict[int, Incident] = {}
        self._of_gpu: dict[tuple[str, str], int] = {}
        self._open: dict[str, list[Incident]] = defaultdict(list)
        self._lately: dict[int, Nanoseconds] = {}

    @property
    def open(self) -> Mapping[str, Sequence[Incident]]:
        """The open incidents by each of their machines."""
        return self._open

    def get(self, number: int) -> Incident | None:
        """Return an open incident."""
        return self._by_number.get(number)

    def live(self, incident: Incident, now: Nanoseconds) -> bool:
        """Tell whether an incident has something that may be acted on, or is acted on."""
        acted_on = any(action.open for action in incident.actions)
        return acted_on or any(self._usable_until(f) > now for f in incident.findings)

    def _usable_until(self, finding: Finding) -> int:
        last = finding.at if finding.last is None else finding.last
        return min(finding.valid_until, last + self._policy.rule(finding).max_age)

    def take(self, finding: Finding, now: Nanoseconds) -> int:
        """Put a finding into the open incident of its GPU, or into a new one; return its number."""
        gpu = (finding.machine, finding.gpu_serial or str(finding.evidence.get("pci") or ""))
        incident = self._by_number.get(self._of_gpu.get(gpu, 0))
        if incident is not None and not self.live(incident, now):
            self.close(incident.id)
            incident = None
        if incident is None:
            incident = Incident(next(self._numbers), finding.machine, finding.gpu_serial, now)
            self._of_gpu[gpu] = incident.id
        self.put(replace(incident, findings=_with(incident.findings, finding)))
        if is_event(finding):
            self._lately[incident.id] = now
        return incident.id

    def put(self, incident: Incident) -> None:
        """Keep an incident as it is now."""
        self._by_number[incident.id] = incident
        for name in {incident.machine, *incident.machines}:
            others = [other for other in self._open[name] if other.id != incident.id]
            self._open[name] = [*others, incident]

    def close(self, number: int) -> None:
        """Let nothing more be done about an incident."""
        incident = self._by_number.pop(number, None)
        for name in {incident.machine, *incident.machines} if incident else ():
            self._open[name] = [other for other in self._open[name] if other.id != number]
            if not self._open[name]:
                del self._open[name]

    def close_stale(self, now: Nanoseconds) -> None:
        """Close the incidents about which nothing can be done any more."""
        for incident in [i for i in self._by_number.values() if not self.live(i, now)]:
            self.close(incident.id)

    def act(self, action: Action) -> None:
        """Note an action of an incident, or what has become of it."""
        incident = self._by_number.get(action.incident)
        if incident is not None:
            others = [other for other in incident.actions if other.id != action.id]
            self.put(replace(incident, actions=(*others, action)))

    def share(self, fleet: Mapping[str, Machine], now: Nanoseconds) -> list[tuple[int, int]]:
        """Make one incident of each event on many machines.

        Returns
        -------
        list of (int, int)
            Its number, and when it is over.
        """
        # What was said longer ago is no part of an event of now.
        since = now - 2 * self._settings.settle
        self._lately = {
            number: at
            for number, at in self._lately.items()
            if number in self._by_number and (at >= since or self._by_number[number].shared)
        }
        incidents = [self._by_number[number] for number in self._lately]
        events = shared_incidents(incidents, fleet, settings=self._settings, now=now)
        return [self._join(event, now) for event in events]

    def _join(self, event: SharedIncident, now: Nanoseconds) -> tuple[int, int]:
        into = None if event.into is None else self._by_number[event.into]
        parts = [self._by_number[number] for number in event.incidents]
        findings: tuple[Finding, ...] = () if into is None else into.findings
        for part in parts:
            for finding in part.findings:
                findings = _with(findings, finding)
            self.close(part.id)
        incident = into or Incident(next(self._numbers), event.machine, None, now)
        shared = replace(
            incident,
            machine=event.machine,
            machines=event.machines,
            shared=event.shared,
            state=IncidentState.OPEN,
            findings=findings,
        )
        self.put(shared)
        self._lately[shared.id] = now
        return shared.id, over_at(shared, self._settings, now)


def _with(findings: tuple[Finding, ...], finding: Finding) -> tuple[Finding, ...]:
    """Return findings with one more; what is known already is counted."""
    known = {f.key: row for row, f in enumerate(findings)}
    row = known.get(finding.key)
    if row is None or not finding.repeats(findings[row]):
        return (*findings, finding)
    before = findings[row]
    counted = replace(
        before,
        first=before.first or before.at,
        last=max(finding.at, before.last_said),
        count=before.count + finding.count,
        severity=finding.severity if finding.at >= before.last_said else before.severity,
    )
    return (*findings[:row], counted, *findings[row + 1 :])
