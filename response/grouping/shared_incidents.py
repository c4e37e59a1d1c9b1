"""Shared incidents: findings on many machines of one job, rack or switch form one event."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from forewarn.features.time_units import Nanoseconds
from forewarn.response.grouping.event_observations import (
    GroupKey,
    Observation,
    group_by_key,
    is_event,
    list_observations,
)
from forewarn.response.state.finding import MANUAL_CAUSE, Finding, Provenance
from forewarn.response.state.incident import Incident
from forewarn.response.state.machine import Machine
from forewarn.response.state.response_settings import ResponseSettings

__all__ = [
    "SharedIncident",
    "belongs_to_event",
    "describe_event",
    "event_ends_at",
    "event_thresholds",
    "first_affected_machines",
    "shared_incidents",
]

_ORDER = ("job", "switch", "rack", "cause")


@dataclass(frozen=True, slots=True)
class SharedIncident:
    """Incidents to merge into a shared incident.

    Attributes
    ----------
    shared : str
        What the machines have in common, such as `job 4711`.
    machine : str
        First affected machine.
    machines : tuple of str
        All machines, the first affected first.
    candidates : tuple of str
        Machines that may have been first; several if clock skew cannot tell.
    incidents : tuple of int
        Incidents to merge. An incident that has its machine drained stays separate.
    into : int or None
        Open shared incident to continue.
    why : str
    """

    shared: str
    machine: str
    machines: tuple[str, ...]
    candidates: tuple[str, ...]
    incidents: tuple[int, ...]
    into: int | None
    why: str


def shared_incidents(
    incidents: Sequence[Incident],
    fleet: Mapping[str, Machine],
    *,
    settings: ResponseSettings,
    now: Nanoseconds,
) -> list[SharedIncident]:
    """Return the events on many machines.

    Parameters
    ----------
    incidents : sequence of Incident
        All open ones; shared ones continue until they end.
    fleet : mapping of str to Machine
    settings : ResponseSettings
    now : int
        Nanoseconds since 1970 UTC.
    """
    until = Nanoseconds(now + settings.ahead)
    events = []
    for part in _by_provenance(incidents):
        by_id = {incident.id: incident for incident in part}
        groups = _clusters(list_observations(part, fleet, until=until), settings)
        events += [_event(group, by_id, settings) for group in groups]
    return [event for event in events if event is not None]


def _by_provenance(incidents: Sequence[Incident]) -> tuple[list[Incident], list[Incident]]:
    """Return the incidents with host findings, reduced to these, and the incidents without any.

    Otherwise shared tokens could turn a real fault into a storm, which drains nothing.
    """
    by_host, other = list[Incident](), list[Incident]()
    for incident in incidents:
        findings = _host_findings(incident)
        is_shared = bool(findings) and findings[0].vouched is Provenance.SHARED
        (other if is_shared else by_host).append(replace(incident, findings=findings))
    return by_host, other


def _host_findings(incident: Incident) -> tuple[Finding, ...]:
    """Return the findings of hosts, or all findings if there are none."""
    by_host = tuple(f for f in incident.findings if f.vouched is Provenance.HOST)
    return by_host or incident.findings


def event_ends_at(incident: Incident, settings: ResponseSettings, now: Nanoseconds) -> Nanoseconds:
    """Return the time after which no further finding of a shared incident is expected."""
    span = _span(incident.shared, settings)
    latest = now + settings.ahead
    times = [f.at for f in _host_findings(incident) if is_event(f) and f.at <= latest]
    return Nanoseconds(max(times, default=incident.opened_at) + span)


def belongs_to_event(finding: Finding, shared: Incident, settings: ResponseSettings) -> bool:
    """Tell whether a finding belongs to an event: it shares a cause and the time."""
    span = _span(shared.shared, settings)
    return is_event(finding) and any(
        part.cause == finding.cause and abs(part.at - finding.at) < span and part.supports(finding)
        for part in shared.findings
    )


def first_affected_machines(
    findings: Iterable[Finding], shared: str, settings: ResponseSettings
) -> tuple[str, ...]:
    """Return the machines that may have been affected first, most likely first.

    Clocks may be wrong by their skew: every machine that may be earlier than the latest possible
    time of the first one is a candidate. Findings long before the event are ignored.
    """
    first: dict[str, Nanoseconds] = {}
    for finding in _last_burst(findings, _span(shared, settings)):
        first[finding.machine] = min(finding.at, first.get(finding.machine, finding.at))
    skews = {machine: settings.skews.get(machine, settings.skew) for machine in first}
    latest = min((at + skews[machine] for machine, at in first.items()), default=0)
    possible = [machine for machine, at in first.items() if at - skews[machine] <= latest]
    return tuple(sorted(possible, key=lambda machine: (first[machine], machine)))


def _span(shared: str, settings: ResponseSettings) -> Nanoseconds:
    kind, _, name = shared.partition(" ")
    return settings.group_wait_for(name if kind == "job" else None)


def _last_burst(findings: Iterable[Finding], span: Nanoseconds) -> list[Finding]:
    """Return the newest event findings, back to a gap of at least `span`."""
    newest_first = sorted(filter(is_event, findings), key=lambda finding: -finding.at)
    for number, (later, earlier) in enumerate(pairwise(newest_first), start=1):
        if later.at - earlier.at >= span:
            return newest_first[:number]
    return newest_first


def describe_event(shared: str, n_machines: int, possible: Sequence[str]) -> str:
    """Return the reason text of a shared incident, which drains nothing."""
    words = f"{n_machines} machines of {shared} at once: one event, no machine is drained for it"
    if len(possible) == 1:
        return f"{words}; {possible[0]} was first"
    names = ", ".join(possible[:5]) + (" and others" if len(possible) > 5 else "")
    return f"{words}; clocks cannot tell which of {names} was first"


# --- clustering -----------------------------------------------------------------------------------


class _DisjointSets:
    """Union-find of observations, by number."""

    def __init__(self, size: int) -> None:
        self._parents = list(range(size))
        self.linked = [False] * size

    def root(self, number: int) -> int:
        """Return the root of an observation's group."""
        while self._parents[number] != number:
            self._parents[number] = self._parents[self._parents[number]]
            number = self._parents[number]
        return number

    def link(self, first: int, second: int) -> None:
        """Merge the groups of two observations."""
        self.linked[first] = self.linked[second] = True
        self._parents[self.root(second)] = self.root(first)


