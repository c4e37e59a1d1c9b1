"""What follows an attempt of a launched job: the next one, a wait for machines, or the end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.recovery.launch_record import Attempt, Loss
from forewarn.pipelines.recovery.launch_table import LaunchTable
from forewarn.response.policy.ladder_rules import LadderRules
from forewarn.response.recovery.job_crash import FaultOrigin, JobAbilities, JobCrash, NoSpare
from forewarn.response.recovery.ladder import RungChoice
from forewarn.response.recovery.rank_assignment import assign
from forewarn.response.recovery.recovery_plan import PlanState, plan_recovery
from forewarn.response.recovery.recovery_state import (
    CheckpointSaved,
    RecoveryEvent,
    RungBegun,
    StepMade,
    recovery_state,
)
from forewarn.response.state.rung import Rung

__all__ = [
    "LAUNCHER_RUNGS",
    "PLAIN_RULES",
    "NextAttempt",
    "Stop",
    "launch_events",
    "next_attempt",
    "replaced_within",
    "resubmitted",
]

PLAIN_RULES: Final = LadderRules(limits={})
"""Without the ladder of a site: the limits of the job's file alone, `start` and `silence`."""
LAUNCHER_RUNGS: Final = frozenset({Rung.REPLACE, Rung.RESTART})
"""With the fixed ranks of torchrun, all processes start again in any case."""


@dataclass(frozen=True, slots=True)
class NextAttempt:
    """How the job goes on.

    Attributes
    ----------
    rung : Rung or None
        None for the first attempt.
    machines : tuple of str
        By node rank; empty: there are too few, and the job waits.
    out : tuple of str
        Machines that it does not use any more.
    reason : str
    """

    rung: Rung | None
    machines: tuple[str, ...]
    out: tuple[str, ...]
    reason: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The job ends.

    Attributes
    ----------
    reason : str
    is_resubmission : bool
        Whether the job should be submitted again, as all that the launcher can do has failed.
    """

    reason: str
    is_resubmission: bool


def next_attempt(
    table: LaunchTable, attempts: Sequence[Attempt], rules: LadderRules = PLAIN_RULES
) -> NextAttempt | Stop:
    """Return what follows the attempts so far.

    Parameters
    ----------
    table : LaunchTable
    attempts : sequence of Attempt
        In order; all have ended.
    rules : LadderRules
    """
    if not attempts:
        return _next(table, (), (), None, "the job begins")
    last = attempts[-1]
    out = {*last.out}
    if not last.origin:  # nothing is wrong with it: it, or its launcher, was stopped
        rung = Rung.RESTART if last.is_started or last.rung is None else last.rung
        return _next(table, last.machines, out, rung, "it, or its launcher, was stopped")
    spares = [h for h in table.hosts if h not in out and h not in last.machines]
    plan = plan_recovery(
        recovery_state(launch_events(attempts), rules),
        _abilities(table),
        rules,
        last.end or last.begin,
        spares=len(spares),
    )
    choice = plan.choice
    if plan.state is PlanState.STOP or choice is None:
        return Stop(plan.reason, is_resubmission=False)
    if choice.rung is Rung.RESUBMIT:
        return Stop(choice.reason, is_resubmission=True)
    if _leaves_machine(choice):
        out.add(last.blamed)
    return _next(table, last.machines, out, choice.rung, choice.reason)


def replaced_within(
    table: LaunchTable, attempt: Attempt, lost: str, at: Nanoseconds
) -> Attempt | None:
    """Return the attempt in which a spare takes the rank of a machine lost at a time.

    None if there is no spare, or the launcher of the job cannot do it while the job runs.
    """
    out = {*attempt.out, lost}
    unused = [host for host in table.hosts if host not in out and host not in attempt.machines]
    if table.launcher != "dlrover" or not unused:
        return None
    machines = tuple(unused[0] if host == lost else host for host in attempt.machines)
    losses = (*attempt.losses, Loss(lost, at))
    return replace(attempt, machines=machines, out=tuple(sorted(out)), losses=losses)


def resubmitted(table: LaunchTable, attempts: Sequence[Attempt]) -> NextAttempt:
    """Return the attempt of a job that had stopped, or waited, and was launched again.

    The hosts in its file count as checked: all may be used again.
    """
    return _next(table, attempts[-1].machines, (), Rung.RESUBMIT, "it was launched again")


def _leaves_machine(choice: RungChoice) -> bool:
    return choice.rung is Rung.REPLACE and choice.without_spare is not NoSpare.STAY


def _next(
    table: LaunchTable,
    machines: tuple[str, ...],
    out: set[str] | tuple[()],
    rung: Rung | None,
    reason: str,
) -> NextAttempt:
    assignment = assign(machines, out, table.hosts, table.unit, table.minimum, nodes=table.nodes)
    return NextAttempt(rung, assignment.machines, tuple(sorted(out)), reason)


def _abilities(table: LaunchTable) -> JobAbilities:
    """Return what the launcher can do, and what the job wishes without a spare."""
    wish = NoSpare.SHRINK if table.minimum < table.nodes else NoSpare.WAIT
    return JobAbilities(rungs=LAUNCHER_RUNGS, without_spare=(wish,))


def launch_events(attempts: Sequence[Attempt]) -> Iterator[RecoveryEvent]:
    """Yield what the launcher knows of the recovery of a job."""
    for previous, attempt in zip((None, *attempts), attempts, strict=False):
        if attempt.rung is not None and not _is_continued(previous, attempt):
            yield RungBegun(attempt.begin, attempt.rung)
        end = attempt.end or attempt.begin
        if attempt.saved is not None:
            yield CheckpointSaved(end, attempt.saved)
        if attempt.is_started:
            yield StepMade(end)
        if attempt.origin:
            yield _crash(attempt, end)


def _is_continued(previous: Attempt | None, attempt: Attempt) -> bool:
    """Tell whether an attempt carries on a rung that was stopped before its first step."""
    if previous is None or previous.origin or previous.is_started:
        return False
    return attempt.rung is previous.rung


def _crash(attempt: Attempt, at: Nanoseconds) -> JobCrash:
    return JobCrash(
        at,
        FaultOrigin(attempt.origin),
        attempt.cause,
        attempt.blamed or None,
        hits_rank_zero=attempt.blamed == attempt.machines[0],
    )
