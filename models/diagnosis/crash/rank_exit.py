"""Exit of a rank: its symptoms, and the one that explains why it ended."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from forewarn.features.diagnosis.log_lines.line_harm import is_harmless
from forewarn.features.diagnosis.log_lines.log_pattern import LogPattern, Role, Scope
from forewarn.features.diagnosis.log_lines.log_scan import (
    CUT_EXCEPTION,
    UNKNOWN_ERRORS,
    UNKNOWN_EXCEPTION,
)
from forewarn.features.diagnosis.log_lines.python_exceptions import (
    exception_text,
    is_exception,
    names_others,
)
from forewarn.features.time_units import MINUTE, SECOND
from forewarn.models.diagnosis.verdict.fault import Fault

__all__ = ["NamedPeer", "RankExit", "Symptom", "symptom_from_exit_code", "symptom_from_line"]

_PRECEDING_WINDOW = MINUTE
_HARDWARE_SCOPES = ("gpu", "node", "fabric")
_SIGNALS = {
    -4: "SIGILL (illegal instruction)",
    -7: "SIGBUS (inaccessible memory page)",
    -8: "SIGFPE (arithmetic error)",
    -9: "SIGKILL from another process",
    -11: "SIGSEGV (invalid memory access)",
}
_SIGKILL_CODE = -9
# A bus error is mostly a full /dev/shm, which has the same size in every container of a job.
_SIGNAL_SCOPES: dict[int, Scope] = {_SIGKILL_CODE: "node", -7: "platform"}
_STALLS = ("nccl-heartbeat", "store-refused")
_REQUESTED_EXIT_CODES = (0, -1, -2, -15)


@dataclass(frozen=True, slots=True)
class NamedPeer:
    """Peer that a line names: the one it waited for or lost, not the one that wrote the line.

    Attributes
    ----------
    rank, machine : int and str, or None
        At least one of them.
    """

    rank: int | None
    machine: str | None


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
    is_survived : bool
        Whether the rank, or the whole job, made progress afterwards.
    peers : tuple of NamedPeer
    by_kernel : bool
        Whether only the kernel writes such a line.
    by_observer : bool
        Whether its writer watches all ranks.
    needs_repair : bool
        Whether the machine is at fault.
    writer : str or None
        Machine that wrote it, as far as known.
    at_exit : bool
        Whether the program raised it at its exit, after the training had ended as planned.
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
    is_survived: bool = False
    peers: tuple[NamedPeer, ...] = ()
    by_kernel: bool = False
    by_observer: bool = False
    needs_repair: bool = False
    writer: str | None = None
    at_exit: bool = False

    @property
    def fault(self) -> Fault:
        """What is at fault; an exit code is no error that a person could read."""
        line = self.says if self.source == "exits" else exception_text(self.line)
        return Fault(self.scope, self.next, line, self.needs_repair)

    @property
    def is_counted(self) -> bool:
        """Whether it may explain an end: it was not survived and says that it did harm."""
        if self.role not in ("root", "cascade") or self.is_survived:
            return False
        return self.is_report or self.source != "logs" or not is_harmless(self.line)

    @property
    def is_stall(self) -> bool:
        """Whether a rank that only waits for others may write it as well as the origin."""
        return self.pattern in _STALLS

    @property
    def is_strong(self) -> bool:
        """Whether it explains an end by itself, as an exception or a hardware error does.

        Programs also report a missing file or a refused connection and go on.
        """
        if self.level not in ("error", "critical"):
            return self.role == "cascade"
        is_trace = self.pattern in (UNKNOWN_EXCEPTION.id, CUT_EXCEPTION.id)
        is_ended = self.is_report or is_exception(self.line) or is_trace
        return is_ended or self.role == "cascade" or self.scope in _HARDWARE_SCOPES

    @property
    def is_fatal(self) -> bool:
        """Whether the process ends with it, as far as the line alone says.

        Devices and servers also report errors that a job survives.
        """
        if self.is_report or self.source == "exits" or is_exception(self.line):
            return True
        return self.role == "cascade" or self.scope in ("application", "platform")


def symptom_from_line(
    pattern: LogPattern | None, line: str, time: int | None, *, is_report: bool = False
) -> Symptom:
    """Return the symptom of a log line or error file.

    An unknown error has the role `root`, unless it says that others did not come or are gone.
    """
    if pattern is None:
        says, what = "an error that is not in the knowledge base", "check its stack trace"
        role: Role = "cascade" if names_others(line) else "root"
        return Symptom("logs", role, "application", says, what, line, time, is_report=is_report)
    is_witness = pattern.id in UNKNOWN_ERRORS and names_others(line)
    return Symptom(
        *(
            "logs",
            "cascade" if is_witness else pattern.role,
            pattern.scope,
            pattern.says,
            pattern.next,
            line,
            time,
        ),
        pattern=pattern.id,
        level=pattern.level,
        is_report=is_report,
        by_kernel=pattern.by_kernel,
        by_observer=pattern.sees_all,
        needs_repair=pattern.needs_repair,
    )


def symptom_from_exit_code(
    code: int, time: int | None, *, is_first: bool = False
) -> Symptom | None:
    """Return the symptom of an exit code, or None if the code does not indicate a cause.

    Parameters
    ----------
    code : int
        Negative for a signal.
    time : int or None
    is_first : bool
        Whether the launcher saw this rank end before the others, whatever its code.
    """
    if is_first and code not in _REQUESTED_EXIT_CODES:
        says, what = "ended before the others, as the launcher saw it", "check its log"
        line = f"exit code {code}"
        if code > 0 or code == -6:
            return Symptom("exits", "root", "platform", says, what, line, time)
    if code in _REQUESTED_EXIT_CODES or code == -6 or code > 0:
        return None
    reason = _SIGNALS.get(code, f"signal {-code}")
    scope = _SIGNAL_SCOPES.get(code, "application")
    what = "check the kernel log of the machine for the OOM killer and Xids"
    return Symptom("exits", "root", scope, f"ended by {reason}", what, f"exit code {code}", time)


@dataclass(frozen=True)  # without slots, which cannot cache `decisive`
class RankExit:
    """Exit of a rank.

    Attributes
    ----------
    rank : int
    machine : str or None
    symptoms : tuple of Symptom
        The rank's own symptoms, in log order.
    exit_code : int or None
    exit_time, last_write : int or None
        Nanoseconds since 1970 UTC.
    is_first : bool
        Whether a launcher says that this rank ended before the others of its machine.
    has_log : bool
        Whether anything that the rank wrote was read.
    is_unseen : bool
        Whether the rank may have written more than anyone could read.
    is_done : bool
        Whether its last step is the last one planned, such as `200/200`.
    """

    rank: int
    machine: str | None
    symptoms: tuple[Symptom, ...] = ()
    exit_code: int | None = None
    exit_time: int | None = None
    last_write: int | None = None
    is_first: bool = False
    has_log: bool = True
    is_unseen: bool = False
    is_done: bool = False

    @property
    def time(self) -> int | None:
        """Time of the exit as far as known, in nanoseconds since 1970 UTC."""
        times = [symptom.time for symptom in self.symptoms if symptom.is_report]
        times += [self.exit_time, self.last_write]
        return max((time for time in times if time is not None), default=None)

    @property
    def has_failed(self) -> bool:
        """Whether it ended on its own, by a symptom or by its exit code."""
        symptom = self.decisive
        if symptom is not None:
            return symptom.role == "root"
        return self.exit_code is not None and self.exit_code not in _REQUESTED_EXIT_CODES

    @cached_property
    def decisive(self) -> Symptom | None:
        """Symptom that explains why the rank ended; None if there is none, as after a SIGTERM.

        This is the rank's exception, unless its log shows a fault of GPU, node, fabric or storage
        within a minute before. Without an exception it is the first symptom that explains an end
        by itself, then the exit code, then any symptom. Symptoms that were survived do not count,
        nor do lines that say that they are harmless.
        """
        symptoms = [symptom for symptom in self.symptoms if symptom.is_counted]
        report = next((symptom for symptom in reversed(symptoms) if symptom.is_report), None)
        lines = [symptom for symptom in symptoms if not symptom.is_report]
        if report is not None:
            return _preceding_hardware_fault(lines, report) or report
        strong = next((symptom for symptom in lines if symptom.is_strong), None)
        if strong is None and self.exit_code is not None:
            strong = symptom_from_exit_code(self.exit_code, self.exit_time, is_first=self.is_first)
        return strong or next(iter(lines), None)


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
