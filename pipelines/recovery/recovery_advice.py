"""`forewarn advise recovery`: how an interrupted job goes on."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from forewarn.features.duration import format_duration
from forewarn.features.errors import InputError
from forewarn.features.time_units import SECOND, Nanoseconds
from forewarn.pipelines.config.respond_tables import RecoveryTable
from forewarn.pipelines.recovery.job_life import read_life
from forewarn.pipelines.recovery.launch_plan import LAUNCHER_RUNGS, launch_events
from forewarn.pipelines.recovery.launch_record import (
    Attempt,
    attempt_folder,
    launched_runs,
    read_attempts,
)
from forewarn.pipelines.recovery.lost_job import names_of_job, scheduled_runs_of
from forewarn.pipelines.recovery.recovery_site import RecoverySite, rung_to_record
from forewarn.pipelines.recovery.scheduler_runs import ScheduledRun
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.response.policy.ladder_rules import LadderRules
from forewarn.response.recovery.interruption_losses import interruption_losses
from forewarn.response.recovery.job_crash import JobAbilities, JobCrash
from forewarn.response.recovery.job_run import JobRun, RunEnd
from forewarn.response.recovery.ladder import NoSpareCosts
from forewarn.response.recovery.life_events import life_events
from forewarn.response.recovery.lost_time import TimeUse, account_for
from forewarn.response.recovery.measured_limits import measured_limits
from forewarn.response.recovery.recovery_plan import PlanState, RecoveryPlan, plan_recovery
from forewarn.response.recovery.recovery_state import (
    RecoveryEvent,
    RecoveryState,
    RungBegun,
    StepMade,
    recovery_state,
)
from forewarn.response.state.rung import Rung

__all__ = ["RUNG_NOUNS", "RecoveryAdviceError", "advise_recovery", "recovery_lines"]

_Taken = Sequence[tuple[Rung, float]]


class RecoveryAdviceError(InputError):
    """Files from which no plan can be made; the message is one line."""


def advise_recovery(
    job: Path,
    runs: Path | None,
    site: RecoverySite,
    *,
    at: int,
    lost: Path | None = None,
    begins: bool = False,
    gpus: int | None = None,
    zone: dt.tzinfo = dt.UTC,
) -> dict[str, Any]:
    """Return the plan as the command prints it (docs/reference/formats.md, section 11).

    Parameters
    ----------
    job : Path
        Folder, log or archive.
    runs : Path or None
        File of the scheduler.
    site : RecoverySite
    at : int
        Nanoseconds since 1970 UTC; what happens later is ignored.
    lost : Path, optional
        Output of `forewarn lost --fleet --json`: how long restarts take at this site.
    begins : bool
        Whether a rung that begins is recorded in the ledger, with the block that it needs.
    gpus, zone
        As in `read_life`.

    Raises
    ------
    InputError
        If the job or a file cannot be used.
    """
    name = job.resolve().name
    scheduled = scheduled_runs_of(name, runs, zone=zone)
    names = names_of_job(name, scheduled)
    rules = site.policy.ladder
    if lost is not None:
        rules = measured_limits(rules, _read_taken(lost))
    life = read_life(job, scheduled, gpus=gpus, zone=zone, policy=site.policy)
    attempts = read_attempts(job)
    held = list(launched_runs(job)) or scheduled
    machines = held[-1].machines if held else ()
    seen = [
        site.with_findings(event, machines) if isinstance(event, JobCrash) else event
        for event in _events(life, attempts)
    ]
    costs = _costs(life, len(machines), site.table)
    abilities = _abilities(site.table, scheduled, at, is_launched=bool(attempts))

    def plan(recorded: Iterable[RecoveryEvent]) -> tuple[RecoveryState, RecoveryPlan]:
        known = (event for event in (*seen, *recorded) if event.at <= at)
        state = recovery_state(known, rules)
        return state, plan_recovery(
            state, abilities, rules, Nanoseconds(at), spares=site.spares, costs=costs
        )

    owner = scheduled[-1].job_id if scheduled else name
    if begins:
        state, decided = site.begin(owner, names, plan, Nanoseconds(at))
    else:
        state, decided = plan(site.recorded(names))
    is_recorded = begins and rung_to_record(decided) is not None
    return _line(name, at, state, decided) | {
        "recorded": is_recorded,
        "evidence": str(attempt_folder(job, attempts[-1].number) if attempts else job),
        "budget": _budget(state, rules, at),
        "attempts": [_attempt_row(run, held) for run in life if run.begin <= at],
    }


def _events(life: Sequence[JobRun], attempts: Sequence[Attempt]) -> Iterator[RecoveryEvent]:
    """Yield what happened to a job; of one that `forewarn launch` runs, as the launcher saw it."""
    if not attempts:
        yield from life_events(life)
        return
    for event in launch_events(attempts):  # a rung may be the execution of a recorded decision
        yield replace(event, is_observed=True) if isinstance(event, RungBegun) else event
    yield from (event for event in life_events(life) if isinstance(event, StepMade))


def _abilities(
    table: RecoveryTable, scheduled: Sequence[ScheduledRun], at: int, *, is_launched: bool
) -> JobAbilities:
    abilities = table.abilities()
    if is_launched:
        rungs = abilities.rungs & {Rung.REQUEUE} if scheduled else frozenset[Rung]()
        abilities = replace(abilities, rungs=rungs | LAUNCHER_RUNGS, graceful=False)
    end = scheduled[-1].end if scheduled else None
    if end is not None and end <= at:  # its machines are gone
        abilities = replace(abilities, rungs=abilities.rungs & {Rung.REQUEUE})
    return abilities


def _budget(state: RecoveryState, rules: LadderRules, at: int) -> dict[str, Any]:
    return {
        "retries": rules.retries,
        "left": state.retries_left,
        "restarts": sum(time > at - rules.within for time in state.retries),
        "most": rules.most,
        "within": format_duration(rules.within // SECOND),
    }


def _attempt_row(run: JobRun, held: Sequence[ScheduledRun]) -> dict[str, Any]:
    machines = [each.machines for each in held if each.begin <= run.begin]
    return {
        "begin": format_iso(run.begin),
        "end": None if run.ended is RunEnd.RUNNING else format_iso(run.end),
        "rung": run.rung.value,
        "machines": list(machines[-1]) if machines else [],
        "ended": run.ended.value,
        "cause": run.cause or None,
        "blamed": list(run.machines),
        "first_step": run.steps[0].number if run.steps else None,
        "last_step": run.steps[-1].number if run.steps else None,
    }


def _read_taken(path: Path) -> _Taken:
    """Return the seconds from the begin of each restart to its first step."""
    try:
        rows = json.loads(path.read_text(encoding="utf-8"))["interruptions"]
        return [
            (Rung(row["rung"]), row["seconds"]["schedule"] + row["seconds"]["initialise"])
            for row in rows
            if row["rung"] in set(Rung)
        ]
    except (ValueError, KeyError, TypeError):
        raise RecoveryAdviceError(
            f"{path}: has no `interruptions`, expected the output of `forewarn lost --json`."
        ) from None


def _costs(life: Sequence[JobRun], machines: int, table: RecoveryTable) -> NoSpareCosts | None:
    """Return what decides without a spare; None as long as no restart of the job was seen."""
    losses = interruption_losses("", account_for(life))
    restarts = [
        loss.seconds[TimeUse.INITIALISE] + loss.seconds[TimeUse.RECOMPUTE]
        for loss in losses
        if loss.rung is not None
    ]
    if not restarts or not machines:
        return None
    left_out = 1 + (machines - 1) % table.unit
    gpus = life[-1].gpus
    return NoSpareCosts(
        wait_seconds=table.spare_wait / SECOND,
        restart_seconds=sum(restarts) / len(restarts),
        gpus=gpus,
        gpus_left_out=gpus * min(left_out, machines) // machines,
    )


def _line(job: str, at: int, state: RecoveryState, plan: RecoveryPlan) -> dict[str, Any]:
    crash, choice = state.crash, plan.choice
    return {
        "job": job,
        "at": format_iso(at),
        "state": plan.state.value,
        "rung": None if choice is None else choice.rung.value,
        "reason": plan.reason,
        "until": None if plan.until is None else format_iso(plan.until),
        "next_rung": None if plan.next_rung is None else plan.next_rung.value,
        "skipped": [] if choice is None else [rung.value for rung in choice.skipped],
        "block": "none" if choice is None else choice.scope.value,
        "machine": None if crash is None else crash.machine,
        "without_spare": _value(None if choice is None else choice.without_spare),
        "interrupted_at": None if crash is None else format_iso(crash.at),
        "origin": None if crash is None else crash.origin.value,
        "cause": (crash.cause or None) if crash else None,
        "tried": [begun.rung.value for begun in state.tried],
        "retries_left": plan.retries_left,
        "furthest_saved": state.furthest_saved,
    }


def _value(choice: Any) -> str | None:
    return None if choice is None else str(choice)


def recovery_lines(line: Mapping[str, Any]) -> Iterator[str]:
    """Yield a plan as text."""
    if line["state"] == PlanState.TRAINING:
        yield f"{line['job']}: nothing to do, {line['reason']}."
        return
    yield (
        f"{line['job']} was interrupted at {line['interrupted_at']}: "
        f"{line['cause'] or 'the cause is unknown'}."
    )
    if line["state"] == PlanState.STOP:
        yield f"Stop it, and look into the cause: {line['reason']}."
        return
    rung = line["rung"]
    if line["state"] == PlanState.BEGIN:
        yield f"{_IMPERATIVES[rung].format(line['machine'])}: {line['reason']}."
    else:
        yield f"{RUNG_NOUNS[rung]} is under way."
    if line["until"] is not None:
        yield f"If no step is made by {line['until']}, it has failed."
    yield from _further(line)


def _further(line: Mapping[str, Any]) -> Iterator[str]:
    if line["block"] != "none":
        words = "this job" if line["block"] == "job" else "all jobs"
        yield f"Block {line['machine']} for {words}."
    if line["skipped"]:
        yield f"The job cannot do milder ones: {_names(line['skipped'])}."
    rung = line["next_rung"]
    following = "a person decides" if rung is None else RUNG_NOUNS[rung].lower()
    yield f"After that: {following}."
    yield f"Retries left for unknown causes: {line['retries_left']}."


def _names(rungs: Iterable[str]) -> str:
    return ", ".join(RUNG_NOUNS[rung].lower() for rung in rungs)


_IMPERATIVES: Mapping[str, str] = {
    Rung.STEP_RETRY: "Retry the step",
    Rung.PROCESS: "Restart the processes that failed",
    Rung.REPLACE: "Replace {}",
    Rung.RESTART: "Restart all processes in place",
    Rung.REQUEUE: "Requeue the job",
    Rung.RESUBMIT: "Submit the job again",
}
RUNG_NOUNS: Mapping[str, str] = {
    Rung.STEP_RETRY: "A retry of the step",
    Rung.PROCESS: "A restart of the failed processes",
    Rung.REPLACE: "A replacement of the machine",
    Rung.RESTART: "A restart in place",
    Rung.REQUEUE: "A requeue",
    Rung.RESUBMIT: "A new submission by a person",
}
