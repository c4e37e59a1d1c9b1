"""Notices to running jobs: what is known of their machines, and whether to save now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from forewarn.features.time_units import Nanoseconds
from forewarn.response.decision.situation import Situation
from forewarn.response.decision.usable_findings import (
    find_answering_action,
    find_finding_blocker,
)
from forewarn.response.state.action import Action, ActionState
from forewarn.response.state.decision import Decision, Ruling
from forewarn.response.state.incident import Incident
from forewarn.response.state.step import DrainMode, Step

__all__ = ["JobNotice", "MachineNotice", "NoticeState", "job_notices"]

_HOLDS = (ActionState.SENT, ActionState.HOLDING, ActionState.DRAINED)


class NoticeState(StrEnum):
    """What a job is told about a machine, the least urgent first.

    `AVOIDED`: new jobs avoid it. `AT_RISK`: it should be drained, and a limit or a missing approval
    prevents it. `DRAINING`: it takes no further job.
    """

    AVOIDED = "avoided"
    AT_RISK = "at_risk"
    DRAINING = "draining"


@dataclass(frozen=True, slots=True)
class MachineNotice:
    """What a job is told about one of its machines.

    Attributes
    ----------
    machine : str
    state : NoticeState
    why : str
    since : int
        Nanoseconds since 1970 UTC.
    leaves_at : int or None
        When forewarn ends the job there; None if the job may finish.
    """

    machine: str
    state: NoticeState
    why: str
    since: Nanoseconds
    leaves_at: Nanoseconds | None = None


@dataclass(frozen=True, slots=True)
class JobNotice:
    """What a job is told: one entry for each of its machines about which something is known."""

    job: str
    machines: tuple[MachineNotice, ...]

    @property
    def save_now(self) -> bool:
        """Tell whether the job should save a checkpoint: it may lose a machine."""
        return any(entry.state is not NoticeState.AVOIDED for entry in self.machines)


def job_notices(
    decided: Iterable[tuple[Incident, Decision]], actions: Iterable[Action], situation: Situation
) -> list[JobNotice]:
    """Return the notices of all running jobs, sorted by job.

    The same situation gives equal notices. What is only observed is not told.

    Parameters
    ----------
    decided : iterable of (Incident, Decision)
        Of this round.
    actions : iterable of Action
        Open ones.
    situation : Situation
    """
    entries = [*map(_from_action, actions), *(_from_decision(i, d, situation) for i, d in decided)]
    by_machine: dict[str, MachineNotice] = {}
    order = list(NoticeState)
    for entry in filter(None, entries):
        known = by_machine.get(entry.machine)
        if known is None or order.index(entry.state) > order.index(known.state):
            by_machine[entry.machine] = entry
    by_job: defaultdict[str, list[MachineNotice]] = defaultdict(list)
    for name in sorted(by_machine):
        machine = situation.fleet.get(name)
        for job in machine.jobs if machine else ():
            by_job[job].append(by_machine[name])
    return [JobNotice(job, tuple(by_job[job])) for job in sorted(by_job)]


def _from_action(action: Action) -> MachineNotice | None:
    if action.state not in _HOLDS:
        return None
    if action.step is Step.AVOID:
        return MachineNotice(action.machine, NoticeState.AVOIDED, action.cause, action.at)
    leaves_at = action.valid_until if action.mode is DrainMode.DEADLINE else action.at
    stays = action.mode in (None, DrainMode.FINISH)
    return MachineNotice(
        *(action.machine, NoticeState.DRAINING, action.cause, action.at),
        leaves_at=None if stays else leaves_at,
    )


def _from_decision(
    incident: Incident, decision: Decision, situation: Situation
) -> MachineNotice | None:
    """Return the notice of a drain that is decided and not carried out."""
    if (
        not decision.step.isolates
        or decision.ruling not in (Ruling.PROPOSE, Ruling.HOLD)
        or _is_answered(incident, situation.recent)
        or all(find_finding_blocker(finding, situation) for finding in incident.findings)
    ):
        return None
    cause = incident.findings[-1].cause
    return MachineNotice(incident.machine, NoticeState.AT_RISK, cause, incident.opened_at)


def _is_answered(incident: Incident, recent: Sequence[Action]) -> bool:
    answer = find_answering_action(incident.machine, incident.findings, recent, isolates=True)
    return answer is not None
