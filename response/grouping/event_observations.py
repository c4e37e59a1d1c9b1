"""Sightings: when which machine was first affected, and what it shares with others then."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.finding import MANUAL_CAUSE, Finding, FindingKind
from forewarn.response.state.incident import Incident
from forewarn.response.state.machine import Machine

__all__ = [
    "GroupKey",
    "Observation",
    "group_by_key",
    "group_keys",
    "is_event",
    "list_observations",
    "select_within",
]

GroupKey = tuple[str, str]
"""What machines can share: `("job", "4711")`, `("rack", "r7")`, `("switch", "s2")`, or a cause."""

# A list of predictions is written at one moment, and a person may drain a whole rack: no events.
_NON_EVENT_KINDS = frozenset({FindingKind.AT_RISK, FindingKind.EXTERNAL_DRAIN})


@dataclass(frozen=True, slots=True)
class Observation:
    """One finding about one machine, as a part of what may be one event on many.

    Attributes
    ----------
    finding : Finding
    incident : int
    keys : tuple of (str, str)
    """

    finding: Finding
    incident: int
    keys: tuple[GroupKey, ...]

    @property
    def at(self) -> Nanoseconds:
        """Return when it was so, by the clock of the machine."""
        return self.finding.at

    @property
    def machine(self) -> str:
        """Return the machine that it is about."""
        return self.finding.machine


_at = attrgetter("at")


def is_event(finding: Finding) -> bool:
    """Tell whether a finding says that something happened at its time."""
    return finding.kind not in _NON_EVENT_KINDS and finding.cause != MANUAL_CAUSE


def group_keys(finding: Finding, fleet: Mapping[str, Machine]) -> tuple[GroupKey, ...]:
    """Return what the machine of a finding may share with others; jobs come first."""
    machine = fleet.get(finding.machine)
    jobs = [finding.job] if finding.job is not None else list(machine.jobs if machine else ())
    keys: list[GroupKey] = [("job", job) for job in jobs]
    if machine is not None and machine.switch is not None:
        keys.append(("switch", machine.switch))
    if machine is not None and machine.rack is not None:
        keys.append(("rack", machine.rack))
    return (*keys, ("cause", finding.cause))


def list_observations(
    incidents: Iterable[Incident], fleet: Mapping[str, Machine], *, until: Nanoseconds
) -> list[Observation]:
    """Return what open incidents say, without what lies after `until`, the oldest first."""
    seen = [
        Observation(finding, incident.id, group_keys(finding, fleet))
        for incident in incidents
        for finding in incident.findings
        if is_event(finding) and finding.at <= until
    ]
    return sorted(seen, key=lambda sighting: (sighting.at, sighting.machine, sighting.incident))


def select_within(
    seen: Sequence[Observation], at: Nanoseconds, span: Nanoseconds
) -> Sequence[Observation]:
    """Return the sightings less than a span before or after a moment, of some from old to new."""
    first = bisect_right(seen, at - span, key=_at)
    return seen[first : bisect_left(seen, at + span, key=_at)]


def group_by_key(seen: Iterable[Observation]) -> dict[GroupKey, list[Observation]]:
    """Return the sightings of each job, rack, switch and cause, in the order given."""
    groups: dict[GroupKey, list[Observation]] = defaultdict(list)
    for sighting in seen:
        for key in sighting.keys:
            groups[key].append(sighting)
    return dict(groups)
