"""Exit of a rank: its symptoms, and the one that explains why it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from forewarn.features.diagnosis.log_pattern import LogPattern, Role, Scope
from forewarn.features.time_units import MINUTE, SECOND

__all__ = ["RankExit", "Symptom", "symptom_from_exit_code", "symptom_from_line"]

_RECENT_WINDOW = 10 * MINUTE  # before the exit of a rank
_PRECEDING_WINDOW = MINUTE
_MAX_FLUSH_DELAY = 5 * SECOND  # delay with which an earlier step may be logged
_SIGNALS = {
    -4: "SIGILL (illegal instruction)",
    -7: "SIGBUS (inaccessible memory page)",
    -8: "SIGFPE (arithmetic error)",
    -9: "SIGKILL from another process",
    -11: "SIGSEGV (invalid memory access)",
}
_SIGKILL_CODE = -9
_REQUESTED_EXIT_CODES = (0, -1, -2, -15)


@dataclass(frozen=True, slots=True)
class Symptom:
    """Observed indication of a failure.

    Attributes
    ----------
    source : str
        Part of the job's folder.
    role, scope : str
        As in `LogPattern`.
    says, next : str
    line : str
        Text of the line.
    time : int or None
        Nanoseconds since 1970 UTC, on the common clock of all machines.
    pattern : str or None
        Id in the knowledge base; None for an unknown error or an exit code.
    level : str
        Severity.
    is_report : bool
        Whether it is the exception that ended the rank.
    """

    source: Literal["logs", "exits", "kernel", "events"]
    role: Role
    scope: Scope
    says: str
    next: str
    line: str
    time: int | None
    pattern: str | None = None
    level: str = "error"
    is_report: bool = False


def symptom_from_line(
    pattern: LogPattern | None, line: str, time: int | None, *, is_report: bool = False
) -> Symptom:
    """Return the symptom of a log line or error file; an unknown error has the role `root`."""
    if pattern is None:
        says, what = "an error that is not in the knowledge base", "check its stack trace"
        return Symptom("logs", "root", "application", says, what, line, time, is_report=is_report)
    return Symptom(
        *("logs", pattern.role, pattern.scope, pattern.says, pattern.next, line, time),
        pattern=pattern.id,
        level=pattern.level,
        is_report=is_report,
    )


def symptom_from_exit_code(code: int, time: int | None) -> Symptom | None:
    """Return the symptom of an exit code, or None if the code does not indicate a cause."""
    if code in _REQUESTED_EXIT_CODES or code == -6 or code > 0:
        return None
    reason = _SIGNALS.get(code, f"signal {-code}")
    scope: Scope = "node" if code in (_SIGKILL_CODE, -7) else "application"
    what = "check the kernel log of the machine for the OOM killer and Xids"
    return Symptom("exits", "root", scope, f"ended by {reason}", what, f"exit code {code}", time)


@dataclass(frozen=True, slots=True)
class RankExit:
    """Exit of a rank.

    Attributes
    ----------
    rank : int
    machine : str or None
    symptoms : tuple of Symptom
        The rank's own symptoms, in log order.
    exit_code : int or None
    exit_time, last_write, last_step : int or None
        Nanoseconds since 1970 UTC.
    """

    rank: int
    machine: str | None
    symptoms: tuple[Symptom, ...] = ()
    exit_code: int | None = None
    exit_time: int | None = None
    last_write: int | None = None
    last_step: int | None = None

    @property
    def time(self) -> int | None:
        """Time of the exit as far as known, in nanoseconds since 1970 UTC."""
        times = [symptom.time for symptom in self.symptoms if symptom.is_report]
        times += [self.exit_time, self.last_write]
        return max((time for time in times if time is not None), default=None)

    @property
    def decisive(self) -> Symptom | None:
        """Symptom that explains why the rank ended; None if there is none, as after a SIGTERM.

        This is the rank's exception, unless its log shows a fault of GPU, node, fabric or storage
        within a minute before. Without an exception it is the first symptom of the last 10 minutes,
        and without that the exit code. Symptoms before the rank's last step do not count, because
        it survived them.
        """
        symptoms = [symptom for symptom in self.symptoms if symptom.role in ("root", "cascade")]
        report = next((symptom for symptom in reversed(symptoms) if symptom.is_report), None)
        lines = [
            symptom for symptom in symptoms if not symptom.is_report and not self._survived(symptom)
        ]
        if report is not None:
            return _preceding_hardware_fault(lines, report) or report
        first = next((symptom for symptom in lines if self._is_recent(symptom)), None)
        if first is None and self.exit_code is not None:
            return symptom_from_exit_code(self.exit_code, self.exit_time)
        return first

    def _survived(self, symptom: Symptom) -> bool:
        is_before = symptom.time is not None and self.last_step is not None
        return is_before and (self.last_step or 0) > (symptom.time or 0) + _MAX_FLUSH_DELAY

    def _is_recent(self, symptom: Symptom) -> bool:
        return (
            symptom.time is None or self.time is None or symptom.time >= self.time - _RECENT_WINDOW
        )


def _preceding_hardware_fault(lines: Sequence[Symptom], report: Symptom) -> Symptom | None:
    """Return the first fault outside the program shortly before an exception, or None."""
    for symptom in lines:
        is_near = (
            symptom.time is None
            or report.time is None
            or -_PRECEDING_WINDOW <= symptom.time - report.time <= 2 * SECOND
        )
        if (
            is_near
            and symptom.role == "root"
            and symptom.scope in ("gpu", "node", "storage", "fabric")
        ):
            return symptom
    return None
