"""`forewarn launch`: starts a job, watches it, and starts it again after an interruption."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from forewarn.features.hostlist import compress
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.recovery.attempt_verdict import append_diagnosis, crash_verdict, diagnosed
from forewarn.pipelines.recovery.attempt_watch import AttemptWatch, Trouble
from forewarn.pipelines.recovery.launch_plan import NextAttempt, Stop, next_attempt, resubmitted
from forewarn.pipelines.recovery.launch_record import (
    Attempt,
    attempt_folder,
    read_attempts,
    write_end,
    write_start,
)
from forewarn.pipelines.recovery.launch_table import LaunchTable, read_launch_table
from forewarn.pipelines.recovery.launched_attempt import LaunchedAttempt
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.file_lock import locked
from forewarn.response.recovery.job_run import RunEnd

__all__ = ["RESUBMIT", "JobLauncher", "event_text"]

RESUBMIT: Final = 75
"""Exit code of a launcher that has done what it can: the job should be submitted again."""
_WAIT_SECONDS: Final = 10.0  # between two looks for new hosts


@dataclass(slots=True)
class JobLauncher:
    """Launcher of one job.

    Parameters
    ----------
    path : Path
        TOML of the job.
    report : callable
        Takes a line about each start, end and stop.
    stop : threading.Event
        Ends the job and the launcher.
    clock : Clock
    """

    path: Path
    report: Callable[[dict[str, Any]], None]
    stop: threading.Event = field(default_factory=threading.Event)
    clock: Clock = field(default_factory=SystemClock)

    def run(self) -> int:
        """Run the job to its end, and return the exit code of the command.

        Raises
        ------
        InputError
            If the table or the record of the job cannot be used.
        """
        table = read_launch_table(self.path)
        table.folder.mkdir(parents=True, exist_ok=True)
        with locked(table.folder / ".launch.lock", f"another launcher of {table.folder.name}"):
            attempts = self._closed(table, read_attempts(table.folder))
            n_before = len(attempts)
            while not self.stop.is_set():
                if attempts and attempts[-1].ended is RunEnd.COMPLETED:
                    return 0
                table = read_launch_table(self.path)  # it may have further hosts by now
                following = next_attempt(table, attempts)
                is_over = isinstance(following, Stop) or not following.machines
                if is_over and len(attempts) == n_before > 0:
                    following = resubmitted(table, attempts)
                if isinstance(following, Stop):
                    self.report({"event": "stop", "reason": following.reason})
                    return RESUBMIT if following.is_resubmission else 1
                if not following.machines:
                    self._wait_for_hosts(table)
                    continue
                attempts.append(self._attempt(table, attempts, following))
            return 128 + 15

    def _closed(self, table: LaunchTable, attempts: list[Attempt]) -> list[Attempt]:
        """Return the attempts, the last one ended: if its launcher was killed, guards ended it.

        Guards of the next attempt end what they have left.
        """
        if not attempts or attempts[-1].ended is not RunEnd.RUNNING:
            return attempts
        last = attempts[-1]
        run = LaunchedAttempt(table, attempt_folder(table.folder, last.number), last.number)
        end = Nanoseconds(max(run.last_line_at(), last.begin + 1))
        ended = replace(last, end=end, ended=RunEnd.FAILED, cause="the launcher was ended")
        write_end(table.folder, ended)
        return [*attempts[:-1], ended]

    def _wait_for_hosts(self, table: LaunchTable) -> None:
        note(
            f"{table.folder.name}: fewer than {table.minimum} usable hosts; "
            f"waiting for further ones in {self.path}"
        )
        known = table.hosts
        while not self.clock.wait(_WAIT_SECONDS, self.stop):
            if read_launch_table(self.path).hosts != known:
                return

    def _attempt(
        self, table: LaunchTable, attempts: list[Attempt], following: NextAttempt
    ) -> Attempt:
        """Run the job once; return how it ended."""
        begin = Nanoseconds(self.clock.now())
        attempt = Attempt(
            number=len(attempts) + 1,
            begin=begin,
            submitted=attempts[-1].end if attempts else None,
            rung=following.rung,
            machines=following.machines,
            processes=table.processes,
            reason=following.reason,
            out=following.out,
        )
        run = LaunchedAttempt(table, attempt_folder(table.folder, attempt.number), attempt.number)
        write_start(table.folder, attempt)
        self._say("start", attempt, following.reason)
        run.start(attempt.machines)
        try:
            trouble = AttemptWatch(table, attempt, run, self.clock, self.stop).watch()
            ended = self._ended(table, attempt, run, trouble)
        finally:
            run.end()
        write_end(table.folder, ended)
        self._say("end", ended, ended.cause)
        return ended

    def _say(self, event: str, attempt: Attempt, reason: str) -> None:
        self.report(
            {
                "event": event,
                "attempt": attempt.number,
                "at": format_iso(attempt.begin if attempt.end is None else attempt.end),
                "rung": attempt.rung,
                "machines": list(attempt.machines),
                "out": list(attempt.out),
                "ended": attempt.ended.value,
                "blamed": attempt.blamed or None,
                "reason": reason,
            }
        )

    def _ended(
        self, table: LaunchTable, attempt: Attempt, run: LaunchedAttempt, trouble: Trouble | None
    ) -> Attempt:
        """End what still runs, and return the attempt with the cause of its end."""
        ends = run.ends()
        run.end()
        end = Nanoseconds(self.clock.now())
        if trouble is None:
            how = RunEnd.STOPPED if self.stop.is_set() else RunEnd.COMPLETED
            return replace(attempt, end=end, ended=how)
        diagnosis = trouble.diagnosis or diagnosed(run.evidence(), end)
        verdict = None if diagnosis is None else diagnosis.diagnosis
        if diagnosis is not None and table.diagnoses is not None:
            append_diagnosis(table.diagnoses, table.folder.name, diagnosis, trouble.noticed)
        blame = crash_verdict(verdict, ends, attempt.machines, trouble.silence)
        restart = None if verdict is None else verdict.restart
        return replace(
            attempt,
            end=end,
            ended=RunEnd.FAILED,
            noticed=trouble.noticed,
            cause=blame.cause,
            blamed=blame.machine,
            origin=blame.origin.value,
            saved=restart.step if restart is not None and restart.is_saved else None,
            is_started=restart is not None,
        )


def event_text(event: Mapping[str, Any]) -> str:
    """Return a line of the launcher for people."""
    if event["event"] == "stop":
        return f"stopped: {event['reason']}"
    head = f"{event['at']} attempt {event['attempt']}"
    if event["event"] == "start":
        how = f" ({event['rung']})" if event["rung"] else ""
        return f"{head} starts{how} on {compress(event['machines'])}: {event['reason']}"
    blamed = f" on {event['blamed']}" if event["blamed"] else ""
    reason = f": {event['reason']}{blamed}" if event["reason"] else ""
    return f"{head} {event['ended']}{reason}"
