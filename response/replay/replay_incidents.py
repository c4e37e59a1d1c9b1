"""Incidents of a replay: the in-memory store that replaces the ledger."""

from __future__ import annotations

from bisect import insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from forewarn.features.time_units import Nanoseconds
from forewarn.response.grouping.event_observations import (
    GroupKey,
    Observation,
    group_keys,
    is_event,
    select_within,
)
from forewarn.response.grouping.finding_deduplication import KnownFinding, deduplicate_findings
from forewarn.response.grouping.gpu_incidents import group_findings, resolve_gpu_serial
from forewarn.response.grouping.shared_incidents import SharedIncident, event_thresholds
from forewarn.response.state.action import Action
from forewarn.response.state.finding import Finding, FindingKey
from forewarn.response.state.incident import Incident, IncidentState
from forewarn.response.state.machine import Machine
from forewarn.response.state.response_settings import ResponseSettings

__all__ = ["ReplayIncidents"]


class ReplayIncidents:
    """Findings by row and incidents by number, as in the tables of the ledger.

    Parameters
    ----------
    fleet : mapping of str to Machine
        Job, rack and switch of each machine.

    Attributes
    ----------
    observations : dict of (str, str) to list of Observation
        By job, rack, switch and cause, oldest first.
    """

    def __init__(self, fleet: Mapping[str, Machine]) -> None:
        self._fleet = fleet
        self.observations: defaultdict[GroupKey, list[Observation]] = defaultdict(list)
        self._findings: list[Finding] = []
        self._newest: dict[FindingKey, int] = {}
        self._incidents_of: defaultdict[int, list[int]] = defaultdict(list)
        self._members: defaultdict[int, set[int]] = defaultdict(set)
        self._incidents: dict[int, Incident] = {}
        self._shared: dict[str, int] = {}
        self._ended_at: dict[int, Nanoseconds] = {}
        self._open: defaultdict[str, list[Incident]] = defaultdict(list)

    @property
    def open(self) -> Mapping[str, Sequence[Incident]]:
        """The open incidents by each of their machines."""
        return self._open

    def __getitem__(self, number: int) -> Incident:
        """Return an incident, open or not."""
        return self._incidents[number]

    def of_machines(self, machines: Iterable[str]) -> list[Incident]:
        """Return the open incidents of some machines, each once."""
        named = [incident for name in machines for incident in self._open.get(name, ())]
        return list({incident.id: incident for incident in named}.values())

    def all_open(self) -> list[Incident]:
        """Return all open incidents, oldest first."""
        return sorted(self.of_machines(self._open), key=lambda incident: incident.id)

    def may_be_event(self, findings: Iterable[Finding], settings: ResponseSettings) -> bool:
        """Tell whether enough machines reported findings at that time to form an event."""
        for finding in filter(is_event, findings):
            for key in group_keys(finding, self._fleet):
                many, span = event_thresholds(key, settings)
                machines = {
                    s.machine for s in select_within(self.observations[key], finding.at, span)
                }
                if len(machines) >= many:
                    return True
        return False

    def record_findings(self, findings: Sequence[Finding], now: Nanoseconds) -> list[Finding]:
        """Count repeats, assign new findings to incidents, and return all of them.

        Findings that contradict a known one are dropped.
        """
        keys = {finding.key for finding in findings} & self._newest.keys()
        counted = deduplicate_findings(findings, {key: self._known(key) for key in keys})
        for known, count in counted.repeated:
            self._findings[known.row] = count.merge_into(known.finding)
        self._rebuild({n for known, _ in counted.repeated for n in self._incidents_of[known.row]})
        new = [count.to_finding() for count in counted.new]
        grouping = group_findings(new, self.of_machines({finding.machine for finding in new}))
        opened = [self._opened(f.machine, f.gpu_serial, now) for f in grouping.opened]
        joined = set[int]()
        for number, finding in zip(grouping.incidents, new, strict=True):
            incident = number if number > 0 else opened[-number - 1]
            self._newest[finding.key] = len(self._findings)
            self._findings.append(finding)
            self._join(incident, {self._newest[finding.key]})
            self._observe(finding, incident)
            joined.add(incident)
        self._rebuild(joined)
        return [*new, *(known.finding for known, _ in counted.repeated)]

    def _observe(self, finding: Finding, incident: int) -> None:
        keys = group_keys(finding, self._fleet) if is_event(finding) else ()
        for key in keys:
            observation = Observation(finding, incident, keys)
            insort(self.observations[key], observation, key=lambda observation: observation.at)

    def _known(self, key: FindingKey) -> KnownFinding:
        row = self._newest[key]
        ends = [self._ended_at.get(number) for number in self._incidents_of[row]]
        ended_at = None if None in ends else max(end for end in ends if end is not None)
        return KnownFinding(row, self._findings[row], ended_at)

    def _opened(
        self, machine: str, gpu_serial: str | None, now: Nanoseconds, shared: str = ""
    ) -> int:
        number = len(self._incidents) + 1
        self._incidents[number] = Incident(number, machine, gpu_serial, now, shared=shared)
        return number

    def _join(self, incident: int, rows: Iterable[int]) -> None:
        for row in rows:
            self._members[incident].add(row)
            self._incidents_of[row].append(incident)

    def _rebuild(self, numbers: Iterable[int]) -> None:
        """Rebuild incidents from their rows."""
        for number in numbers:
            incident = self._incidents[number]
            rows = sorted(self._members[number], key=lambda row: (self._findings[row].at, row))
            findings = tuple(self._findings[row] for row in rows)
            machines = dict.fromkeys([incident.machine, *(f.machine for f in findings)])
            serial = None if incident.shared else resolve_gpu_serial(incident.gpu_serial, findings)
            whole = replace(incident, findings=findings, machines=tuple(machines))
            self.put(replace(whole, gpu_serial=serial))

    def put(self, incident: Incident) -> None:
        """Store the current state of an incident."""
        self._incidents[incident.id] = incident
        for name in {incident.machine, *incident.machines}:
            others = [other for other in self._open[name] if other.id != incident.id]
            is_open = incident.state is IncidentState.OPEN
            self._open[name] = (
                sorted([*others, incident], key=lambda i: i.id) if is_open else others
            )

    def close(self, number: int, now: Nanoseconds) -> None:
        """Close an incident."""
        self._ended_at.setdefault(number, now)
        self.put(replace(self._incidents[number], state=IncidentState.CLOSED))

    def act(self, action: Action) -> None:
        """Store an action of an incident, or its new state."""
        incident = self._incidents[action.incident]
        actions = {other.id: other for other in incident.actions} | {action.id: action}
        self.put(replace(incident, actions=tuple(actions.values())))

    def share(self, event: SharedIncident, now: Nanoseconds) -> Incident:
        """Merge the incidents of an event into a shared incident, and return it.

        The shared incident takes their findings, and they are closed. An open one of the same name
        is reused.
        """
        target = self._shared.get(event.shared)
        if target is None or self._incidents[target].state is not IncidentState.OPEN:
            target = self._opened(event.machine, None, now, event.shared)
            self._shared[event.shared] = target
        for part in {*event.incidents, event.into or target} - {target}:
            self._join(target, self._members[part] - self._members[target])
            self.close(part, now)
        self._rebuild([target])
        return self._incidents[target]