def _clusters(
    observations: list[Observation], settings: ResponseSettings
) -> list[list[Observation]]:
    """Return the groups of observations that form one event."""
    links = _DisjointSets(len(observations))
    numbers = {id(observation): number for number, observation in enumerate(observations)}
    for key, group in group_by_key(observations).items():
        many, span = event_thresholds(key, settings)
        _link_windows(group, [numbers[id(s)] for s in group], links, many=many, span=span)
    groups: dict[int, list[Observation]] = defaultdict(list)
    for number, observation in enumerate(observations):
        if links.linked[number]:
            groups[links.root(number)].append(observation)
    return list(groups.values())


def event_thresholds(key: GroupKey, settings: ResponseSettings) -> tuple[int, Nanoseconds]:
    """Return how many machines that share this key form an event, and within which span."""
    kind, name = key
    many = settings.many_of_fleet if kind == "cause" else settings.many
    return many, settings.group_wait_for(name if kind == "job" else None)


def _link_windows(
    group: list[Observation],
    numbers: list[int],
    links: _DisjointSets,
    *,
    many: int,
    span: Nanoseconds,
) -> None:
    """Link all observations of each span that contains many machines."""
    machines: Counter[str] = Counter()
    start, linked_to = 0, 0
    for end, observation in enumerate(group):
        machines[observation.machine] += 1
        while group[start].at <= observation.at - span:
            removed = group[start].machine
            machines[removed] -= 1
            if not machines[removed]:
                del machines[removed]
            start += 1
        if len(machines) >= many:
            for number in range(max(start, linked_to), end + 1):
                links.link(numbers[start], numbers[number])
            linked_to = end + 1


def _event(
    group: list[Observation], by_id: Mapping[int, Incident], settings: ResponseSettings
) -> SharedIncident | None:
    """Return the shared incident of a group; None if the group is already one incident."""
    numbers = list(dict.fromkeys(observation.incident for observation in group))
    earlier = [by_id[number] for number in numbers if by_id[number].shared]
    into = min(earlier, key=lambda incident: incident.id) if earlier else None
    joining = [by_id[n] for n in numbers if into is None or n != into.id]
    joining = [i for i in joining if not _isolates(i) and not _is_manual(i)]
    if into is not None:
        joining = _keep_joining(joining, into, settings)
    if not joining:
        return None
    parts = [*([into] if into else []), *joining]
    isolated = [by_id[n] for n in numbers if _isolates(by_id[n])]
    findings = [f for incident in (*parts, *isolated) for f in incident.findings]
    shared = into.shared if into else _common_key(group, settings)
    possible = first_affected_machines(findings, shared, settings)
    machines = _machines(group, parts, possible[0])
    return SharedIncident(
        shared=shared,
        machine=possible[0],
        machines=machines,
        candidates=possible,
        incidents=tuple(incident.id for incident in joining),
        into=into.id if into else None,
        why=describe_event(shared, len(machines), possible),
    )


def _is_manual(incident: Incident) -> bool:
    """Tell whether a person has requested an action on this machine."""
    return any(finding.cause == MANUAL_CAUSE for finding in incident.findings)


def _isolates(incident: Incident) -> bool:
    return any(action.open and action.step.isolates for action in incident.actions)


def _keep_joining(
    joining: list[Incident], into: Incident, settings: ResponseSettings
) -> list[Incident]:
    """Exclude new incidents on a few of the event's machines: they wait until it is over.

    Incidents with a cause of the event join it, and so do incidents on many of its machines.
    """
    new_causes = [
        incident
        for incident in joining
        if incident.machine in into.machines
        and not all(belongs_to_event(f, into, settings) for f in incident.findings if is_event(f))
    ]
    if len({incident.machine for incident in new_causes}) >= settings.many:
        return joining
    return [incident for incident in joining if incident not in new_causes]


def _machines(
    group: Sequence[Observation], parts: Sequence[Incident], first: str
) -> tuple[str, ...]:
    names = [observation.machine for observation in group]
    names += [name for incident in parts for name in incident.machines]
    return tuple(dict.fromkeys([first, *names]))


def _common_key(group: Sequence[Observation], settings: ResponseSettings) -> str:
    """Return what most of the machines share: a job before a switch before a rack."""
    machines: dict[GroupKey, set[str]] = defaultdict(set)
    for observation in group:
        for key in observation.keys:
            machines[key].add(observation.machine)
    large = {key: len(names) for key, names in machines.items() if len(names) >= settings.many}
    kind, name = max(large, key=lambda key: (large[key], -_ORDER.index(key[0]), key))
    return f"{kind} {name}"
