"""`forewarn launch`: starts a job, watches it, and starts it again after an interruption."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

from forewarn.features.errors import InputError
from forewarn.features.hostlist import compress
from forewarn.features.time_units import Nanoseconds
from forewarn.pipelines.config.respond_tables import RecoveryTable
from forewarn.pipelines.diagnosis.diagnose_job import DiagnosedJob
from forewarn.pipelines.incidents.replay.policy_file import load_policy
from forewarn.pipelines.recovery.attempt_verdict import append_diagnosis, crash_verdict, diagnosed
from forewarn.pipelines.recovery.attempt_watch import AttemptWatch, Trouble
from forewarn.pipelines.recovery.launch_plan import (
    PLAIN_RULES,
    NextAttempt,
    Stop,
    next_attempt,
    resubmitted,
)
from forewarn.pipelines.recovery.launch_record import (
    Attempt,
    attempt_folder,
    read_attempts,
    write_change,
    write_end,
    write_start,
)
from forewarn.pipelines.recovery.launch_table import LaunchTable, read_launch_table
from forewarn.pipelines.recovery.launched_attempt import LaunchedAttempt
from forewarn.pipelines.recovery.recovery_site import RecoverySite
from forewarn.pipelines.recovery.save_request import saved_on_request
from forewarn.pipelines.runtime.clock import Clock, SystemClock
from forewarn.pipelines.runtime.progress import note
from forewarn.pipelines.runtime.timestamps import format_iso
from forewarn.pipelines.storage.files.file_lock import locked
from forewarn.response.policy.ladder_rules import LadderRules
from forewarn.response.policy.policy import Policy
from forewarn.response.recovery.job_run import RunEnd

__all__ = ["RESUBMIT", "JobLauncher", "event_text"]

RESUBMIT: Final = 75
"""Exit code of a launcher that has done what it can: the job should be submitted again."""
_STOP_PAGE: Final = "stopped.html"
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
    policy : Policy or None
        Of the site: its ladder, and what an Xid says of a machine.
    """

    path: Path
    report: Callable[[dict[str, Any]], None]
    stop: threading.Event = field(default_factory=threading.Event)
    clock: Clock = field(default_factory=SystemClock)
    policy: Policy | None = None

    @property
    def _rules(self) -> LadderRules:
        return PLAIN_RULES if self.policy is None else self.policy.ladder

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
                following = next_attempt(table, attempts, self._rules)
                is_over = isinstance(following, Stop) or not following.machines
                if is_over and len(attempts) == n_before > 0:
                    following = resubmitted(table, attempts)
                if isinstance(following, Stop):
                    page = self._stop_page(table)
                    self.report({"event": "stop", "reason": following.reason, "page": page})
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
        ended = _with_progress(ended, diagnosed(run.evidence(), end))
        write_end(table.folder, ended)
        return [*attempts[:-1], ended]

    def _stop_page(self, table: LaunchTable) -> str | None:
        """Write the page that says why the job stops; return its path."""
        from forewarn.pipelines.recovery.recovery_advice import advise_recovery
        from forewarn.pipelines.recovery.recovery_page import write_recovery_page

        path, policy = table.folder / _STOP_PAGE, self.policy or load_policy()
        try:
            site = RecoverySite(RecoveryTable(), policy)
            write_recovery_page(
                advise_recovery(table.folder, None, site, at=self.clock.now()), path
            )
        except (InputError, OSError) as error:
            note(f"{path}: not written: {error}")
            return None
        return str(path)

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
        (table.folder / _STOP_PAGE).unlink(missing_ok=True)
        self._say("start", attempt, following.reason)
        run.start(attempt.machines)
        try:
            limit = None if attempt.rung is None else self._rules.limits.get(attempt.rung)
            watch = AttemptWatch(
                *(table, attempt, run, self.clock, self.stop, limit),
                report=partial(self._changed, table),
            )
            trouble = watch.watch()
            attempt = watch.attempt
            ended = self._ended(table, attempt, run, trouble)
        finally:
            run.end()
        write_end(table.folder, ended)
        self._say("end", ended, ended.cause)
        return ended

    def _changed(self, table: LaunchTable, event: str, attempt: Attempt) -> None:
        """Record and report what happens within an attempt: a spare is started, and joins."""
        write_change(table.folder, event, attempt)
        self._say(event, attempt, f"without {', '.join(attempt.out)}")

    def _say(self, event: str, attempt: Attempt, reason: str) -> None:
        changes = (time for each in attempt.losses for time in (each.noticed, each.joined))
        times = (attempt.begin, attempt.end, *changes)
        self.report(
            {
                "event": event,
                "attempt": attempt.number,
                "at": format_iso(max(time for time in times if time is not None)),
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
        ends, saved_step = run.ends(), None
        if trouble is not None and trouble.leaves:
            words = (trouble.leaves, trouble.silence)
            saved_step = saved_on_request(run, *words, self.clock, self.stop)
        run.end()
        end = Nanoseconds(self.clock.now())
        if trouble is None and not self.stop.is_set():
            return replace(attempt, end=end, ended=RunEnd.COMPLETED)
        if trouble is None:
            stopped = replace(attempt, end=end, ended=RunEnd.STOPPED)
            return _with_progress(stopped, diagnosed(run.evidence(), end))
        diagnosis = trouble.diagnosis or diagnosed(run.evidence(), end)
        verdict = None if diagnosis is None else diagnosis.diagnosis
        if diagnosis is not None and table.diagnoses is not None:
            append_diagnosis(table.diagnoses, table.folder.name, diagnosis, trouble.noticed)
        blame = crash_verdict(verdict, ends, attempt.machines, trouble.silence, self.policy)
        failed = replace(
            attempt,
            end=end,
            ended=RunEnd.FAILED,
            noticed=trouble.noticed,
            cause=blame.cause,
            blamed=blame.machine,
            origin=blame.origin.value,
        )
        return _with_progress(failed, diagnosis, saved_step)


def _with_progress(
    attempt: Attempt, diagnosis: DiagnosedJob | None, saved_step: int | None = None
) -> Attempt:
    """Return an attempt with what its logs, and its answer to a request, say of its progress."""
    restart = None if diagnosis is None else diagnosis.diagnosis.restart
    logged = restart.step if restart is not None and restart.is_saved else None
    saved = max((step for step in (logged, saved_step) if step is not None), default=None)
    return replace(attempt, saved=saved, is_started=restart is not None)


def event_text(event: Mapping[str, Any]) -> str:
    """Return a line of the launcher for people."""
    if event["event"] == "stop":
        page = f" (see {event['page']})" if event["page"] else ""
        return f"stopped: {event['reason']}{page}"
    head = f"{event['at']} attempt {event['attempt']}"
    if event["event"] in ("replace", "join"):
        words = "goes on" if event["event"] == "replace" else "trains again"
        return f"{head} {words} on {compress(event['machines'])} {event['reason']}"
    if event["event"] == "start":
        how = f" ({event['rung']})" if event["rung"] else ""
        return f"{head} starts{how} on {compress(event['machines'])}: {event['reason']}"
    blamed = f" on {event['blamed']}" if event["blamed"] else ""
    reason = f": {event['reason']}{blamed}" if event["reason"] else ""
    return f"{head} {event['ended']}{reason}"
