"""Watches an attempt of a launched job until its processes end, or it has trouble."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from forewarn.features.duration import format_duration
from forewarn.features.time_units import HOUR, SECOND, Nanoseconds
from forewarn.pipelines.diagnosis.diagnose_job import DiagnosedJob
from forewarn.pipelines.recovery.attempt_verdict import diagnosed, named_machine
from forewarn.pipelines.recovery.launch_plan import replaced_within
from forewarn.pipelines.recovery.launch_record import Attempt
from forewarn.pipelines.recovery.launch_table import LaunchTable
from forewarn.pipelines.recovery.launched_attempt import HostEnd, LaunchedAttempt
from forewarn.pipelines.runtime.clock import Clock

__all__ = ["AttemptWatch", "Trouble"]

_POLL_SECONDS: Final = 0.5
_CERTAIN_STALL: Final = HOUR  # longer than any probe waits for
_SETTLE_SECONDS: Final = 5.0  # for other hosts to end by themselves after one has


@dataclass(frozen=True, slots=True)
class Trouble:
    """Why an attempt is over.

    Attributes
    ----------
    noticed : int
        Nanoseconds since 1970 UTC.
    silence : str
        Cause if the diagnosis knows none; empty if a process has ended.
    diagnosis : DiagnosedJob or None
        If one was made while the job ran.
    leaves : str
        Machine that is to be left although the job still trains; empty if it does not train.
    """

    noticed: Nanoseconds
    silence: str = ""
    diagnosis: DiagnosedJob | None = None
    leaves: str = ""


@dataclass(slots=True)
class AttemptWatch:
    """Watch of a running attempt.

    Parameters
    ----------
    table : LaunchTable
    attempt : Attempt
    run : LaunchedAttempt
    clock : Clock
    stop : threading.Event
        Ends the watch.
    limit : int or None
        Nanoseconds within which it has to make a step.
    report : callable
        Takes a word for what happened within the attempt, and the attempt after it.
    """

    table: LaunchTable
    attempt: Attempt
    run: LaunchedAttempt
    clock: Clock
    stop: threading.Event
    limit: Nanoseconds | None = None
    report: Callable[[str, Attempt], None] = lambda *_: None
    _looked: int = field(default=0, init=False)
    _suspect: str = field(default="", init=False)  # of the last look
    _awaited: dict[str, int] = field(default_factory=dict, init=False)  # since when a spare is

    def watch(self) -> Trouble | None:
        """Return the trouble; None if all processes have ended well, or the watch was ended."""
        self._looked = self.clock.now()
        while not self.clock.wait(_POLL_SECONDS, self.stop):
            now = Nanoseconds(self.clock.now())
            failed = [end for end in self.run.ends() if end.code != 0]
            if failed and not self._is_replaced(failed, now):
                self._settle(now)
                return Trouble(now)
            if self.run.is_ended:
                return None
            if self.run.is_master_lost:
                return Trouble(now, "DLRover's master has ended")
            if (
                trouble := self._absence(now)
                or self._overdue(now)
                or self._silence(now)
                or self._look(now)
            ):
                return trouble
        return None

    def _is_replaced(self, failed: Sequence[HostEnd], now: Nanoseconds) -> bool:
        """Let a spare take the rank of the only agent that was lost; return whether it does."""
        [end, *further] = failed
        is_lost = end.code is None or end.code < 0
        changed = replaced_within(self.table, self.attempt, end.host, now) if is_lost else None
        if changed is None or further:
            return False
        rank = self.attempt.machines.index(end.host)
        self.attempt = changed
        self.report("replace", changed)
        self.run.replace(end.host, changed.machines)
        self._awaited[changed.machines[rank]] = now
        return True

    def _absence(self, now: Nanoseconds) -> Trouble | None:
        """Return the failure of a spare to join the others in time."""
        for host, since in list(self._awaited.items()):
            if self.run.has_joined(host):
                del self._awaited[host]
                losses = tuple(
                    replace(loss, joined=now) if loss.noticed == since else loss
                    for loss in self.attempt.losses
                )
                self.attempt = replace(self.attempt, losses=losses)
                self.report("join", self.attempt)
            elif now - since > self.table.start:
                span = format_duration(self.table.start // SECOND)
                return Trouble(now, f"{host} did not join within {span}")
        return None

    def _settle(self, since: Nanoseconds) -> None:
        """Give other hosts time to end by themselves, so that their logs say why."""
        while not self.run.is_ended and self.clock.now() - since < _SETTLE_SECONDS * SECOND:
            if self.clock.wait(_POLL_SECONDS, self.stop):
                return

    def _silence(self, now: Nanoseconds) -> Trouble | None:
        """Return a hang: no log grows. Before the first step it may last longer."""
        quiet = now - max(self.run.last_line_at(), self.attempt.begin)
        limit = self.table.silence
        if quiet <= limit:
            return None
        # That it hangs is certain now; the question is why.
        diagnosis = diagnosed(self.run.evidence(), now + _CERTAIN_STALL)
        if diagnosis is None or diagnosis.diagnosis.restart is None:
            limit = max(limit, self.table.start)
        if quiet <= limit:
            return None
        return Trouble(now, f"no output for {format_duration(limit // SECOND)}", diagnosis)

    def _overdue(self, now: Nanoseconds) -> Trouble | None:
        """Return the failure of a rung that made no step within its time."""
        if self.limit is None or now - self.attempt.begin <= self.limit:
            return None
        limit, self.limit = self.limit, None  # one look tells
        diagnosis = diagnosed(self.run.evidence(), now)
        if diagnosis is not None and diagnosis.diagnosis.restart is not None:
            return None
        span = format_duration(limit // SECOND)
        return Trouble(now, f"no step within the {span} of the rung", diagnosis)

    def _look(self, now: Nanoseconds) -> Trouble | None:
        """Return a hang or a slow machine that two diagnoses in a row name."""
        if now - self._looked < self.table.look:
            return None
        self._looked = now
        diagnosis = diagnosed(self.run.evidence(), now)
        if diagnosis is None or diagnosis.diagnosis.kind not in ("hang", "slow"):
            self._suspect = ""
            return None
        verdict = diagnosis.diagnosis
        machine = named_machine(verdict, self.attempt.machines)
        is_confirmed, self._suspect = machine == self._suspect != "", machine
        if not is_confirmed or (verdict.kind == "slow" and not self._has_spare):
            return None
        leaves = machine if verdict.kind == "slow" else ""
        return Trouble(now, verdict.kind, diagnosis, leaves)

    @property
    def _has_spare(self) -> bool:
        """Whether a slow machine can be left without making the job smaller."""
        unusable = {*self.attempt.machines, *self.attempt.out}
        return any(host not in unusable for host in self.table.hosts)
