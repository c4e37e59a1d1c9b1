"""Command of a step in a separate process, which writes its result into the ledger.

The process outlives the one that started it. If its result is lost, a person is asked.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from forewarn.features.errors import InputError
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.loop.detached_process import (
    AwaitedCommand,
    record_awaited,
    run_detached,
    start_detached,
)
from forewarn.pipelines.incidents.loop.site_command import CommandResult, run_site_command

if TYPE_CHECKING:  # imported when it is needed, to keep the waiting process small
    from forewarn.pipelines.incidents.ledger.ledger import Ledger
    from forewarn.response.state.action import Action

__all__ = ["StepJob", "record_step", "start_step"]


@dataclass(frozen=True, slots=True)
class StepJob(AwaitedCommand):
    """A step that the ledger records as begun; the serial is empty if it is unknown."""

    step: str
    gpu_serial: str


def start_step(job: StepJob) -> None:
    """Start a step without waiting for it.

    Raises
    ------
    OSError
        If the process cannot be started.
    """
    start_detached(__name__, asdict(job), f"the {job.step} of {job.machine}")


def record_step(ledger: Ledger, job: StepJob, result: CommandResult, now: Nanoseconds) -> None:
    """Record the result of a step, if the action still waits for it.

    A command that did not start, or that a signal ended, leaves the result unknown.
    """
    from forewarn.pipelines.incidents.ledger.step_changes import record_change
    from forewarn.response.follow_up.step_progress import StepChange, StepEvent
    from forewarn.response.state.step import Step

    if not result.started or (result.code is not None and result.code < 0):
        event = StepEvent.UNKNOWN
    else:
        event = StepEvent.SUCCEEDED if result.code == 0 else StepEvent.FAILED
    change = StepChange(Step(job.step), event, result.detail, now)
    record_awaited(
        lambda: _awaiting_action(ledger, job), lambda action: record_change(ledger, action, change)
    )


def _awaiting_action(ledger: Ledger, job: StepJob) -> Action | None:
    """Return the action if it still waits for this step."""
    from forewarn.pipelines.incidents.ledger.step_changes import read_changes

    action = ledger.action(job.action)
    changes = read_changes(ledger, job.action)
    if action is None or not action.open or not changes:
        return None
    return action if changes[-1].version == job.version else None


def _run(job: StepJob) -> None:
    """Run the command and record its result, unless the ledger does not await it any more."""
    from forewarn.pipelines.incidents.ledger.database import OpenMode
    from forewarn.pipelines.incidents.ledger.ledger import Ledger

    started = time.monotonic_ns()
    with Ledger.open(job.ledger, opening=OpenMode.EXISTING) as ledger:
        if _awaiting_action(ledger, job) is None:
            return
    values = {"machine": job.machine, "gpu_serial": job.gpu_serial, "action": str(job.action)}
    try:
        result = run_site_command(job.command, values, timeout=job.timeout)
    except InputError as error:
        result = CommandResult(None, str(error), started=False)
    now = Nanoseconds(job.begun_at + time.monotonic_ns() - started)
    with suppress(InputError), Ledger.open(job.ledger, opening=OpenMode.EXISTING) as ledger:
        record_step(ledger, job, result, now)


if __name__ == "__main__":
    run_detached(lambda job: _run(StepJob(**job)))
