"""Observations: findings indexed by what their machines share."""

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
"""What machines share: `("job", "4711")`, `("rack", "r7")`, `("switch", "s2")`, or a cause."""

# Predictions share one time, and a person may drain a whole rack: neither is an event.
_NON_EVENT_KINDS = frozenset({FindingKind.AT_RISK, FindingKind.EXTERNAL_DRAIN})


@dataclass(frozen=True, slots=True)
class Observation:
    """One finding about one machine, as a possible part of an event on many machines.

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
        """Return the time of the finding, by the clock of the machine."""
        return self.finding.at

    @property
    def machine(self) -> str:
        """Return the machine of the finding."""
        return self.finding.machine


_at = attrgetter("at")


def is_event(finding: Finding) -> bool:
    """Tell whether a finding reports an event at its time."""
    return finding.kind not in _NON_EVENT_KINDS and finding.cause != MANUAL_CAUSE


def group_keys(finding: Finding, fleet: Mapping[str, Machine]) -> tuple[GroupKey, ...]:
    """Return what the finding's machine shares with others, jobs first."""
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
    """Return the observations of open incidents up to `until`, oldest first."""
    observations = [
        Observation(finding, incident.id, group_keys(finding, fleet))
        for incident in incidents
        for finding in incident.findings
        if is_event(finding) and finding.at <= until
    ]
    return sorted(
        observations,
        key=lambda observation: (observation.at, observation.machine, observation.incident),
    )


def select_within(
    observations: Sequence[Observation], at: Nanoseconds, span: Nanoseconds
) -> Sequence[Observation]:
    """Return the observations less than a span before or after a moment; input oldest first."""
    first = bisect_right(observations, at - span, key=_at)
    return observations[first : bisect_left(observations, at + span, key=_at)]


def group_by_key(observations: Iterable[Observation]) -> dict[GroupKey, list[Observation]]:
    """Group observations by job, rack, switch and cause, in the given order."""
    groups: dict[GroupKey, list[Observation]] = defaultdict(list)
    for observation in observations:
        for key in observation.keys:
            groups[key].append(observation)
    return dict(groups)
