"""Situation: all inputs of a decision at one moment."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from forewarn.features.time_units import Nanoseconds
from forewarn.response.decision.interlocks import Interlock
from forewarn.response.decision.manual_override import Override
from forewarn.response.grouping.event_observations import (
    GroupKey,
    Observation,
    group_by_key,
    list_observations,
)
from forewarn.response.policy.policy import Policy
from forewarn.response.state.action import Action
from forewarn.response.state.decision import Decision
from forewarn.response.state.incident import Incident
from forewarn.response.state.machine import Machine
from forewarn.response.state.pool import Pool
from forewarn.response.state.response_settings import ResponseSettings
from forewarn.response.state.step import Step

__all__ = ["Approval", "Situation", "group_by_machine"]


@dataclass(frozen=True, slots=True)
class Approval:
    """Approval of a decision by a person.

    Attributes
    ----------
    decision : Decision
        The decision that was shown; no more disruptive step is approved.
    at : int
        Nanoseconds since 1970 UTC.
    who : str
    """

    decision: Decision
    at: Nanoseconds
    who: str


@dataclass(frozen=True)
class Situation:
    """All inputs of a decision.

    Attributes
    ----------
    now : int
        Nanoseconds since 1970 UTC.
    fleet : mapping of str to Machine
        By name, as last read.
    pools : mapping of str to Pool
        Pools in which actions are configured.
    policy : Policy
    open : mapping of str to sequence of Incident
        Open incidents by each of their machines, shared incidents included.
    recent : sequence of Action
        All open actions, and all of the last 8 days.
    overrides : sequence of Override
    approvals : mapping of int to Approval
        The last approval of each incident.
    interlocks : sequence of Interlock
    settings : ResponseSettings
    returned_at : mapping of str to int
        When machines returned to service after an external drain.
    clock_alone : bool
        No second clock confirms the local one: drains must let jobs finish.
    requests : mapping of int to str
        What a person was asked to do on a drained machine, by action.
    observation_index : mapping of (str, str) to sequence of Observation, or None
        Precomputed `observations`.
    """

    now: Nanoseconds
    fleet: Mapping[str, Machine]
    pools: Mapping[str, Pool]
    policy: Policy
    open: Mapping[str, Sequence[Incident]] = field(default_factory=dict)
    recent: Sequence[Action] = ()
    overrides: Sequence[Override] = ()
    approvals: Mapping[int, Approval] = field(default_factory=dict)
    interlocks: Sequence[Interlock] = ()
    settings: ResponseSettings = field(default_factory=ResponseSettings)
    returned_at: Mapping[str, Nanoseconds] = field(default_factory=dict)
    clock_alone: bool = False
    requests: Mapping[int, str] = field(default_factory=dict)
    observation_index: Mapping[GroupKey, Sequence[Observation]] | None = None

    def other_incidents(self, incident: Incident) -> list[Incident]:
        """Return the other open incidents of its machine."""
        return [other for other in self.open.get(incident.machine, ()) if other.id != incident.id]

    def replacement_approved(self, action: Action) -> bool:
        """Tell whether a person approved to replace the machine of an action."""
        approval = self.approvals.get(action.incident)
        return (
            approval is not None
            and approval.decision.step is Step.REPLACE
            and action.at < approval.decision.valid_until
        )

    @cached_property
    def observations(self) -> Mapping[GroupKey, Sequence[Observation]]:
        """Observations of open incidents by job, rack and switch, oldest first."""
        if self.observation_index is not None:
            return self.observation_index
        incidents = {i.id: i for group in self.open.values() for i in group}
        until = Nanoseconds(self.now + self.settings.ahead)
        return group_by_key(list_observations(incidents.values(), self.fleet, until=until))

    @cached_property
    def job_sizes(self) -> Counter[str]:
        """Number of machines of each job."""
        return Counter(job for machine in self.fleet.values() for job in set(machine.jobs))


def group_by_machine(incidents: Iterable[Incident]) -> dict[str, list[Incident]]:
    """Group incidents by each of their machines."""
    groups: dict[str, list[Incident]] = defaultdict(list)
    for incident in incidents:
        for machine in dict.fromkeys([incident.machine, *incident.machines]):
            groups[machine].append(incident)
    return dict(groups)
