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
from forewarn.response.state.job_block import JobBlock
from forewarn.response.state.step import DrainMode, Step

__all__ = ["JobNotice", "MachineNotice", "NoticeState", "job_notices"]

_HOLDS = (ActionState.SENT, ActionState.HOLDING, ActionState.DRAINED)


class NoticeState(StrEnum):
    """What a job is told about a machine, the least urgent first.

    `AVOIDED`: new jobs avoid it. `BLOCKED`: this job does not get it when it starts again.
    `AT_RISK`: it should be drained, and a limit or a missing approval prevents it. `DRAINING`: it
    takes no further job.
    """

    AVOIDED = "avoided"
    BLOCKED = "blocked"
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
    decided: Iterable[tuple[Incident, Decision]],
    actions: Iterable[Action],
    blocks: Iterable[JobBlock],
    situation: Situation,
) -> list[JobNotice]:
    """Return the notices of all running jobs, sorted by job.

    The same situation gives equal notices. What is only observed is not told.

    Parameters
    ----------
    decided : iterable of (Incident, Decision)
        Of this round.
    actions : iterable of Action
        Open ones.
    blocks : iterable of JobBlock
        Active ones.
    situation : Situation
    """
    entries = [
        *((_from_action(action), _affected_jobs(action, situation)) for action in actions),
        *((_from_decision(i, d, situation), None) for i, d in decided),
        *((_from_block(block), (block.job,)) for block in blocks),
    ]
    order = list(NoticeState)
    by_job: defaultdict[str, dict[str, MachineNotice]] = defaultdict(dict)
    known = [(entry, jobs) for entry, jobs in entries if entry is not None]
    for entry, jobs in sorted(known, key=lambda pair: order.index(pair[0].state)):
        machine = situation.fleet.get(entry.machine)
        for name in machine.jobs if machine else ():
            if jobs is None or name in jobs:
                by_job[name][entry.machine] = entry  # the most urgent one is the last
    return [
        JobNotice(job, tuple(entry for _, entry in sorted(by_job[job].items())))
        for job in sorted(by_job)
    ]


def _affected_jobs(action: Action, situation: Situation) -> tuple[str, ...] | None:
    """Return the jobs on the GPU that an action has taken out; None if it is not only a GPU."""
    machine = situation.fleet.get(action.machine)
    return None if machine is None else machine.device_actions.get(action.id)


def _from_block(block: JobBlock) -> MachineNotice:
    return MachineNotice(block.machine, NoticeState.BLOCKED, block.reason, block.at)


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
