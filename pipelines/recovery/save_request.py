"""Asks a launched job to save before it leaves a machine, and waits for its answer."""

from __future__ import annotations

import threading
from typing import Final

from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.incidents.loop.notice_folder import record_answers, write_notices
from forewarn.pipelines.recovery.launch_record import notices_folder
from forewarn.pipelines.recovery.launched_attempt import LaunchedAttempt
from forewarn.pipelines.runtime.clock import Clock
from forewarn.response.follow_up.job_notices import JobNotice, MachineNotice, NoticeState

__all__ = ["saved_on_request"]

_POLL_SECONDS: Final = 0.2


def saved_on_request(
    run: LaunchedAttempt, machine: str, why: str, clock: Clock, stop: threading.Event
) -> int | None:
    """Return the step that a running job has saved on request; None if it saved none in time.

    Parameters
    ----------
    run : LaunchedAttempt
        Of a job whose table has `save`, the time that it gets.
    machine : str
        That the job is going to leave.
    why : str
    clock : Clock
    stop : threading.Event
        Ends the wait.
    """
    if run.table.save is None:
        return None
    folder, now = notices_folder(run.table.folder), Nanoseconds(clock.now())
    limit = Nanoseconds(now + run.table.save)
    entry = MachineNotice(machine, NoticeState.BLOCKED, why, now, limit)
    write_notices(folder, [JobNotice(run.name, (entry,))])
    answers: list[int | None] = []
    while not answers and clock.now() < limit and not run.ends():
        if clock.wait(_POLL_SECONDS, stop):
            break
        record_answers(folder, [run.name], lambda _, step: answers.append(step))
    write_notices(folder, [])
    return answers[0] if answers else None
