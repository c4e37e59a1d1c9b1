"""Sightings: when which machine was first affected, and what it shares with others then."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from forewarn.features.time_units import Nanoseconds
from forewarn.response.state.finding import BY_HAND, Finding, FindingKind
from forewarn.response.state.incident import Incident
from forewarn.response.state.machine import Machine

__all__ = ["Key", "Sighting", "by_key", "is_event", "keys_of", "near", "sightings"]

Key = tuple[str, str]
"""What machines can share: `("job", "4711")`, `("rack", "r7")`, `("switch", "s2")`, or a cause."""

# A list of predictions is written at one moment, and a person may drain a whole rack: no events.
_NO_EVENTS = frozenset({FindingKind.AT_RISK, FindingKind.FOREIGN_DRAIN})


@dataclass(frozen=True, slots=True)
class Sighting:
    """One finding about one machine, as a part of what may be one event on many.

    Attributes
    ----------
    finding : Finding
    incident : int
    keys : tuple of (str, str)
    """

    finding: Finding
    incident: int
    keys: tuple[Key, ...]

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
    return finding.kind not in _NO_EVENTS and finding.cause != BY_HAND


def keys_of(finding: Finding, fleet: Mapping[str, Machine]) -> tuple[Key, ...]:
    """Return what the machine of a finding may share with others; jobs come first."""
    machine = fleet.get(finding.machine)
    jobs = [finding.job] if finding.job is not None else list(machine.jobs if machine else ())
    keys: list[Key] = [("job", job) for job in jobs]
    if machine is not None and machine.switch is not None:
        keys.append(("switch", machine.switch))
    if machine is not None and machine.rack is not None:
        keys.append(("rack", machine.rack))
    return (*keys, ("cause", finding.cause))


def sightings(
    incidents: Iterable[Incident], fleet: Mapping[str, Machine], *, until: Nanoseconds
) -> list[Sighting]:
    """Return what open incidents say, without what lies after `until`, the oldest first."""
    seen = [
        Sighting(finding, incident.id, keys_of(finding, fleet))
        for incident in incidents
        for finding in incident.findings
        if is_event(finding) and finding.at <= until
    ]
    return sorted(seen, key=lambda sighting: (sighting.at, sighting.machine, sighting.incident))


def near(seen: Sequence[Sighting], at: Nanoseconds, span: Nanoseconds) -> Sequence[Sighting]:
    """Return the sightings less than a span before or after a moment, of some from old to new."""
    first = bisect_right(seen, at - span, key=_at)
    return seen[first : bisect_left(seen, at + span, key=_at)]


def by_key(seen: Iterable[Sighting]) -> dict[Key, list[Sighting]]:
    """Return the sightings of each job, rack, switch and cause, in the order given."""
    groups: dict[Key, list[Sighting]] = defaultdict(list)
    for sighting in seen:
        for key in sighting.keys:
            groups[key].append(sighting)
    return dict(groups)
